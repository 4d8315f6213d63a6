"""What a record's gradient says of the logit: its value, and its derivatives by the cut."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

# Slopes nearer to 0 or 1 are taken for this far from it.
_LEAST = 1e-6


def logits_and_derivatives(
    gradient: Float[Tensor, "record cut"], additive: int
) -> tuple[Float[Tensor, " record"], Float[Tensor, "record cut"]]:
    """Return a single logit of a sigmoid and its derivatives, as the gradient of each record gives them.

    The gradient at the coordinate that is added to the logit is ``sigmoid(logit) - label``: negative for label 1. All
    others are that times the logit's derivatives.

    Args:
        gradient: of each record's own loss.
        additive: where the coordinate stands.

    Example:
        >>> gradient = torch.tensor([[-0.5, -0.25]])
        >>> [found.tolist() for found in logits_and_derivatives(gradient, 1)]
        [[1.0986123085021973], [[2.0, 1.0]]]
    """
    slope = gradient[:, additive].clamp(-1 + _LEAST, 1 - _LEAST)
    slope = torch.where(slope.abs() < _LEAST, torch.full_like(slope, _LEAST), slope)
    return torch.logit(torch.where(slope < 0, 1 + slope, slope)), gradient / slope[:, None]
