"""Public statistics of a table, which TabLeak's threat model gives to attacks: measured, or assumed without rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.errors import BadInputError
from seepage.tabular.schema import Column, Discrete, Schema
from seepage.tabular.table import Table
from seepage.text import how_many

# Bound on the number of values of a continuous marginal.
_BINS = 100
# Largest deviation from 1 of the sum of a column's means at which they are taken as shares of its categories.
_SHARES = 1e-3


@dataclass(frozen=True)
class Marginal:
    """The distribution of one column.

    Attributes:
        values: support in increasing order: codes 0..D-1 for a discrete column, those that never occur included; the
            lower edge of each non-empty histogram bin for a continuous one (its smallest whole number where only those
            occur).
        mean, std: mean and unbiased standard deviation of a continuous column in its own unit; of the codes otherwise.
        median: lower median of a continuous column; for a discrete column, the code of its mode (the first of several).
    """

    values: Float[Tensor, " value"]
    probabilities: Float[Tensor, " value"]
    mean: float
    std: float
    median: float

    def near(self, cells: Float[Tensor, "*batch"], tolerance: float) -> Float[Tensor, "*batch"]:
        """Return the chance of a value within each cell's tolerance, half that of the rarest where there is none."""
        cumulative, floor = self._sums
        above = torch.searchsorted(self.values, (cells + tolerance).contiguous(), right=True)
        below = torch.searchsorted(self.values, (cells - tolerance).contiguous())
        return (cumulative[above] - cumulative[below]).clamp(min=floor)

    @cached_property
    def _sums(self) -> tuple[Float[Tensor, " edge"], float]:
        """Sums of probabilities below each value and above all, and half the least probability."""
        cumulative = torch.cat([torch.zeros(1, dtype=torch.float64), self.probabilities.cumsum(0)])
        return cumulative, float(self.probabilities[self.probabilities > 0].min()) / 2

    def likeliest(self, tolerance: float) -> Float[Tensor, ""]:
        """Return the value whose tolerance holds the largest probability: the guess that is most often right."""
        near = (self.values[:, None] - self.values).abs() <= tolerance
        return self.values[(near.to(self.probabilities.dtype) @ self.probabilities).argmax()]


@dataclass(frozen=True)
class Statistics:
    """Marginals of each column and of the target; mean and unbiased deviation of each encoded column, one-hot ones too.

    A standard deviation of 0 is replaced by 1, as TabLeak's code does.
    """

    marginals: tuple[Marginal, ...]
    target: Marginal
    mean: Float[Tensor, " encoded"]
    std: Float[Tensor, " encoded"]

    @classmethod
    def of(cls, table: Table, bins: int = 100) -> Statistics:
        """Measure the statistics of ``table``; ``bins`` bounds the number of values of a continuous marginal."""
        if len(table) < 2 or bins < 1:
            raise BadInputError(
                f"statistics are measured on at least two rows with at least one bin, got "
                f"{how_many(len(table), 'row')} and {how_many(bins, 'bin')}; give the statistics of a larger table."
            )
        marginals = [marginal_of(column, table.column(i), bins) for i, column in enumerate(table.schema.columns)]
        target = marginal_of(table.schema.target, table.labels, bins)
        return cls.of_marginals(table.schema, marginals, target, len(table))

    @classmethod
    def of_marginals(
        cls, schema: Schema, marginals: Sequence[Marginal], target: Marginal, rows: int | None = None
    ) -> Statistics:
        """Return statistics with the moments that follow from marginals, unbiased where the number of rows is known."""
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

    def agreement(self, schema: Schema) -> float:
        """Return the share of cells in which two rows that are drawn from the marginals are expected to agree.

        Example:
            >>> coin, ill = (Discrete(name=name, categories=(0, 1)) for name in ("coin", "ill"))
            >>> schema = Schema(columns=(coin,), target=ill)
            >>> uniform_statistics(schema).agreement(schema)
            0.5
        """
        shares = []
        for column, marginal in zip(schema.columns, self.marginals, strict=True):
            p = marginal.probabilities
            if isinstance(column, Discrete):
                shares.append(p @ p)
            else:
                near = (marginal.values[:, None] - marginal.values).abs() <= column.tolerance
                shares.append(p @ near.to(p.dtype) @ p)
        return float(torch.stack(shares).mean())

    def rows(self, uniform: Float[Tensor, "... column"]) -> Float[Tensor, "... column"]:
        """Return cells that are the marginals' quantiles of numbers in [0, 1), each column by itself."""
        cells = []
        for i, marginal in enumerate(self.marginals):
            possible = marginal.probabilities > 0
            cumulative = marginal.probabilities[possible].cumsum(dim=0)
            # Rounding may leave the sum a digit short of 1; the last value takes what is above it.
            index = torch.searchsorted(cumulative, uniform[..., i].contiguous(), right=True)
            cells.append(marginal.values[possible][index.clamp(max=len(cumulative) - 1)])
        return torch.stack(cells, dim=-1)


def marginal_of(column: Column, cells: Float[Tensor, " record"], bins: int) -> Marginal:
    """Return the marginal of a column's cells, of which there is at least one."""
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


def uniform_statistics(schema: Schema) -> Statistics:
    """Return the statistics of columns in which every category and every number within the bounds is as likely."""
    return partial_statistics(schema, {})


def partial_statistics(schema: Schema, columns: Mapping[str, Tensor]) -> Statistics:
    """Return the statistics of columns of which some cells are known; all others are uniform.

    Shares of categories count one more row of each, since a few cells rarely show all of them.

    Example:
        >>> sex, ill = Discrete(name="sex", categories=("f", "m")), Discrete(name="ill", categories=(0, 1))
        >>> columns = {"ill": torch.tensor([1.0, 1.0], dtype=torch.float64)}
        >>> statistics = partial_statistics(Schema(columns=(sex,), target=ill), columns)
        >>> statistics.target.probabilities.tolist(), statistics.marginals[0].probabilities.tolist()
        ([0.25, 0.75], [0.5, 0.5])
    """
    marginals = []
    for column in (*schema.columns, schema.target):
        cells = columns.get(column.name)
        if cells is None or not len(cells):
            marginals.append(_uniform(column))
        elif isinstance(column, Discrete):
            counts = torch.bincount(cells.long(), minlength=column.width).double() + 1
            marginals.append(_discrete(counts / counts.sum()))
        else:
            marginals.append(marginal_of(column, cells, _BINS))
    return Statistics.of_marginals(schema, marginals[:-1], marginals[-1])


def standardised_statistics(schema: Schema, mean: Sequence[float], std: Sequence[float]) -> Statistics:
    """Return the statistics suggested by the means and standard deviations that encoded rows are standardised with.

    Means of a column's categories that add up to 1 are their shares; mean and standard deviation of a continuous column
    make a normal distribution within its bounds. Where they do neither, the column is taken to be uniform.
    """
    means, stds = torch.tensor(mean, dtype=torch.float64), torch.tensor(std, dtype=torch.float64)
    if len(means) != schema.width or len(stds) != schema.width:
        raise BadInputError(
            f"the encoding has {len(means)} means and {len(stds)} standard deviations where the schema takes "
            f"{schema.width} encoded columns (one a category, one a number); give one of each for every encoded column."
        )
    if not bool(means.isfinite().all()) or not bool((stds.isfinite() & (stds > 0)).all()):
        raise BadInputError(
            "the encoding's means must be finite and its standard deviations positive; write 1 for the standard "
            "deviation of a column that never varies."
        )
    marginals = []
    for column, block in zip(schema.columns, schema.blocks, strict=True):
        flat = _uniform(column)
        if isinstance(column, Discrete):
            shares = means[block]
            fit = bool((shares >= 0).all()) and abs(float(shares.sum()) - 1) <= _SHARES
            marginals.append(_discrete(shares / shares.sum()) if fit else flat)
        else:
            m, s = float(means[block.start]), float(stds[block.start])
            identity = m == 0 and s == 1
            fit = column.low <= m <= column.high and s <= column.high - column.low and not identity
            marginals.append(_bell(flat, m, s) if fit else flat)
    return Statistics(tuple(marginals), _uniform(schema.target), means, stds)


def _uniform(column: Column) -> Marginal:
    if isinstance(column, Discrete):
        return _discrete(torch.full((column.width,), 1 / column.width, dtype=torch.float64))
    spread = column.high - column.low
    bins = min(_BINS, round(spread) + 1) if column.integer else _BINS if spread else 1
    values = torch.linspace(column.low, column.high, bins + 1, dtype=torch.float64)[:-1]
    values = values.ceil() if column.integer else values
    # A whole number is uniform on high - low + 1 of them.
    steps = spread + 1 if column.integer else spread
    std = math.sqrt((steps * steps - 1) / 12) if column.integer else steps / math.sqrt(12)
    return Marginal(
        values=values,
        probabilities=torch.full((bins,), 1 / bins, dtype=torch.float64),
        mean=column.low + spread / 2,
        std=std,
        median=float(values[(bins - 1) // 2]),
    )


def _discrete(shares: Tensor) -> Marginal:
    codes = torch.arange(len(shares), dtype=torch.float64)
    mean = float((shares * codes).sum())
    std = math.sqrt(max(0.0, float((shares * (codes - mean).square()).sum())))
    return Marginal(codes, shares, mean, std, float(shares.argmax()))


def _bell(flat: Marginal, mean: float, std: float) -> Marginal:
    z = (flat.values - mean) / std
    # A bin that lies far out still gets a small share: it is not known to be impossible.
    weight = torch.exp(-0.5 * z.square()).clamp_min(1e-6)
    share = weight / weight.sum()
    median = flat.values[torch.searchsorted(share.cumsum(0), 0.5).clamp(max=len(share) - 1)]
    return Marginal(flat.values, share, mean, std, float(median))
