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

# Bound on rounding, as a share of the largest singular value, in roundings of the received numbers.
ROUNDINGS = 16.0
# Bound on noise, in units of the largest singular value that noise alone would have.
_ABOVE_NOISE = 1.2
# Ratio to the largest gradient below which a unit has not reacted.
_DEAD = 1e-9


@dataclass(frozen=True)
class Span:
    """Orthonormal bases of a gradient's span and of its complement.

    Attributes:
        scale: divisor of each unit's row.
        rows, off_rows: bases of the span of the rows and of its complement, (rank, extended) and (rest, extended).
        off_columns: basis of the complement of the span of the scaled columns, (rest, unit).
        inverse: pseudo-inverse of the scaled gradient, (extended, unit).
    """

    scale: Float[Tensor, " unit"]
    rows: Float[Tensor, "rank extended"]
    off_rows: Float[Tensor, "rest extended"]
    off_columns: Float[Tensor, "other unit"]
    inverse: Float[Tensor, "extended unit"]

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
        """Return the spans of a gradient.

        Args:
            largest: largest singular value of the whole scaled gradient.
            rounding: relative precision of the received numbers.
            roundings: bound on rounding, in units of precision times the largest singular value.

        Example:
            >>> gradient = torch.tensor([[1.0, 1.0], [2.0, 2.0]], dtype=torch.float64)
            >>> span = Span.of(gradient, row_scale(gradient), 1.0, 1e-7)
            >>> span.rank, span.off_rows.shape, span.off_columns.shape
            (1, torch.Size([1, 2]), torch.Size([1, 2]))
        """
        left, values, right = torch.linalg.svd(gradient / scale[:, None])
        # A matrix of noise alone has a norm next to this (Davidson and Szarek 2001).
        loudest = noise * (gradient.shape[0] ** 0.5 + gradient.shape[1] ** 0.5)
        rank = int((values > max(roundings * rounding * largest, _ABOVE_NOISE * loudest)).sum())
        rank = rank if most is None else min(rank, most)
        inverse = right[:rank].T @ (left[:, :rank] / values[:rank]).T
        return cls(scale, right[:rank], right[rank:], left[:, rank:].T, inverse)


def row_scale(gradient: Float[Tensor, "unit extended"]) -> Float[Tensor, " unit"]:
    """Return the norm of each unit's row; infinite where a unit has not reacted.

    Example:
        >>> row_scale(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
        [5.0, inf]
    """
    norms = torch.linalg.vector_norm(gradient, dim=1)
    return torch.where(norms > norms.max() * _DEAD, norms, torch.full_like(norms, torch.inf))
