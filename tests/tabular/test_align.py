import itertools

import pytest
import torch

from seepage.errors import BadInputError
from seepage.tabular.align import match, pairwise_error, reorder, right_cells, tolerances
from tests.oracles.assessment import right, small_schema

SCHEMA = small_schema()


def _cells(*shape: int, seed: int = 0) -> torch.Tensor:
    draw = torch.rand(*shape, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.cat([(draw[..., :2] * 3).floor(), draw[..., 2:] * 10], dim=-1)


def test_pairwise_error_is_the_share_of_wrong_cells_of_each_pair():
    guess, true = _cells(3, 2, 5), _cells(2, 4, seed=1)
    cost = pairwise_error(SCHEMA, guess, true)
    assert cost.shape == (3, 2, 5, 4)
    for e, v, g, t in itertools.product(range(3), range(2), range(5), range(4)):
        wrong = right(SCHEMA, guess[e, v, g].tolist(), true[v, t].tolist()).count(False)
        assert cost[e, v, g, t] == wrong / 4


def test_pairwise_error_without_leading_axes_and_without_victims():
    guess, true = _cells(5), _cells(4, seed=1)
    torch.testing.assert_close(pairwise_error(SCHEMA, guess, true), pairwise_error(SCHEMA, guess[None], true[None])[0])
    assert pairwise_error(SCHEMA, _cells(0, 5), _cells(0, 4)).shape == (0, 5, 4)


def test_chunks_do_not_change_the_cost(monkeypatch):
    guess, true = _cells(7, 6), _cells(7, 6, seed=1)
    whole = pairwise_error(SCHEMA, guess, true)
    monkeypatch.setattr("seepage.tabular.align._PAIRS_AT_ONCE", 80)
    assert torch.equal(pairwise_error(SCHEMA, guess, true), whole)


def test_single_precision_guess_against_double_precision_truth():
    true = _cells(4)
    assert pairwise_error(SCHEMA, true.float(), true).diagonal().tolist() == [0, 0, 0, 0]


def test_tolerance_is_inclusive_and_discrete_columns_have_none():
    assert tolerances(SCHEMA).tolist() == [0, 0, 1, 1]
    true = torch.tensor([[0.0, 1.0, 5.0, 5.0]], dtype=torch.float64)
    guess = torch.tensor([[1.0, 1.0, 6.0, 6.000001]], dtype=torch.float64)
    assert right_cells(SCHEMA, guess, true).tolist() == [[False, True, True, False]]


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_cells_that_are_no_number_are_wrong(value: float):
    true = _cells(3)
    guess = torch.full_like(true, value)
    assert not right_cells(SCHEMA, guess, true).any()
    assert (pairwise_error(SCHEMA, guess, true) == 1).all()


@pytest.mark.parametrize("guesses", [4, 6])
def test_match_finds_the_cheapest_of_all_matchings(guesses: int):
    cost = torch.rand(2, 3, guesses, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    index = match(cost)
    assert index.shape == (2, 3, 4)
    for i, j in itertools.product(range(2), range(3)):
        chosen = index[i, j].tolist()
        assert len(set(chosen)) == 4
        total = sum(float(cost[i, j, g, t]) for t, g in enumerate(chosen))
        orders = itertools.permutations(range(guesses), 4)
        assert total == pytest.approx(min(sum(float(cost[i, j, g, t]) for t, g in enumerate(o)) for o in orders))


def test_match_undoes_a_permutation():
    true = _cells(5, 8)
    order = torch.stack([torch.randperm(8, generator=torch.Generator().manual_seed(s)) for s in range(5)])
    shuffled = reorder(true, order)
    assert not torch.equal(shuffled, true)
    assert torch.equal(reorder(shuffled, match(pairwise_error(SCHEMA, shuffled, true))), true)


def test_match_of_no_victims():
    assert match(torch.zeros(0, 3, 3, dtype=torch.float64)).shape == (0, 3)


def test_fewer_guessed_than_true_records_are_refused():
    with pytest.raises(BadInputError, match="got 2 for 3"):
        match(torch.zeros(2, 3, dtype=torch.float64))


def test_a_cost_that_is_not_finite_is_refused():
    cost = torch.zeros(2, 2, dtype=torch.float64)
    cost[0, 1] = torch.nan
    with pytest.raises(BadInputError, match="finite costs, got nan"):
        match(cost)


def test_encoded_rows_are_refused_as_cells():
    with pytest.raises(BadInputError, match=r"must have 4 columns.*got 8"):
        pairwise_error(SCHEMA, torch.zeros(1, 2, 8), torch.zeros(1, 2, 8))
