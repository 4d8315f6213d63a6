"""What holds for every split, measured column and generated table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seepage.datasets import from_frame, load
from seepage.datasets.dataset import TOLERANCE, measured, split
from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table

SCHEMA = Schema(
    columns=(Continuous(name="number", low=0, high=10**6, tolerance=0.5, integer=True),),
    target=Discrete(name="label", categories=(0, 1)),
)


def numbered(rows: int) -> Table:
    return Table(SCHEMA, pd.DataFrame({"number": range(rows), "label": 0}))


@given(st.integers(1, 200), st.floats(0.01, 0.99), st.integers(0, 2**32 - 1))
def test_a_split_is_a_partition_or_refused(rows, share, seed):
    table = numbered(rows)
    if np.floor((1 - share) * rows) < 1:
        with pytest.raises(BadInputError, match="share"):
            split(table, share, seed)
        return
    train, test = split(table, share, seed)
    both = torch.cat([train.cells, test.cells])[:, 0]
    assert torch.equal(both.sort().values, torch.arange(rows, dtype=torch.float64))
    assert len(test) == np.ceil(share * rows)
    again = split(table, share, seed)
    assert torch.equal(again[0].cells, train.cells)


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=40), st.integers(1, 50), st.integers(-500, 500))
def test_measured_columns_follow_a_change_of_unit(values, scale, shift):
    one = measured(pd.Series(values, name="x"))
    other = measured(pd.Series([scale * value + shift for value in values], name="x"))
    assert (other.low, other.high) == (scale * one.low + shift, scale * one.high + shift)
    assert other.tolerance == pytest.approx(scale * one.tolerance, abs=1e-9)
    assert one.tolerance == pytest.approx(TOLERANCE * np.std(values, ddof=1), abs=1e-9)


@given(st.integers(2, 60), st.sampled_from([0.0, 0.2, 0.5]), st.integers(0, 1000))
def test_own_data_loses_no_row(rows, share, seed):
    data = from_frame(numbered(rows).frame, SCHEMA, share, seed)
    assert sorted(data.all.frame["number"]) == list(range(rows))


@given(st.integers(1, 6), st.integers(0, 6), st.integers(4, 60), st.integers(0, 1000))
def test_generated_tables_encode_and_decode(discrete, continuous, rows, seed):
    data = load("synthetic", discrete=discrete, continuous=continuous, rows=rows, seed=seed, test_share=0.25)
    assert len(data.all) == rows
    encoder = Encoder(data.schema, data.statistics)
    decoded = encoder.decode(encoder.encode(data.all.cells))
    assert torch.allclose(decoded, data.all.cells, rtol=1e-6, atol=1e-9)


@given(st.integers(2, 40), st.integers(0, 4), st.integers(1, 4), st.integers(0, 1000))
def test_distinct_rows_share_no_cell(rows, continuous, discrete, seed):
    cells = distinct(rows, continuous, discrete, seed).train.cells
    same = (cells[:, None] - cells[None]).abs() <= 0.25
    assert torch.equal(same, torch.eye(rows, dtype=torch.bool)[:, :, None].expand_as(same))
