"""Ranks of encoded rows against NumPy's, and against what the columns say they must be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seepage.datasets import load
from seepage.errors import BadInputError
from seepage.tabular.encoder import Encoder
from seepage.tabular.rank import batch_rank, rank_ceiling

GERMAN = load("german")
ENCODER = Encoder(GERMAN.schema, GERMAN.statistics)


def naive(cells: torch.Tensor) -> int:
    """Return the rank of one-hot rows, numbers and a 1, made column by column."""
    parts = [np.ones((len(cells), 1))]
    for i, column in enumerate(GERMAN.schema.columns):
        values = cells[:, i].numpy()
        if i in GERMAN.schema.discrete:
            parts.append((values[:, None] == np.arange(column.width)).astype(float))
        else:
            parts.append(((values - values.mean()) / max(values.std(), 1e-9))[:, None])
    return int(np.linalg.matrix_rank(np.concatenate(parts, 1), tol=1e-7))


def test_the_whole_table_has_a_rank_by_its_columns() -> None:
    """One for each category but the first of its column, if it occurs, one for each number, one for the constant."""
    cells = GERMAN.train.cells
    expected = 1 + sum(len(cells[:, i].unique()) - 1 for i in GERMAN.schema.discrete) + len(GERMAN.schema.continuous)
    assert rank_ceiling(ENCODER, cells) == expected == naive(cells)
    # Also where the table comes in several parts.
    assert rank_ceiling(ENCODER, cells.repeat(10, 1)) == expected


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 60))
def test_any_rows_have_the_rank_that_numpy_finds(seed: int, rows: int) -> None:
    chosen = torch.randint(len(GERMAN.train), (rows,), generator=torch.Generator().manual_seed(seed))
    assert rank_ceiling(ENCODER, GERMAN.train.cells[chosen]) == naive(GERMAN.train.cells[chosen])


def test_batches() -> None:
    cells = GERMAN.train.cells
    assert batch_rank(ENCODER, cells, 1, seed=0) == 1
    # Twice the same two rows.
    assert batch_rank(ENCODER, cells[:2].repeat(5, 1), 8, seed=0, draws=50, replacement=False) <= 2
    large = batch_rank(ENCODER, cells, 64, seed=0, draws=10)
    assert batch_rank(ENCODER, cells, 8, seed=0, draws=10) <= 8 < large < rank_ceiling(ENCODER, cells) <= 64
    assert large == batch_rank(ENCODER, cells, 64, seed=0, draws=10)
    # A batch without replacement holds no more rows than there are.
    assert batch_rank(ENCODER, cells[:3], 9, seed=0, replacement=False) == 3
    with pytest.raises(BadInputError, match="records"):
        batch_rank(ENCODER, cells, 0, seed=0)
