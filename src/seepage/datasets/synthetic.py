"""Synthetic two-class tables with a chosen number of discrete and continuous columns."""

from __future__ import annotations

import numpy as np
import pandas as pd

from seepage.datasets.about import DatasetCard, dataset
from seepage.datasets.dataset import Dataset, measured, split
from seepage.errors import BadInputError
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.table import Table

CARD = DatasetCard(
    name="synthetic",
    rows=10_000,
    columns=10,
    width=26,
    target="label",
    source="generated, after TabLeak appendix E.1",
    licence="none needed",
)


@dataset(CARD)
def synthetic(
    discrete: int = 5, continuous: int = 5, rows: int = 10_000, test_share: float = 0.2, seed: int = 0
) -> Dataset:
    """A generated two-class table with a chosen number of discrete and continuous columns.

    TabLeak appendix E.1: given the class, a discrete column follows random probabilities over 2 to 6
    categories, a continuous one a Gaussian with a mean in [0, 5] and a standard deviation in [1, 3],
    all drawn uniformly for each class. The paper leaves open, and we chose: classes of equal
    size, probabilities proportional to uniform draws, independent columns given the class.

    Args:
        discrete, continuous: number of columns of each kind (10 in all in the paper).
        test_share: share of test rows, see :func:`seepage.datasets.dataset.split`.
        seed: seed of the distribution, the rows and the split.

    Raises:
        BadInputError: no column, a negative number of them, too few rows, or the share leaves none.

    Example:
        >>> data = synthetic(discrete=2, continuous=8, rows=100)
        >>> len(data.schema.discrete), len(data.schema.continuous), len(data.train)
        (2, 8, 80)
    """
    _check(discrete, continuous, rows)
    generator = np.random.default_rng(seed)
    sizes = generator.integers(2, 7, size=discrete)
    return drawn(CARD, sizes, continuous, rows, test_share, seed, generator)


def drawn(
    card: DatasetCard,
    sizes: np.ndarray,
    continuous: int,
    rows: int,
    test_share: float,
    seed: int,
    generator: np.random.Generator,
) -> Dataset:
    """Draw a two-class table with discrete columns of the given ``sizes`` (see :func:`synthetic`)."""
    _check(len(sizes), continuous, rows)
    labels = generator.permutation(np.arange(rows) % 2)
    columns: dict[str, np.ndarray] = {}
    for i, size in enumerate(sizes):
        weight = generator.uniform(size=(2, size))
        edges = (weight / weight.sum(axis=1, keepdims=True)).cumsum(axis=1)
        draw = generator.uniform(size=(rows, 1))
        # The last edge is 1 but for rounding, which must not make a category of its own.
        columns[f"discrete_{i}"] = (draw >= edges[labels, :-1]).sum(axis=1)
    mean = generator.uniform(0, 5, size=(2, continuous))
    std = generator.uniform(1, 3, size=(2, continuous))
    values = generator.normal(mean[labels], std[labels])
    columns |= {f"continuous_{i}": values[:, i] for i in range(continuous)}
    frame = pd.DataFrame({**columns, "label": labels})
    schema = Schema(
        columns=(
            *(Discrete(name=f"discrete_{i}", categories=tuple(range(size))) for i, size in enumerate(sizes.tolist())),
            *(measured(frame[f"continuous_{i}"], integer=False) for i in range(continuous)),
        ),
        target=Discrete(name="label", categories=(0, 1)),
    )
    train, test = split(Table(schema, frame), test_share, seed)
    return Dataset(card.name, train, test, (f"generated with seed {seed}",), card.source, card.licence)


def _check(discrete: int, continuous: int, rows: int) -> None:
    if discrete < 0 or continuous < 0 or discrete + continuous < 1:
        raise BadInputError(
            f"a table needs at least one column and no negative number of them, got {discrete} discrete and "
            f"{continuous} continuous ones; give two numbers of 0 or more."
        )
    if rows < 4:
        raise BadInputError(f"rows must be at least 4, two of each class, got {rows}.")
