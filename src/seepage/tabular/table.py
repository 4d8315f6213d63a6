"""Table: a schema and the rows that fit it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seepage.errors import BadInputError, Remedy, check_choice
from seepage.tabular.infer import missing_cells, numbers_of, raise_all, refuse_odd
from seepage.tabular.policy import Missing
from seepage.tabular.reading import Source, open_table
from seepage.tabular.schema import Column, Continuous, Discrete, Schema
from seepage.tabular.texts import DAYS, TextColumn, dates_in_digits
from seepage.text import how_many
from seepage.text import listed as listed_words

# Largest number of columns that a note names.
_NAMED = 20
# What can hold a column exactly, smallest first.
_COMPACT = (np.uint8, np.int16, np.int32, np.float32)


class Table:
    """Rows that fit a schema, checked once on construction.

    Columns are stored apart, each in the smallest type that holds it exactly, so that a table of a million rows and
    some hundred columns needs little memory. ``cells`` and ``labels`` are built from them on first use: float64 tensors
    in which a discrete cell is the position of its category and a continuous cell its value. ``take`` and ``column``
    give parts of them without building the whole.

    Args:
        source: a DataFrame, or an opened table; columns that the schema does not have are dropped. The meaning of a CSV
            cell follows from the schema, not from its look: ``01`` is the text "01" where that is a category and the
            number 1 where 1 is one, and ``NA`` is missing only where it is not a category.
        missing: treatment of rows with missing cells that the schema has no place for (a column's own ``missing``):
            ``refuse`` them, ``drop`` them, or (``category``) drop those without a target and refuse the others. None:
            refuse them, where the user has no option for another treatment.
    """

    def __init__(self, schema: Schema, source: pd.DataFrame | Source, missing: Missing | None = "refuse") -> None:
        if missing is not None:
            check_choice("policy for missing cells:", missing, Missing)
        self.schema = schema
        opened = open_table(source) if isinstance(source, pd.DataFrame) else source
        columns, self.notes, self.source_mask = _read(schema, opened, missing)
        self._columns = tuple(_tensor(columns[column.name]) for column in schema.columns)
        self._target = _tensor(columns[schema.target.name])

    @classmethod
    def read(cls, path: str | Path, schema: Schema, separator: str = ",", missing: Missing | None = "refuse") -> Table:
        """Read the table of a ``.csv``, ``.csv.gz`` or ``.parquet`` file; arguments are those of ``Table``."""
        return cls(schema, open_table(path, separator), missing)

    @classmethod
    def _of(cls, schema: Schema, columns: Sequence[Tensor], target: Tensor, notes: tuple[str, ...] = ()) -> Table:
        table = cls.__new__(cls)
        table.schema, table._columns, table._target, table.notes = schema, tuple(columns), target, notes
        table.source_mask = None
        return table

    def __len__(self) -> int:
        return len(self._target)

    def __getstate__(self) -> dict[str, object]:
        # What is built on first use need not be sent to another process.
        return {name: value for name, value in self.__dict__.items() if name not in ("cells", "labels", "frame")}

    @cached_property
    def cells(self) -> Float[Tensor, "record column"]:
        """All cells, eight bytes each."""
        cells = torch.empty(len(self), len(self._columns), dtype=torch.float64)
        for i, column in enumerate(self._columns):
            cells[:, i] = column
        return cells

    @cached_property
    def labels(self) -> Float[Tensor, " record"]:
        """The target's cells."""
        return self._target.clone().double()

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The rows as a DataFrame, the target last."""
        columns = [*zip(self.schema.columns, self._columns, strict=True), (self.schema.target, self._target)]
        return pd.DataFrame({column.name: _from_codes(column, cells.double().numpy()) for column, cells in columns})

    def column(self, position: int, rows: Int[Tensor, " some"] | None = None) -> Float[Tensor, " some"]:
        """Return the cells of one column, of some rows or of all."""
        column = self._columns[position]
        return (column.clone() if rows is None else column[rows]).double()

    def near(
        self, position: int, value: float, tolerance: float, rows: Int[Tensor, " some"] | None = None
    ) -> Bool[Tensor, " some"]:
        """Return which cells of one column, of some rows or of all, are within a distance of a value; none of a NaN.

        At a distance of 0 large numbers that differ in the last digits of float32 may be taken for equal.
        """
        cells = self._columns[position] if rows is None else self._columns[position][rows]
        # Codes are compared in their own small type, several times as fast.
        return cells == value if tolerance == 0 else (cells.double() - value).abs_() <= tolerance

    def take(self, index: Int[Tensor, "*some"]) -> tuple[Float[Tensor, "*some column"], Float[Tensor, "*some"]]:
        """Return cells and labels of the rows at some positions, of any shape."""
        index = index.cpu().long()
        cells = torch.stack([column[index].double() for column in self._columns], dim=-1)
        return cells, self._target[index].double()

    def of_cells(self, cells: Float[Tensor, "some column"], labels: Float[Tensor, " some"]) -> Table:
        """Return a table of the same schema with other cells, in the form that ``at`` returns."""
        return Table._of(self.schema, list(cells.unbind(-1)), labels, self.notes)

    def rows(self, index: Tensor | np.ndarray | Sequence[int]) -> Table:
        """Return the table of the given rows (positions, repeats allowed, in the order given)."""
        positions = torch.as_tensor(index).cpu()
        if positions.ndim != 1 or not len(positions) or positions.is_floating_point() or positions.dtype == torch.bool:
            raise BadInputError(
                f"rows are chosen by a non-empty list of whole-numbered positions, got {positions.dtype} "
                f"of shape {tuple(positions.shape)}."
            )
        outside = positions[(positions < 0) | (positions >= len(self))]
        if len(outside):
            raise BadInputError(f"row {int(outside[0])} was asked of a table whose rows are 0 to {len(self) - 1}.")
        positions = positions.long()
        columns = [column[positions] for column in self._columns]
        return Table._of(self.schema, columns, self._target[positions], self.notes)

    def followed_by(self, other: Table) -> Table:
        """Return the rows of this table and then those of another of the same schema."""
        if other.schema != self.schema:
            raise BadInputError("tables of different schemas cannot be joined; give both the same one.")
        both = [torch.cat([column, more]) for column, more in zip(self._columns, other._columns, strict=True)]
        notes = tuple(dict.fromkeys((*self.notes, *other.notes)))
        return Table._of(self.schema, both, torch.cat([self._target, other._target]), notes)


def frame_of(schema: Schema, cells: Float[Tensor, "record column"]) -> pd.DataFrame:
    """Return cells as a mixed-type DataFrame without the target: types of the categories, int64 or float64."""
    return frame_of_columns(schema.columns, cells)


def frame_of_columns(columns: Sequence[Column], cells: Float[Tensor, "record column"]) -> pd.DataFrame:
    """Return cells of some columns, the target or not, as ``frame_of`` does."""
    values = cells.detach().cpu().numpy()
    if values.shape[1] != len(columns):
        raise BadInputError(f"the schema has {len(columns)} columns, the cells {values.shape[1]}.")
    return pd.DataFrame({column.name: _from_codes(column, values[:, i]) for i, column in enumerate(columns)})


def _read(
    schema: Schema, source: Source, missing: Missing | None
) -> tuple[dict[str, np.ndarray], tuple[str, ...], np.ndarray | None]:
    """Return each column's cells in the smallest type that holds them, notes, and which rows were kept (None: all)."""
    wanted = {column.name: column for column in (*schema.columns, schema.target)}
    lacking = [name for name in wanted if name not in source.names]
    if lacking:
        names = source.shown_names()
        listed = len(lacking) < len(wanted) or source.lists_names()
        has = ", ".join(map(repr, names)) if listed else f"{len(names)} others, not listed as they may be cells"
        raise BadInputError(f"the table lacks {', '.join(map(repr, lacking))}, which its schema has; it has {has}.")
    cells: dict[str, np.ndarray] = {}
    wrong: list[str | BadInputError] = []
    notes: list[str] = []
    filled: dict[str, list[tuple[str, int, int]]] = {}
    gaps: dict[str, tuple[int, int]] = {}
    rows = 0
    mask = _complete_mask(schema, source, missing)
    for name, raw in source.columns(list(wanted)):
        if not len(raw):
            raise BadInputError("the table has no rows; give at least one.")
        column = wanted[name]
        try:
            values = _codes(column, raw) if isinstance(column, Discrete) else _numbers(column, raw)
            there = ~np.isnan(values)
            counted = there if mask is None else there & mask
            if isinstance(column, Discrete):
                merged = _check_codes(column, raw, values, counted)
            else:
                merged = 0
                _check_numbers(column, raw, values, mask)
        except BadInputError as error:
            wrong.append(error)
            continue
        rows = len(values) if mask is None else int(mask.sum())
        if merged:
            notes.append(
                f"{name!r}: {merged:,} of {rows:,} cells are rare values taken together as one category, which an "
                "attack that guesses that category gets right"
            )
        absent = ~there if mask is None else ~there & mask
        count = int(absent.sum())
        if count and column.missing is None:
            gaps[name] = (count, int(absent.argmax()))
        elif count and column.missing is not None:
            # A category's position, or the number itself.
            values[absent] = column.categories.index(column.missing) if isinstance(column, Discrete) else column.missing
            how = (
                "taken as a category of their own"
                if isinstance(column, Discrete)
                else "filled with one number; an attack that guesses it gets them right"
            )
            filled.setdefault(how, []).append((name, count, rows))
        if not gaps and not wrong:
            cells[name] = _compact(values if mask is None else values[mask])
    if gaps:
        wrong.append(missing_cells(gaps, steered=False) if missing is None else _no_place(gaps, rows, missing))
    raise_all(wrong)
    notes += [_filled(how, columns) for how, columns in filled.items()]
    if mask is not None:
        why = "no target" if missing == "category" else "missing cells"
        notes.append(f"{int((~mask).sum()):,} of {len(mask):,} rows have {why} and were dropped")
    return cells, tuple(notes), mask


def _no_place(gaps: dict[str, tuple[int, int]], rows: int, missing: Missing) -> BadInputError:
    """Return the error for missing cells, (number, first) by column, for which a schema has no place."""
    listed = [
        f"all {rows:,} in {name!r}" if count == rows else f"{count:,} in {name!r} (first in data row {first + 1})"
        for name, (count, first) in list(gaps.items())[:_NAMED]
    ]
    more = f" and {how_many(len(gaps) - _NAMED, 'more column')}" if len(gaps) > _NAMED else ""
    empty = [repr(name) for name, (count, _) in gaps.items() if count == rows][:_NAMED]
    # A category that the other parties' schema lacks would give the rows another width.
    given: list[str | Remedy] = ["; a schema that is given is not widened by ", Remedy("missing", "category")]
    return BadInputError(
        f"the table has missing cells: {', '.join(listed)}{more}; its schema has no place for them",
        *(given if missing == "category" else ()),
        "; write a place into the schema of all parties (under the column, missing: and a number within its bounds or "
        "one of its categories), or leave out rows that have one (",
        Remedy("missing", "drop"),
        f"){f', and take {listed_words(empty)}, empty in all rows, out of the schema' if empty else ''}. "
        "Data row 1 is the first under the header",
    )


def _filled(how: str, columns: Sequence[tuple[str, int, int]]) -> str:
    """Return a note on the columns whose missing cells are filled alike: name, number of these cells, and of all."""
    if len(columns) == 1:
        name, count, rows = columns[0]
        return f"{name!r}: {count:,} of {rows:,} cells are missing and {how}"
    counts = ", ".join(f"{name!r} {count:,}" for name, count, _ in columns[:_NAMED])
    more = f" and {how_many(len(columns) - _NAMED, 'more column')}" if len(columns) > _NAMED else ""
    return f"missing cells of {len(columns)} columns are {how}, of {columns[0][2]:,} rows: {counts}{more}"


def _complete_mask(schema: Schema, source: Source, missing: Missing | None) -> np.ndarray | None:
    """Return which rows are kept where those with missing cells are dropped; None for all."""
    columns = {"drop": (*schema.columns, schema.target), "category": (schema.target,)}.get(missing or "refuse", ())
    at_stake = {column.name: column for column in columns if column.missing is None}
    mask: np.ndarray | None = None
    empty: list[str] = []
    for name, raw in source.columns(list(at_stake)):
        column = at_stake[name]
        if isinstance(column, Discrete):
            there = ~np.isnan(_codes(column, raw))
        else:
            there = ~raw.empty()[raw.position] if isinstance(raw, TextColumn) else raw.notna().to_numpy()
        empty += [] if there.any() else [name]
        if not there.all():
            mask = there if mask is None else mask & there
    if mask is not None and not mask.any():
        raise BadInputError(
            "every row of the table has a missing cell, so dropping those rows leaves none; "
            + (f"{listed_words([repr(name) for name in empty[:_NAMED]])} is empty in all rows. " if empty else "")
            + "Give missing cells a place in the schema (under a column, missing: and a number or a category), or take "
            "columns that are mostly empty out of it.",
        )
    return mask


def _compact(values: np.ndarray) -> np.ndarray:
    for kind in _COMPACT:
        for part in (values[:1000], values):
            with np.errstate(over="ignore", invalid="ignore"):
                same = np.array_equal(part.astype(kind).astype(np.float64), part)
            if not same:
                break
        else:
            return values.astype(kind)
    return values


def _codes(column: Discrete, raw: pd.Series | TextColumn) -> np.ndarray:
    """Return the positions of the cells' categories: NaN where one is missing, -1 where it is no category."""
    codes = {category: float(code) for code, category in enumerate(column.categories)}
    if isinstance(raw, TextColumn):
        position, distinct = raw.position, _meanings(column, raw)
    else:
        try:
            position, distinct = pd.factorize(raw)
        except TypeError as error:
            raise BadInputError(
                f"column {column.name!r} holds {type(raw.iloc[0]).__name__} objects, which cannot be categories; "
                "a category is a text, a number or a boolean"
            ) from error
    coded = [np.nan if value is None else codes.get(value, -1.0) for value in distinct]
    # Position -1 (a missing cell) takes the last entry.
    return np.array([*coded, np.nan])[position]


def _check_codes(column: Discrete, raw: pd.Series | TextColumn, codes: np.ndarray, counted: np.ndarray) -> int:
    """Put cells that are no category into the one that takes them, and return how many there are."""
    unseen = np.flatnonzero((codes < 0) & counted)
    if column.other is None:
        if not len(unseen):
            return 0
        cell = (
            raw.distinct[int(raw.position[unseen[0]])].as_py() if isinstance(raw, TextColumn) else raw.iloc[unseen[0]]
        )
        advice = _advice(column, cell.item() if isinstance(cell, np.generic) else cell)
        raise BadInputError(
            f"column {column.name!r} holds {how_many(len(unseen), 'cell')} with none of its {column.width} "
            f"categories, the first in data row {unseen[0] + 1}; {advice}"
        )
    other = column.categories.index(column.other)
    codes[codes < 0] = other
    return int(((codes == other) & counted).sum())


def _advice(column: Discrete, cell: object) -> str:
    """Return the likeliest reason why a cell is no category, without showing it."""
    for category in column.categories:
        if isinstance(cell, str) and isinstance(category, str) and cell.strip().lower() == category.strip().lower():
            return "it differs from a category in spaces or capitals only: make them the same"
        if isinstance(cell, str) != isinstance(category, str) and _same_written(cell, category):
            return (
                f"the schema has a {_kind(category)} where the table has a {_kind(cell)}: "
                f"turn the column into {_kind(category)}s or list {_kind(cell)}s in the schema instead"
            )
        if isinstance(cell, float) and isinstance(category, float | int) and math.isclose(cell, category, rel_tol=1e-6):
            return "it differs from a category by a rounding: round the column or give it as float64"
        if (
            isinstance(category, bool)
            and isinstance(cell, str)
            and cell.lower() in ("yes", "no", "on", "off", "y", "n")
        ):
            return "YAML takes bare yes, no, on and off for booleans: put them in quotes in the schema"
    return "add such values to the schema, name a category that takes them (other), or drop those rows"


def _same_written(first: object, second: object) -> bool:
    text, value = (first, second) if isinstance(first, str) else (str(second), first)
    if isinstance(value, bool):
        return text.strip().lower() == str(value).lower()
    try:
        return float(text) == value
    except ValueError:
        return text == str(value)


def _tensor(values: np.ndarray) -> torch.Tensor:
    # pandas hands out some of its own arrays for reading only, which tensors cannot be.
    return torch.from_numpy(np.require(values, requirements="W"))


def _kind(value: object) -> str:
    return "text" if isinstance(value, str) else "boolean" if isinstance(value, bool) else "number"


def _numbers(column: Continuous, raw: pd.Series | TextColumn) -> np.ndarray:
    if column.unit == DAYS:
        dated = dates_in_digits(raw, least=1)
        raw = raw if dated is None else dated
    return raw.numbers() if isinstance(raw, TextColumn) else numbers_of(column.name, raw)


def _check_numbers(
    column: Continuous, raw: pd.Series | TextColumn, values: np.ndarray, mask: np.ndarray | None
) -> None:
    """Refuse cells that are present but not a number, infinite, out of bounds or not whole."""
    there = ~raw.empty()[raw.position] if isinstance(raw, TextColumn) else raw.notna().to_numpy()
    counted = there if mask is None else there & mask
    refuse_odd(column.name, values, counted)
    outside = np.flatnonzero(((values < column.low) | (values > column.high)) & counted)
    if len(outside):
        raise BadInputError(
            f"column {column.name!r} holds {how_many(len(outside), 'number')} outside the bounds of its schema, the "
            f"first in data row {outside[0] + 1}; widen the bounds or drop those rows"
        )
    fractional = np.flatnonzero((values != np.round(values)) & counted)
    if column.integer and len(fractional):
        raise BadInputError(
            f"column {column.name!r} is integer-valued but holds {how_many(len(fractional), 'number')} with a "
            f"fraction, the first in data row {fractional[0] + 1}; set integer: false in the schema or round the column"
        )


def _from_codes(column: Column, values: np.ndarray) -> pd.Series:
    if not isinstance(column, Discrete):
        return pd.Series(values.astype(np.int64) if column.integer else values)
    wrong = values[~np.isin(values, np.arange(column.width))]
    if len(wrong):
        raise BadInputError(
            f"column {column.name!r} has the categories 0 to {column.width - 1}, a cell holds {wrong[0]!r}; "
            "decode encoded rows before you show them."
        )
    alike = len({type(category) for category in column.categories}) == 1
    categories = pd.Series(list(column.categories), dtype=None if alike else object)
    return categories.iloc[values.astype(np.int64)].reset_index(drop=True)


def _meanings(column: Discrete, raw: TextColumn) -> list[bool | int | float | str | None]:
    """Return the categories that texts of a CSV file stand for; a text without a category stays, None is missing."""
    words = {category for category in column.categories if isinstance(category, str)}
    others = [category for category in column.categories if not isinstance(category, str)]

    def meaning(text: str, empty: bool) -> bool | int | float | str | None:
        if text in words:
            return text
        # As it is written first: as floats, two large whole numbers may be equal.
        for same in (lambda category: text == str(category), lambda category: _same_written(text, category)):
            for category in others:
                if same(category):
                    return category
        return None if empty else text

    return [meaning(text, empty) for text, empty in zip(raw.distinct.to_pylist(), raw.empty().tolist(), strict=True)]
