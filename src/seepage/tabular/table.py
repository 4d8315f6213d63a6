"""A table: a schema and the rows that fit it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from seepage.errors import BadInputError
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
        BadInputError: a column is missing, a cell is NaN, not in its column's categories,
            not a number, not whole or out of bounds.

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
        wanted = [*schema.names, schema.target.name]
        missing = [name for name in wanted if name not in frame.columns]
        if missing:
            raise BadInputError(
                f"the table lacks the column(s) {', '.join(map(repr, missing))} of its schema; "
                f"it has {', '.join(map(repr, frame.columns))}."
            )
        self.schema = schema
        self.frame = frame[wanted].reset_index(drop=True)
        columns = [_to_codes(column, self.frame[column.name]) for column in schema.columns]
        self.cells: Float[Tensor, "record column"] = torch.from_numpy(np.stack(columns, axis=1))
        self.labels: Float[Tensor, " record"] = torch.from_numpy(
            _to_codes(schema.target, self.frame[schema.target.name])
        )

    def __len__(self) -> int:
        return len(self.frame)

    def rows(self, index: Tensor | np.ndarray | list[int]) -> Table:
        """Return the table of the given rows (positions, repeats allowed)."""
        chosen = Table.__new__(Table)
        positions = torch.as_tensor(index)
        chosen.schema = self.schema
        chosen.frame = self.frame.iloc[positions.numpy()].reset_index(drop=True)
        chosen.cells = self.cells[positions]
        chosen.labels = self.labels[positions]
        return chosen


def frame_of(schema: Schema, cells: Float[Tensor, "record column"]) -> pd.DataFrame:
    """Return cells as the mixed-type DataFrame a reader expects (the target is not among them)."""
    values = cells.detach().cpu().numpy()
    return pd.DataFrame({column.name: _from_codes(column, values[:, i]) for i, column in enumerate(schema.columns)})


def _to_codes(column: Column, series: pd.Series) -> np.ndarray:
    if series.isna().any():
        row = int(np.flatnonzero(series.isna().to_numpy())[0])
        raise BadInputError(
            f"column {column.name!r} has {int(series.isna().sum())} missing cell(s), the first in row {row}; "
            "drop those rows, fill them, or give missing values a category of their own."
        )
    if isinstance(column, Discrete):
        codes = {category: code for code, category in enumerate(column.categories)}
        found = series.map(codes)
        if found.isna().any():
            unseen = series[found.isna()].iloc[0]
            raise BadInputError(
                f"column {column.name!r} holds {unseen!r}, which is none of its {column.width} categories "
                f"({', '.join(map(repr, column.categories[:8]))}{', ...' if column.width > 8 else ''}); "
                "add it to the schema or drop those rows."
            )
        return found.to_numpy(dtype=np.float64)
    values = pd.to_numeric(series, errors="coerce").to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise BadInputError(
            f"column {column.name!r} is continuous but row {row} holds {series.iloc[row]!r}; "
            "give a finite number or make the column discrete."
        )
    outside = (values < column.low) | (values > column.high)
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        raise BadInputError(
            f"column {column.name!r} holds {values[row]!r} in row {row}, outside its bounds "
            f"[{column.low}, {column.high}]; widen the bounds in the schema or drop those rows."
        )
    if column.integer and (values != np.round(values)).any():
        row = int(np.flatnonzero(values != np.round(values))[0])
        raise BadInputError(
            f"column {column.name!r} is integer-valued but row {row} holds {values[row]!r}; "
            "set integer: false in the schema or round the column."
        )
    return values


def _from_codes(column: Column, values: np.ndarray) -> pd.Series:
    if isinstance(column, Discrete):
        return pd.Series([column.categories[int(code)] for code in values], dtype=object)
    return pd.Series(values.astype(np.int64) if column.integer else values)
