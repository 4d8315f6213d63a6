"""Association of one column of a table with every other, by the measure that fits their kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from seepage.errors import BadInputError
from seepage.tabular.schema import Column, Discrete
from seepage.tabular.table import Table

Measure = Literal["cramers_v", "point_biserial", "pearson", "anova"]

# Bound of Zhang, Tople and Ohrimenko (2021), section 5: above it a column counts as correlated.
NOTABLE = {"cramers_v": 0.15, "point_biserial": 0.1, "pearson": 0.4, "anova": 0.15}


@dataclass(frozen=True)
class ColumnAssociation:
    """Strength of the association between two columns.

    Attributes:
        measure: ``cramers_v`` of two discrete columns (corrected for bias: Bergsma, 2013), ``point_biserial`` of a
            column of numbers with one of two categories, ``anova`` (the correlation ratio eta of a one-way analysis of
            variance) with one of more, ``pearson`` of two columns of numbers.
        value: positive where numbers are higher for the later category; None where a column has one value only.
        pvalue: p-value of the chi-squared test without continuity correction, of the test of the correlation, or of the
            analysis of variance.
    """

    column: str
    with_column: str
    measure: Measure
    value: float | None
    pvalue: float | None
    rows: int

    @property
    def notable(self) -> bool:
        """Whether the value is above the bound that the literature uses for correlated columns, see ``NOTABLE``."""
        return self.value is not None and abs(self.value) > NOTABLE[self.measure]


def associations(table: Table, sensitive: str) -> list[ColumnAssociation]:
    """Return how strongly every other column and the target are associated with a column, strongest first."""
    schema = table.schema
    chosen = schema.column(sensitive)
    if len(table) < 3:
        raise BadInputError(f"an association is measured on at least three rows, got {len(table)}.")
    cells = {column.name: table.column(i).numpy() for i, column in enumerate(schema.columns)}
    cells[schema.target.name] = table.labels.numpy()
    if len(np.unique(cells[sensitive])) < 2:
        raise BadInputError(
            f"the sensitive column {sensitive!r} has one value in all {len(table)} rows, so that nothing can be "
            "associated with it; choose another column."
        )
    measured = [
        between(column, cells[column.name], chosen, cells[sensitive])
        for column in (*schema.columns, schema.target)
        if column.name != sensitive
    ]
    return sorted(
        measured, key=lambda association: -1.0 if association.value is None else abs(association.value), reverse=True
    )


def between(column: Column, cells: np.ndarray, other: Column, other_cells: np.ndarray) -> ColumnAssociation:
    """Return the association of two columns' cells (codes of discrete columns, values of continuous ones)."""
    discrete = isinstance(column, Discrete), isinstance(other, Discrete)
    measure: Measure
    if all(discrete):
        measure, (value, pvalue) = "cramers_v", _cramers_v(cells, other_cells)
    elif any(discrete):
        numbers, groups = (other_cells, cells) if discrete[0] else (cells, other_cells)
        if len(np.unique(groups)) > 2:
            measure, (value, pvalue) = "anova", _eta(numbers, groups)
        else:
            measure, (value, pvalue) = "point_biserial", _pearson(numbers, groups)
    else:
        measure, (value, pvalue) = "pearson", _pearson(cells, other_cells)
    return ColumnAssociation(column.name, other.name, measure, value, pvalue, len(cells))


def _cramers_v(first: np.ndarray, second: np.ndarray) -> tuple[float | None, float | None]:
    counts = np.asarray(stats.contingency.crosstab(first, second).count)
    if min(counts.shape) < 2:
        return None, None
    statistic, pvalue = np.asarray(stats.chi2_contingency(counts, correction=False)[:2], dtype=float).tolist()
    # Independent columns of many categories have a chi-squared as large as these expected parts of it.
    rows = float(counts.sum())
    least = min(n - 1 - (n - 1) ** 2 / (rows - 1) for n in counts.shape)
    if least <= 1e-12:
        return None, pvalue
    by_chance = (counts.shape[0] - 1) * (counts.shape[1] - 1) / (rows - 1)
    return min(1.0, (max(0.0, statistic / rows - by_chance) / least) ** 0.5), pvalue


def _pearson(first: np.ndarray, second: np.ndarray) -> tuple[float | None, float | None]:
    if _same(first) or _same(second):
        return None, None
    statistic, pvalue = np.asarray(tuple(stats.pearsonr(first, second)), dtype=float).tolist()
    return statistic, pvalue


def _eta(numbers: np.ndarray, groups: np.ndarray) -> tuple[float | None, float | None]:
    if _same(numbers):
        return None, None
    parts = [numbers[groups == group] for group in np.unique(groups)]
    mean = numbers.mean()
    between_groups = sum(len(part) * (part.mean() - mean) ** 2 for part in parts)
    within = sum(float(((part - part.mean()) ** 2).sum()) for part in parts)
    eta = float(np.sqrt(between_groups / (between_groups + within)).clip(0, 1))
    freedom = len(numbers) - len(parts)
    if freedom < 1 or within == 0:
        return eta, 0.0 if freedom >= 1 else None
    return eta, float(stats.f.sf(between_groups / (len(parts) - 1) / (within / freedom), len(parts) - 1, freedom))


def _same(cells: np.ndarray) -> bool:
    return bool((cells == cells[0]).all())
