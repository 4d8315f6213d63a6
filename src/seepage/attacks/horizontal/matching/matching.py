"""Distances between a dummy gradient and the received one.

Every distance here is a function of two numbers a parameter tensor: the dot product of the dummy gradient with the
received one, and its squared norm. A gradient engine supplies only these, and needs only the derivatives with respect
to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

# Numbers of each tensor of dummy gradients; dummy rows with their labels, and the loss of each restart.
PerTensor = Float[Tensor, "victim restart tensor"]
TargetSquares = Float[Tensor, "victim tensor"]
TensorSizes = Float[Tensor, " tensor"]
Rows = Float[Tensor, "victim restart record encoded"]
Labels = Float[Tensor, "victim record"]
Losses = Float[Tensor, "victim restart"]


class Distance(NamedTuple):
    """A distance and its derivatives with respect to the dot products and squared norms."""

    loss: Losses
    by_dot: PerTensor
    by_square: PerTensor


@runtime_checkable
class Matching(Protocol):
    """A distance between gradients that depends on dot products and squared norms of each tensor."""

    def __call__(
        self, dots: PerTensor, squares: PerTensor, target_squares: TargetSquares, sizes: TensorSizes
    ) -> Distance:
        """Return the distance and its derivatives."""
        ...


class Cosine:
    """One minus the cosine over all tensors concatenated (TabLeak; Geiping et al. 2020 without layer weights)."""

    def __call__(
        self, dots: PerTensor, squares: PerTensor, target_squares: TargetSquares, sizes: TensorSizes
    ) -> Distance:
        """Return the distance and its derivatives."""
        # A gradient of zeros has no direction; the floor keeps its loss at 1 and its derivative finite.
        square = squares.sum(-1, keepdim=True).clamp_min(torch.finfo(squares.dtype).tiny)
        # Roots first: the product of two small squares may underflow.
        by_dot = -square.rsqrt() * target_squares.sum(-1)[:, None, None].rsqrt()
        cosine = -dots.sum(-1, keepdim=True) * by_dot
        return Distance(1 - cosine[..., 0], by_dot.expand_as(dots), (cosine / (2 * square)).expand_as(dots))


class MeanSquared:
    """Sum over tensors of the mean squared difference (Deep Gradient Leakage as TabLeak's code runs it, D12)."""

    def __call__(
        self, dots: PerTensor, squares: PerTensor, target_squares: TargetSquares, sizes: TensorSizes
    ) -> Distance:
        """Return the distance and its derivatives."""
        weight = sizes.reciprocal().expand_as(dots)
        loss = ((squares - 2 * dots + target_squares[:, None]) * weight).sum(-1)
        return Distance(loss, -2 * weight, weight)


def target_of(received: dict[str, Tensor]) -> tuple[TargetSquares, TensorSizes]:
    """Return the squared norms and sizes of the received tensors (victim, *parameter), which a distance needs."""
    squares = torch.stack([g.flatten(1).square().sum(1) for g in received.values()], dim=1)
    return squares, squares.new_tensor([g[0].numel() for g in received.values()])


def products(dummy: Mapping[str, Tensor], received: Mapping[str, Tensor]) -> tuple[PerTensor, PerTensor]:
    """Return dot products and squared norms of dummy tensors (victim, restart, *parameter), which a distance needs."""
    dots = torch.stack([(d.flatten(2) * received[name].flatten(1)[:, None]).sum(-1) for name, d in dummy.items()], -1)
    return dots, torch.stack([d.flatten(2).square().sum(-1) for d in dummy.values()], -1)
