"""Tables that several tests use."""

from __future__ import annotations

import numpy as np
import pandas as pd

from seepage.datasets.dataset import Dataset
from seepage.datasets.planted import telling
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table


def uniform(rows: int = 32, columns: int = 4) -> Dataset:
    """A table whose rows are all the same but for the label, so that no attack is better than the most frequent row."""
    kinds = tuple(Discrete(name=f"column_{i}", categories=("same", "other")) for i in range(columns))
    frame = pd.DataFrame({**dict.fromkeys((kind.name for kind in kinds), "same"), "label": np.arange(rows) % 2})
    schema = Schema(columns=kinds, target=Discrete(name="label", categories=(0, 1)))
    return Dataset("uniform", Table(schema, frame), None, ("all rows are the same",), "generated", "none needed")


def twins(pairs: int = 16, columns: int = 4, seed: int = 0) -> Dataset:
    """A table in which every row occurs exactly twice and no two pairs share a cell.

    The right matching is not unique (each pair may be swapped), yet every right one scores 1; half of the rows are
    unique.
    """
    generator = np.random.default_rng(seed)
    cells = generator.permuted(np.tile(np.arange(pairs), (columns, 1)), axis=1)
    rows = generator.permutation(np.repeat(np.arange(pairs), 2))
    kinds = tuple(Discrete(name=f"column_{i}", categories=tuple(range(pairs))) for i in range(columns))
    frame = pd.DataFrame({kind.name: cells[i][rows] for i, kind in enumerate(kinds)} | {"label": rows % 2})
    schema = Schema(columns=kinds, target=Discrete(name="label", categories=(0, 1)))
    return Dataset("twins", Table(schema, frame), None, ("every row occurs exactly twice",), "generated", "none needed")


def pay_table(rows: int = 400) -> Dataset:
    """Return a table whose target is a number that follows its columns."""
    data = telling(rows=rows)
    frame, schema = data.train.frame, data.schema
    pay = Continuous(name="pay", low=0, high=10, tolerance=1.0)
    made = frame.drop(columns=schema.target.name).assign(
        pay=3 * frame["cause"].astype(float) + 2 * frame["noise_0"].astype(float)
    )
    table = Table(Schema(columns=schema.columns, target=pay), pd.DataFrame(made))
    return Dataset("made", table, None, (), "made up", "none")
