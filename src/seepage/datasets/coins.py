"""A table with planted columns that are independent of all others, for controls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from seepage.datasets.dataset import Dataset
from seepage.datasets.marked import pulled
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.table import Table
from seepage.text import how_many

PLANTED = "planted"
SIDES = ("tails", "heads")


def with_coins(data: Dataset, count: int, seed: int, strength: float = 0.0) -> Dataset:
    """Add columns of fair coins to a dataset, which follow none of its columns.

    Args:
        strength: probability of a row whose label is drawn anew, from one half of the target's values where the first
            coin shows heads and from the other where it shows tails; 0 for labels as they are.

    Returns:
        All rows as training rows, the planted columns last.

    Example:
        >>> from seepage.datasets.planted import telling
        >>> with_coins(telling(rows=100), 2, seed=0).schema.names[-2:]
        ('planted', 'planted_2')
    """
    rows = data.all
    schema = rows.schema
    generator = np.random.default_rng(seed)
    coins = generator.integers(0, 2, size=(count, len(rows)))
    labels = rows.labels.numpy().copy()
    if strength:
        # Both halves of the target's values on either side of five, as for the synthetic column.
        labels = pulled(labels, schema.target, 10 * coins[0], strength, generator)
    frame = rows.of_cells(rows.cells, torch.from_numpy(labels)).frame
    added = []
    for i, shown in enumerate(coins):
        name = PLANTED if i == 0 else f"{PLANTED}_{i + 1}"
        while name in (*schema.names, schema.target.name):
            name += "_"
        added.append(Discrete(name=name, categories=SIDES, sensitive=True))
        frame[name] = np.array(SIDES)[shown]
    table = Table(Schema(columns=(*schema.columns, *added), target=schema.target), frame)
    note = f"{how_many(count, 'column')} of fair coins {'was' if count == 1 else 'were'} planted" + (
        ", which the target follows" if strength else ""
    )
    return replace(data, train=table, test=None, notes=(*data.notes, note))


def some_rows(data: Dataset, most: int, seed: int) -> Dataset:
    """Return a dataset of some of the rows, drawn without replacement; of all in another order where there are fewer.

    Example:
        >>> from seepage.datasets.planted import telling
        >>> len(some_rows(telling(rows=100), 10, seed=0).all)
        10
    """
    order = np.random.default_rng(seed).permutation(len(data.all))
    return replace(data, train=data.all.rows(order[:most]), test=None)
