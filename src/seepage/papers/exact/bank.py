"""Common loader of the two versions of Bank Marketing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pandas as pd

from seepage.datasets.about import DatasetCard
from seepage.datasets.dataset import Dataset, in_order, measured, split
from seepage.datasets.files import obtain
from seepage.tabular.schema import Column, Discrete, Schema
from seepage.tabular.table import Table


def load_bank(
    card: DatasetCard,
    columns: Mapping[str, tuple[str, ...] | str | None],
    sensitive: Collection[str],
    fractional: Collection[str] = (),
    *,
    folder: str | Path | None,
    test_share: float,
    seed: int,
) -> Dataset:
    """Read one of the versions; the file is ordered by date, the split is shuffled.

    Args:
        card: card of the version, with one file.
        columns: categories of each column, or the unit of its numbers, in the published order.
        sensitive: names of columns that reports single out.
        fractional: names of columns of numbers that are not whole.
        folder: folder with the file, see :func:`seepage.datasets.files.obtain`.
        test_share, seed: arguments of the split, see :func:`seepage.datasets.dataset.split`.

    Raises:
        BadInputError: the file is missing, damaged or another one, or the share leaves no row.
    """
    [file] = card.files
    raw = obtain(card, folder).parse(file.name, lambda content: pd.read_csv(content, sep=";", keep_default_na=False))
    frame = in_order(raw, [*columns, card.target], file.name)

    def column(name: str) -> Column:
        domain = columns[name]
        if isinstance(domain, tuple):
            return Discrete(name=name, categories=domain, sensitive=name in sensitive)
        return measured(frame[name], integer=name not in fractional, unit=domain, sensitive=name in sensitive)

    schema = Schema(
        columns=tuple(column(name) for name in columns),
        target=Discrete(name=card.target, categories=("no", "yes"), sensitive=True),
    )
    train, test = split(Table(schema, frame), test_share, seed)
    return Dataset(card.name, train, test, (), card.source, card.licence)
