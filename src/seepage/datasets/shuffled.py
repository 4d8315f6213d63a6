"""A table whose columns are shuffled, with a planted column that numbers the rows: for controls of trees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from seepage.datasets.coins import PLANTED, some_rows
from seepage.datasets.dataset import Dataset
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table


def numbered(data: Dataset, count: int, seed: int) -> Dataset:
    """Return some rows of a dataset with each column shuffled, labels drawn anew, and a planted number in each row.

    Columns keep their distributions and tell nothing of each other. Labels are two of the target's classes, or values,
    by fair coins.
    """
    rows = some_rows(data, count, seed).all
    generator = np.random.default_rng([seed, 1])
    cells = torch.stack([c[generator.permutation(len(rows))] for c in rows.cells.T], dim=1)
    target = rows.schema.target
    ends = (0.0, 1.0) if isinstance(target, Discrete) else (target.low, target.high)
    labels = torch.from_numpy(np.array(ends)[generator.integers(0, 2, len(rows))])
    frame = rows.of_cells(cells, labels).frame
    name = PLANTED
    while name in (*rows.schema.names, target.name):
        name += "_"
    frame[name] = generator.permutation(len(rows))
    # A number counts as right where it is the number itself.
    number = Continuous(name=name, low=0, high=max(1, len(rows) - 1), tolerance=0.4, integer=True)
    table = Table(Schema(columns=(*rows.schema.columns, number), target=target), frame)
    note = "columns are shuffled one by one, labels are coins, and a planted column numbers the rows"
    return replace(data, train=table, test=None, notes=(*data.notes, note))
