from __future__ import annotations

import pandas as pd
import pytest
import torch

from seepage.errors import BadInputError
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table

SCHEMA = Schema(
    columns=(
        Discrete(name="job", categories=("cook", "nurse", "never")),
        Continuous(name="age", low=0, high=99, tolerance=5, integer=True),
        Continuous(name="height", low=0.5, high=2.5, tolerance=0.1),
    ),
    target=Discrete(name="ill", categories=(False, True)),
)
TABLE = Table(
    SCHEMA,
    pd.DataFrame(
        {"job": ["cook", "nurse", "cook"], "age": [10, 20, 60], "height": [1, 1.5, 2], "ill": [True, False, True]}
    ),
)
ENCODER = Encoder(SCHEMA, Statistics.of(TABLE))


def test_every_encoded_column_is_standardised_one_hot_ones_included() -> None:
    raw = torch.tensor([[1, 0, 0, 10, 1], [0, 1, 0, 20, 1.5], [1, 0, 0, 60, 2]], dtype=torch.float64)
    std = raw.std(0)
    std[2] = 1  # a category that never occurs
    torch.testing.assert_close(ENCODER.encode(TABLE.cells), (raw - raw.mean(0)) / std)
    torch.testing.assert_close(ENCODER.standardise(raw), (raw - raw.mean(0)) / std)
    torch.testing.assert_close(ENCODER.destandardise(ENCODER.standardise(raw)), raw)


def test_bounds_groups_and_kinds() -> None:
    raw_low, raw_high = ENCODER.destandardise(ENCODER.low), ENCODER.destandardise(ENCODER.high)
    torch.testing.assert_close(raw_low, torch.tensor([0, 0, 0, 0, 0.5], dtype=torch.float64))
    torch.testing.assert_close(raw_high, torch.tensor([1, 1, 1, 99, 2.5], dtype=torch.float64))
    assert ENCODER.groups.tolist() == [[1, 0, 0]] * 3 + [[0, 1, 0], [0, 0, 1]]
    assert ENCODER.is_continuous.tolist() == [False] * 3 + [True] * 2


def test_decoding_rounds_and_stays_within_bounds() -> None:
    raw = torch.tensor(
        [[0.2, 0.1, 0.3, 10.5, 9.0], [-5, -4, -6, 10.49, -9], [0, 0, 0, 120, 1], [0, 9, 9, -3.5, 1]],
        dtype=torch.float64,
    )
    decoded = ENCODER.decode(ENCODER.standardise(raw))
    # Halves go up, of equal categories the first is taken.
    assert decoded[:, :2].tolist() == [[2, 11], [1, 10], [0, 99], [1, 0]]
    torch.testing.assert_close(decoded[:, 2], torch.tensor([2.5, 0.5, 1, 1], dtype=torch.float64))


def test_single_precision_encodes_and_decodes() -> None:
    encoder = Encoder(SCHEMA, Statistics.of(TABLE), dtype=torch.float32)
    encoded = encoder.encode(TABLE.cells)
    assert encoded.dtype == encoder.mean.dtype == encoder.groups.dtype == torch.float32
    decoded = encoder.decode(encoded)
    assert decoded.dtype == torch.float64
    assert torch.equal(decoded[:, :2], TABLE.cells[:, :2])
    torch.testing.assert_close(decoded[:, 2], TABLE.cells[:, 2], rtol=1e-6, atol=0)


def test_no_rows_are_encoded_as_no_rows() -> None:
    assert ENCODER.encode(torch.empty(4, 0, 3, dtype=torch.float64)).shape == (4, 0, 5)
    assert ENCODER.decode(torch.empty(0, 2, 5, dtype=torch.float64)).shape == (0, 2, 3)


def test_encoding_is_vectorised_by_vmap() -> None:
    encoded = ENCODER.encode(TABLE.cells)
    torch.testing.assert_close(torch.func.vmap(ENCODER.decode)(encoded[:, None])[:, 0], TABLE.cells)


def test_statistics_of_another_schema_are_refused() -> None:
    other = SCHEMA.model_copy(update={"columns": SCHEMA.columns[1:]})
    with pytest.raises(BadInputError, match="the schema takes 2 encoded columns, the statistics describe 5"):
        Encoder(other, Statistics.of(TABLE))


@pytest.mark.parametrize(
    ("low", "high", "values", "dtype"),
    [
        (0, 1e300, [0, 1e-9], torch.float64),
        (0, 1e39, [0, 1e39], torch.float32),
        (0, 1e-60, [0, 1e-60], torch.float32),
    ],
)
def test_what_the_number_type_cannot_hold_is_refused(
    low: float, high: float, values: list[float], dtype: torch.dtype
) -> None:
    column = Continuous(name="x", low=low, high=high, tolerance=0)
    schema = Schema(columns=(column,), target=Discrete(name="y", categories=(0, 1)))
    statistics = Statistics.of(Table(schema, pd.DataFrame({"x": values, "y": [0, 1]})))
    with pytest.raises(BadInputError, match=r"column 'x' cannot be standardised in torch\.float.*narrow the bounds"):
        Encoder(schema, statistics, dtype=dtype)
