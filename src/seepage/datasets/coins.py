"""Tables with planted columns that are independent of all others, for controls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from seepage.datasets.dataset import Dataset, some_rows
from seepage.datasets.marked import pulled
from seepage.tabular.schema import Column, Continuous, Discrete, Schema
from seepage.tabular.table import Table, frame_of
from seepage.text import how_many

PLANTED = "planted"
SIDES = ("tails", "heads")
_SIDES = 4  # categories of a planted column
_ALIKE = 0.95  # share of planted cells that are alike


def with_coins(data: Dataset, count: int, seed: int, strength: float = 0.0, copies: float | None = None) -> Dataset:
    """Return all rows of a dataset as training rows, with columns of fair coins that follow none of its columns.

    The coins are the last columns. With ``copies`` there is a column before them for each, which shows the same side
    with that probability. With the probability ``strength``, a row's label is drawn anew, from one half of the target's
    values where the first coin shows heads and from the other where it shows tails.
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
    if copies is not None:
        for i, shown in enumerate(np.where(generator.random(coins.shape) < copies, coins, 1 - coins)):
            added.append(Discrete(name=_free(schema, f"copy_{i + 1}"), categories=SIDES))
            frame[added[-1].name] = np.array(SIDES)[shown]
    for i, shown in enumerate(coins):
        name = _free(schema, PLANTED if i == 0 else f"{PLANTED}_{i + 1}")
        added.append(Discrete(name=name, categories=SIDES, sensitive=True))
        frame[name] = np.array(SIDES)[shown]
    table = Table(Schema(columns=(*schema.columns, *added), target=schema.target), frame)
    note = f"{how_many(count, 'column')} of fair coins {'was' if count == 1 else 'were'} planted" + (
        ", which the target follows" if strength else ""
    )
    return replace(data, train=table, test=None, notes=(*data.notes, note))


def with_label_coins(data: Dataset, count: int, seed: int, agreement: float = 0.95) -> Dataset:
    """Return all rows with columns of fair coins: one that the label follows, and others that follow nothing.

    Labels are two of the target's classes, or values: those of the first coin with the probability ``agreement``.
    """
    planted = with_coins(data, 1 + count, seed)
    rows = planted.train
    generator = np.random.default_rng([seed, 2])
    coin = rows.column(len(rows.schema.columns) - count - 1).numpy().astype(np.int64)
    shown = np.where(generator.random(len(rows)) < agreement, coin, 1 - coin)
    labels = torch.from_numpy(np.array(_ends(rows.schema))[shown])
    table = Table(rows.schema, rows.of_cells(rows.cells, labels).frame)
    return replace(planted, train=table, notes=(*planted.notes, "labels follow the first planted column"))


def numbered(data: Dataset, count: int, seed: int) -> Dataset:
    """Return some rows of a dataset with each column shuffled, labels drawn anew, and a planted number in each row.

    Columns keep their distributions and tell nothing of each other. Labels are two of the target's classes, or values,
    by fair coins. Where all columns are categories, so is the planted one: the last digit of the number to the base 4.
    """
    rows = some_rows(data, count, seed).all
    generator = np.random.default_rng([seed, 1])
    cells = torch.stack([c[generator.permutation(len(rows))] for c in rows.cells.T], dim=1)
    target = rows.schema.target
    labels = torch.from_numpy(np.array(_ends(rows.schema))[generator.integers(0, 2, len(rows))])
    frame = rows.of_cells(cells, labels).frame
    name = _free(rows.schema, PLANTED)
    frame[name] = generator.permutation(len(rows))
    # A number counts as right where it is the number itself.
    planted: Column = Continuous(name=name, low=0, high=max(1, len(rows) - 1), tolerance=0.4, integer=True)
    note = "columns are shuffled one by one, labels are coins, and a planted column numbers the rows"
    if all(isinstance(column, Discrete) for column in rows.schema.columns):
        frame[name] %= _SIDES
        planted = Discrete(name=name, categories=tuple(range(_SIDES)))
        note = "columns are shuffled one by one, labels are coins, and so are categories of a planted column"
    table = Table(Schema(columns=(*rows.schema.columns, planted), target=target), frame)
    return replace(data, train=table, test=None, notes=(*data.notes, note))


def with_parity(data: Dataset, name: str, count: int, seed: int, linked: bool = True, alike: bool = False) -> Dataset:
    """Return some rows of one column, shuffled, beside three planted ones of which no two tell anything of the others.

    Two are thrown evenly from three sides, the third is the sum of these and of the column's place, modulo 3: cross
    tables of two columns show nothing of it. If not ``linked`` it is thrown as well; if they are to be ``alike``,
    nearly all show the same side, which cross tables show. Labels are two of the target's classes, or ends, and follow
    the thrown ones.
    """
    rows = some_rows(data, count, seed).all
    schema, generator = rows.schema, np.random.default_rng([seed, 2])
    place = schema.names.index(name)
    cells = rows.column(place)[generator.permutation(len(rows))]
    thrown = generator.integers(0, 3, (len(rows), 2))
    third = thrown.sum(1) + cells.long().numpy() if linked else generator.integers(0, 3, len(rows))
    sides = np.column_stack([thrown, third % 3])
    if linked and alike:
        # Not quite, so that models can be fitted.
        same = generator.random((len(rows), 3)) < _ALIKE
        sides = np.where(same, thrown[:, :1], sides)
    chance = 1 / (1 + np.exp(-1.2 * (thrown[:, 0] - 1) - 0.7 * (thrown[:, 1] - 1)))
    target = schema.target
    labels = torch.from_numpy(np.array(_ends(schema))[(generator.uniform(size=len(rows)) < chance).astype(int)])
    frame = frame_of(Schema(columns=(schema.columns[place],), target=target), cells[:, None])
    planted = []
    for i in range(3):
        free = _free(schema, f"{PLANTED}_{i + 1}")
        planted.append(Discrete(name=free, categories=(0, 1, 2), sensitive=True))
        frame[free] = sides[:, i]
    frame[target.name] = rows.of_cells(rows.cells, labels).frame[target.name].to_numpy()
    together = "are alike" if alike else "tell of each other only together"
    tell = together if linked else "tell nothing of each other"
    note = f"one column is shuffled, and three planted ones {tell}"
    table = Table(Schema(columns=(schema.columns[place], *planted), target=target), frame)
    return replace(data, train=table, test=None, notes=(*data.notes, note))


def _ends(schema: Schema) -> tuple[float, float]:
    """Return two of the target's classes, or its bounds."""
    target = schema.target
    return (0.0, 1.0) if isinstance(target, Discrete) else (target.low, target.high)


def _free(schema: Schema, name: str) -> str:
    while name in (*schema.names, schema.target.name):
        name += "_"
    return name
