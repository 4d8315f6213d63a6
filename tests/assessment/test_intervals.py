import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from seepage.assessment import Estimate, Measurement, interval, paired, tau_b
from seepage.assessment.decision import upper_bound
from seepage.assessment.intervals import difference, ratio, student
from seepage.errors import BadInputError
from tests.oracles import assessment as oracle
from tests.rows import number

RATE = (0.0, 1.0)


def test_student_t_interval_from_a_printed_table():
    # Quantiles of Student's t at 0.975 and 0.95 for 4 degrees of freedom: 2.776, 2.132.
    values = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], dtype=torch.float64)
    std = math.sqrt(2.5)
    for level, quantile in ((0.95, 2.776), (0.9, 2.132)):
        estimate = interval(values, level)
        half = quantile * std / math.sqrt(5)
        assert (estimate.mean, estimate.n, estimate.std) == (3, 5, pytest.approx(std))
        assert (estimate.low, estimate.high) == (pytest.approx(3 - half, abs=1e-3), pytest.approx(3 + half, abs=1e-3))
        assert student(3.0, std, 5, level) == (estimate.low, estimate.high)
    assert student(0.5, 0.1, 1) is None
    assert student(0.5, None, 5) is None
    assert number(interval(values, bounds=(0.0, math.inf)).low) == pytest.approx(
        3 - 2.776 * std / math.sqrt(5), abs=1e-3
    )


@pytest.mark.long
def test_student_s_interval_covers_a_normal_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    samples = torch.from_numpy(rng.normal(2, 3, size=(2000, 6)))
    found = [interval(sample) for sample in samples]
    covered = sum(number(estimate.low) <= 2 <= number(estimate.high) for estimate in found)
    assert covered / 2000 == pytest.approx(0.95, abs=0.015)


@given(st.lists(st.integers(0, 16), min_size=2, max_size=12))
def test_intervals_of_rates_are_the_bounds_of_the_gate_on_both_sides(parts: list[int]) -> None:
    values = torch.tensor(parts, dtype=torch.float64) / 16
    found = interval(values, bounds=RATE)
    assert found.high == pytest.approx(upper_bound(values), abs=1e-12)
    # The lower bound is the upper one of what is missing to 1.
    assert found.low == pytest.approx(1 - upper_bound(1 - values), abs=1e-12)
    assert number(found.low) <= number(found.mean) <= number(found.high)
    assert number(found.low) < number(found.high)
    # On another range it is the same interval, moved and stretched.
    moved = interval(3 * values - 2, bounds=(-2.0, 1.0))
    assert (moved.low, moved.high) == (
        pytest.approx(3 * number(found.low) - 2, abs=1e-9),
        pytest.approx(3 * number(found.high) - 2, abs=1e-9),
    )


@pytest.mark.parametrize(("usual", "other", "share"), [(0.0, 0.9, 0.1), (1.0, 0.2, 0.05)])
@pytest.mark.parametrize("n", [2, 3, 5, 20])
def test_intervals_of_all_or_nothing_hold_the_truth_as_often_as_they_say(
    usual: float, other: float, share: float, n: int
) -> None:
    # The probability of each number of other victims is known, so that the coverage is exact.
    truth, covered, by_student = usual + share * (other - usual), 0.0, 0.0
    for count in range(n + 1):
        chance = float(stats.binom.pmf(count, n, share))
        found = interval(torch.tensor([other] * count + [usual] * (n - count), dtype=torch.float64), bounds=RATE)
        covered += chance * (number(found.low) <= truth <= number(found.high))
        ends = student(found.mean, found.std, n)
        assert ends is not None
        by_student += chance * (ends[0] <= truth <= ends[1])
    assert covered >= 0.95
    assert by_student < 0.9


def test_units_that_are_all_alike_have_an_interval():
    # Twenty of twenty: half of the wealth is bet on each as a whole; Clopper and Pearson's bound is for counts alone.
    estimate = interval(torch.ones(20), bounds=RATE)
    assert 80 ** (-1 / 20) < number(estimate.low) < 0.025 ** (1 / 20)
    assert (estimate.high, estimate.std) == (1, 0)
    flat = interval(torch.full((7,), 0.1, dtype=torch.float64), bounds=RATE)
    assert number(flat.low) < 0.1 < number(flat.high)
    assert flat.mean == 0.1
    # Nothing is known about others of a figure without bounds.
    assert interval(torch.full((7,), 0.1, dtype=torch.float64)) == Estimate(0.1, None, None, 7, 0.0)


def test_values_beyond_their_bounds_have_students_interval():
    values = torch.tensor([0.5, 1.5, 1.0], dtype=torch.float64)
    found, plain = interval(values, bounds=RATE), interval(values)
    assert (found.low, found.high) == (max(0.0, number(plain.low)), 1.0)
    rounded = torch.tensor([1.0 + 1e-9, 1.0], dtype=torch.float64)
    assert interval(rounded, bounds=RATE).high == pytest.approx(1)


def test_victims_without_a_value_are_left_out():
    with_gaps = torch.tensor([0.5, math.nan, 0.7, math.nan])
    assert interval(with_gaps) == interval(torch.tensor([0.5, 0.7]))
    assert interval(with_gaps).n == 2


def test_one_victim_has_no_interval_and_none_has_no_mean():
    assert interval(torch.tensor([0.25, math.nan])) == Estimate(0.25, None, None, 1)
    assert interval(torch.tensor([math.nan])) == Estimate(None, None, None, 0)
    assert interval(torch.tensor([0.25]), bounds=RATE) == Estimate(0.25, None, None, 1)


def test_pairing_leaves_out_who_lacks_either_value_and_removes_what_both_share():
    hard = torch.tensor([0.1, 0.5, 0.9, 0.3], dtype=torch.float64)
    gain = torch.tensor([0.1, 0.11, 0.09, math.nan], dtype=torch.float64)
    estimate = paired(hard + gain, hard)
    assert estimate.n == 3
    assert estimate.mean == pytest.approx(0.1)
    assert estimate.std == pytest.approx(0.01)
    bounded = paired(hard + gain, hard, RATE)
    assert (bounded.low, bounded.high) == (
        pytest.approx(-upper_bound(-gain[:3])),
        pytest.approx(upper_bound(gain[:3])),
    )


def test_pairing_different_victims_is_refused():
    with pytest.raises(BadInputError, match="got 2 and 3"):
        paired(torch.zeros(2), torch.zeros(3))


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_a_level_that_is_no_probability_is_refused(level: float):
    with pytest.raises(BadInputError, match="between 0 and 1"):
        interval(torch.zeros(2), level)
    with pytest.raises(BadInputError, match="between 0 and 1"):
        tau_b(torch.zeros(2), torch.zeros(2), level)


def test_kendall_counts_pairs_with_ties():
    rng = np.random.default_rng(1)
    for _ in range(20):
        x, y = torch.from_numpy(rng.integers(0, 5, size=(2, 9))).double()
        assert tau_b(x, y).mean == pytest.approx(oracle.tau_b(x.tolist(), y.tolist()))


def test_kendall_needs_three_victims_and_variation():
    up, flat = torch.arange(6).double(), torch.ones(6, dtype=torch.float64)
    assert tau_b(up[:2], up[:2]) == Estimate(None, None, None, 2)
    assert tau_b(up, flat) == Estimate(None, None, None, 6)
    gaps = torch.tensor([0, 1, math.nan, 3, math.nan, 5], dtype=torch.float64)
    assert tau_b(gaps, up).n == 4


def test_a_perfect_kendall_claims_no_interval():
    up = torch.arange(12).double()
    assert tau_b(up, -up) == Estimate(-1.0, None, None, 12)


@pytest.mark.long
def test_the_kendall_interval_covers_the_known_tau_of_a_normal_pair():
    # For a normal pair of correlation r, tau is 2 / pi * asin(r).
    rng = np.random.default_rng(2)
    correlation, tau, covered = 0.6, 2 / math.pi * math.asin(0.6), 0
    for _ in range(1500):
        x, noise = torch.from_numpy(rng.normal(size=(2, 10)))
        estimate = tau_b(x, correlation * x + math.sqrt(1 - correlation**2) * noise)
        assert estimate.low is not None
        assert estimate.high is not None
        assert -1 <= estimate.low < estimate.high <= 1
        covered += estimate.low <= tau <= estimate.high
    assert covered / 1500 == pytest.approx(0.95, abs=0.02)


@pytest.mark.long
def test_differences_of_normal_means_hold_the_truth_as_often_as_they_say() -> None:
    draw = np.random.default_rng(0)
    held = 0
    for _ in range(1000):
        sides = (interval(torch.from_numpy(draw.normal(at, spread, 8))) for at, spread in ((0, 1), (1, 3)))
        found = difference(*sides)
        held += number(found.low) <= 1 <= number(found.high)
    assert 0.94 <= held / 1000 <= 0.985


def test_a_difference_needs_both_intervals() -> None:
    one, several = interval(torch.tensor([0.5])), interval(torch.tensor([0.5, 0.7]))
    none = interval(torch.tensor([float("nan")]))
    assert difference(one, several).low is None
    assert difference(one, several).mean == pytest.approx(0.1)
    assert difference(none, several).mean is None
    alike = interval(torch.tensor([0.5, 0.5]), bounds=RATE)
    found = difference(alike, alike)
    assert number(found.low) < 0 < number(found.high)


@given(st.lists(st.integers(0, 7), min_size=2, max_size=9))
def test_a_ratio_over_equal_counts_is_a_mean(hits: list[int]) -> None:
    counts = torch.full((len(hits),), 7.0)
    found, known = ratio(torch.tensor(hits) * 1.0, counts, 7), interval(torch.tensor(hits) / 7.0, bounds=RATE)
    assert found.mean == pytest.approx(known.mean)
    assert found.low == pytest.approx(known.low, abs=1e-6)
    assert found.high == pytest.approx(known.high, abs=1e-6)


def test_intervals_of_ratios_hold_the_truth_as_often_as_they_say() -> None:
    draw = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        counts = draw.integers(5, 60, 5)
        # All cells of a victim are right or none is: few clusters.
        hits = counts * (draw.random(5) < 0.9)
        found = ratio(torch.from_numpy(hits * 1.0), torch.from_numpy(counts * 1.0), 60)
        held += number(found.low) <= 0.9 <= number(found.high)
    assert held / 400 >= 0.95
    with pytest.raises(BadInputError, match="at most 50 cells"):
        ratio(torch.tensor([1.0]), torch.tensor([60.0]), 50)


def test_a_measurement_of_clusters_has_the_interval_of_their_means():
    clusters = tuple(torch.tensor(one, dtype=torch.float64) for one in ([0.2, 0.4], [0.6, 0.6], [0.9, 0.9]))
    values = torch.tensor([0.3, 0.6, 0.9], dtype=torch.float64)
    measured = Measurement("accuracy", None, values, True, RATE, clusters)
    assert measured.estimate() == interval(values, bounds=RATE)
    lift = measured.less(Measurement("accuracy", None, values / 3, True, RATE))
    assert lift.estimate() == interval(lift.values, bounds=(-1.0, 1.0))
