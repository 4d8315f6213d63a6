"""What must hold of scores for every table, guess and order."""

import random
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seepage.assessment import Measurement, measure
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table, frame_of
from seepage.wire.horizontal import RecordsGuess
from seepage.wire.secret import RecordsSecret

_TARGET = Discrete(name="target", categories=("no", "yes"))


@dataclass(frozen=True)
class _Case:
    """Plain choices; ``build`` makes the objects outside of Hypothesis, since run-time type checks draw randomly."""

    widths: list[int]
    tolerances: list[float]
    order: random.Random
    victims: int
    records: int
    known: float
    levels: int
    seed: int

    def build(self) -> tuple[Schema, Statistics, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return schema, statistics, true cells, guessed cells and uncertainty."""
        columns: list[Discrete | Continuous] = [
            Discrete(name=f"d{i}", categories=tuple(range(width))) for i, width in enumerate(self.widths)
        ]
        columns += [Continuous(name=f"c{i}", low=-5, high=5, tolerance=t) for i, t in enumerate(self.tolerances)]
        schema = Schema(columns=tuple(self.order.sample(columns, len(columns))), target=_TARGET)
        generator = torch.Generator().manual_seed(self.seed)
        background = frame_of(schema, self._cells(schema, 8, generator)[0]).assign(target=["no", "yes"] * 4)
        true = self._cells(schema, self.records, generator)
        # A mixture of right and wrong cells, and ties among the uncertainties.
        known = torch.rand(true.shape, generator=generator) < self.known
        guess = torch.where(known, true, self._cells(schema, self.records, generator))
        uncertainty = torch.randint(self.levels, true.shape, generator=generator).double()
        return schema, Statistics.of(Table(schema, background)), true, guess, uncertainty

    def _cells(self, schema: Schema, rows: int, generator: torch.Generator) -> torch.Tensor:
        uniform = torch.rand(self.victims, rows, len(schema.columns), generator=generator, dtype=torch.float64)
        parts = [
            (uniform[..., i] * column.width).floor() if isinstance(column, Discrete) else uniform[..., i] * 10 - 5
            for i, column in enumerate(schema.columns)
        ]
        return torch.stack(parts, dim=-1)


_CASES = st.builds(
    _Case,
    widths=st.lists(st.integers(1, 4), max_size=3),
    tolerances=st.lists(st.floats(0, 3), min_size=1, max_size=3),
    order=st.randoms(use_true_random=False),
    victims=st.integers(1, 3),
    records=st.integers(1, 6),
    known=st.floats(0, 1),
    levels=st.integers(1, 6),
    seed=st.integers(0, 2**32),
)
_ORDERS = st.randoms(use_true_random=False)


def _measure(
    schema: Schema, statistics: Statistics, true: torch.Tensor, guess: torch.Tensor, uncertainty: torch.Tensor
) -> dict[tuple[str, str | None], torch.Tensor]:
    secret = RecordsSecret(true, torch.zeros(true.shape[:2], dtype=torch.float64))
    measured: list[Measurement] = measure(schema, statistics, secret, RecordsGuess(guess, uncertainty=uncertainty))
    return {
        (m.metric, m.column): m.values if m.entropy is None else torch.stack([m.values, m.entropy]) for m in measured
    }


def _same(one: dict[tuple[str, str | None], torch.Tensor], other: dict[tuple[str, str | None], torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for key, values in one.items():
        torch.testing.assert_close(values, other[key], equal_nan=True, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.long
@given(_CASES, _ORDERS)
def test_the_order_of_records_on_either_side_changes_no_score(case: _Case, orders: random.Random):
    schema, statistics, true, guess, uncertainty = case.build()
    order = orders.sample(range(true.shape[1]), true.shape[1])
    wanted = _measure(schema, statistics, true, guess, uncertainty)
    _same(_measure(schema, statistics, true, guess[:, order], uncertainty[:, order]), wanted)
    _same(_measure(schema, statistics, true[:, order], guess, uncertainty), wanted)


@pytest.mark.long
@given(_CASES, _ORDERS)
def test_the_order_of_columns_changes_no_score(case: _Case, orders: random.Random):
    schema, statistics, true, guess, uncertainty = case.build()
    order = orders.sample(range(len(schema.columns)), len(schema.columns))
    turned = Schema(columns=tuple(schema.columns[i] for i in order), target=schema.target)
    moments = [(statistics.mean[schema.blocks[i]], statistics.std[schema.blocks[i]]) for i in order]
    turned_statistics = Statistics(
        marginals=tuple(statistics.marginals[i] for i in order),
        target=statistics.target,
        mean=torch.cat([mean for mean, _ in moments]),
        std=torch.cat([std for _, std in moments]),
    )
    _same(
        _measure(turned, turned_statistics, true[..., order], guess[..., order], uncertainty[..., order]),
        _measure(schema, statistics, true, guess, uncertainty),
    )


@pytest.mark.long
@given(_CASES, _ORDERS)
def test_the_order_of_victims_orders_the_values(case: _Case, orders: random.Random):
    schema, statistics, true, guess, uncertainty = case.build()
    order = orders.sample(range(len(true)), len(true))
    wanted = _measure(schema, statistics, true, guess, uncertainty)
    found = _measure(schema, statistics, true[order], guess[order], uncertainty[order])
    _same(found, {key: values[..., order] for key, values in wanted.items()})


@given(_CASES)
def test_the_truth_scores_perfectly(case: _Case):
    schema, statistics, true, _, uncertainty = case.build()
    for (metric, _), values in _measure(schema, statistics, true, true, uncertainty).items():
        if metric.startswith(("accuracy", "exact_match", "top_quarter", "bottom_quarter")):
            assert (values == 1).all()
        if metric == "rmse":
            assert (values == 0).all()


@given(_CASES)
def test_rates_lie_in_their_range_and_parts_add_up(case: _Case):
    schema, statistics, true, guess, uncertainty = case.build()
    found = _measure(schema, statistics, true, guess, uncertainty)
    overall = found["accuracy", None]
    assert ((overall >= 0) & (overall <= 1)).all()
    assert (found["exact_match", None] <= overall + 1e-12).all()
    by_column = torch.stack([found["accuracy", name] for name in schema.names])
    torch.testing.assert_close(by_column.mean(dim=0), overall)


@pytest.mark.long
@given(_CASES)
def test_no_other_order_of_the_guess_beats_the_matching(case: _Case):
    schema, statistics, true, guess, uncertainty = case.build()
    overall = _measure(schema, statistics, true, guess, uncertainty)["accuracy", None]
    discrete = torch.tensor([isinstance(column, Discrete) for column in schema.columns])
    allowed = torch.tensor([0.0 if isinstance(c, Discrete) else c.tolerance for c in schema.columns])
    for shift in range(true.shape[1]):
        apart = (guess.roll(shift, dims=1) - true).abs()
        unmatched = torch.where(discrete, apart == 0, apart <= allowed.double()).double().mean(dim=(1, 2))
        assert (unmatched <= overall + 1e-12).all()


@pytest.mark.long
@given(_CASES, st.integers(-8, 8))
def test_units_of_continuous_columns_do_not_matter(case: _Case, power: int):
    schema, statistics, true, guess, uncertainty = case.build()
    # Powers of two scale without rounding, so that cells at the very tolerance stay there.
    unit = 2.0**power
    factors = [1.0 if isinstance(column, Discrete) else unit for column in schema.columns]
    columns = tuple(
        column
        if isinstance(column, Discrete)
        else column.model_copy(update={key: getattr(column, key) * unit for key in ("low", "high", "tolerance")})
        for column in schema.columns
    )
    widths = torch.tensor([column.width for column in schema.columns])
    std = statistics.std * torch.tensor(factors, dtype=torch.float64).repeat_interleave(widths)
    factor = torch.tensor(factors, dtype=torch.float64)
    _same(
        _measure(
            Schema(columns=columns, target=schema.target),
            Statistics(statistics.marginals, statistics.target, statistics.mean, std),
            true * factor,
            guess * factor,
            uncertainty,
        ),
        _measure(schema, statistics, true, guess, uncertainty),
    )
