"""What holds for every schema and every table."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from torch import Tensor

from seepage.errors import BadInputError
from seepage.tabular.encoder import Encoder
from seepage.tabular.infer import infer_schema, rounded_outwards
from seepage.tabular.reading import read_frame
from seepage.tabular.schema import LARGEST_BOUND, Continuous, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table, frame_of
from tests.laws.strategies import WORDS, WRITABLE, schemas, tables
from tests.oracles.statistics import histogram, moments, shares

EXTREME = tables(schemas(largest=LARGEST_BOUND))
PLAIN = tables(schemas(WRITABLE))

Made = TypeVar("Made")


def encoder_of(table: Table) -> Encoder:
    """Return the table's encoder; tables that it refuses, as too narrow for its type, are not drawn."""
    try:
        return Encoder(table.schema, Statistics.of(table))
    except BadInputError:
        reject()


def attempt(make: Callable[[], Made]) -> tuple[Made | None, str]:
    """Return what was made, or why it was refused."""
    try:
        return make(), ""
    except BadInputError as error:
        return None, str(error)


def same_cells(table: Table, cells: Tensor) -> None:
    """Discrete and integer cells exactly, others to 1e-6 of the column's largest size."""
    for i, column in enumerate(table.schema.columns):
        true, found = table.cells[:, i], cells[..., i]
        if isinstance(column, Discrete) or column.integer:
            assert torch.equal(found, true.expand_as(found)), column
        else:
            assert bool(((found - true).abs() <= 1e-6 * true.abs().max()).all()), column


@pytest.mark.long
@given(tables())
def test_decoding_undoes_encoding(table: Table) -> None:
    encoder = encoder_of(table)
    same_cells(table, encoder.decode(encoder.encode(table.cells)))


@pytest.mark.long
@given(tables(), tables())
def test_decoding_undoes_encoding_with_the_moments_of_other_rows(table: Table, other: Table) -> None:
    rows = [i % len(other) for i in range(len(table))]
    few = table.rows([i % len(table) for i in rows])
    encoder = Encoder(table.schema, Statistics.of(few))
    same_cells(table, encoder.decode(encoder.encode(table.cells)))


@given(EXTREME, st.sampled_from([torch.float64, torch.float32]))
def test_extreme_columns_are_encoded_or_refused(table: Table, dtype: torch.dtype) -> None:
    encoder, refusal = attempt(lambda: Encoder(table.schema, Statistics.of(table), dtype=dtype))
    if encoder is None:
        assert "narrow the bounds" in refusal
        return
    encoded = encoder.encode(table.cells)
    assert encoded.dtype == dtype
    assert encoded.isfinite().all()
    decoded = encoder.decode(encoded)
    if dtype == torch.float64:
        same_cells(table, decoded)
    else:
        assert torch.equal(decoded[:, table.schema.discrete], table.cells[:, table.schema.discrete])


@given(tables())
def test_the_measured_table_is_standard(table: Table) -> None:
    encoded = encoder_of(table).encode(table.cells)
    varies = encoded.std(0) > 0.5
    torch.testing.assert_close(encoded.mean(0), torch.zeros_like(varies, dtype=torch.float64), rtol=0, atol=1e-6)
    torch.testing.assert_close(encoded.std(0), varies.double(), rtol=0, atol=1e-6)


@given(tables(), st.integers(1, 3), st.integers(1, 3))
def test_leading_axes_are_a_loop(table: Table, first: int, second: int) -> None:
    encoder = encoder_of(table)
    order = torch.stack([torch.arange(len(table)).roll(k) for k in range(first * second)])
    cells = table.cells[order].reshape(first, second, *table.cells.shape)
    encoded = encoder.encode(cells)
    assert encoded.shape == (*cells.shape[:-1], encoder.width)
    noisy = encoded + torch.linspace(-1, 1, encoded.numel(), dtype=torch.float64).reshape(encoded.shape)
    for method, batch in ((encoder.encode, cells), (encoder.decode, noisy), (encoder.project, noisy)):
        together = method(batch)
        for i in range(first):
            for j in range(second):
                assert torch.equal(together[i, j], method(batch[i, j]))


@pytest.mark.long
@given(tables(), st.integers(0, 2**31))
def test_projecting_twice_is_projecting_once(table: Table, seed: int) -> None:
    encoder = encoder_of(table)
    generator = torch.Generator().manual_seed(seed)
    anything = 3 * torch.randn(5, encoder.width, dtype=torch.float64, generator=generator)
    once = encoder.project(anything)
    cells = encoder.decode(once)
    valid = frame_of(table.schema, cells)
    valid[table.schema.target.name] = [table.frame[table.schema.target.name].iloc[0]] * len(cells)
    assert torch.equal(Table(table.schema, valid).cells, cells)
    twice = encoder.project(once)
    scale = (encoder.mean / encoder.std).abs() + once.abs()
    assert bool(((twice - once).abs() <= 1e-12 * scale + 1e-12).all())


@pytest.mark.long
@given(tables(), st.integers(0, 2**31))
def test_decoding_takes_the_nearest_valid_row(table: Table, seed: int) -> None:
    encoder = encoder_of(table)
    generator = torch.Generator().manual_seed(seed)
    encoded = torch.randn(4, encoder.width, dtype=torch.float64, generator=generator)
    cells, raw = encoder.decode(encoded), encoder.destandardise(encoded)
    for i, (column, block) in enumerate(zip(table.schema.columns, table.schema.blocks, strict=True)):
        for row in range(4):
            if isinstance(column, Discrete):
                assert raw[row, block][int(cells[row, i])] == raw[row, block].max()
            else:
                value = float(raw[row, block])
                value = math.floor(value + 0.5) if column.integer else value
                assert float(cells[row, i]) == min(max(value, column.low), column.high)


@pytest.mark.long
@given(tables())
def test_gradients_pass_through_the_continuous_maps(table: Table) -> None:
    schema, statistics = table.schema, Statistics.of(table)
    encoder = Encoder(schema, statistics)
    cells = table.cells.clone().requires_grad_()
    expected = torch.zeros(len(schema.columns), dtype=torch.float64)
    for i in schema.continuous:
        expected[i] = 1 / encoder.std[schema.blocks[i].start]
    if schema.continuous:
        encoder.encode(cells).sum().backward()
        assert cells.grad is not None
        torch.testing.assert_close(cells.grad, expected.expand_as(cells.grad))
    real = [
        i
        for i, column in enumerate(schema.columns)
        if isinstance(column, Continuous) and not column.integer and column.low < column.high
    ]
    if real:
        middle = ((encoder.low + encoder.high) / 2)[None].clone().requires_grad_()
        encoder.decode(middle)[0, real].sum().backward()
        assert middle.grad is not None
        blocks = [schema.blocks[i].start for i in real]
        torch.testing.assert_close(middle.grad[0, blocks], encoder.std[blocks])


@given(schemas(largest=LARGEST_BOUND))
def test_yaml_gives_the_schema_back(schema: Schema) -> None:
    again = Schema.from_yaml(schema.to_yaml())
    assert again == schema
    # 1, 1.0 and True are equal, what is displayed is not.
    assert repr(again) == repr(schema)


@pytest.mark.long
@given(tables())
def test_shown_cells_make_the_same_table(table: Table) -> None:
    frame = frame_of(table.schema, table.cells)
    frame[table.schema.target.name] = table.frame[table.schema.target.name]
    assert torch.equal(Table(table.schema, frame).cells, table.cells)


@pytest.mark.long
@given(tables(), st.data())
def test_rows_are_the_rows_asked_for(table: Table, data: st.DataObject) -> None:
    index = data.draw(st.lists(st.integers(0, len(table) - 1), min_size=1, max_size=6))
    chosen = table.rows(index)
    assert torch.equal(chosen.cells, table.cells[index])
    assert torch.equal(chosen.labels, table.labels[index])
    assert chosen.frame.dtypes.equals(table.frame.dtypes)
    again = Table(table.schema, chosen.frame)
    assert torch.equal(again.cells, chosen.cells)
    assert torch.equal(again.labels, chosen.labels)


@given(tables(), st.integers(1, 12))
def test_statistics_agree_with_exact_fractions(table: Table, bins: int) -> None:
    statistics = Statistics.of(table, bins=bins)
    columns = [*zip(table.schema.columns, table.cells.T, statistics.marginals, strict=True)]
    columns.append((table.schema.target, table.labels, statistics.target))
    for column, cells, marginal in columns:
        mean, std = moments(cells.tolist())
        size = float(cells.abs().max())
        assert marginal.mean == pytest.approx(mean, rel=1e-9, abs=1e-12 * size)
        assert marginal.std == pytest.approx(std, rel=1e-9)
        if isinstance(column, Discrete):
            assert marginal.values.tolist() == list(range(column.width))
            assert marginal.probabilities.tolist() == pytest.approx(shares(cells.tolist(), column.width))
            assert marginal.probabilities[int(marginal.median)] == marginal.probabilities.max()
            continue
        assert marginal.median == sorted(cells.tolist())[(len(cells) - 1) // 2]
        assert float(marginal.probabilities.sum()) == pytest.approx(1)
        assert bool((marginal.values.diff() > 0).all())
        # Each cell counts for the last value at or below it.
        nearest = [max(value for value in marginal.values.tolist() if value <= cell) for cell in cells.tolist()]
        counted = [nearest.count(value) / len(nearest) for value in marginal.values.tolist()]
        assert marginal.probabilities.tolist() == pytest.approx(counted)
        assert len(marginal.values) <= bins


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=30), st.sampled_from([1, 2, 4, 8, 16]))
def test_marginals_of_binary_fractions_are_histograms(numbers: list[int], bins: int) -> None:
    # Sixteenths make every edge exact, so that no cell lies within a rounding of one.
    cells = [number / 16 for number in [*numbers, -50, 50]]
    column = Continuous(name="x", low=-10, high=10, tolerance=0)
    schema = Schema(columns=(column,), target=Discrete(name="y", categories=(0,)))
    cells[-2:] = [-4.0, 4.0]
    table_cells = torch.tensor(cells, dtype=torch.float64)[:, None]
    marginal = Statistics.of(Table(schema, frame_of(schema, table_cells).assign(y=0)), bins).marginals[0]
    low, high = min(cells), max(cells)
    expected = histogram(cells, bins)
    if low == -4 and high == 4:
        assert marginal.values.tolist() == [low + k * (high - low) / bins for k in expected]
        assert marginal.probabilities.tolist() == pytest.approx(list(expected.values()))


@pytest.mark.long
@given(tables(), st.integers(-20, 20), st.integers(-100, 100))
def test_a_column_in_another_unit_is_encoded_the_same(table: Table, power: int, shift: int) -> None:
    def measured(column: Discrete | Continuous) -> Discrete | Continuous:
        if isinstance(column, Discrete):
            return column
        return Continuous(name=column.name, low=-1e30, high=1e30, tolerance=0)

    schema = Schema(columns=tuple(map(measured, table.schema.columns)), target=table.schema.target)
    frame = table.frame.copy()
    for i in schema.continuous:
        values = table.cells[:, i]
        # An exact change of unit: anything else is rounded before it is encoded.
        assume(bool((values == values.round()).all()) and bool((values.abs() < 2**40).all()))
        frame[schema.columns[i].name] = ((values + shift) * 2.0**power).numpy()
    before = Encoder(schema, Statistics.of(Table(schema, table.frame))).encode(table.cells)
    other = Table(schema, frame)
    after = Encoder(schema, Statistics.of(other)).encode(other.cells)
    varies = before.std(0) > 0
    torch.testing.assert_close(after[:, varies], before[:, varies], rtol=1e-6, atol=1e-6)


@pytest.mark.long
@settings(max_examples=50)
@given(PLAIN, st.sampled_from([".csv", ".csv.gz", ".parquet"]))
def test_files_give_the_table_back(table: Table, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"table{suffix}"
        if suffix == ".parquet":
            table.frame.to_parquet(path)
        else:
            table.frame.to_csv(path, index=False)
        again = Table.read(path, table.schema)
    assert torch.equal(again.cells, table.cells)
    assert torch.equal(again.labels, table.labels)


@pytest.mark.long
@settings(max_examples=50)
@given(tables(schemas(WORDS)), st.sampled_from([".csv", ".parquet"]))
def test_a_table_fits_the_schema_inferred_from_its_file(table: Table, suffix: str) -> None:
    kinds = {column.name: {"kind": column.kind} for column in (*table.schema.columns, table.schema.target)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"table{suffix}"
        table.frame.to_csv(path, index=False) if suffix == ".csv" else table.frame.to_parquet(path)
        target = table.schema.target.name
        schema, refusal = attempt(lambda: infer_schema(read_frame(path), target, overrides=kinds))
        # A name that is a cell of its column, too.
        assume("like a row of data" not in refusal)
        assert refusal == ""
        assert schema is not None
        again = Table.read(path, schema)
    assert schema.names == table.schema.names
    for i in table.schema.continuous:
        assert torch.equal(again.cells[:, i], table.cells[:, i])
    for i in table.schema.discrete:
        # Codes differ, which rows are alike does not.
        alike = table.cells[:, i][:, None] == table.cells[:, i]
        assert torch.equal(again.cells[:, i][:, None] == again.cells[:, i], alike)


@pytest.mark.long
@given(tables())
def test_what_is_inferred_holds_the_table(table: Table) -> None:
    schema, refusal = attempt(lambda: infer_schema(table.frame, table.schema.target.name))
    if schema is None:
        # Bounds are rounded outwards, and those of numbers at the end of what is allowed lie beyond it.
        reasons = ("one value", "nothing to learn", "integer cells", "at most 1e+300 in size", "like a row of data")
        assert any(reason in refusal for reason in reasons)
        return
    again = Table(schema, table.frame)
    for column in schema.columns:
        if isinstance(column, Continuous):
            cells = again.cells[:, schema.names.index(column.name)]
            smallest, largest = float(cells.min()), float(cells.max())
            assert column.low <= smallest <= largest <= column.high
            assert (column.low, column.high) == rounded_outwards(smallest, largest, column.integer)
            assert column.tolerance == pytest.approx(0.319 * moments(cells.tolist())[1], rel=1e-9)
