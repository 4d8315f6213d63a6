"""Dependences between columns: a column that determines another, and numbers that are sums of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from seepage.tabular.schema import Column, Discrete
from seepage.tabular.table import Table

# Rows that are looked at first; what holds there is looked at in all rows.
_SAMPLE = 2_000
# Probability below which it is no chance that equal cells of a column always come with equal cells of another.
_CHANCE = 1e-6
# Share of a column's variance that a linear function of others may leave: what rounding to a few digits does.
_LEFT = 1e-6
# Share of a standard deviation below which a column has no part in a sum.
_NO_PART = 1e-3
# Rows for each column of numbers, so that no sum fits by chance.
_ROWS_A_COLUMN = 3


@dataclass(frozen=True)
class Dependence:
    """A column that is a linear function of numbers ``by``; if not ``linear``, equal cells come with equal cells."""

    column: str
    by: tuple[str, ...]
    linear: bool


def dependences(table: Table) -> list[Dependence]:
    """Return which input columns are functions of others; of two that determine each other, the later one.

    Example:
        >>> import pandas as pd
        >>> from seepage.tabular.infer import infer_schema
        >>> rows = pd.DataFrame({"a": range(40), "b": [i % 7 for i in range(40)], "y": [0, 1] * 20})
        >>> rows["c"] = 2 * rows["a"] - rows["b"]
        >>> [(follower.column, follower.by) for follower in dependences(Table(infer_schema(rows, "y"), rows))]
        [('c', ('a', 'b'))]
    """
    columns = table.schema.columns
    cells = np.stack([_sampled(table.column(i).numpy()) for i in range(len(columns))], axis=1)
    dependent: dict[int, Dependence] = {}
    for i, by in enumerate(columns):
        for j in _followers(cells, i):
            earlier = dependent.get(j)
            mutual = i in dependent and dependent[i].by == (columns[j].name,)
            if earlier is None and not mutual and _follows(table.column(j).numpy(), table.column(i).numpy()):
                dependent[j] = Dependence(columns[j].name, (by.name,), linear=False)
    numbers = []
    for i, column in enumerate(columns):
        if isinstance(column, Discrete) and all(isinstance(value, int | float) for value in column.categories):
            cells[:, i] = np.array(column.categories, dtype=np.float64)[cells[:, i].astype(int)]
        elif isinstance(column, Discrete):
            continue
        if i not in dependent:
            numbers.append(i)
    for j, by in _sums(cells, numbers):
        dependent[j] = Dependence(columns[j].name, tuple(columns[i].name for i in by), linear=True)
    return [dependent[j] for j in sorted(dependent)]


def determining(table: Table) -> list[str]:
    """Return the names of columns from which the target follows.

    Equal cells come with equal targets, a bound parts the classes, or a target of numbers is a linear function.
    """
    target = table.labels.numpy()
    return [
        column.name
        for i, column in enumerate(table.schema.columns)
        if _tells(table.schema.target, target, table.column(i).numpy())
    ]


def _tells(kind: Column, target: np.ndarray, cells: np.ndarray) -> bool:
    if not isinstance(kind, Discrete):
        both = np.stack([_sampled(cells), _sampled(target)], axis=1)
        return bool(np.ptp(cells)) and (bool(_sums(both, [0, 1])) or _follows(target, cells))
    # What does not hold for some rows does not for all, which take longer.
    for some in (_sampled, np.asarray):
        if not _pure(some(target), some(cells)) and not _parted(some(target), some(cells)):
            return False
    return _follows(target, cells) or _parted(target, cells)


def _parted(target: np.ndarray, cells: np.ndarray) -> bool:
    """Return whether bounds of a column part the classes of a target, beyond chance."""
    order = np.argsort(cells, kind="stable")
    ordered, counts = target[order], np.unique(target, return_counts=True)[1]
    changes = np.flatnonzero(ordered[1:] != ordered[:-1])
    # Where cells are equal, targets must be.
    parted = bool((cells[order][changes] != cells[order][changes + 1]).all())
    # Of rows in random order, classes are apart with a probability below 2^-(rows of all but the largest).
    return len(changes) == len(counts) - 1 and parted and 2.0 ** -float(len(target) - counts.max()) < _CHANCE


def _pure(column: np.ndarray, by: np.ndarray) -> bool:
    """Return whether equal cells of one column always come with equal cells of another."""
    groups, values = (np.unique(cells, return_inverse=True)[1].astype(np.int64) for cells in (by, column))
    return bool(len(np.unique(groups * (values.max() + 1) + values)) == groups.max() + 1)


def _sampled(cells: np.ndarray) -> np.ndarray:
    return cells[np.linspace(0, len(cells) - 1, min(len(cells), _SAMPLE)).astype(int)]


def _followers(cells: np.ndarray, by: int) -> list[int]:
    """Return the other columns of a sample, constant ones apart, that are constant wherever a given one is."""
    order = np.argsort(cells[:, by], kind="stable")
    ordered = cells[order]
    starts = np.flatnonzero(np.diff(ordered[:, by], prepend=np.nan) != 0)
    if len(starts) == len(cells):
        return []
    same = (np.minimum.reduceat(ordered, starts) == np.maximum.reduceat(ordered, starts)).all(0)
    same &= np.ptp(cells, axis=0) > 0
    same[by] = False
    return np.flatnonzero(same).tolist()


def _follows(column: np.ndarray, by: np.ndarray) -> bool:
    """Return whether equal cells of one column always come with equal cells of another, beyond chance."""
    sizes, counts = (np.unique(cells, return_counts=True)[1] for cells in (by, column))
    if len(counts) < 2 or not _pure(_sampled(column), _sampled(by)) or not _pure(column, by):
        return False
    # A group of n rows is constant by chance with a probability of sum p^n over the values' shares p.
    shares = counts / counts.sum()
    several, times = np.unique(sizes[sizes > 1], return_counts=True)
    chance = sum(time * logsumexp(size * np.log(shares)) for size, time in zip(several, times, strict=True))
    return bool(chance < np.log(_CHANCE))


def _sums(cells: np.ndarray, numbers: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
    """Return columns that are linear functions of earlier ones, each with those."""
    if len(cells) < _ROWS_A_COLUMN * len(numbers):
        return []
    basis: list[np.ndarray] = []
    independent: list[int] = []
    sums = []
    for j in numbers:
        column = cells[:, j] - cells[:, j].mean()
        size = np.linalg.norm(column)
        if not size or not np.isfinite(size):
            continue
        column = left = column / size
        # Twice, as one pass of Gram and Schmidt leaves roundings.
        for _ in range(2):
            if basis:
                directions = np.stack(basis)
                left = left - directions.T @ (directions @ left)
        rest = float(left @ left)
        if rest > _LEFT:
            basis.append(left / np.sqrt(rest))
            independent.append(j)
            continue
        others = cells[:, independent] - cells[:, independent].mean(0)
        spread = np.linalg.norm(others, axis=0)
        weights = np.linalg.lstsq(others / spread, column, rcond=None)[0]
        sums.append((j, tuple(i for i, weight in zip(independent, weights, strict=True) if abs(weight) > _NO_PART)))
    return sums
