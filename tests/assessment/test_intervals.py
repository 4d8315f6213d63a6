import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from seepage.assessment import Estimate, Measurement, clustered, interval, paired, tau_b
from seepage.assessment.intervals import CLUSTERS_FOR_INTERVAL, CLUSTERS_FOR_VERDICT, ratio, welch
from seepage.errors import BadInputError
from tests.oracles import assessment as oracle


def test_student_t_interval_from_a_printed_table():
    # Quantiles of Student's t at 0.975 and 0.95 for 4 degrees of freedom: 2.776, 2.132.
    values = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], dtype=torch.float64)
    std = math.sqrt(2.5)
    for level, quantile in ((0.95, 2.776), (0.9, 2.132)):
        estimate = interval(values, level)
        half = quantile * std / math.sqrt(5)
        assert (estimate.mean, estimate.n, estimate.std) == (3, 5, pytest.approx(std))
        assert (estimate.low, estimate.high) == (pytest.approx(3 - half, abs=1e-3), pytest.approx(3 + half, abs=1e-3))


def test_the_interval_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    samples = torch.from_numpy(rng.normal(2, 3, size=(2000, 6)))
    covered = 0
    for sample in samples:
        estimate = interval(sample)
        assert estimate.low is not None
        assert estimate.high is not None
        covered += estimate.low <= 2 <= estimate.high
    assert covered / 2000 == pytest.approx(0.95, abs=0.015)


def test_rates_are_clipped_to_their_range():
    estimate = interval(torch.tensor([0.0, 1.0]), bounds=(0.0, 1.0))
    assert (estimate.low, estimate.high) == (0, 1)
    assert not estimate.degenerate


def test_victims_without_a_value_are_left_out():
    with_gaps = torch.tensor([0.5, math.nan, 0.7, math.nan])
    assert interval(with_gaps) == interval(torch.tensor([0.5, 0.7]))
    assert interval(with_gaps).n == 2


def test_one_victim_has_no_interval_and_none_has_no_mean():
    assert interval(torch.tensor([0.25, math.nan])) == Estimate(0.25, None, None, 1)
    assert interval(torch.tensor([math.nan])) == Estimate(None, None, None, 0)
    assert not interval(torch.tensor([0.25])).degenerate


def test_victims_that_all_agree_give_a_point_and_say_so():
    estimate = interval(torch.full((7,), 0.1, dtype=torch.float64))
    assert estimate == Estimate(0.1, 0.1, 0.1, 7, 0.0)
    assert estimate.degenerate


def test_pairing_leaves_out_who_lacks_either_value_and_removes_what_both_share():
    hard = torch.tensor([0.1, 0.5, 0.9, 0.3], dtype=torch.float64)
    gain = torch.tensor([0.1, 0.11, 0.09, math.nan], dtype=torch.float64)
    estimate = paired(hard + gain, hard)
    assert estimate.n == 3
    assert estimate.mean == pytest.approx(0.1)
    assert estimate.std == pytest.approx(0.01)


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


@pytest.mark.parametrize("seed", range(5))
def test_welch_is_scipys(seed: int) -> None:
    draw = np.random.default_rng(seed)
    first, second = draw.normal(0, 1, 5 + seed), draw.normal(1, 3, 9)
    found = welch(interval(torch.from_numpy(first)), interval(torch.from_numpy(second)))
    truth = stats.ttest_ind(second, first, equal_var=False).confidence_interval()
    assert found.mean == pytest.approx(second.mean() - first.mean())
    assert (found.low, found.high) == (pytest.approx(truth.low), pytest.approx(truth.high))


def test_without_spread_or_value_there_is_no_interval() -> None:
    one = interval(torch.tensor([0.5]))
    several = interval(torch.tensor([0.5, 0.7]))
    none = interval(torch.tensor([float("nan")]))
    assert welch(one, several).low is None
    assert welch(one, several).mean == pytest.approx(0.1)
    assert welch(none, several).mean is None
    alike = interval(torch.tensor([0.5, 0.5]))
    assert (welch(alike, alike).low, welch(alike, alike).high) == (0, 0)
    with pytest.raises(BadInputError, match="confidence level"):
        welch(one, several, 1.0)


@given(st.lists(st.integers(0, 7), min_size=2, max_size=9))
def test_a_ratio_over_equal_counts_is_a_mean(hits: list[int]) -> None:
    counts = torch.full((len(hits),), 7.0)
    found, known = ratio(torch.tensor(hits) * 1.0, counts), interval(torch.tensor(hits) / 7.0, bounds=(0.0, 1.0))
    assert found.mean == pytest.approx(known.mean)
    assert found.low == pytest.approx(known.low, abs=1e-6)
    assert found.high == pytest.approx(known.high, abs=1e-6)


def test_intervals_of_ratios_hold_the_truth_as_often_as_they_say() -> None:
    draw = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        counts = draw.integers(5, 60, 30)
        # Victims differ, so cells of one victim are not independent.
        hits = draw.binomial(counts, draw.beta(6, 4, 30))
        found = ratio(torch.from_numpy(hits * 1.0), torch.from_numpy(counts * 1.0))
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.6 <= found.high
    assert 0.92 <= held / 400 <= 0.98


def _clusters(effects: np.ndarray, rng: np.random.Generator) -> list[torch.Tensor]:
    """Return 40 answers, right or wrong, of each cluster."""
    return [torch.from_numpy((rng.random(40) < one).astype(float)) for one in effects]


@pytest.mark.parametrize("number", [3, 5])
def test_intervals_over_few_clusters_hold_the_truth_as_often_as_they_say(number: int):
    rng = np.random.default_rng(number)
    held = {"clusters": 0, "units": 0}
    for _ in range(1000):
        values = _clusters(np.clip(0.7 + 0.08 * rng.standard_normal(number), 0, 1), rng)
        for name, found in (("clusters", clustered(values)), ("units", interval(torch.cat(values)))):
            assert found.low is not None
            assert found.high is not None
            held[name] += found.low <= 0.7 <= found.high
    assert 0.935 <= held["clusters"] / 1000 <= 0.97
    assert held["units"] / 1000 < 0.85


def test_clusters_are_their_means_with_t_of_one_fewer_degrees_of_freedom():
    # Quantile of Student's t at 0.975 for 2 degrees of freedom: 4.303.
    values = [torch.tensor([0.0, 1.0]), torch.tensor([0.4]), torch.tensor([0.6, 0.6, math.nan])]
    found = clustered(values)
    assert (found.mean, found.n, found.std) == (pytest.approx(0.5), 3, pytest.approx(0.1))
    half = 4.303 * 0.1 / math.sqrt(3)
    assert (found.low, found.high) == (pytest.approx(0.5 - half, abs=1e-4), pytest.approx(0.5 + half, abs=1e-4))
    assert clustered([10 * one for one in values], bounds=(4.5, 5.2)).high == 5.2


def test_two_clusters_have_no_interval_and_those_without_values_do_not_count():
    assert (CLUSTERS_FOR_INTERVAL, CLUSTERS_FOR_VERDICT) == (3, 5)
    two = [torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0]), torch.tensor([math.nan])]
    found = clustered(two)
    assert (found.mean, found.low, found.high, found.n) == (0.75, None, None, 2)
    assert found.std == pytest.approx(math.sqrt(0.125))
    alone = clustered([torch.tensor([0.0, 1.0, 1.0, math.nan])])
    assert (alone.mean, alone.low, alone.n) == (pytest.approx(2 / 3), None, 1)
    assert clustered([]) == Estimate(None, None, None, 0)
    same = clustered([torch.tensor([1.0, 1.0]), torch.tensor([1.0]), torch.tensor([1.0])])
    assert (same.low, same.high, same.degenerate) == (1, 1, True)


def test_a_measurement_of_clusters_has_their_interval():
    clusters = tuple(torch.tensor(one, dtype=torch.float64) for one in ([0.2, 0.4], [0.6, 0.6], [0.9, 0.9]))
    values = torch.tensor([0.3, 0.6, 0.9], dtype=torch.float64)
    measured = Measurement("accuracy", None, values, True, (0.0, 1.0), clusters)
    assert measured.estimate() == clustered(clusters, bounds=(0.0, 1.0))
    lift = measured.less(Measurement("accuracy", None, values / 3, True, (0.0, 1.0)))
    found, expected = lift.estimate(), interval(lift.values, bounds=(-1.0, 1.0))
    assert (found.low, found.high) == (pytest.approx(expected.low), pytest.approx(expected.high))
