"""Small tables with known answers, for tests of attacks, baselines and metrics."""

from __future__ import annotations

import numpy as np
import pandas as pd

from seepage.datasets.dataset import Dataset
from seepage.errors import BadInputError
from seepage.tabular.schema import Column, Continuous, Discrete, Schema
from seepage.tabular.table import Table

SOURCE, LICENCE = "generated", "none needed"


def distinct(rows: int = 32, continuous: int = 3, discrete: int = 3, seed: int = 0) -> Dataset:
    """A table in which each column alone distinguishes every row from every other.

    Each column is a permutation: of 0 to ``rows - 1`` with tolerance 0.25, or of ``rows`` categories. A guess in the
    wrong order therefore has error 1 with every other row, the right matching is unique, and a guess that is the table
    itself, permuted, scores 1 in every figure. Labels alternate.
    """
    _check(rows, continuous + discrete)
    generator = np.random.default_rng(seed)
    order = generator.permuted(np.tile(np.arange(rows), (continuous + discrete, 1)), axis=1)
    names = [f"continuous_{i}" for i in range(continuous)] + [f"discrete_{i}" for i in range(discrete)]
    frame = pd.DataFrame(dict(zip(names, order, strict=True)) | {"label": np.arange(rows) % 2})
    columns = (
        *(Continuous(name=name, low=0, high=rows - 1, tolerance=0.25, integer=True) for name in names[:continuous]),
        *(Discrete(name=name, categories=tuple(range(rows))) for name in names[continuous:]),
    )
    return _planted("distinct", columns, frame, "every row differs from every other in every column")


def telling(rows: int = 64, seed: int = 0) -> Dataset:
    """A table whose label is exactly the category of ``cause``, and independent of ``noise_0`` to ``noise_2``."""
    _check(rows, 1)
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.arange(rows) % 2)
    noise = generator.integers(0, 3, size=(rows, 3))
    names = [f"noise_{i}" for i in range(3)]
    frame = pd.DataFrame({"cause": labels} | {name: noise[:, i] for i, name in enumerate(names)} | {"label": labels})
    columns = (
        Discrete(name="cause", categories=(0, 1)),
        *(Discrete(name=name, categories=(0, 1, 2)) for name in names),
    )
    return _planted("telling", columns, frame, "the label is the column cause")


def _planted(name: str, columns: tuple[Column, ...], frame: pd.DataFrame, note: str) -> Dataset:
    schema = Schema(columns=columns, target=Discrete(name="label", categories=(0, 1)))
    return Dataset(name, Table(schema, frame), None, (note,), SOURCE, LICENCE)


def _check(rows: int, columns: int) -> None:
    if rows < 2 or columns < 1:
        raise BadInputError(
            f"a planted table needs at least 2 different rows and 1 column, got {rows} and {columns}; ask for more."
        )
