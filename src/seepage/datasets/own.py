"""A user's own table as a dataset."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from seepage.datasets.dataset import Dataset, split
from seepage.tabular.schema import Schema
from seepage.tabular.table import Table


def from_frame(
    rows: pd.DataFrame | str | Path,
    schema: Schema,
    test_share: float = 0.2,
    seed: int = 42,
    name: str = "own",
) -> Dataset:
    """Make a dataset of a table that is at hand.

    Args:
        rows: a DataFrame, or the path of a CSV (``.csv``, ``.csv.gz``) or Parquet file.
        schema: what its columns hold; further columns are dropped.
        test_share: share of the rows, shuffled, to hold out; 0 for none.
        seed: of the shuffle, see :func:`seepage.datasets.dataset.split`.
        name: what results call it.

    Raises:
        BadInputError: the file cannot be read, the rows do not fit the schema, or the share is not
            in [0, 1) or leaves no training row.

    Example:
        >>> from seepage.tabular.schema import Continuous, Discrete
        >>> schema = Schema(
        ...     columns=(Continuous(name="age", low=0, high=99, tolerance=5, integer=True),),
        ...     target=Discrete(name="ill", categories=("no", "yes")),
        ... )
        >>> people = pd.DataFrame({"age": [30, 41, 52, 63, 74], "ill": ["no", "yes", "no", "no", "yes"]})
        >>> data = from_frame(people, schema)
        >>> len(data.train), len(data.test)
        (4, 1)
    """
    table = Table(schema, rows) if isinstance(rows, pd.DataFrame) else Table.read(rows, schema)
    source = "own data" if isinstance(rows, pd.DataFrame) else Path(rows).name
    if test_share == 0:
        return Dataset(name, table, None, (), source, "own data")
    train, test = split(table, test_share, seed)
    return Dataset(name, train, test, (), source, "own data")
