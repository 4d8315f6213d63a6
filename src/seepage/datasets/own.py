"""A user's own table as a dataset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from seepage.datasets.dataset import OWN_DATA, Dataset, split
from seepage.errors import BadInputError, Remedy, unknown_name
from seepage.tabular.infer import Inferred, Policy, infer
from seepage.tabular.one_hot import MergedSource, groups_of_schema
from seepage.tabular.policy import UTF8
from seepage.tabular.reading import OrderedDates, Source, open_table
from seepage.tabular.schema import Schema
from seepage.tabular.table import Table
from seepage.tabular.texts import TextColumn

# Largest number of columns that a note names.
_NAMED = 10


def own_table(
    rows: pd.DataFrame | str | Path,
    schema: Schema | None = None,
    *,
    target: str | None = None,
    policy: Policy | None = None,
    separator: str = ",",
    encoding: str = UTF8,
    name: str | None = None,
) -> tuple[Dataset, Inferred | None]:
    """Return ``read_table``'s dataset, and the inference of its schema where none was given."""
    policy = policy or Policy()
    source = opened = open_table(rows, separator, encoding)
    for column in policy.beside:
        if column not in source.names:
            raise BadInputError(
                f"{unknown_name('column', column, source.names)} It should hold the texts (",
                Remedy("text_column", placeholder="COLUMN"),
                ") or the identifiers of the nodes (",
                Remedy("node_column", placeholder="COLUMN"),
                ").",
            )
    if policy.day_first is not None:
        source = OrderedDates(source, policy.day_first)
    inferred = None
    if schema is not None:
        source = MergedSource(source, groups_of_schema(source, schema))
    elif target is not None:
        inferred = infer(source, target, policy)
        schema = inferred.schema
        source = MergedSource(source, inferred.groups)
    else:
        raise BadInputError(
            "a table of your own needs a schema, or a target (the column that the model learns) to infer one: "
            "add target='...' or schema=infer_schema(frame, target='...')."
        )
    table = Table(schema, source, policy.missing)
    beside = _beside(opened, tuple(policy.beside), table.source_mask)
    further = len(source.names) - len(schema.columns) - 1 - len(beside)
    left_out = inferred.notes if inferred is not None else ()
    if inferred is None and further:
        taken = (*schema.names, schema.target.name, *beside)
        named = [repr(name) for name in source.names if name not in taken]
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        left_out = (f"left out, as not in the schema: {', '.join(named[:_NAMED])}{more}",)
    # What was inferred has them already.
    read = source.notes if inferred is None else ()
    notes = (*read, *left_out, *table.notes)
    origin = OWN_DATA if isinstance(rows, pd.DataFrame) else Path(rows).name
    title = name or ("own" if isinstance(rows, pd.DataFrame) else origin.split(".", 1)[0] or "own")
    return Dataset(title, table, None, notes, origin, OWN_DATA, beside=beside), inferred


def _beside(source: Source, names: tuple[str, ...], mask: np.ndarray | None) -> dict[str, tuple[str | None, ...]]:
    """Return columns as texts, of the rows that were kept; None where a cell is missing."""
    texts: dict[str, tuple[str | None, ...]] = {}
    for name, raw in source.columns(names):
        cells = texts_of(raw)
        texts[name] = cells if mask is None else tuple(cell for cell, here in zip(cells, mask, strict=True) if here)
    return texts


def texts_of(raw: pd.Series | TextColumn) -> tuple[str | None, ...]:
    """Return the cells of a column as texts, None where one is missing; whole numbers without a decimal point."""
    cells = raw.as_texts() if isinstance(raw, TextColumn) else raw
    return tuple(None if pd.isna(cell) else _as_text(cell) for cell in cells)


def _as_text(cell: object) -> str:
    # Identifiers beside a gap are floats in many files.
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell).strip()


def read_table(
    rows: pd.DataFrame | str | Path,
    schema: Schema | None = None,
    *,
    target: str | None = None,
    policy: Policy | None = None,
    separator: str = ",",
    encoding: str = UTF8,
    name: str | None = None,
) -> Dataset:
    """Return a dataset of all rows of a table, whose schema is inferred where none is given.

    Every row may be in a client's batch, so that no rows are held out for testing. Notes tell which cells and columns
    were left out, filled or merged.

    Args:
        rows: a DataFrame, or the path of a file for ``open_table``.
        schema: schema of the columns; further columns are dropped.
        target: column to be learnt, where the schema is inferred.
        policy: choices in the inference of the schema, and the treatment of missing cells.
        separator: character between the cells of a CSV file.
        encoding: encoding of a CSV file, such as ``cp1252``.
        name: name in results; the file's name without suffix, or ``own``, if None.

    Raises:
        BadInputError: the file cannot be read, there is neither schema nor target, no schema can be inferred, or the
            rows do not fit it.

    Example:
        >>> people = read_table(pd.DataFrame({"age": [30.5, 41.0, 52.25], "ill": [0, 1, 0]}), target="ill")
        >>> people.schema.names, len(people.train)
        (('age',), 3)
    """
    return own_table(rows, schema, target=target, policy=policy, separator=separator, encoding=encoding, name=name)[0]


def from_frame(
    rows: pd.DataFrame | str | Path, schema: Schema, test_share: float = 0.2, seed: int = 42, name: str = "own"
) -> Dataset:
    """Make a dataset of a table in memory or a file, with a share of the shuffled rows held out."""
    dataset, _ = own_table(rows, schema, name=name)
    if test_share == 0:
        return dataset
    train, test = split(dataset.train, test_share, seed)
    return Dataset(name, train, test, dataset.notes, dataset.source, dataset.licence)
