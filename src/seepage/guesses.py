"""What an attack or a baseline answers."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
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
            restarts, the median), NaN for a victim that needed no descent; None for what does not descend.
        certified: cells that are proved and no estimates; None for what proves nothing.
        regime: in a few words and for each victim, which of its ways an attack with several took, and why.
    """

    cells: Float[Tensor, "victim record column"]
    uncertainty: Float[Tensor, "victim record column"] | None = None
    labels: Float[Tensor, "victim record"] | None = None
    loss: Float[Tensor, " victim"] | None = None
    course: Float[Tensor, "victim 3"] | None = None
    certified: Bool[Tensor, "victim record column"] | None = None
    regime: tuple[str, ...] | None = None


@dataclass(frozen=True)
class CutGuess:
    """Guessed private cells and label of each record of an exchange of split learning.

    Attributes:
        cells: guessed cells of the private columns, float64: codes of discrete ones, values of continuous ones.
        labels: guessed class codes.
        chances: for each private column, the chance of each of its candidate values, in order; None where the
            attack gives none.
        label_chances: the chance of each label.
        residual: distance between the received gradient and that of the best configuration, in units of a
            record's own gradient; NaN where none was compared.
        runner_up: the same for the best configuration that differs in a cell or the label.
        ties: number of configurations, the best one included, that fit as well up to rounding; at most as many as
            were kept.
        proven: whether no other configuration of the whole space fits as well, up to rounding; None where nothing of
            the kind can be said, such as of columns of numbers.
    """

    cells: Float[Tensor, "record private"]
    labels: Float[Tensor, " record"]
    chances: tuple[Float[Tensor, "record _value"], ...] | None = None
    label_chances: Float[Tensor, "record label"] | None = None
    residual: Float[Tensor, " record"] | None = None
    runner_up: Float[Tensor, " record"] | None = None
    ties: Int[Tensor, " record"] | None = None
    proven: Bool[Tensor, " record"] | None = None


@dataclass(frozen=True)
class FeatureGuess:
    """Guessed cells of a passive party's records, in each of several trainings of vertical learning.

    Attributes:
        cells: guessed cells of the target's columns, float64: codes of discrete ones, values of continuous ones; NaN
            of a training whose network diverged.
        chances: for each column, of each of its categories (training, record, value), None for a continuous column;
            None where the attack gives none.
        radii: error that nine in ten of a column's cells stay below, as the attack expects, in their own units, NaN
            for discrete columns; None where it expects nothing.
        failed: trainings in which the attack itself failed, such as by numbers that are not finite; what it would
            have found is unknown.
        queries: rows that were asked of the target, in each training.
    """

    cells: Float[Tensor, "training record column"]
    chances: tuple[Float[Tensor, "training record _value"] | None, ...] | None = None
    radii: Float[Tensor, "training column"] | None = None
    failed: Bool[Tensor, " training"] | None = None
    queries: int = 0


@dataclass(frozen=True)
class PropertyGuess:
    """Guessed share of the victim's rows that carry a sensitive attribute, for each joint model.

    Attributes:
        shares: that were told apart, in increasing order.
        chances: of each of them.
        share: an estimate on the whole range; None where the attack gives none.
        low, high: its 95% interval; None without one.
    """

    shares: tuple[float, ...]
    chances: Float[Tensor, "target share"]
    share: Float[Tensor, " target"] | None = None
    low: Float[Tensor, " target"] | None = None
    high: Float[Tensor, " target"] | None = None

    @property
    def chosen(self) -> Int[Tensor, " target"]:
        """Position of each target's likeliest share."""
        return self.chances.argmax(1)


Guess = RecordsGuess
