"""The span of an affine layer's gradient: the batch's inputs of the layer, and its errors.

With ``d_i`` the error of record i at the layer's units and ``a_i`` its input of the layer extended by a 1, the
gradient of weights and bias side by side is ``G = sum_i d_i a_i^T``. Where both are linearly independent over the
records, every ``a_i`` lies in the span of G's rows and every ``d_i`` in the span of its columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

ROUNDINGS = 16.0  # bound on rounding, as a share of the largest singular value, in roundings of the received numbers
_ABOVE_NOISE = 1.2  # bound on noise, in units of the largest singular value that noise alone would have
_DEAD = 1e-9  # ratio to the largest gradient below which a unit has not reacted


@dataclass(frozen=True)
class Span:
    """Orthonormal bases of a gradient's span and of its complement, rows scaled by ``scale``."""

    scale: Float[Tensor, " unit"]
    rows: Float[Tensor, "rank extended"]
    off_rows: Float[Tensor, "rest extended"]  # complement of the rows
    off_columns: Float[Tensor, "other unit"]  # complement of the scaled columns
    inverse: Float[Tensor, "extended unit"]  # pseudo-inverse of the scaled gradient

    @property
    def rank(self) -> int:
        """Number of dimensions above rounding."""
        return len(self.rows)

    @classmethod
    def of(
        cls,
        gradient: Float[Tensor, "unit extended"],
        scale: Float[Tensor, " unit"],
        largest: float,
        rounding: float,
        noise: float = 0.0,
        most: int | None = None,
        roundings: float = ROUNDINGS,
    ) -> Span:
        """Return the spans of a gradient whose whole has ``largest`` as largest singular value, once scaled."""
        # Rounding is the relative precision of the numbers, of which singular values are off by so many ``roundings``.
        left, values, right = torch.linalg.svd(gradient / scale[:, None])
        # A matrix of noise alone has a norm next to this (Davidson and Szarek 2001).
        loudest = noise * (gradient.shape[0] ** 0.5 + gradient.shape[1] ** 0.5)
        rank = int((values > max(roundings * rounding * largest, _ABOVE_NOISE * loudest)).sum())
        rank = rank if most is None else min(rank, most)
        inverse = right[:rank].T @ (left[:, :rank] / values[:rank]).T
        return cls(scale, right[:rank], right[rank:], left[:, rank:].T, inverse)


def row_scale(gradient: Float[Tensor, "unit extended"]) -> Float[Tensor, " unit"]:
    """Return the norm of each unit's row; infinite where a unit has not reacted."""
    norms = torch.linalg.vector_norm(gradient, dim=1)
    return torch.where(norms > norms.max() * _DEAD, norms, torch.full_like(norms, torch.inf))
