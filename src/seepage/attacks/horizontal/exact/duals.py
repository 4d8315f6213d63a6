"""Sparse directions of a first layer's gradient: the errors of single records, which ReLUs make sparse.

With R an orthonormal basis of the row space of a gradient G, the rows of ``C = G R^T`` are the units' shares in r
coordinates. Units that are inactive on record i combine the other records alone, so that the dual vector n_i of the
record's coordinates is orthogonal to their rows. Where these have rank r - 1 they determine it, and ``C n_i`` is the
record's error at the units, up to its scale.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

# Share of a direction's largest product with a unit that counts as 0: before and after it is refined.
_NEARLY_ZERO, _ZERO = 1e-4, 1e-5
# Largest product of a silent unit with its direction, in root mean squares of those that determine the direction.
_LEFT = 6.0
# Number of units beyond those that determine a direction: of few more are silent; with many, rounding hides less.
_SPARE = (2, 8, 16)
_SECOND = 1e-4  # least second null value, as a share of the largest singular value, that can be distinguished from 0


class Directions(NamedTuple):
    """Directions in the coordinates of the row space, the sparsest first."""

    vectors: Float[Tensor, "direction rank"]
    silent: Bool[Tensor, "direction unit"]  # whether each unit's share is orthogonal to the direction

    @classmethod
    def none(cls, shares: Float[Tensor, "unit rank"]) -> Directions:
        """Return no directions in the coordinates of these shares."""
        return cls(shares[:0], torch.empty(0, len(shares), dtype=torch.bool, device=shares.device))

    def joined(self, other: Directions) -> Directions:
        """Return these directions, and then others."""
        return Directions(torch.cat([self.vectors, other.vectors]), torch.cat([self.silent, other.silent]))

    def of(self, chosen: Tensor) -> Directions:
        """Return some of the directions, by a mask or by their places."""
        return Directions(self.vectors[chosen], self.silent[chosen])


def sampled(
    shares: Float[Tensor, "unit rank"], count: int, generator: torch.Generator
) -> Float[Tensor, "submatrix rank"]:
    """Return a vector orthogonal to the shares of rank - 1 units, for many random choices of these."""
    # Where the chosen shares are dependent the vector is one of many, or not finite.
    units, rank = shares.shape
    chosen = torch.rand(count, units, generator=generator).topk(rank - 1, dim=1).indices
    # A random last equation turns the null vector into the solution of a square system, several times faster than a
    # decomposition of each submatrix.
    last = torch.randn(count, 1, rank, generator=generator, dtype=torch.float64).to(shares)
    system = torch.cat([shares[chosen.to(shares.device)], last], 1)
    wanted = torch.zeros(count, rank, 1, dtype=shares.dtype, device=shares.device)
    wanted[:, -1] = 1
    return torch.nn.functional.normalize(torch.linalg.solve_ex(system, wanted).result[..., 0], dim=1)


def refined(shares: Float[Tensor, "unit rank"], vectors: Float[Tensor, "direction rank"], least: int) -> Directions:
    """Return distinct directions that ``least`` units or more, on which they vanish, determine; the sparsest first."""
    # Shares are of unit length where a unit reacted.
    vectors = vectors[vectors.isfinite().all(1)]
    silent = _silent(shares, vectors, _NEARLY_ZERO)
    silent = silent[silent.sum(1) >= least].unique(dim=0)
    mask = silent.to(shares.dtype)
    values, eigenvectors = torch.linalg.eigh(torch.einsum("dh,hr,hs->drs", mask, shares, shares))
    left = _LEFT * (values[:, :1].clamp_min(0) / mask.sum(1, keepdim=True)).sqrt()
    alone = values[:, 1] > _SECOND**2 * values[:, -1] if shares.shape[1] > 1 else torch.ones_like(values[:, 0]).bool()
    vectors = eigenvectors[alone, :, 0]
    silent = _silent(shares, vectors, _ZERO, left[alone])
    return merged(Directions(vectors, silent).of(silent.sum(1) >= least), len(vectors))


def guided(shares: Float[Tensor, "unit rank"], activity: Float[Tensor, "record unit"], least: int) -> Directions:
    """Return distinct directions of records whose activity before the ReLU is roughly known, the sparsest first."""
    # For each record, the units that it activates least are taken as silent, some more than determine a direction.
    rank = shares.shape[1]
    reacting = (shares != 0).any(1)
    order = activity.masked_fill(~reacting, torch.inf).argsort(1)[:, : int(reacting.sum())]
    vectors = []
    for spare in _SPARE:
        chosen = shares[order[:, : rank + spare]]
        vectors.append(torch.linalg.eigh(chosen.mT @ chosen).eigenvectors[..., 0])
    return refined(shares, torch.cat(vectors), least)


def merged(directions: Directions, most: int) -> Directions:
    """Return distinct directions, at most a given number, the sparsest first."""
    kinds, which = directions.silent.unique(dim=0, return_inverse=True)
    first = torch.full((len(kinds),), len(which), device=which.device)
    first = first.scatter_reduce(0, which, torch.arange(len(which), device=which.device), "amin")
    order = kinds.sum(1).argsort(descending=True, stable=True)[:most]
    return directions.of(first[order])


def _silent(shares: Tensor, vectors: Tensor, tolerance: float, least: Tensor | float = 0.0) -> Tensor:
    products = (vectors @ shares.T).abs()
    return products <= (tolerance * products.amax(1, keepdim=True)).maximum(
        torch.as_tensor(least, dtype=products.dtype)
    )
