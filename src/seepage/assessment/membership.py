"""Figures of membership tests at a low rate of false positives."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.assessment.columns import auc
from seepage.assessment.measurement import Measurement

# Largest share of non-members that are taken for members (Carlini et al., 2022).
FALSE_POSITIVES = 0.001
AUC, RATE = "membership_auc", "membership_tpr"


def membership_figures(
    members: Float[Tensor, "victim member"], others: Float[Tensor, "victim other"]
) -> list[Measurement]:
    """Return the area under the ROC curve and the true-positive rate at 0.1% false positives, one value a victim.

    The threshold of a victim is the score that no more than 0.1% of its non-members exceed; with fewer than 1,000 of
    them that is the largest one.
    """
    areas, rates = [], []
    for own, other in zip(members, others, strict=True):
        positive = torch.cat([torch.ones_like(own), torch.zeros_like(other)]).bool()
        areas.append(auc(torch.cat([own, other]), positive) or 0.0)
        allowed = int(FALSE_POSITIVES * len(other))
        threshold = other.sort(descending=True).values[min(allowed, len(other) - 1)]
        rates.append(float((own > threshold).double().mean()))
    figures = {AUC: areas, RATE: rates}
    return [Measurement(name, None, torch.tensor(values, dtype=torch.float64)) for name, values in figures.items()]
