"""Designs of regressions: the columns that are chosen, numbers cut into levels, and rare levels taken together."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from jaxtyping import Int

from seepage.datasets import Dataset
from seepage.errors import BadInputError, unknown_name
from seepage.tabular.schema import Column, Continuous, Discrete, Schema
from seepage.tabular.table import Table

# The most patterns of a design whose columns nobody names, and values of a number that is published as it is.
_PATTERNS, _VALUES = 2_000, 2_000


@dataclass(frozen=True)
class ModelLevels:
    """Levels of the columns in a model.

    Attributes:
        codes: code of each record's level, rare ones recoded, (record, column).
        levels: for each column, codes of the levels in the model; the first is the reference.
        taken: for each column, the code that stands for each code.
    """

    codes: Int[np.ndarray, "record column"]
    levels: tuple[tuple[int, ...], ...]
    taken: tuple[Int[np.ndarray, " _"], ...]

    def recoded(self, codes: Int[np.ndarray, "row column"]) -> Int[np.ndarray, "row column"]:
        """Return codes of other rows, with levels that are not in the model recoded."""
        return np.stack([taken[codes[:, i]] for i, taken in enumerate(self.taken)], axis=1)


def _levels(column: Column, bins: int) -> int:
    return column.width if isinstance(column, Discrete) else bins


def values_of(data: Dataset, column: Continuous) -> np.ndarray:
    """Return the values that a number may have: all whole ones between its bounds, or those of the public rows."""
    if column.integer and column.high - column.low < _VALUES:
        return np.arange(column.low, column.high + 1)
    return np.unique(data.all.column(data.schema.names.index(column.name)).numpy())


def as_values(data: Dataset, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the values of each number that has few, under its name.

    Raises:
        BadInputError: a number that was named has too many.
    """
    numbers = {c.name: values_of(data, c) for c in data.schema.columns if isinstance(c, Continuous)}
    for name, values in numbers.items():
        if name in names and len(values) > _VALUES:
            raise BadInputError(
                f"figures of {name!r} are read as numbers of records with each of its values, of which there are "
                f"{len(values):,}, more than {_VALUES:,}; round it to fewer, or leave it out (columns)."
            )
    return {name: values for name, values in numbers.items() if len(values) <= _VALUES}


def chosen_columns(
    data: Dataset,
    names: Sequence[str],
    bins: int,
    rows: int,
    ratio: float,
    time: str | None = None,
    values: Mapping[str, np.ndarray] | None = None,
) -> tuple[str, ...]:
    """Return the columns of the design: those that were named, or as many as the guard and few patterns leave.

    ``values`` are those of numbers that are no levels; numbers without are then left out.
    """
    schema = data.schema
    if time in names:
        raise BadInputError(f"the column {time!r} has the times, and is no column of the design as well; leave it out.")
    for name in names:
        if name not in schema.names:
            raise unknown_name("column of the design:", name, schema.names)
    if names:
        return tuple(dict.fromkeys(names))
    chosen: list[str] = []
    coefficients, patterns = 1, 1
    for column in schema.columns:
        width = _levels(column, bins)
        if values is not None and isinstance(column, Continuous):
            width = len(values.get(column.name, ()))
        if (
            column.name != time
            and width > 1
            and coefficients + width - 1 <= ratio * rows
            and patterns * width <= _PATTERNS
        ):
            chosen.append(column.name)
            coefficients, patterns = coefficients + width - 1, patterns * width
    if not chosen:
        raise BadInputError(
            f"no column fits into a model with at most {ratio:.0%} as many coefficients as a site has rows, {rows:,}; "
            "give more rows, or set the guard (parameter_ratio)."
        )
    return tuple(chosen)


def coarse(data: Dataset, names: Sequence[str], bins: int, values: Mapping[str, np.ndarray] | None = None) -> Dataset:
    """Return a dataset of some columns, numbers cut into levels with about as many public rows each, or as values."""
    schema, rows = data.schema, data.all
    columns, frame = [], {}
    for name in names:
        i = schema.names.index(name)
        column, cells = schema.columns[i], rows.column(i).numpy()
        if isinstance(column, Continuous) and values is not None:
            codes = np.searchsorted(values[name], cells)
            column = _discrete(column, tuple(values[name].tolist()))
        elif isinstance(column, Continuous):
            column, codes = _cut(column, cells, bins)
        else:
            codes = cells.astype(int)
        columns.append(column)
        frame[name] = pd.Series(np.array(column.categories, dtype=object)[codes])
    target = schema.target
    labels = rows.labels.numpy()
    frame[target.name] = pd.Series(
        np.array(target.categories, dtype=object)[labels.astype(int)] if isinstance(target, Discrete) else labels
    )
    table = Table(Schema(columns=tuple(columns), target=target), pd.DataFrame(frame), None)
    return replace(data, train=table, test=None)


def _cut(column: Continuous, cells: np.ndarray, bins: int) -> tuple[Discrete, np.ndarray]:
    """Return a number as a column of levels, and the code of each cell."""
    ends = np.unique(np.quantile(cells, np.arange(1, bins) / bins))
    ends = ends[(ends > cells.min()) & (ends <= cells.max())]
    codes = np.searchsorted(ends, cells, side="right")
    edges = [column.low, *ends.tolist(), column.high]
    names = tuple(f"{low:g} to {high:g}" for low, high in itertools.pairwise(edges))
    if len(set(names)) < len(names):
        names = tuple(f"{name} ({k + 1})" for k, name in enumerate(names))
    return _discrete(column, names), codes


def _discrete(column: Continuous, categories: tuple[str, ...] | tuple[float, ...]) -> Discrete:
    return Discrete(name=column.name, categories=categories, sensitive=column.sensitive, unit=column.unit)


def model_levels(
    schema: Schema, codes: Int[np.ndarray, "record column"], site: Int[np.ndarray, " record"], least: int
) -> ModelLevels:
    """Return the design of some sites: levels that some site has fewer than ``least`` rows of are taken together.

    They become the most frequent level, as analysts do where a guard refuses a rare one. Levels that no site has are
    left out.
    """
    sites = int(site.max()) + 1
    recoded, levels, maps = codes.copy(), [], []
    for i, column in enumerate(schema.columns):
        width = _levels(column, 0)
        counts = np.stack([np.bincount(codes[site == k, i], minlength=width) for k in range(sites)])
        usual = int(counts.sum(0).argmax())
        rare = ((counts > 0) & (counts < least)).any(0) | (counts.sum(0) == 0)
        rare[usual] = False
        taken = np.where(rare, usual, np.arange(width))
        maps.append(taken)
        recoded[:, i] = taken[codes[:, i]]
        levels.append(tuple(int(code) for code in np.flatnonzero(~rare)))
    return ModelLevels(recoded, tuple(levels), tuple(maps))
