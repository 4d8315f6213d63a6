"""Intervals of gains over a baseline that is nearly known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seepage.assessment.gain import (
    Proofs,
    Reference,
    References,
    ScoredGain,
    as_plain,
    best_reference,
    from_plain,
    gain_estimates,
    reference,
)
from seepage.assessment.intervals import over_trainings, sample_of

KNOWN = Reference(0.58, 0.575, 0.585, 1000)
# Mean score of a victim, and how scores are drawn around it.
TRUTHS = {
    "all whole": lambda draw, n: np.ones(n),
    "none": lambda draw, n: np.full(n, 0.58),
    "one in ten whole": lambda draw, n: np.where(draw.random(n) < 0.1, 1.0, 0.58),
    "half whole": lambda draw, n: np.where(draw.random(n) < 0.5, 1.0, 0.58),
    "nine in ten whole": lambda draw, n: np.where(draw.random(n) < 0.9, 1.0, 0.58),
    "smooth": lambda draw, n: draw.beta(30, 10, n),
    "wide": lambda draw, n: draw.beta(2, 1, n),
    "worse": lambda draw, n: draw.beta(10, 10, n),
    "skewed": lambda draw, n: 1 - draw.beta(1, 12, n),
    "two kinds": lambda draw, n: np.where(draw.random(n) < 0.3, draw.beta(40, 4, n), draw.beta(20, 14, n)),
}
MEANS = {
    "all whole": 1.0,
    "none": 0.58,
    "one in ten whole": 0.622,
    "half whole": 0.79,
    "nine in ten whole": 0.958,
    "smooth": 0.75,
    "wide": 2 / 3,
    "worse": 0.5,
    "skewed": 12 / 13,
    "two kinds": 0.3 * 40 / 44 + 0.7 * 20 / 34,
}


def gain(scores: np.ndarray, proofs: Proofs | None = None) -> tuple[float, float]:
    [found] = gain_estimates([ScoredGain(torch.from_numpy(scores), KNOWN, proofs=proofs)])
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


@pytest.mark.long
@pytest.mark.parametrize("name", TRUTHS)
def test_intervals_of_audits_of_ten_truths_cover(name: str) -> None:
    draw, truth = np.random.default_rng(5), MEANS[name] - KNOWN.mean
    for n in (5, 20, 50):
        ends = [gain(TRUTHS[name](draw, n)) for _ in range(50)]
        covered = sum(low <= truth <= high for low, high in ends)
        # At 95% fewer than 42 of 50 have a probability below 0.1%.
        assert covered >= 42, (n, covered)


@pytest.mark.parametrize(("n", "bare", "proved"), [(5, 58, 27), (10, 37, 17), (20, 21, 11), (50, 11, 6)])
def test_widths_are_those_that_were_promised(n: int, bare: float, proved: float) -> None:
    whole = np.ones(n)
    low, high = gain(whole)
    # Half a point for the baseline's own bounds, on either side.
    assert 100 * (high - low) <= bare + 1
    low, high = gain(whole, Proofs(torch.ones(n), torch.full((n,), 0.58)))
    assert 100 * (high - low) <= proved


def test_proofs_of_nothing_claim_nothing_and_cost_less_than_six_points() -> None:
    scores, nothing = np.full(20, 0.9), Proofs(torch.zeros(20), torch.full((20,), 0.58))
    (bare, _), (beside, _) = gain(scores), gain(scores, nothing)
    assert beside <= bare
    assert bare - beside < 0.06


@pytest.mark.long
def test_a_bound_by_proofs_holds_where_some_victims_are_proved() -> None:
    draw, missed = np.random.default_rng(6), 0
    for _ in range(150):
        proved = (draw.random(15) < 0.4).astype(float)
        baseline = draw.normal(0.58, 0.05, 15)
        scores = np.where(proved > 0, 1.0, baseline)
        low, _ = gain(scores, Proofs(torch.from_numpy(proved), torch.from_numpy(baseline)))
        missed += low > 0.4 * (1 - 0.58)
    # 2.5% of 150 is 3.75; more than 10 have a probability below 0.2%.
    assert missed <= 10


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40), st.randoms())
def test_the_order_of_units_changes_nothing(scores: list[float], mixer: object) -> None:
    shuffled = list(scores)
    mixer.shuffle(shuffled)  # pyright: ignore[reportAttributeAccessIssue]
    assert gain(np.array(scores)) == gain(np.array(shuffled))


def test_counted_values_are_bounded_as_repeated_ones() -> None:
    members = torch.tensor([0.0] * 300 + [1.0] * 700)
    assert sample_of(members) == ((0.0, 1.0), (300, 700))
    [found] = gain_estimates([ScoredGain(torch.tensor([0.7]), KNOWN, members=members)])
    # A single training has an interval over its members.
    assert found.n == 1
    assert found.low is not None
    assert found.high is not None
    assert found.mean is not None
    assert 0.05 < found.low < found.mean < found.high < 0.18


def test_the_best_of_several_baselines_is_bounded_with_all_of_them() -> None:
    values = torch.linspace(0.4, 0.6, 500)
    alone, among = reference(values), reference(values, baselines=10)
    assert alone is not None
    assert among is not None
    assert among.low < alone.low < alone.mean < alone.high < among.high
    assert reference(torch.full((3,), torch.nan)) is None
    figure = ("accuracy", None)
    both: References = {"weak": {figure: Reference(0.4, 0.3, 0.5, 9)}, "strong": {figure: KNOWN}}
    assert best_reference(both, figure) == ("strong", KNOWN)
    assert best_reference(both, ("accuracy", "age")) is None
    assert from_plain(as_plain(both)) == both


def test_the_task_is_a_mean_over_rows_and_trainings() -> None:
    draw, covered = np.random.default_rng(7), 0
    for _ in range(300):
        skill = draw.normal(0.84, 0.01, 5)
        # Rows are easy or hard for all trainings alike, which is the worst case.
        ease = draw.random(2000)
        shares = torch.tensor([float((ease < each).mean()) for each in skill])
        found = over_trainings(shares, 2000)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.84 <= found.high
        assert found.high - found.low < 0.115
    # At 94% fewer than 267 of 300 have a probability below 0.2%.
    assert covered >= 267
    assert over_trainings(torch.tensor([0.8]), 2000).low is None
    alike = over_trainings(torch.full((5,), 0.8), 400)
    assert alike.low == pytest.approx(0.8 - 1.966 * (0.16 / 400) ** 0.5, abs=2e-3)
