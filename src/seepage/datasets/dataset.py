"""Dataset: a training table, a test table, their origin and notes for readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files

import numpy as np
import pandas as pd

from seepage.errors import BadInputError
from seepage.tabular.schema import Continuous, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
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
        own = self.licence == OWN_DATA
        return tuple(column.name for column in self.schema.columns if own and column.sensitive)

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
