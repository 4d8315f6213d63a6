"""Mean entropy of the guess: the attacker's own uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.assessment.matched import KINDS, Matched
from seepage.assessment.measurement import Measurement
from seepage.registry import metrics


def mean_entropy(uncertainty: Float[Tensor, "victim record column"]) -> Float[Tensor, " victim"]:
    """Return each victim's mean over finite entropies: TabLeak's code, too, leaves out cells of minus infinity."""
    return torch.where(uncertainty.isfinite(), uncertainty, torch.nan).flatten(1).nanmean(dim=1)


@metrics.register("entropy")
@dataclass(frozen=True)
class Entropy:
    """Mean entropy of the guessed cells, by kind of column and by column.

    TabLeak (Vero et al., 2023), section 4.3: normalised to [0, 1] for discrete cells, differential
    in nats of the standardised value for continuous ones; the two cannot be averaged together.

    Returns:
        ``entropy_discrete`` and ``entropy_continuous``, each over all columns of the kind and of
        each column; nothing for a guess without uncertainty.
    """

    def __call__(self, matched: Matched) -> list[Measurement]:
        """Return the mean entropies of each victim."""
        if matched.uncertainty is None:
            return []
        scores = []
        for kind in KINDS:
            bounds = (0.0, 1.0) if kind == "discrete" else (-math.inf, math.inf)
            columns = matched.columns(kind)
            chosen = [(None, list(columns))] if columns else []
            chosen += [(matched.schema.names[i], [i]) for i in columns]
            for name, positions in chosen:
                values = mean_entropy(matched.uncertainty[..., positions])
                scores.append(Measurement(f"entropy_{kind}", name, values, False, bounds))
        return scores
