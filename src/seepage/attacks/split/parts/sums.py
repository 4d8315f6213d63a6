"""Sums of the embeddings of private categories, and the combinations that make a wanted sum.

A message may give the sum S of the embeddings in use (see ``meet``). All combinations x of some columns have the sums
``E(x) = sum_i e_i(x_i)``, which are computed once and put into a tree, so that those nearest to a wanted sum are found
without going through all. Columns in two groups need no product of both: x of the first and z of the second have the
sum S where ``E_1(x) = S - E_2(z)``, one search in the tree of the first for each z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.spatial import KDTree
from torch import Tensor

from seepage.attacks.split.parts.space import Space
from seepage.models.deepfm import DeepFMClient


@dataclass(frozen=True)
class EmbeddingSums:
    """All combinations of some private columns, with the sums of their embeddings in a tree."""

    columns: list[int]
    codes: Int[Tensor, "combination column"]
    sums: Float[np.ndarray, "combination dim"]
    tree: KDTree

    @classmethod
    def of(cls, client: DeepFMClient, space: Space, columns: Sequence[int]) -> EmbeddingSums:
        """Return the sums of columns, by their positions among the private ones."""
        codes = torch.zeros(1, 0, dtype=torch.long)
        if columns:
            grids = [torch.arange(space.widths[i]) for i in columns]
            codes = torch.cartesian_prod(*grids).view(-1, len(columns))
        total = torch.zeros(len(codes), client.dim, dtype=torch.float64)
        for k, i in enumerate(columns):
            table = client.own.embeddings[client.own.discrete.index(i)].weight
            assert isinstance(table, Tensor)
            total += table.detach().double().cpu()[codes[:, k]]
        return cls(list(columns), codes, total.numpy(), KDTree(total.numpy()))

    def near(
        self, wanted: Float[Tensor, "sum dim"], number: int, within: float = np.inf
    ) -> tuple[Float[np.ndarray, "sum near"], Int[np.ndarray, "sum near"]]:
        """Return distances and positions of the combinations nearest to each wanted sum, infinite beyond a distance."""
        each = [*range(1, min(number, self.tree.n) + 1)]
        return self.tree.query(wanted.double().cpu().numpy(), k=each, distance_upper_bound=within)
