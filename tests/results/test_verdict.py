"""Tiers, and the sentences that carry them."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import tests.rows
from seepage.assessment.row import ResultRow
from seepage.report.console import show_report
from seepage.report.summary import summary
from seepage.results.verdict import strongest, verdict
from seepage.settings.spec import make_spec
from seepage.settings.subject import prepare

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


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"baseline": None, "baseline_name": None, "lift": None, "lift_low": None, "lift_high": None}, "No baseline"),
        ({"baseline": 1.0, "lift": 0.0, "lift_low": 0.0, "lift_high": 0.0}, "Guessing is right already."),
        ({"n": 1, "low": None, "high": None, "lift_low": None, "lift_high": None}, "One victim allows no interval"),
        ({"n": 3, "lift_low": 0.2, "lift_high": 0.2}, "All 3 victims are alike"),
    ],
)
def test_the_summary_says_why_there_is_no_tier(changes: dict[str, Any], reason: str) -> None:
    spec = make_spec(dataset="german", batch_sizes=8, attacks="tableak")
    text = summary(spec, prepare(spec), [row(**changes)])
    assert f"Leakage: inconclusive. {reason}" in text


def test_the_strongest_is_an_attack_and_no_baseline() -> None:
    rows = [row(attack="a", mean=0.6), row(attack="b", mean=0.8), row(attack="mode", mean=0.9, kind="baseline")]
    assert strongest(rows, 8) == "b"
    assert strongest(rows, 16) is None


def test_the_summary_says_what_was_read_and_what_guessing_gives() -> None:
    spec = make_spec(dataset="german", batch_sizes=8, attacks="tableak")
    subject = prepare(spec)
    rows = [
        row(),
        row(metric="exact_match", mean=0.25),
        row(column="age", mean=0.9, baseline=0.3, lift=0.6, lift_low=0.5, lift_high=0.63),
        row(column="purpose", mean=0.3, baseline=0.29, lift=0.01, lift_low=-0.2, lift_high=0.02),
    ]
    text = summary(spec, subject, rows)
    assert "At batch size 8 the server reads 70.0% of all cells" in text
    assert "20.0 points more than the best guess (random, 50.0%)" in text
    assert "25.0% of the records come back whole. Leakage: moderate." in text
    assert "Clearly above guessing, most of all: age (90%, guess 30%)." in text
    assert "Sensitive columns by leakage: total: age." in text or "high: age" in text
    assert "restored the labels" in text


def test_an_attack_that_cannot_be_told_from_guessing_is_not_called_safe() -> None:
    spec = make_spec(dataset="german", batch_sizes=8, attacks="tableak")
    text = summary(spec, prepare(spec), [row(lift=0.01, lift_low=-0.05, lift_high=0.07)])
    assert "do not tell the attack from guessing, which does not show that nothing leaks" in text
    worse = summary(spec, prepare(spec), [row(lift=-0.05, lift_low=-0.07, lift_high=-0.03)])
    assert "includes zero" not in worse
    assert "Guessing does better than this attack, which does not show that nothing leaks" in worse


def test_columns_above_guessing_do_not_contradict_an_attack_that_is_not() -> None:
    spec = make_spec(dataset="german", batch_sizes=8, attacks="tableak")
    columns = [
        row(column="age", mean=0.9, baseline=0.3, lift=0.6, lift_low=0.5, lift_high=0.63),
        # Two victims that happen to be alike.
        row(column="purpose", mean=0.5, baseline=0.3, lift=0.2, lift_low=0.2, lift_high=0.2),
    ]
    text = summary(spec, prepare(spec), [row(lift=0.01, lift_low=-0.05, lift_high=0.07), *columns])
    assert "Clearly above guessing" not in text
    assert "Single columns whose interval lies above guessing all the same: age (90%, guess 30%); 2 columns" in text
    assert "purpose" not in text


def test_every_defense_has_a_paragraph_of_its_own() -> None:
    spec = make_spec(dataset="german", batch_sizes=8, attacks="tableak")
    rows = [row(), row(defense="noise(0.1)", mean=0.55, lift=0.05, lift_low=0.01, lift_high=0.09)]
    text = summary(spec, prepare(spec), rows)
    assert "At batch size 8 the server reads 70.0%" in text
    assert "At batch size 8 under noise(0.1) the server reads 55.0%" in text
    assert strongest(rows, 8, "noise(0.1)") == "tableak"
    assert strongest(rows, 8, "other") is None


def test_the_terminal_shows_every_defense_and_what_has_no_figure() -> None:
    spec = make_spec(dataset="german", batch_sizes=8, attacks="tableak")
    guess = row(
        attack="mode", kind="baseline", seconds_per_victim=None, mean=0.5, lift=None, lift_low=None, lift_high=None
    )
    rows = [row(), guess, row(defense="noise(0.1)", mean=0.55, lift=0.05), row(defense="noise(0.1)", metric="other")]
    rows.append(row(defense="broken", attack="dlg", mean=None, lift=None, low=None, high=None))
    written = io.StringIO()
    console = Console(file=written, width=200)
    known = {"labels": "true", "sees": "what it sees"}
    show_report(console, spec, prepare(spec), [replace(one, knowledge=known) for one in rows], [])
    assert "noise(0.1)" in written.getvalue()
    assert "broken" in written.getvalue()
    assert "55.0" in written.getvalue()
