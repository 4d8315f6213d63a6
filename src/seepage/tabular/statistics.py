"""Public statistics of a table: moments of the encoded columns and the marginal of each column.

Every attack in TabLeak's threat model is granted them; the baselines use nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.tabular.schema import Column, Discrete
from seepage.tabular.table import Table


@dataclass(frozen=True)
class Marginal:
    """The distribution of one column.

    Attributes:
        values: support in increasing order: codes 0..D-1 for a discrete column, the lower edge of
            each non-empty histogram bin for a continuous one.
        probabilities: of each value; sums to 1.
        mean, std: of a continuous column (unbiased std) in its own unit; of the codes otherwise.
        median: of a continuous column; the mode's code for a discrete one.
    """

    values: Float[Tensor, " value"]
    probabilities: Float[Tensor, " value"]
    mean: float
    std: float
    median: float


@dataclass(frozen=True)
class Statistics:
    """Marginals of every column and of the target; moments of every encoded column.

    Attributes:
        marginals: one for each column of the schema.
        target: the target's marginal.
        mean, std: of each encoded column (one-hot columns included), unbiased std, 0 replaced by 1
            (as TabLeak's code does), float64, shape (encoded,).
    """

    marginals: tuple[Marginal, ...]
    target: Marginal
    mean: Float[Tensor, " encoded"]
    std: Float[Tensor, " encoded"]

    @classmethod
    def of(cls, table: Table, bins: int = 100) -> Statistics:
        """Measure the statistics of ``table`` (at least two rows); ``bins`` bounds the histograms."""
        means, stds, marginals = [], [], []
        for i, column in enumerate(table.schema.columns):
            marginal = _marginal(column, table.cells[:, i], bins)
            marginals.append(marginal)
            if isinstance(column, Discrete):
                p, n = marginal.probabilities, len(table)
                means.append(p)
                stds.append((p * (1 - p) * n / (n - 1)).sqrt())
            else:
                means.append(torch.tensor([marginal.mean], dtype=torch.float64))
                stds.append(torch.tensor([marginal.std], dtype=torch.float64))
        std = torch.cat(stds)
        return cls(
            marginals=tuple(marginals),
            target=_marginal(table.schema.target, table.labels, bins),
            mean=torch.cat(means),
            std=torch.where(std > 0, std, torch.ones_like(std)),
        )


def _marginal(column: Column, cells: Float[Tensor, " record"], bins: int) -> Marginal:
    mean, std = float(cells.mean()), float(cells.std())
    if isinstance(column, Discrete):
        counts = torch.bincount(cells.long(), minlength=column.width).double()
        values = torch.arange(column.width, dtype=torch.float64)
        return Marginal(values, counts / counts.sum(), mean, std, float(counts.argmax()))
    low, high = float(cells.min()), float(cells.max())
    if column.integer:
        bins = min(bins, round(high - low) + 1)
    edges = torch.linspace(low, high, bins + 1, dtype=torch.float64)[:-1]
    # A cell belongs to the last edge at or below it.
    position = torch.searchsorted(edges, cells.contiguous(), right=True) - 1
    counts = torch.bincount(position, minlength=bins).double()
    held = counts > 0
    values = edges.ceil() if column.integer else edges
    return Marginal(values[held], counts[held] / counts.sum(), mean, std, float(cells.median()))
