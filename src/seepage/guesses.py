"""What an attack or a baseline answers."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class RecordsGuess:
    """Guessed records of each victim, in no particular order.

    Attributes:
        cells: guessed cells, float64: codes of discrete columns, values of continuous ones.
        uncertainty: for each cell, normalised Shannon entropy in [0, 1] (discrete) or Gaussian
            differential entropy in nats of the standardised value (continuous; -inf where the
            ensemble agrees exactly); None where the attack has no ensemble to tell.
        labels: the labels used, one a guessed record.
        loss: the attack's own loss of the returned guess (lower is better); None for baselines.
        course: the attack's own loss at its start, after nine tenths of its steps and at its end (of several
            restarts, the median); None for what does not descend.
    """

    cells: Float[Tensor, "victim record column"]
    uncertainty: Float[Tensor, "victim record column"] | None = None
    labels: Float[Tensor, "victim record"] | None = None
    loss: Float[Tensor, " victim"] | None = None
    course: Float[Tensor, "victim 3"] | None = None


Guess = RecordsGuess
