"""Tiers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.rows
from seepage.assessment.row import ResultRow
from seepage.results.verdict import strongest, verdict

TIERS = ["none", "low", "moderate", "high", "total"]


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
def test_the_upper_end_of_the_closed_gap_decides(closed: float, tier: str) -> None:
    found = verdict(row(baseline=0.0, lift=closed - 0.1, lift_low=closed - 0.2, lift_high=closed))
    assert found.tier == tier
    assert found.upper == pytest.approx(closed)


@given(st.floats(0, 0.99), st.floats(-0.5, 1), st.floats(0, 0.5))
def test_more_leakage_is_never_a_milder_tier(baseline: float, lift: float, more: float) -> None:
    before, after = (
        verdict(row(baseline=baseline, lift=x, lift_low=x - 1, lift_high=x)).tier for x in (lift, lift + more)
    )
    assert TIERS.index(after) >= TIERS.index(before)


def test_half_of_all_records_whole_is_total_whatever_the_cells_say() -> None:
    assert verdict(row(), row(metric="exact_match", mean=0.5, baseline=None)).tier == "total"
    assert verdict(row(), row(metric="exact_match", mean=0.49, baseline=None)).tier == "moderate"
    assert verdict(row(baseline=1.0), row(metric="exact_match", mean=1.0, baseline=None)).tier == "total"


@pytest.mark.parametrize("changes", [{"lift": None}, {"lift_high": None}, {"baseline": 1.0}, {"baseline": None}])
def test_without_interval_or_room_above_guessing_there_is_no_tier(changes: dict[str, Any]) -> None:
    assert verdict(row(**changes)).tier == "inconclusive"


@given(st.floats(0, 0.99), st.floats(-0.5, 1))
def test_victims_that_are_all_alike_give_no_tier_but_total(baseline: float, lift: float) -> None:
    alike = verdict(row(baseline=baseline, lift=lift, lift_low=lift, lift_high=lift)).tier
    apart = verdict(row(baseline=baseline, lift=lift, lift_low=lift - 1, lift_high=lift)).tier
    assert alike == ("total" if apart == "total" else "inconclusive")


def test_the_strongest_is_an_attack_and_no_baseline() -> None:
    rows = [row(attack="a", mean=0.6), row(attack="b", mean=0.8), row(attack="mode", mean=0.9, kind="baseline")]
    assert strongest(rows, 8) == "b"
    assert strongest(rows, 16) is None


def test_the_strongest_of_each_defense_is_its_own() -> None:
    rows = [row(), row(defense="noise(0.1)", mean=0.55, lift=0.05, lift_low=0.01, lift_high=0.09)]
    assert strongest(rows, 8, "noise(0.1)") == "tableak"
    assert strongest(rows, 8, "other") is None
