"""A synthetic two-class table of 250 columns and 1231 encoded ones."""

from __future__ import annotations

import numpy as np

from seepage.datasets.about import DatasetCard, dataset
from seepage.datasets.dataset import Dataset
from seepage.datasets.synthetic import drawn

DISCRETE = CONTINUOUS = 125
ONE_HOT = 1106
SMALLEST, LARGEST = 2, 16

CARD = DatasetCard(
    name="synthetic_highdim",
    rows=10_000,
    columns=250,
    width=1231,
    target="label",
    source="generated, after TabLeak appendix C.5",
    licence="none needed",
)


@dataset(CARD)
def synthetic_highdim(rows: int = 10_000, test_share: float = 0.2, seed: int = 0) -> Dataset:
    """A generated two-class table of 125 discrete and 125 continuous columns, 1231 encoded ones.

    TabLeak appendix C.5, drawn as in its appendix E.1 (see ``synthetic``). Its 1231 encoded columns
    cannot come from the 2 to 6 categories of E.1 (at most 875), so the sizes of the domains are
    uniform on 2 to 16 and then adjusted one by one, in random order, until they sum to 1106. The seed
    is that of distribution, rows and split; errors are those of ``synthetic``.

    Example:
        >>> synthetic_highdim(rows=20).schema.width
        1231
    """
    generator = np.random.default_rng(seed)
    sizes = generator.integers(SMALLEST, LARGEST + 1, size=DISCRETE)
    while (excess := int(sizes.sum()) - ONE_HOT) != 0:
        step = -np.sign(excess)
        free = np.flatnonzero((sizes + step >= SMALLEST) & (sizes + step <= LARGEST))
        sizes[generator.permutation(free)[: abs(excess)]] += step
    return drawn(CARD, sizes, CONTINUOUS, rows, test_share, seed, generator)
