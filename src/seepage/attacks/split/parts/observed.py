"""The logit and its derivatives with respect to the cut, computed from a record's gradient."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

# Slopes nearer than this to 0 or 1 are set to this distance.
_LEAST = 1e-6


def logits_and_derivatives(
    gradient: Float[Tensor, "record cut"], additive: int
) -> tuple[Float[Tensor, " record"], Float[Tensor, "record cut"]]:
    """Return the single logit of a sigmoid and its derivatives, computed from the gradient of each record.

    The gradient at the coordinate that is added to the logit is ``sigmoid(logit) - label``: negative for label 1. All
    others are that times the logit's derivatives.

    Args:
        additive: position of the coordinate that is added to the logit.

    Example:
        >>> gradient = torch.tensor([[-0.5, -0.25]])
        >>> [part.tolist() for part in logits_and_derivatives(gradient, 1)]
        [[1.0986123085021973], [[2.0, 1.0]]]
    """
    slope = gradient[:, additive].clamp(-1 + _LEAST, 1 - _LEAST)
    slope = torch.where(slope.abs() < _LEAST, torch.full_like(slope, _LEAST), slope)
    return torch.logit(torch.where(slope < 0, 1 + slope, slope)), gradient / slope[:, None]
