"""Tiers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.rows
from seepage.assessment.row import ResultRow
from seepage.results.checks.finding import Finding, Where
from seepage.results.verdict import strongest, verdict


def row(**changes: Any) -> ResultRow:
    """An accuracy over all cells: guessing scores 0.5, the attack 0.7."""
    plain: dict[str, Any] = {
        "mean": 0.7,
        "low": 0.66,
        "high": 0.74,
        "n": 10,
        "baseline": 0.5,
        "baseline_name": "random",
        "lift": 0.2,
        "lift_low": 0.16,
        "lift_high": 0.24,
        "seconds_per_victim": 1.0,
    }
    return tests.rows.row(**{**plain, **changes})


@pytest.mark.parametrize(
    ("closed", "tier"),
    [
        (-0.3, "none"),
        (0.049, "none"),
        (0.05, "low"),
        (0.199, "low"),
        (0.2, "moderate"),
        (0.499, "moderate"),
        (0.5, "high"),
        (0.899, "high"),
        (0.9, "total"),
        (1.0, "total"),
    ],
)
def test_a_narrow_interval_is_named_by_the_tier_that_it_lies_in(closed: float, tier: str) -> None:
    found = verdict(row(baseline=0.0, lift=closed + 2e-9, lift_low=closed + 1e-9, lift_high=closed + 3e-9))
    assert found.tier == tier
    assert found.high == pytest.approx(closed)


@pytest.mark.parametrize(
    ("low", "high", "tier"),
    [
        (0.1, 0.15, "low"),
        (0.1, 0.3, "low to moderate"),
        (0.04, 0.3, "inconclusive"),
        (0.074, 0.995, "inconclusive"),
        (0.8, 1.0, "high to total"),
    ],
)
def test_the_interval_names_one_tier_or_two_neighbours_or_is_inconclusive(low: float, high: float, tier: str) -> None:
    found = verdict(row(baseline=0.0, lift=(low + high) / 2, lift_low=low, lift_high=high))
    assert found.tier == tier
    assert (found.low, found.high) == (low, high)


@given(st.floats(0, 0.9), st.floats(-0.5, 1), st.floats(0.001, 0.5), st.floats(0, 1))
def test_the_tiers_named_are_exactly_those_of_the_interval(
    baseline: float, low: float, width: float, at: float
) -> None:
    found = verdict(row(baseline=baseline, lift=low, lift_low=low, lift_high=low + width)).tier
    inside = verdict(
        row(baseline=baseline, lift=low, lift_low=low + at * width, lift_high=low + at * width + 1e-12)
    ).tier
    if found != "inconclusive" and inside != "inconclusive" and " to " not in inside:
        assert inside in found.split(" to ")


def test_a_column_that_is_always_read_is_total_though_the_baseline_varies() -> None:
    read = row(mean=1.0, low=1.0, high=1.0, baseline=0.6, lift=0.4, lift_low=0.05, lift_high=0.75)
    assert verdict(read).tier == "total"
    assert verdict(replace(read, mean=0.99)).tier == "inconclusive"


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_fewer_than_five_repetitions_give_no_verdict_but_what_was_read_whole(n: int) -> None:
    assert verdict(row(n=n)).tier == "inconclusive"
    whole, proved = (row(metric=metric, mean=0.9, baseline=None) for metric in ("exact_match", "certified"))
    assert verdict(row(n=n), whole).tier == ("inconclusive" if n == 1 else "total")
    assert verdict(row(n=n), None, (), proved).tier == "total"


def test_an_attack_that_fell_back_gives_a_lower_bound() -> None:
    finding = Finding("SEEP024", "warning", "The exact attack was not tried", "...")
    assert verdict(row(), findings=[finding]).tier == "at least moderate"
    assert verdict(row(lift=0.0, lift_low=-0.01, lift_high=0.01), findings=[finding]).tier == "inconclusive"
    assert verdict(row(), findings=[finding]).because is finding
    assert verdict(row(), findings=[replace(finding, where=(Where(attack="other"),))]).tier == "moderate"


@pytest.mark.parametrize(
    ("low", "high", "tier"),
    [
        (-0.05, 0.01, "incomplete"),
        (0.06, 0.15, "incomplete"),
        (-0.1, 0.4, "incomplete"),
        (0.06, 0.3, "incomplete"),
        (0.3, 0.4, "moderate"),
        (0.95, 1.0, "total"),
    ],
)
def test_little_leakage_is_not_shown_by_an_incomplete_audit(low: float, high: float, tier: str) -> None:
    finding = Finding("SEEP030", "warning", "The audit is incomplete", "...", (Where(8, "none"),))
    found = verdict(row(baseline=0.0, lift=(low + high) / 2, lift_low=low, lift_high=high), findings=[finding])
    assert found.tier == tier


def test_a_failed_control_leaves_no_tier_but_what_was_read() -> None:
    finding = Finding("SEEP004", "error", "The positive control did not leak", "...")
    assert verdict(row(), findings=[finding]).tier == "inconclusive"
    assert verdict(row(lift=0.47, lift_low=0.46, lift_high=0.48), findings=[finding]).tier == "total"


def test_half_of_all_records_whole_is_total_whatever_the_cells_say() -> None:
    assert verdict(row(), row(metric="exact_match", mean=0.5, baseline=None)).tier == "total"
    assert verdict(row(), row(metric="exact_match", mean=0.49, baseline=None)).tier == "moderate"
    assert verdict(row(baseline=1.0), row(metric="exact_match", mean=1.0, baseline=None)).tier == "total"


@pytest.mark.parametrize("changes", [{"lift": None}, {"lift_std": None}, {"baseline": 1.0}, {"baseline": None}])
def test_without_interval_or_room_above_guessing_there_is_no_tier(changes: dict[str, Any]) -> None:
    assert verdict(row(**changes)).tier == "inconclusive"


@given(st.floats(0, 0.99), st.floats(-0.5, 1))
def test_victims_that_are_all_alike_give_no_tier_but_total(baseline: float, lift: float) -> None:
    alike = verdict(row(baseline=baseline, lift=lift, lift_low=lift, lift_high=lift)).tier
    assert alike == ("total" if lift / (1 - baseline) >= 0.9 else "inconclusive")


def test_the_strongest_is_an_attack_and_no_baseline() -> None:
    rows = [row(attack="a", mean=0.6), row(attack="b", mean=0.8), row(attack="mode", mean=0.9, kind="baseline")]
    assert strongest(rows, 8) == "b"
    assert strongest(rows, 16) is None


def test_the_strongest_of_each_defense_is_its_own() -> None:
    rows = [row(), row(defense="noise(0.1)", mean=0.55, lift=0.05, lift_low=0.01, lift_high=0.09)]
    assert strongest(rows, 8, "noise(0.1)") == "tableak"
    assert strongest(rows, 8, "other") is None
