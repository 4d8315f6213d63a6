"""Public statistics of a table: moments of the encoded columns and the marginal of each column.

Every attack in TabLeak's threat model receives them; the baselines use nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.errors import BadInputError
from seepage.tabular.schema import Column, Discrete, Schema
from seepage.tabular.table import Table
from seepage.text import how_many


@dataclass(frozen=True)
class Marginal:
    """The distribution of one column.

    Attributes:
        values: support in increasing order: codes 0..D-1 for a discrete column (those that never occur
            included), the lower edge of each non-empty histogram bin for a continuous one (the smallest
            whole number in the bin where only those occur).
        probabilities: probability of each value; they sum to 1.
        mean, std: mean and unbiased standard deviation of a continuous column in its own unit; of the codes otherwise.
        median: lower median of a continuous column; for a discrete column, the code of its mode (the first of several).
    """

    values: Float[Tensor, " value"]
    probabilities: Float[Tensor, " value"]
    mean: float
    std: float
    median: float

    def near(self, cells: Float[Tensor, "*batch"], tolerance: float) -> Float[Tensor, "*batch"]:
        """Return the chance of a value within each cell's tolerance, half that of the rarest where there is none.

        Example:
            >>> coin = Marginal(torch.tensor([0.0, 1.0]).double(), torch.tensor([0.25, 0.75]).double(), 0.75, 0.5, 1.0)
            >>> coin.near(torch.tensor([0.0, 1.0, 7.0]).double(), tolerance=0.0).tolist()
            [0.25, 0.75, 0.125]
        """
        cumulative = torch.cat([torch.zeros(1, dtype=torch.float64), self.probabilities.cumsum(0)])
        above = torch.searchsorted(self.values, (cells + tolerance).contiguous(), right=True)
        below = torch.searchsorted(self.values, (cells - tolerance).contiguous())
        floor = float(self.probabilities[self.probabilities > 0].min()) / 2
        return (cumulative[above] - cumulative[below]).clamp(min=floor)

    def likeliest(self, tolerance: float) -> Float[Tensor, ""]:
        """Return the value whose tolerance holds the largest probability: the guess that is most often right."""
        near = (self.values[:, None] - self.values).abs() <= tolerance
        return self.values[(near.to(self.probabilities.dtype) @ self.probabilities).argmax()]


@dataclass(frozen=True)
class Statistics:
    """Marginals of every column and of the target; moments of every encoded column.

    Attributes:
        mean, std: mean and unbiased standard deviation of each encoded column (one-hot columns included), float64,
            shape (encoded,); a standard deviation of 0 is replaced by 1, as TabLeak's code does.

    Example:
        >>> import pandas as pd
        >>> from seepage.tabular.schema import Schema
        >>> sex, ill = Discrete(name="sex", categories=("f", "m")), Discrete(name="ill", categories=(0, 1))
        >>> frame = pd.DataFrame({"sex": ["f", "f", "m", "m"], "ill": [0, 1, 1, 1]})
        >>> statistics = Statistics.of(Table(Schema(columns=(sex,), target=ill), frame))
        >>> statistics.mean.tolist(), statistics.target.probabilities.tolist()
        ([0.5, 0.5], [0.25, 0.75])
    """

    marginals: tuple[Marginal, ...]
    target: Marginal
    mean: Float[Tensor, " encoded"]
    std: Float[Tensor, " encoded"]

    @classmethod
    def of(cls, table: Table, bins: int = 100) -> Statistics:
        """Measure the statistics of ``table``; ``bins`` bounds the number of values of a continuous marginal.

        Raises:
            BadInputError: fewer than two rows (no spread can be measured), or fewer than one bin.
        """
        if len(table) < 2 or bins < 1:
            raise BadInputError(
                f"statistics are measured on at least two rows with at least one bin, got "
                f"{how_many(len(table), 'row')} and {how_many(bins, 'bin')}; give the statistics of a larger table."
            )
        columns = [*enumerate(table.schema.columns)]
        marginals = [marginal_of(column, table.column(i), bins) for i, column in columns]
        target = marginal_of(table.schema.target, table.labels, bins)
        return cls.of_marginals(table.schema, marginals, target, len(table))

    @classmethod
    def of_marginals(
        cls, schema: Schema, marginals: Sequence[Marginal], target: Marginal, rows: int | None = None
    ) -> Statistics:
        """Return statistics with the moments that follow from the marginals.

        Args:
            rows: number of rows that the marginals were measured on, by which deviations are unbiased; None for none.
        """
        means, stds = [], []
        for column, marginal in zip(schema.columns, marginals, strict=True):
            if isinstance(column, Discrete):
                p = marginal.probabilities
                means.append(p)
                stds.append((p * (1 - p) if rows is None else p * (1 - p) * rows / (rows - 1)).sqrt())
            else:
                means.append(torch.tensor([marginal.mean], dtype=torch.float64))
                stds.append(torch.tensor([marginal.std], dtype=torch.float64))
        std = torch.cat(stds)
        return cls(tuple(marginals), target, torch.cat(means), torch.where(std > 0, std, torch.ones_like(std)))

    def rows(self, uniform: Float[Tensor, "... column"]) -> Float[Tensor, "... column"]:
        """Return cells whose columns follow the marginals independently: quantiles of numbers in [0, 1).

        Args:
            uniform: for each cell, the share of its column's marginal that lies below it.
        """
        cells = []
        for i, marginal in enumerate(self.marginals):
            possible = marginal.probabilities > 0
            cumulative = marginal.probabilities[possible].cumsum(dim=0)
            # Rounding may leave the sum a digit short of 1; the last value takes what is above it.
            index = torch.searchsorted(cumulative, uniform[..., i].contiguous(), right=True)
            cells.append(marginal.values[possible][index.clamp(max=len(cumulative) - 1)])
        return torch.stack(cells, dim=-1)


def marginal_of(column: Column, cells: Float[Tensor, " record"], bins: int) -> Marginal:
    """Return the marginal of a column's cells.

    Args:
        cells: its cells, at least one.
        bins: bound on the number of values of a continuous column.

    Example:
        >>> sex = Discrete(name="sex", categories=("f", "m"))
        >>> marginal_of(sex, torch.tensor([1.0, 1.0, 0.0, 1.0]).double(), bins=10).probabilities.tolist()
        [0.25, 0.75]
    """
    mean, std = _moments(cells)
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
    occupied = counts > 0
    values = edges.ceil() if column.integer else edges
    return Marginal(values[occupied], counts[occupied] / counts.sum(), mean, std, float(cells.median()))


def _moments(cells: Float[Tensor, " record"]) -> tuple[float, float]:
    # Shifted and scaled to [0, 1]: squares neither overflow nor vanish, and a constant column has a spread
    # of exactly 0 (its mean may be off by a rounding, which would pass for one).
    low, spread = float(cells.min()), float(cells.max() - cells.min())
    if spread == 0:
        return low, 0.0
    scaled = (cells - low) / spread
    return low + spread * float(scaled.mean()), spread * float(scaled.std())
