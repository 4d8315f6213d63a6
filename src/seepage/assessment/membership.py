"""Figures of membership tests at a low rate of false positives."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.assessment.columns import auc
from seepage.assessment.measurement import Measurement

# Largest share of non-members that are taken for members (Carlini et al., 2022).
FALSE_POSITIVES = 0.001
AUC, RATE = "membership_auc", "membership_tpr"


def membership_figures(
    members: Float[Tensor, "victim member"],
    others: Float[Tensor, "victim other"],
    shares: Mapping[str, float] | None = None,
) -> list[Measurement]:
    """Return the area under the ROC curve and true-positive rates at few false positives, one value a victim.

    ``shares``: largest share of false positives by the name of the rate; 0.1% alone if None. The threshold of a victim
    is the score that no more than such a share of its non-members exceed; with fewer than 1,000 of them and 0.1% that
    is the largest one.
    """
    shares = {RATE: FALSE_POSITIVES} if shares is None else shares
    figures: dict[str, list[float]] = {AUC: [], **{name: [] for name in shares}}
    for member, other in zip(members, others, strict=True):
        positive = torch.cat([torch.ones_like(member), torch.zeros_like(other)]).bool()
        figures[AUC].append(auc(torch.cat([member, other]), positive) or 0.0)
        highest = other.sort(descending=True).values
        for name, share in shares.items():
            threshold = highest[min(int(share * len(other)), len(other) - 1)]
            figures[name].append(float((member > threshold).double().mean()))
    return [Measurement(name, None, torch.tensor(values, dtype=torch.float64)) for name, values in figures.items()]
