"""Bounds of decisions: figures that were settled beforehand, laws, an oracle and simulated error rates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from seepage.assessment import decision
from seepage.assessment.decision import (
    ALPHA,
    can_still_pass,
    evidence_below,
    least_mean,
    least_mean_of_all,
    least_units,
    log_growth,
    mixture,
    more_units,
    share_bound,
    shown_above,
    shown_below,
    upper_bound,
)
from seepage.errors import BadInputError
from tests.oracles import decision as oracle

# Multiples of 1/64, so that sums and differences are exact.
_GRID = st.integers(-64, 64).map(lambda number: number / 64)
_LIFTS = st.lists(_GRID, max_size=12)
_LIMITS = st.integers(-60, 60).map(lambda number: number / 64)


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


@pytest.mark.long
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
    figures: list[Callable[[Any], float]] = [
        lambda order: evidence_below(lifts[order], 0.3),
        lambda order: upper_bound(lifts[order]),
    ]
    for figure in figures:
        assert len({figure(rng.permutation(57)) for _ in range(20)}) == 1


def test_lists_arrays_and_tensors_are_read_alike() -> None:
    lifts = [0.25, -0.5, 0.125]
    assert upper_bound(lifts) == upper_bound(np.array(lifts)) == upper_bound(torch.tensor(lifts))


@given(_LIFTS, _LIMITS)
def test_evidence_is_that_of_bets_one_by_one(lifts: list[float], limit: float) -> None:
    assert evidence_below(lifts, limit) == pytest.approx(oracle.evidence_below(lifts, limit), abs=1e-9, rel=1e-9)


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


@pytest.mark.long
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
        (lambda: upper_bound([[0.0]]), "shape"),
        (lambda: shown_below([0.0], 0.1, alpha=0.0), "between 0 and 1, got 0.0"),
        (lambda: shown_above([0.0], 0.1, attacks=0), "at least 1, got 0"),
        (lambda: least_units(0.0), "between 0 and 1"),
        (lambda: more_units([0.0], 1.0), "the limit"),
        (lambda: can_still_pass([2.0], 0.1, 5), "got 2"),
        (lambda: share_bound(5, 4), "got 5"),
        (lambda: share_bound(1, 4, 1.0), "confidence level must lie between 0 and 1, got 1.0"),
    ],
)
def test_what_is_out_of_range_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        call()


def test_one_value_above_0_among_many_is_bounded() -> None:
    for n in (10, 1000, 100_000):
        alone = np.zeros((n, 1))
        alone[0] = 1.0
        counted = least_mean(np.array([[0.0], [1.0]]), counts=np.array([[n - 1.0], [1.0]]))
        assert 0 < least_mean(alone)[0] < 1 / n
        np.testing.assert_allclose(counted, least_mean(alone), rtol=1e-9)


def naive_least_mean_of_all(values: list[float], total: int, alpha: float) -> float:
    """Return the largest of ten thousand means against which a bettor gets rich, one bet after the other."""
    weights = np.exp(decision._LOG_WEIGHTS)
    shown = 0.0
    for mean in np.arange(1, 10_000) / 10_000:
        wealth, left, so_far = np.ones(len(decision._BETS)), total * mean, 0
        for value in values:
            rest = left / (total - so_far)
            if rest <= 0:
                wealth = np.full_like(wealth, math.inf if value > 0 or left < 0 else 1.0)
                break
            wealth *= 1 + decision._BETS * (value / rest - 1)
            left, so_far = left - value, so_far + 1
        if left < -1e-12 or weights @ wealth >= 1 / alpha:
            shown = mean
    return shown


@pytest.mark.parametrize("total", [12, 30, 400])
@pytest.mark.parametrize("values", [[1.0] * 12, [0.0, 1.0] * 6, [0.2, 0.9, 0.7, 0.4, 0.5, 0.6, 0.8, 0.3, 0.7, 0.6]])
def test_the_mean_of_all_is_bounded_as_by_a_bettor_who_goes_through_them(values: list[float], total: int) -> None:
    [found] = least_mean_of_all(np.array(values)[:, None], total)
    assert found == pytest.approx(naive_least_mean_of_all(values, total, decision.ALPHA), abs=2e-4)


def test_the_mean_of_all_is_known_once_all_are_drawn() -> None:
    values = np.array([0.5, 1.0, 0.0, 0.25])[:, None]
    assert least_mean_of_all(values, 4) == pytest.approx([0.4375], abs=1e-5)
    assert least_mean_of_all(1 - values, 4) == pytest.approx([0.5625], abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("whole", [0.5, 0.9])
def test_bounds_without_replacement_cover_at_every_look_and_are_narrower(whole: float) -> None:
    draw, total, missed, widths = np.random.default_rng(3), 125, 0, list[float]()
    for _ in range(60):
        everyone = (draw.random(total) < whole).astype(float)
        order = draw.permutation(everyone)
        looks = [order[:n, None] for n in (5, 10, 20, 40, 80)]
        ends = [(least_mean_of_all(x, total)[0], 1 - least_mean_of_all(1 - x, total)[0]) for x in looks]
        missed += any(not low - 1e-6 <= everyone.mean() <= high + 1e-6 for low, high in ends)
        widths.append(ends[-1][1] - ends[-1][0])
        assert ends[-1][1] - ends[-1][0] < 1 - least_mean(1 - looks[-1])[0] - least_mean(looks[-1])[0]
    # At an error of 5% more than 9 of 60 have a probability below 0.2%.
    assert missed <= 9
    assert np.mean(widths) < 0.24
