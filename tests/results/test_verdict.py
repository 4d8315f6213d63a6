"""The verdict on what an attack reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.rows
from seepage.assessment.row import ResultRow
from seepage.results.checks.finding import Finding, Where
from seepage.results.verdict import graver, strongest, verdict


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
    ("low", "high", "tier"),
    [
        (-0.3, 0.199, "little read"),
        (0.05, 0.199, "little read"),
        (-0.3, 0.2, "not decided"),
        (0.0, 1.0, "not decided"),
        (0.01, 0.2, "gain shown"),
        (0.01, 1.0, "gain shown"),
        (0.499, 1.0, "gain shown"),
        (0.5, 1.0, "mostly read"),
        (0.95, 1.0, "mostly read"),
    ],
)
def test_the_upper_bound_names_what_is_mild_and_the_lower_bound_what_is_grave(
    low: float, high: float, tier: str
) -> None:
    rated = verdict(row(baseline=0.0, lift=(low + high) / 2, lift_low=low, lift_high=high))
    assert rated.tier == tier
    assert rated.high == high


@given(st.floats(0, 0.9), st.floats(-0.5, 0.9), st.floats(0.001, 0.5), st.floats(0.001, 1))
def test_a_narrower_interval_within_never_says_less(baseline: float, low: float, width: float, at: float) -> None:
    wide = verdict(row(baseline=baseline, lift=low + width / 2, lift_low=low, lift_high=low + width))
    middle, half = low + width / 2, at * width / 2
    narrow = verdict(row(baseline=baseline, lift=middle, lift_low=middle - half, lift_high=middle + half))
    if wide.tier in ("gain shown", "mostly read"):
        assert narrow.rank >= wide.rank or narrow.tier == "little read"
    if wide.tier == "little read":
        assert narrow.tier == "little read"


def test_no_mean_decides() -> None:
    # The mean closes nearly all of the gap, but the units do not show it.
    assert verdict(row(mean=0.97, lift=0.47, lift_low=-0.05, lift_high=0.5)).tier == "not decided"
    assert verdict(row(mean=0.5, lift=0.0, lift_low=-0.3, lift_high=0.3)).tier == "not decided"


@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_one_whole_record_that_no_baseline_gets_is_enough(n: int) -> None:
    some = row(metric="exact_match", mean=0.01, baseline=0.0, lift=0.01, lift_low=-0.2, lift_high=0.3, n=n)
    assert verdict(row(n=n), some).tier == "whole records read"
    assert verdict(row(n=n), replace(some, mean=0.0)).tier == "gain shown"
    # Where guessing gets whole records, too, the gain must be shown.
    guessed = replace(some, mean=0.31, baseline=0.3)
    assert verdict(row(n=n), guessed).tier == "gain shown"
    assert verdict(row(n=n), replace(guessed, lift_low=0.001)).tier == "whole records read"


def test_a_certified_record_is_whole_whatever_is_said_of_the_attack() -> None:
    proved = row(metric="certified", mean=0.02, baseline=None)
    broken = Finding("SEEP004", "error", "The positive control did not leak", "...")
    rated = verdict(row(baseline=1.0), None, [broken], proved)
    assert (rated.tier, rated.proved) == ("whole records read", True)


def test_a_single_captured_message_is_no_sample() -> None:
    alone: dict[str, Any] = {"captured": True, "n": 1, "lift_low": None, "lift_high": None}
    few, half = (row(metric="exact_match", mean=mean, baseline=0.0, **alone) for mean in (0.1, 0.5))
    assert verdict(row(**alone), few).tier == "not decided"
    assert verdict(row(**alone), half).tier == "whole records read"
    assert verdict(row(mean=0.96, lift=0.46, **alone)).tier == "mostly read"


def test_little_is_not_shown_by_an_attack_that_fell_back() -> None:
    finding = Finding("SEEP024", "warning", "The exact attack was not tried", "...")
    little = row(lift=0.0, lift_low=-0.01, lift_high=0.01)
    assert verdict(row(), findings=[finding]).tier == "gain shown"
    assert verdict(little, findings=[finding]).tier == "not decided"
    assert verdict(little, findings=[finding]).because is finding
    assert verdict(little, findings=[replace(finding, where=(Where(attack="other"),))]).tier == "little read"


@pytest.mark.parametrize(
    ("low", "high", "tier"),
    [
        (-0.05, 0.01, "incomplete"),
        (0.06, 0.15, "incomplete"),
        (-0.1, 0.4, "not decided"),
        (0.06, 0.3, "gain shown"),
        (0.95, 1.0, "mostly read"),
    ],
)
def test_little_leakage_is_not_shown_by_an_incomplete_audit(low: float, high: float, tier: str) -> None:
    finding = Finding("SEEP030", "warning", "The audit is incomplete", "...", (Where(8, "none"),))
    rated = verdict(row(baseline=0.0, lift=(low + high) / 2, lift_low=low, lift_high=high), findings=[finding])
    assert rated.tier == tier


def test_a_failed_control_leaves_no_verdict_but_what_was_read() -> None:
    finding = Finding("SEEP004", "error", "The positive control did not leak", "...")
    assert verdict(row(), findings=[finding]).tier == "not decided"
    assert verdict(row(lift=0.47, lift_low=0.46, lift_high=0.48), findings=[finding]).tier == "mostly read"
    whole = row(metric="exact_match", mean=0.2, baseline=0.0)
    assert verdict(row(), whole, [finding]).tier == "whole records read"


@pytest.mark.parametrize("changes", [{"lift": None}, {"lift_low": None}, {"baseline": 1.0}, {"baseline": None}])
def test_without_interval_or_room_above_guessing_nothing_is_decided(changes: dict[str, Any]) -> None:
    assert verdict(row(**changes)).tier == "not decided"


def test_the_graver_of_two_secrets_is_the_verdict_on_both() -> None:
    little = verdict(row(lift=0.0, lift_low=-0.01, lift_high=0.01))
    read = verdict(row(mean=1.0, lift=0.5, lift_low=0.49, lift_high=0.5))
    unclear = verdict(row(lift=0.1, lift_low=-0.4, lift_high=0.4))
    assert graver(little, read) is graver(read, little) is read
    # A secret that is not decided is no reassurance.
    assert graver(little, unclear) is unclear


def test_the_strongest_is_an_attack_and_no_baseline() -> None:
    rows = [row(attack="a", mean=0.6), row(attack="b", mean=0.8), row(attack="mode", mean=0.9, kind="baseline")]
    assert strongest(rows, 8) == "b"
    assert strongest(rows, 16) is None


def test_the_strongest_of_each_defense_is_its_own() -> None:
    rows = [row(), row(defense="noise(0.1)", mean=0.55, lift=0.05, lift_low=0.01, lift_high=0.09)]
    assert strongest(rows, 8, "noise(0.1)") == "tableak"
    assert strongest(rows, 8, "other") is None
