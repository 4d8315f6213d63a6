"""Bounds of decisions: figures that were settled beforehand, laws, an oracle and simulated error rates."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from seepage.assessment.decision import (
    ALPHA,
    baseline_bound,
    can_still_pass,
    evidence_below,
    evidence_closed,
    least_units,
    log_growth,
    lower_bound,
    mixture,
    more_units,
    share_bound,
    shown_above,
    shown_below,
    shown_below_given,
    shown_closed_above,
    shown_closed_below,
    upper_bound,
)
from seepage.errors import BadInputError
from tests.oracles import decision as oracle

# Multiples of 1/64, so that sums and differences are exact.
_GRID = st.integers(-64, 64).map(lambda number: number / 64)
_LIFTS = st.lists(_GRID, max_size=12)
_LIMITS = st.integers(-60, 60).map(lambda number: number / 64)
_SHARES = st.lists(st.tuples(st.integers(0, 64), st.integers(0, 64)), max_size=12)


@pytest.mark.parametrize(("limit", "units"), [(0.2, 19), (0.1, 40), (0.05, 81)])
def test_so_many_units_without_a_lift_pass(limit: float, units: int) -> None:
    assert least_units(limit) == units
    assert shown_below([0.0] * units, limit)
    assert not shown_below([0.0] * (units - 1), limit)


def test_bounds_of_units_that_are_all_alike() -> None:
    assert upper_bound([0.0] * 20) == pytest.approx(0.186, abs=5e-4)
    assert upper_bound([1.0] * 20) == 1
    assert upper_bound([0.0]) == pytest.approx(0.98, abs=5e-3)
    assert upper_bound([]) == 1
    assert upper_bound([], upper=0.6) == 0.6
    assert lower_bound([]) == -1
    assert lower_bound([], lower=0.0) == 0
    assert lower_bound([-1.0] * 20) == -1


def test_small_lifts_pass_after_about_20_45_and_100_units() -> None:
    rng = np.random.default_rng(0)
    for limit, units in ((0.2, 20), (0.1, 45), (0.05, 102)):
        needed = []
        for _ in range(41):
            lifts = rng.normal(0.01, 0.02, 300)
            needed.append(next(n for n in range(1, 300) if shown_below(lifts[:n], limit)))
        assert np.median(needed) == pytest.approx(units, abs=4)


def test_the_order_of_units_does_not_change_a_bit() -> None:
    rng = np.random.default_rng(1)
    lifts = rng.uniform(-1, 1, 57)
    scores, baselines = rng.uniform(0, 1, (2, 57))
    figures: list[Callable[[Any], float]] = [
        lambda order: evidence_below(lifts[order], 0.3),
        lambda order: upper_bound(lifts[order]),
        lambda order: lower_bound(lifts[order]),
        lambda order: evidence_closed(scores[order], baselines[order], 0.2),
    ]
    for figure in figures:
        assert len({figure(rng.permutation(57)) for _ in range(20)}) == 1


def test_lists_arrays_and_tensors_are_read_alike() -> None:
    lifts = [0.25, -0.5, 0.125]
    assert upper_bound(lifts) == upper_bound(np.array(lifts)) == upper_bound(torch.tensor(lifts))


@given(_LIFTS, _LIMITS)
def test_evidence_is_that_of_bets_one_by_one(lifts: list[float], limit: float) -> None:
    assert evidence_below(lifts, limit) == pytest.approx(oracle.evidence_below(lifts, limit), abs=1e-9, rel=1e-9)


@given(st.lists(_GRID.map(abs), min_size=1, max_size=8), st.sampled_from([0.1, 0.25, 0.5, 0.9]))
def test_evidence_on_the_share_of_the_gap_is_that_of_bets_one_by_one(scores: list[float], share: float) -> None:
    baselines = scores[::-1]
    with localcontext(prec=60):
        pairs = [(Decimal(score), Decimal(baseline)) for score, baseline in zip(scores, baselines, strict=True)]
        payoffs = [baseline + (1 - score) / (1 - Decimal(share)) for score, baseline in pairs]
    assert evidence_closed(scores, baselines, share) == pytest.approx(oracle.log_wealth(payoffs), abs=1e-9, rel=1e-9)


@given(st.lists(_GRID, min_size=1, max_size=12))
def test_the_bound_is_the_least_limit_that_is_passed(lifts: list[float]) -> None:
    bound = upper_bound(lifts)
    assert np.mean(lifts) <= bound <= 1
    if bound < 1:
        assert shown_below(lifts, bound)
    if bound - 1e-9 > -1:
        assert not shown_below(lifts, bound - 1e-9)
    if bound + 1e-9 < 1:
        assert shown_below(lifts, bound + 1e-9)


@given(_LIFTS, _LIMITS)
def test_below_and_above_are_mirror_images(lifts: list[float], limit: float) -> None:
    mirrored = [-lift for lift in lifts]
    assert shown_above(lifts, limit) == shown_below(mirrored, -limit)
    assert lower_bound(lifts) == -upper_bound(mirrored)
    assert lower_bound(lifts) <= upper_bound(lifts)
    assert not (shown_below(lifts, limit) and shown_above(lifts, limit))


@given(_LIFTS, _LIMITS, _LIMITS)
def test_evidence_rises_with_the_limit(lifts: list[float], one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert evidence_below(lifts, low) <= evidence_below(lifts, high) + 1e-9


@given(_LIFTS, st.lists(st.integers(0, 128), min_size=12, max_size=12), _LIMITS)
def test_higher_lifts_are_less_evidence(lifts: list[float], more: list[int], limit: float) -> None:
    higher = [min(1.0, lift + step / 64) for lift, step in zip(lifts, more, strict=False)]
    assert evidence_below(higher, limit) <= evidence_below(lifts, limit) + 1e-9
    assert upper_bound(higher) >= upper_bound(lifts) - 1e-9
    assert lower_bound(higher) >= lower_bound(lifts) - 1e-9


@given(_LIFTS, st.sampled_from([0.005, 0.025, 0.1, 0.3]), st.sampled_from([1, 2, 10]))
def test_a_stricter_level_and_more_attacks_show_less(lifts: list[float], alpha: float, attacks: int) -> None:
    assert upper_bound(lifts, alpha=alpha / attacks) >= upper_bound(lifts, alpha=alpha)
    assert shown_above(lifts, 0.25, alpha=alpha, attacks=attacks) <= shown_above(lifts, 0.25, alpha=alpha)
    one_by_one = shown_above(lifts, 0.25, alpha=alpha / attacks)
    assert shown_above(lifts, 0.25, alpha=alpha, attacks=attacks) == one_by_one


@given(_LIFTS, st.integers(1, 60).map(lambda number: number / 64), st.integers(0, 60))
def test_can_still_pass_is_whether_the_best_further_units_pass(lifts: list[float], limit: float, more: int) -> None:
    best = min(0.0, *lifts, 0.0)
    assert can_still_pass(lifts, limit, len(lifts) + more) == shown_below([*lifts, *[best] * more], limit)


def test_a_budget_that_is_used_up_leaves_what_is_shown() -> None:
    assert can_still_pass([0.0] * 19, 0.2, 5)
    assert not can_still_pass([0.0] * 18, 0.2, 5)
    assert can_still_pass([], 0.2, 19)
    assert not can_still_pass([], 0.2, 18)


@given(st.integers(1, 600), st.sampled_from([0.5, 0.8, 1.0]), st.sampled_from([0.001, 0.025, 0.2]))
def test_the_least_number_of_units_is_the_least(thousandths: int, upper: float, alpha: float) -> None:
    limit = thousandths / 1000
    if limit >= upper:
        return
    units = least_units(limit, upper=upper, alpha=alpha)
    assert shown_below([0.0] * units, limit, upper=upper, alpha=alpha)
    assert not shown_below([0.0] * (units - 1), limit, upper=upper, alpha=alpha)


@given(st.lists(_GRID, min_size=1, max_size=6), st.integers(-20, 60).map(lambda number: number / 64))
def test_more_units_are_those_that_one_by_one_pass(lifts: list[float], limit: float) -> None:
    found = more_units(lifts, limit, most=60)
    assert found == (oracle.more_units(lifts, limit, 60) if np.mean(lifts) < limit else None)


def test_no_number_of_units_passes_where_the_mean_is_not_below() -> None:
    assert more_units([0.2, 0.2], 0.2) is None
    assert more_units([], 0.2) is None
    assert more_units([0.199] * 3, 0.2, most=100) is None
    assert more_units([0.0] * 19, 0.2) == 0


def _passed_at_some_look(lifts: Any, limit: float) -> Any:
    """Return whether each audit, one in each row, passes at any number of victims."""
    growth = log_growth((1 - lifts.ravel()) / (1 - limit)).reshape(-1, *lifts.shape)
    wealth = np.cumsum(growth, axis=2)
    return (mixture(wealth.reshape(len(wealth), -1)).reshape(lifts.shape) >= math.log(1 / ALPHA)).any(1)


@pytest.mark.parametrize("limit", [0.05, 0.2])
def test_audits_at_the_limit_pass_rarely_though_each_victim_is_looked_at(limit: float) -> None:
    rng = np.random.default_rng(2)
    # One victim in ten is read nearly whole, which an interval of five victims mostly does not see.
    usual = (limit - 0.09) / 0.9 + rng.uniform(-0.02, 0.02, (600, 200))
    rare = np.where(rng.random((600, 200)) < 0.1, 0.9, usual)
    either = np.where(rng.random((600, 200)) < limit, 1.0, 0.0)
    for lifts in (rare, either):
        passed = int(_passed_at_some_look(lifts, limit).sum())
        assert stats.binomtest(passed, 600, ALPHA, alternative="greater").pvalue > 0.01
    few = rare[:, :5]
    t = few.mean(1) + stats.t.ppf(1 - ALPHA, 4) * few.std(1, ddof=1) / math.sqrt(5)
    assert (t < limit).mean() > 0.4
    bounds = np.array([upper_bound(one) for one in few])
    assert (bounds < limit).mean() <= ALPHA


def test_a_mean_well_below_the_limit_passes() -> None:
    lifts = np.random.default_rng(3).normal(0.01, 0.02, (50, 120))
    assert _passed_at_some_look(lifts, 0.1).all()
    assert _passed_at_some_look(lifts, 0.1).tolist() == [
        any(shown_below(one[:n], 0.1) for n in range(1, 121)) for one in lifts
    ]


def test_shares_have_clopper_pearsons_bound() -> None:
    for n in (1, 5, 40):
        assert share_bound(0, n) == pytest.approx(1 - 0.025 ** (1 / n))
        assert share_bound(n, n) == 1
        for count in range(n):
            assert stats.binom.cdf(count, n, share_bound(count, n)) == pytest.approx(0.025)
    assert share_bound(0, 0) == 1
    assert stats.binom.cdf(3, 20, share_bound(3, 20, 0.9)) == pytest.approx(0.1)


def test_a_share_of_the_gap_is_shown_on_the_side_where_it_is() -> None:
    half, whole = [0.5] * 200, [1.0] * 200
    assert shown_closed_below(half, half, 0.05)
    assert not shown_closed_above(half, half, 0.0)
    assert shown_closed_above(whole, half, 0.9)
    assert not shown_closed_below(whole, half, 0.9)
    # 0.7 over a baseline of 0.4 closes half of the gap.
    assert shown_closed_above([0.7] * 200, [0.4] * 200, 0.45)
    assert shown_closed_below([0.7] * 200, [0.4] * 200, 0.55)
    for share in (0.49, 0.5, 0.51):
        assert not shown_closed_above([0.7] * 40, [0.4] * 40, share)
        assert not shown_closed_below([0.7] * 40, [0.4] * 40, share)


@given(_SHARES, st.integers(0, 60).map(lambda number: number / 64))
def test_no_share_is_shown_on_both_sides_and_only_beyond_what_was_seen(
    pairs: list[tuple[int, int]], share: float
) -> None:
    scores, baselines = [score / 64 for score, _ in pairs], [baseline / 64 for _, baseline in pairs]
    below, above = (shown(scores, baselines, share) for shown in (shown_closed_below, shown_closed_above))
    gap, closed = sum(1 - one for one in baselines), sum(scores) - sum(baselines)
    assert not below or closed < share * gap
    assert not above or closed > share * gap


def test_shares_of_the_gap_are_rarely_shown_where_they_are_just_so() -> None:
    rng = np.random.default_rng(4)
    # The attack reads a record whole, or as the baseline does: so half of the gap is closed on average.
    baselines = rng.beta(6, 4, (800, 15))
    scores = np.where(rng.random((800, 15)) < 0.5, 1.0, baselines)
    for shown in (shown_closed_below, shown_closed_above):
        found = sum(shown(one, other, 0.5) for one, other in zip(scores, baselines, strict=True))
        assert stats.binomtest(found, 800, ALPHA, alternative="greater").pvalue > 0.01


def test_a_known_baseline_needs_fewer_victims() -> None:
    rng = np.random.default_rng(5)
    needed: dict[float, list[int]] = {0.2: [], 0.1: [], 0.05: []}
    for _ in range(15):
        low = baseline_bound(np.clip(rng.normal(0.6, 0.06, 1000), 0, 1))
        assert 0.58 < low < 0.6
        scores = np.clip(rng.normal(0.61, 0.06, 400), 0, 1)
        for limit, units in needed.items():
            units.append(next(n for n in range(1, 400) if shown_below_given(scores[:n], low, limit)))
    medians = {limit: np.median(units) for limit, units in needed.items()}
    assert medians[0.2] in (7, 8)
    assert 19 <= medians[0.1] <= 23
    assert 55 <= medians[0.05] <= 80


def test_a_limit_that_no_score_exceeds_is_passed_without_units() -> None:
    assert shown_below_given([], 0.9, 0.1)
    assert not shown_below_given([], 0.9, 0.05)
    assert not shown_below_given([1.0] * 50, 0.9, 0.05)


def test_known_baselines_are_rarely_wrong_at_the_limit() -> None:
    rng = np.random.default_rng(6)
    wrong = 0
    for _ in range(300):
        low = baseline_bound(rng.beta(6, 4, 500))
        # The mean lift is the limit: 0.2 over a baseline of 0.6.
        scores = np.where(rng.random(30) < 0.5, 1.0, rng.beta(6, 4, 30))
        wrong += shown_below_given(scores, low, 0.2)
    assert stats.binomtest(wrong, 300, ALPHA, alternative="greater").pvalue > 0.01


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: evidence_below([0.0], 1.0), "the limit lies between -1 and 1, got 1.0"),
        (lambda: evidence_below([0.0], math.nan), "the limit lies between"),
        (lambda: evidence_below([0.0], 0.7, upper=0.6), "between -1 and 0.6"),
        (lambda: shown_above([0.0], -1.0), "between -1 and 1"),
        (lambda: evidence_below([0.0, 1.5], 0.1), r"lie in \[-1, 1\], got 1.5 \(1 of 2"),
        (lambda: evidence_below([math.nan], 0.1), "got nan"),
        (lambda: upper_bound([math.inf]), "got inf"),
        (lambda: lower_bound([-0.5], lower=0.0), r"lie in \[0, 1\]"),
        (lambda: upper_bound([[0.0]]), "shape"),
        (lambda: shown_below([0.0], 0.1, alpha=0.0), "between 0 and 1, got 0.0"),
        (lambda: shown_above([0.0], 0.1, attacks=0), "at least 1, got 0"),
        (lambda: least_units(0.0), "between 0 and 1"),
        (lambda: more_units([0.0], 1.0), "the limit"),
        (lambda: can_still_pass([2.0], 0.1, 5), "got 2"),
        (lambda: share_bound(5, 4), "got 5"),
        (lambda: share_bound(1, 4, 1.0), "confidence level must lie between 0 and 1, got 1.0"),
        (lambda: evidence_closed([0.5], [0.5, 0.5], 0.1), "same units, got 1 and 2"),
        (lambda: shown_closed_above([0.5], [0.5], 1.0), r"\[0, 1\), got 1.0"),
        (lambda: shown_closed_below([-0.5], [0.5], 0.5), r"lie in \[0, 1\]"),
        (lambda: shown_below_given([0.5], 1.5, 0.1), "got 1.5"),
        (lambda: baseline_bound([1.2]), "got 1.2"),
    ],
)
def test_what_is_out_of_range_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        call()
