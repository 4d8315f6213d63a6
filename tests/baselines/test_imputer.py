"""Columns imputed from own ones: planted functions, own columns that tell nothing, numbers, and few rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from seepage.baselines.imputer import CutImputer, _trees_of, imputed
from seepage.baselines.split import Marginals
from seepage.errors import BadInputError
from seepage.tabular.schema import Column, Continuous, Discrete
from seepage.wire.split import Auxiliary, CutKnowledge
from tests.attacks.split.test_exact import PLAIN, exchange, table

DATA = table(3, rows=400)
MODEL, SEEN = exchange(DATA, PLAIN, records=60)
REST = DATA.train.rows(range(60, 400))
KNOWN = CutKnowledge(DATA.schema, DATA.statistics, auxiliary=Auxiliary(REST.cells, REST.labels))
KIND = Discrete(name="kind", categories=tuple(range(4)))
NUMBER = Continuous(name="number", low=0, high=100, tolerance=2)


def _inputs(rows: int, seed: int = 0) -> Tensor:
    return torch.randint(6, (rows, 3), generator=torch.Generator().manual_seed(seed)).double()


def _right(column: Column, known: Tensor, values: Tensor, sought: Tensor, true: Tensor, tolerance: float) -> float:
    answers = imputed(column, known, values, sought, tolerance, 0)
    return float(((answers - true).abs() <= tolerance).double().mean())


def test_a_planted_function_of_own_columns_is_learnt() -> None:
    """Neighbours by distance would not: codes that are near say nothing of the product."""
    known, sought = _inputs(800), _inputs(200, seed=1)
    kind = lambda x: (x[:, 0] * x[:, 1]) % 4  # noqa: E731
    assert _right(KIND, known, kind(known), sought, kind(sought), 0.0) > 0.95
    number = lambda x: 10 * x[:, 0] + 4 * x[:, 2]  # noqa: E731
    assert _right(NUMBER, known, number(known), sought, number(sought), 4.0) > 0.7


@pytest.mark.parametrize("rows", [1, 2, 3, 12, 200])
def test_own_columns_that_tell_nothing_leave_the_commonest_value(rows: int) -> None:
    known, sought = _inputs(rows), _inputs(300, seed=1)
    shares = torch.tensor([0.6, 0.2, 0.1, 0.1])
    values = torch.multinomial(shares, rows, replacement=True, generator=torch.Generator().manual_seed(2)).double()
    values[0] = 0.0
    answers = imputed(KIND, known, values, sought, 0.0, 0)
    if rows > 100:
        assert (answers == 0).double().mean() > 0.95
    assert set(answers.tolist()) <= set(values.tolist())


def test_a_number_is_answered_where_most_lie_and_not_at_their_mean() -> None:
    """Half of the values lie near 10 and half near 90: none lies near the mean of 50."""
    known, sought = torch.zeros(400, 1).double(), torch.zeros(5, 1).double()
    values = torch.where(torch.arange(400) % 2 == 0, 10.0, 90.0).double() + torch.arange(400).double() % 3
    answers = imputed(NUMBER, known, values, sought, 2.0, 0)
    assert (((answers - 11).abs() <= 1) | ((answers - 91).abs() <= 1)).all()


@pytest.mark.long
def test_what_came_back_is_not_looked_at() -> None:
    noise = torch.randn(SEEN.view.gradient.shape, generator=torch.Generator().manual_seed(0))
    first, second = (CutImputer()(view, KNOWN) for view in (SEEN.view, replace(SEEN.view, gradient=noise)))
    assert torch.equal(first.cells, second.cells)
    assert torch.equal(first.labels, second.labels)
    assert first.cells.shape == Marginals()(SEEN.view, KNOWN).cells.shape


def test_columns_that_would_take_minutes_are_refused() -> None:
    with pytest.raises(BadInputError, match="1,536 take minutes"):
        _trees_of(1_536)
    assert _trees_of(5) == 300
    assert _trees_of(200) == 100


def test_rows_are_needed() -> None:
    with pytest.raises(BadInputError, match="learns from auxiliary rows"):
        CutImputer()(SEEN.view, replace(KNOWN, auxiliary=None))
