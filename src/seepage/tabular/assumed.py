"""Assumed statistics where no rows are available: from the schema's bounds, or from the encoder's moments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from seepage.errors import BadInputError
from seepage.tabular.schema import Column, Discrete, Schema
from seepage.tabular.statistics import Marginal, Statistics, marginal_of

# Bound on the number of values of a continuous marginal.
_BINS = 100
# Largest deviation from 1 of the sum of a column's means at which they are taken as shares of its categories.
_SHARES = 1e-3


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
