"""How a malicious server sorts records: by one random measure, into bins that hold about as many each."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor


def measure(width: int) -> Float[Tensor, " encoded"]:
    """Return a random direction; entries of standardised rows have variance 1, so products with it have about that too.

    Drawn where PyTorch's initialisers are, see ``models.model.seeded``.
    """
    return torch.randn(width) / math.sqrt(width)


def thresholds(count: int) -> Float[Tensor, " threshold"]:
    """Return as many quantiles of a standard normal, evenly spread.

    Example:
        >>> [round(one, 3) for one in thresholds(3).tolist()]
        [-0.967, 0.0, 0.967]
    """
    return torch.special.ndtri((torch.arange(count, dtype=torch.float64) + 0.5) / count).float()
