"""Calibration error of an attacker's chances."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def calibration_error(
    chances: Float[Tensor, "record value"], right: Float[Tensor, " record"], bins: int = 15
) -> float | None:
    """Return the expected calibration error of the likeliest values (Guo et al. 2017, equation 3), if any.

    Records are put into bins of equal width by the chance of their likeliest value; the error is the mean over
    records of the distance between a bin's mean chance and its share of right answers.
    """
    if not len(right):
        return None
    sure = chances.max(1).values.double()
    at = (sure * bins).ceil().clamp(1, bins).long() - 1
    gaps = torch.zeros(bins, dtype=torch.float64).index_add(0, at, sure - right.double())
    return float(gaps.abs().sum() / len(right))
