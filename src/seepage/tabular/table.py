"""A table: a schema and the rows that fit it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from seepage.errors import BadInputError
from seepage.tabular.infer import MISSING, as_numbers, check_columns, read_frame, refuse_missing
from seepage.tabular.schema import Column, Continuous, Discrete, Schema


class Table:
    """Rows that fit a schema, checked once when made.

    Two forms are at hand: ``frame``, the mixed-type DataFrame that people hold, and ``cells`` with
    ``labels``, float64 tensors in which a discrete cell is the position of its category and a
    continuous cell its value. Attacks and metrics work on the second.

    Args:
        schema: what the columns may hold.
        frame: at least the schema's columns and target; further columns are dropped.

    Raises:
        BadInputError: a column is missing or repeated, there are no rows, a cell is NaN, not in its
            column's categories, not a number, not whole or out of bounds.

    Example:
        >>> schema = Schema(
        ...     columns=(Continuous(name="age", low=0, high=99, tolerance=5, integer=True),),
        ...     target=Discrete(name="ill", categories=("no", "yes")),
        ... )
        >>> table = Table(schema, pd.DataFrame({"age": [30, 41], "ill": ["no", "yes"]}))
        >>> table.cells.tolist(), table.labels.tolist()
        ([[30.0], [41.0]], [0.0, 1.0])
    """

    def __init__(self, schema: Schema, frame: pd.DataFrame) -> None:
        check_columns(frame)
        wanted = [*schema.names, schema.target.name]
        missing = [name for name in wanted if name not in frame.columns]
        if missing:
            raise BadInputError(
                f"the table lacks the column(s) {', '.join(map(repr, missing))} of its schema; "
                f"it has {', '.join(map(repr, frame.columns))}."
            )
        if not len(frame):
            raise BadInputError("the table has no rows; give at least one.")
        self.schema = schema
        self.frame = frame[wanted].reset_index(drop=True)
        refuse_missing(self.frame)
        columns = [_to_codes(column, self.frame[column.name]) for column in schema.columns]
        self.cells: Float[Tensor, "record column"] = torch.from_numpy(np.stack(columns, axis=1))
        self.labels: Float[Tensor, " record"] = torch.from_numpy(
            _to_codes(schema.target, self.frame[schema.target.name])
        )

    @classmethod
    def read(cls, path: str | Path, schema: Schema, separator: str = ",") -> Table:
        """Read the table of a ``.csv``, ``.csv.gz`` or ``.parquet`` file.

        What a CSV cell stands for follows from the schema, not from how it looks: ``01`` is the text
        "01" where that is a category and the number 1 where 1 is one, and ``NA`` is missing only
        where it is not a category.

        Raises:
            BadInputError: the file cannot be read, or its rows do not fit the schema.
        """
        if Path(path).name.lower().endswith(".parquet"):
            return cls(schema, read_frame(path))
        frame = read_frame(path, separator, as_text=True)
        known = [column for column in (*schema.columns, schema.target) if column.name in frame.columns]
        return cls(schema, frame.assign(**{column.name: _from_text(column, frame[column.name]) for column in known}))

    def __len__(self) -> int:
        return len(self.frame)

    def rows(self, index: Tensor | np.ndarray | Sequence[int]) -> Table:
        """Return the table of the given rows (positions, repeats allowed, in the order given).

        Raises:
            BadInputError: no position, one that is not whole, or one the table does not have.
        """
        positions = torch.as_tensor(index).cpu()
        if positions.ndim != 1 or not len(positions) or positions.is_floating_point() or positions.dtype == torch.bool:
            raise BadInputError(
                f"rows are chosen by a non-empty list of whole-numbered positions, got {positions.dtype} "
                f"of shape {tuple(positions.shape)}."
            )
        outside = positions[(positions < 0) | (positions >= len(self))]
        if len(outside):
            raise BadInputError(f"row {int(outside[0])} was asked of a table whose rows are 0 to {len(self) - 1}.")
        chosen = Table.__new__(Table)
        chosen.schema = self.schema
        chosen.frame = self.frame.iloc[positions.numpy()].reset_index(drop=True)
        chosen.cells = self.cells[positions.long()]
        chosen.labels = self.labels[positions.long()]
        return chosen


def frame_of(schema: Schema, cells: Float[Tensor, "record column"]) -> pd.DataFrame:
    """Return cells as the mixed-type DataFrame a reader expects (the target is not among them).

    Discrete columns have the type of their categories (object where they mix), integer-valued ones are
    int64, other numbers float64.

    Raises:
        BadInputError: not one cell a column, or a discrete cell that is no category's position.
    """
    values = cells.detach().cpu().numpy()
    if values.shape[1] != len(schema.columns):
        raise BadInputError(f"the schema has {len(schema.columns)} columns, the cells {values.shape[1]}.")
    return pd.DataFrame({column.name: _from_codes(column, values[:, i]) for i, column in enumerate(schema.columns)})


def _to_codes(column: Column, series: pd.Series) -> np.ndarray:
    return _discrete(column, series) if isinstance(column, Discrete) else _continuous(column, series)


def _discrete(column: Discrete, series: pd.Series) -> np.ndarray:
    codes = {category: code for code, category in enumerate(column.categories)}
    try:
        position, found = pd.factorize(series)
        code = np.array([codes.get(value, -1) for value in found], dtype=np.float64)[position]
    except TypeError as error:
        raise BadInputError(
            f"column {column.name!r} holds cells that cannot be categories, such as {series.iloc[0]!r}; "
            "a category is a text, a number or a boolean."
        ) from error
    unseen = np.flatnonzero(code < 0)
    if len(unseen):
        cell = found[position[unseen[0]]]
        cell = cell.item() if isinstance(cell, np.generic) else cell
        raise BadInputError(
            f"column {column.name!r} holds {cell!r} in row {unseen[0]}, which is none of its {column.width} "
            f"categories ({', '.join(map(repr, column.categories[:8]))}{', ...' if column.width > 8 else ''}; "
            f"{len(unseen)} such cell(s) in all); {_advice(column, cell)}"
        )
    return code


def _advice(column: Discrete, cell: Any) -> str:
    """Say what most likely happened to a cell that is no category."""
    for category in column.categories:
        if isinstance(cell, str) and isinstance(category, str) and cell.strip().lower() == category.strip().lower():
            return f"it differs from {category!r} in spaces or capitals only: make them the same."
        if isinstance(cell, str) != isinstance(category, str) and _same_written(cell, category):
            return (
                f"the schema has the {_kind(category)} {category!r} and the table the {_kind(cell)} {cell!r}: "
                f"turn the column into {_kind(category)}s or list {cell!r} in the schema instead."
            )
        if isinstance(cell, float) and isinstance(category, float | int) and math.isclose(cell, category, rel_tol=1e-6):
            return f"it differs from {category!r} by a rounding: round the column or give it as float64."
        if (
            isinstance(category, bool)
            and isinstance(cell, str)
            and cell.lower() in ("yes", "no", "on", "off", "y", "n")
        ):
            return "YAML takes bare yes, no, on and off for booleans: put them in quotes in the schema."
    return "add it to the schema or drop those rows."


def _same_written(one: Any, other: Any) -> bool:
    text, value = (one, other) if isinstance(one, str) else (other, one)
    if isinstance(value, bool):
        return text.strip().lower() == str(value).lower()
    try:
        return float(text) == value
    except ValueError:
        return text == str(value)


def _kind(value: Any) -> str:
    return "text" if isinstance(value, str) else "boolean" if isinstance(value, bool) else "number"


def _continuous(column: Continuous, series: pd.Series) -> np.ndarray:
    values = as_numbers(column.name, series)
    outside = np.flatnonzero((values < column.low) | (values > column.high))
    if len(outside):
        raise BadInputError(
            f"column {column.name!r} holds {float(values[outside[0]])!r} in row {outside[0]}, outside its bounds "
            f"[{column.low}, {column.high}] ({len(outside)} such cell(s) in all); widen the bounds in the schema "
            "or drop those rows."
        )
    fractional = np.flatnonzero(values != np.round(values))
    if column.integer and len(fractional):
        raise BadInputError(
            f"column {column.name!r} is integer-valued but row {fractional[0]} holds {float(values[fractional[0]])!r} "
            f"({len(fractional)} such cell(s) in all); set integer: false in the schema or round the column."
        )
    return values


def _from_codes(column: Column, values: np.ndarray) -> pd.Series:
    if not isinstance(column, Discrete):
        return pd.Series(values.astype(np.int64) if column.integer else values)
    wrong = values[~np.isin(values, np.arange(column.width))]
    if len(wrong):
        raise BadInputError(
            f"column {column.name!r} has the categories 0 to {column.width - 1}, a cell holds {wrong[0]!r}; "
            "decode encoded rows before you show them."
        )
    categories = pd.Series(list(column.categories), dtype=None if _alike(column) else object)
    return categories.iloc[values.astype(np.int64)].reset_index(drop=True)


def _alike(column: Discrete) -> bool:
    return len({type(category) for category in column.categories}) == 1


def _from_text(column: Column, series: pd.Series) -> pd.Series:
    """Return what the texts of a CSV column stand for; what stands for nothing stays text, for the check to name."""
    position, texts = pd.factorize(series, use_na_sentinel=True)
    meaning = [_meaning(column, text) for text in texts]
    # Position -1 (a row that ends early) takes the last entry.
    meant = pd.Series([*meaning, None], dtype=object).iloc[position].reset_index(drop=True)
    # As floats, two large whole numbers may be equal.
    return meant if isinstance(column, Discrete) and not _alike(column) else meant.infer_objects()


def _meaning(column: Column, text: str) -> bool | int | float | str | None:
    categories = column.categories if isinstance(column, Discrete) else ()
    if text in categories:
        return text
    others = [category for category in categories if not isinstance(category, str)]
    # As it is written first: as floats, two large whole numbers may be equal.
    for same in (lambda category: text == str(category), lambda category: _same_written(text, category)):
        for category in others:
            if same(category):
                return category
    if text.strip() in MISSING:
        return None
    if isinstance(column, Discrete):
        return text
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if column.integer and value.is_integer() else value
