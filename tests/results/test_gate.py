"""The gate passes only what is shown to stay below."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.rows
from seepage.assessment.row import ResultRow
from seepage.errors import BadInputError
from seepage.results.checks import Alarm, Where
from seepage.results.gate import Decision, combined, gate


def row(**changes: Any) -> ResultRow:
    plain: dict[str, Any] = {
        "mean": 0.6,
        "n": 10,
        "baseline": 0.5,
        "baseline_name": "mode",
        "lift": 0.1,
        "lift_low": 0.05,
        "lift_high": 0.15,
    }
    return tests.rows.row(**{**plain, **changes})


@pytest.mark.parametrize(("above", "failed"), [(0.1, True), (0.149, True), (0.15, False), (0.2, False)])
def test_the_upper_end_decides(above: float, failed: bool) -> None:
    decision = gate([row()], above)
    assert decision.failed is failed
    assert decision.line.startswith(f"gate {'failed' if failed else 'passed'}: tableak on all cells (german, nn3,")
    assert "\n" not in decision.line


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"lift": None, "lift_low": None, "lift_high": None, "baseline": None}, "no baseline"),
        ({"n": 1, "lift_low": None, "lift_high": None}, "allows no interval"),
        ({"lift_low": 0.0, "lift_high": 0.0}, "all 10 victims are alike"),
        ({"baseline": 1.0, "lift": 0.0, "lift_low": -0.1, "lift_high": 0.0}, "the best baseline is always right"),
        ({"mean": None}, "no attack was scored"),
    ],
)
def test_what_shows_nothing_does_not_pass(changes: dict[str, Any], why: str) -> None:
    decision = gate([row(**changes)], 0.9)
    assert decision.failed
    assert why in decision.line


def test_the_line_names_what_was_repeated() -> None:
    one = row(n=1, lift_low=None, lift_high=None)
    assert "1 training allows no interval" in gate([one], 0.9, unit="training").line


def test_no_attack_at_all_does_not_pass() -> None:
    assert gate([row(kind="baseline")], 0.9).failed
    assert gate([], 0.9).failed


@pytest.mark.parametrize(
    ("severity", "where", "failed"),
    [
        ("error", (), True),
        ("error", (Where(attack="tableak"),), True),
        ("error", (Where(attack="dlg"),), False),
        ("error", (Where(batch_size=16),), False),
        ("warning", (), False),
    ],
)
def test_an_error_alarm_that_concerns_the_figure_fails(severity: Any, where: tuple[Where, ...], failed: bool) -> None:
    decision = gate([row()], 0.5, alarms=[Alarm("SEEP004", severity, "The control failed", "...", where)])
    assert decision.failed is failed
    assert ("SEEP004" in decision.line) is failed


def test_every_setting_counts_and_in_it_the_strongest_attack() -> None:
    weak = row(attack="dlg", mean=0.4, lift=-0.1, lift_low=-0.6, lift_high=0.4)
    assert not gate([row(), weak], 0.2).failed
    small = row(batch_size=1, mean=0.9, lift=0.4, lift_low=0.35, lift_high=0.45)
    defended = row(batch_size=1, defense="noise")
    decision = gate([row(), small, defended], 0.2)
    assert decision.failed
    assert "batch size 1)" in decision.line
    assert gate([row(), defended, replace(small, defense="noise", mean=0.95)], 0.2).failed


def test_a_column_of_its_own() -> None:
    rows = [row(), row(column="age", mean=0.9, lift=0.4, lift_low=0.3, lift_high=0.5), row(column="sex")]
    assert gate(rows, 0.2, "age").failed
    assert not gate(rows, 0.2, "sex").failed
    assert not gate(rows, 0.2).failed
    with pytest.raises(BadInputError, match="did you mean 'age'"):
        gate(rows, 0.2, "aeg")


@pytest.mark.parametrize("above", [-0.1, 1.0, 20.0, float("nan")])
def test_a_threshold_that_is_no_lift_is_refused(above: float) -> None:
    with pytest.raises(BadInputError, match="20 points"):
        gate([row()], above)


@given(st.floats(-0.5, 0.5), st.floats(0.001, 0.5), st.floats(0, 0.99), st.floats(0, 0.4))
def test_more_leakage_or_fewer_victims_never_help_to_pass(lift: float, half: float, above: float, more: float) -> None:
    def failed(lift: float, half: float) -> bool:
        return gate([row(lift=lift, lift_low=lift - half, lift_high=lift + half)], above).failed

    if failed(lift, half):
        assert failed(lift + more, half)
        assert failed(lift, half + more)


def test_the_worst_of_several_decides() -> None:
    passed, failed, unknown = Decision(False, "a", 0.9), Decision(True, "b", 0.3), Decision(True, "c", None)
    assert combined([passed, unknown, failed]) is failed
    assert combined([passed, unknown]) is unknown
    assert combined([passed, Decision(False, "d", 0.1)]) is passed
