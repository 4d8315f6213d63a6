"""Dataset: a training table, a test table, their origin and notes; and those of tables of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd

from seepage.errors import BadInputError, Remedy
from seepage.tabular.codes import meaning_of_name
from seepage.tabular.infer import Inferred, Policy, infer
from seepage.tabular.one_hot import MergedSource, groups_of_schema
from seepage.tabular.policy import UTF8
from seepage.tabular.reading import OrderedDates, Source, open_table
from seepage.tabular.schema import Continuous, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from seepage.tabular.texts import TextColumn
from seepage.text import how_many

# TabLeak section 4: a guess counts when it is within this many standard deviations of the truth.
TOLERANCE = 0.319
OWN_DATA = "own data"
"""Licence of a user's own table."""


@dataclass(frozen=True)
class Dataset:
    """A training table, a test table where there is one, their origin, and notes that a reader of results must know.

    Where rows are no table, ``layout`` is what their columns are together, see ``settings.vertical.layout``. ``beside``
    are texts of the training rows that are no part of the table, by the name of their column.
    """

    name: str
    train: Table
    test: Table | None
    notes: tuple[str, ...]
    source: str
    licence: str
    layout: object | None = None
    beside: Mapping[str, Sequence[str | None]] = field(default_factory=dict, hash=False)

    @property
    def schema(self) -> Schema:
        """The schema that both tables share."""
        return self.train.schema

    @property
    def named_sensitive(self) -> tuple[str, ...]:
        """The sensitive columns of a user's own table, who named them; none of a published one."""
        is_own = self.licence == OWN_DATA
        return tuple(column.name for column in self.schema.columns if is_own and column.sensitive)

    @property
    def extent(self) -> str:
        """Number of rows of the clients, and of held-out rows, as text."""
        rows = f"{len(self.train):,} rows"
        return rows if self.test is None else f"{rows} of clients ({len(self.test):,} more held out)"

    @cached_property
    def all(self) -> Table:
        """The training rows followed by the test rows."""
        return self.train if self.test is None else self.train.followed_by(self.test)

    @cached_property
    def statistics(self) -> Statistics:
        """Statistics of training and test rows together, which TabLeak's threat model makes public."""
        return Statistics.of(self.all)


def measured(
    series: pd.Series, *, integer: bool = True, sensitive: bool = False, unit: str | None = None
) -> Continuous:
    """Return the continuous column whose bounds and tolerance are those of ``series``.

    Bounds are the least and the greatest value, the tolerance is 0.319 unbiased standard deviations (TabLeak section
    4), all over the rows given, so pass training and test rows together.
    """
    return Continuous(
        name=str(series.name),
        low=float(series.min()),
        high=float(series.max()),
        tolerance=TOLERANCE * float(series.std(ddof=1)),
        integer=integer,
        sensitive=sensitive,
        unit=unit,
    )


def split(table: Table, test_share: float, seed: int) -> tuple[Table, Table]:
    """Split shuffled rows into training and test rows, neither stratified nor in the original order.

    The permutation and the sizes are those of scikit-learn's ``train_test_split`` with ``random_state=seed``, so that
    splits of the literature are reproduced row by row.
    """
    if not 0 < test_share < 1:
        raise BadInputError(f"test_share must lie strictly between 0 and 1, got {test_share!r}; 0.2 is customary.")
    rows = len(table)
    held_out = int(np.ceil(test_share * rows))
    train_rows = int(np.floor((1 - test_share) * rows))
    if train_rows < 1:
        raise BadInputError(
            f"a test share of {test_share!r} of {how_many(rows, 'row')} leaves no row to train on; "
            "lower the share or give more rows."
        )
    order = np.random.RandomState(seed).permutation(rows)
    return table.rows(order[held_out : held_out + train_rows]), table.rows(order[:held_out])


def in_order(frame: pd.DataFrame, columns: Sequence[str], origin: str) -> pd.DataFrame:
    """Return ``frame`` with exactly ``columns``, in that order; ``origin`` names the file in messages."""
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise BadInputError(
            f"{origin} should have the columns {', '.join(columns)}, but lacks {', '.join(map(repr, missing))} "
            f"and has {', '.join(map(repr, frame.columns))}; check that it is the right file, unedited."
        )
    return frame[list(columns)]


def bundled(name: str) -> pd.DataFrame:
    """Return the bundled table with this name, text columns as plain strings."""
    with files("seepage.datasets").joinpath("bundled", f"{name}.parquet").open("rb") as file:
        frame = pd.read_parquet(file, engine="pyarrow")
    for column in frame.columns:
        # Categoricals would carry the file's order of categories, which is not the schema's.
        if isinstance(frame[column].dtype, pd.CategoricalDtype):
            frame[column] = frame[column].astype(object)
        else:
            frame[column] = frame[column].astype("int64")
    return frame


def some_rows(data: Dataset, most: int, seed: int, least: int = 0) -> Dataset:
    """Return a dataset of some of the rows, drawn without replacement; all in another order where there are fewer.

    Rows of a table with fewer than ``least`` are repeated until there are as many.
    """
    generator, count = np.random.default_rng(seed), len(data.all)
    order = generator.permutation(count)
    while 0 < len(order) < least:
        order = np.concatenate([order, generator.permutation(count)[: least - len(order)]])
    return replace(data, train=data.all.rows(order[:most]), test=None)


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
                f"{source.unknown_column(column)} It should hold the texts (",
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
    if inferred is None:
        left_out += _codes_as_numbers(schema)
    # What was inferred has them already.
    read = source.notes if inferred is None else ()
    notes = (*read, *left_out, *table.notes)
    origin = OWN_DATA if isinstance(rows, pd.DataFrame) else Path(rows).name
    title = name or ("own" if isinstance(rows, pd.DataFrame) else origin.split(".", 1)[0] or "own")
    return Dataset(title, table, None, notes, origin, OWN_DATA, beside=beside), inferred


def _codes_as_numbers(schema: Schema) -> tuple[str, ...]:
    """Return a note on columns that a given schema takes as numbers though their names speak of codes."""
    named = [
        repr(column.name)
        for column in (*schema.columns, schema.target)
        if isinstance(column, Continuous) and column.integer and column.unit is None and column.tolerance >= 1
        if meaning_of_name(column.name)[0] == "codes"
    ]
    if not named:
        return ()
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return (
        f"numbers in the schema, though their names speak of codes: {', '.join(named[:_NAMED])}{more}; a code that is "
        "near the right one counts as read there, so make them discrete if they are codes",
    )


def _beside(source: Source, names: tuple[str, ...], mask: np.ndarray | None) -> dict[str, tuple[str | None, ...]]:
    """Return columns as texts, of the rows that were kept; None where a cell is missing."""
    texts: dict[str, tuple[str | None, ...]] = {}
    for name, raw in source.columns(names):
        cells = texts_of(raw)
        texts[name] = (
            cells if mask is None else tuple(cell for cell, is_complete in zip(cells, mask, strict=True) if is_complete)
        )
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
