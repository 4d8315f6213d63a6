"""One-hot encoded columns of a table, merged into one column of categories."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from seepage.tabular.reading import Source, WrappedSource, typed
from seepage.tabular.schema import Category, Discrete, Schema
from seepage.tabular.texts import TextColumn

# Category of rows in which no column of a group is 1: encoders leave out the first category, or unknown ones.
NONE_OF_THEM = "(none of these)"
_ENDS = "_=:.-|/ "
# Independent columns would have so many rows with two 1s in expectation; that none has one is then no chance
# (e to the power of -7 is below 0.1%).
_EXPECTED_PAIRS = 7.0


@dataclass(frozen=True)
class OneHotGroup:
    """Columns of 0 and 1, of which at most one is 1 in each row; ``rest`` is the category of rows without a 1."""

    name: str
    members: tuple[str, ...]
    categories: tuple[Category, ...]
    rest: Category | None

    def merged(self, members: Iterator[tuple[str, pd.Series | TextColumn]]) -> pd.Series:
        """Return the column of categories from the group's columns, in the order of ``members``."""
        codes: np.ndarray | None = None
        for place, (_, raw) in enumerate(members):
            ones = _ones(raw)
            codes = np.full(len(ones), -1, dtype=np.int32) if codes is None else codes
            codes[ones] = place
        assert codes is not None
        categories = [*self.categories]
        if self.rest is not None:
            codes[codes < 0] = len(categories)
            categories.append(self.rest)
        return pd.Series(pd.Categorical.from_codes(codes.tolist(), dtype=pd.CategoricalDtype(categories)))

    def __str__(self) -> str:
        """Return name and number of columns, for notes."""
        return f"{self.name!r} ({len(self.members)} columns{'' if self.rest is None else ', some rows without a 1'})"


class MergedSource(WrappedSource):
    """A table in which each group of one-hot columns is one column of categories, at the place of the group's first."""

    def __init__(self, inner: Source, groups: Sequence[OneHotGroup]) -> None:
        self._groups = {group.name: group for group in groups}
        first = {group.members[0]: group.name for group in groups}
        others = {member for group in groups for member in group.members[1:]}
        super().__init__(inner, [first.get(name, name) for name in inner.names if name not in others])

    def columns(self, names: Sequence[str]) -> Iterator[tuple[str, pd.Series | TextColumn]]:
        """Read columns one after the other, merged ones from all of theirs."""
        plain: list[str] = []
        for name in names:
            if name not in self._groups:
                plain.append(name)
                continue
            yield from self._inner.columns(plain)
            plain = []
            group = self._groups[name]
            yield name, group.merged(self._inner.columns(group.members))
        yield from self._inner.columns(plain)


def one_hot_groups(source: Source, apart: Collection[str] = ()) -> tuple[OneHotGroup, ...]:
    """Find groups of one-hot columns by the beginnings of their names, and by their cells.

    A group has at least two columns of 0 and 1 (or false and true), whose names are equal up to one of the characters
    ``_ = : . - | /`` or a space. No row has two 1s. Where some rows have none, independent columns with as many 1s
    would have two in at least seven rows in expectation, so that it is no chance. Of several such beginnings the
    shortest counts. A beginning that is the name of another column makes no group.
    """
    by_beginning: dict[str, list[str]] = {}
    for name in source.names:
        if name not in apart:
            for beginning in _beginnings(name):
                by_beginning.setdefault(beginning, []).append(name)
    shared = {name for names in by_beginning.values() if len(names) > 1 for name in names}
    ones: dict[str, np.ndarray] = {}
    rows = 0
    for name, raw in source.columns([name for name in source.names if name in shared]):
        if _is_indicator(raw):
            ones[name], rows = np.packbits(_ones(raw)), len(raw)
    groups: dict[str, OneHotGroup] = {}
    count = -1
    # A longer beginning may take away what kept a shorter one from being a group.
    while len(groups) > count:
        count = len(groups)
        for beginning in sorted(by_beginning, key=len):
            group_name = beginning.rstrip(_ENDS)
            members = [name for name in by_beginning[beginning] if name in ones]
            if len(members) < 2 or group_name in groups or group_name in source.names:
                continue
            covered = _covered([ones[name] for name in members], rows)
            if covered is not None:
                categories = tuple(name[len(beginning) :] for name in members)
                rest = None if covered == rows else unlike(categories, NONE_OF_THEM)
                groups[group_name] = OneHotGroup(group_name, tuple(members), categories, rest)
                for name in members:
                    del ones[name]
    return tuple(groups.values())


def groups_of_schema(source: Source, schema: Schema) -> tuple[OneHotGroup, ...]:
    """Return the groups of a table that a schema takes as columns of categories, which has them one-hot encoded."""
    groups = []
    for column in (*schema.columns, schema.target):
        if column.name in source.names or not isinstance(column, Discrete):
            continue
        listed = [str(category) for category in column.categories if category not in (column.missing, column.other)]
        for end in _ENDS:
            members = {f"{column.name}{end}{category}": category for category in listed}
            present = [name for name in source.names if name in members]
            if len(present) >= max(2, len(listed) - 1):
                absent = [category for name, category in members.items() if name not in present]
                rest = column.other or (absent[0] if absent else None)
                groups.append(OneHotGroup(column.name, tuple(present), tuple(members[name] for name in present), rest))
                break
    return tuple(groups)


def _beginnings(name: str) -> Iterator[str]:
    """Return the beginnings of a name, each up to and including a run of separating characters."""
    for place in range(1, len(name)):
        if name[place - 1] in _ENDS and name[place] not in _ENDS and name[:place].strip(_ENDS):
            yield name[:place]


def _is_indicator(raw: pd.Series | TextColumn) -> bool:
    """Return whether all cells are 0 and 1, or false and true."""
    if isinstance(raw, TextColumn) and len(raw.distinct) > 2:
        return False
    series = typed(raw)
    kinds = pd.api.types
    if isinstance(series.dtype, pd.CategoricalDtype) or not (
        kinds.is_bool_dtype(series) or kinds.is_numeric_dtype(series)
    ):
        return False
    return not series.isna().any() and bool(series.isin([0, 1]).all())


def _ones(raw: pd.Series | TextColumn) -> np.ndarray:
    return typed(raw).to_numpy() == 1


def _covered(columns: Sequence[np.ndarray], rows: int) -> int | None:
    """Return the number of rows with a 1 in one of some columns; None where they are no group."""
    union = np.zeros_like(columns[0])
    counts = []
    for column in columns:
        if np.bitwise_and(union, column).any():
            return None
        union |= column
        counts.append(int(np.bitwise_count(column).sum()))
    total = sum(counts)
    pairs = (total**2 - sum(count**2 for count in counts)) / (2 * rows)
    return total if total == rows or pairs >= _EXPECTED_PAIRS else None


def unlike(categories: Sequence[object], name: str) -> str:
    """Return a name, in more brackets if it is a category already."""
    while name in categories:
        name = f"({name})"
    return name
