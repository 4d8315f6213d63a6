"""Sorting of records into equally likely bins by one random measure, as a malicious server does it."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor


def measure(width: int) -> Float[Tensor, " encoded"]:
    """Return a random direction; entries of standardised rows have variance 1, and so have products with it, about.

    Drawn from PyTorch's global generator, as its initialisers are, see ``models.model.seeded``.
    """
    return torch.randn(width) / math.sqrt(width)


def thresholds(count: int) -> Float[Tensor, " threshold"]:
    """Return evenly spread quantiles of a standard normal distribution.

    Example:
        >>> [round(threshold, 3) for threshold in thresholds(3).tolist()]
        [-0.967, 0.0, 0.967]
    """
    return torch.special.ndtri((torch.arange(count, dtype=torch.float64) + 0.5) / count).float()
