"""The box under the verdict says what to do, what that leaves and what it costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tests.rows
from seepage.assessment.row import ResultRow
from seepage.report.advice import what_to_do
from seepage.report.result import AuditResult
from seepage.results.checks.finding import Finding, Where
from seepage.run.runner import Run
from tests.settings.fifth import CoinAudit, CoinSpec
from tests.settings.plugged import plugged_in  # noqa: F401

pytestmark = pytest.mark.usefixtures("plugged_in")


def row(defense: str, mean: float, **values: Any) -> ResultRow:
    fields = {"attack": "listen", "metric": "accuracy", "kind": "attack", "n": 20, "baseline": 0.6, **values}
    low, high = max(0.0, mean - 0.02), min(1.0, mean + 0.02)
    lift = {} if fields["kind"] != "attack" else {"lift": mean - 0.6, "lift_low": low - 0.6, "lift_high": high - 0.6}
    known: dict[str, Any] = {
        "batch_size": None,
        "dataset": "coins",
        "protocol": "toss",
        "model": "none",
        "setting": "coins",
        "baseline_name": "heads",
    }
    return tests.rows.row(**{**known, "defense": defense, "mean": mean, "low": low, "high": high, **lift, **fields})


def task(defense: str, mean: float, n: int = 5) -> ResultRow:
    return row(defense, mean, kind="about", attack="none", metric="task_accuracy", n=n, baseline=0.5)


def said(rows: list[ResultRow]) -> str:
    spec = CoinSpec.of(defenses=["none", {"name": "gloves", "noise": 1.0}, {"name": "gloves", "label": "thick"}])
    return what_to_do(AuditResult(CoinAudit(spec), rows)).words


def test_the_cheapest_that_is_low_is_named_with_what_it_leaves_and_costs() -> None:
    rows = [row("none", 0.99), row("gloves", 0.61), row("thick", 0.6)]
    words = said([*rows, task("none", 0.9), task("gloves", 0.8), task("thick", 0.7)])
    assert words.startswith("Use gloves: at most 8 of 100 cells that guessing misses are read")
    assert "instead of 98." in words
    assert "It changes task accuracy by -10.0 points: 80.0% instead of 90.0%, over 5 trainings." in words
    assert "seepage recommend --setting coins --below 0.2 --dataset " in words
    assert "The option that sets it: --defense 'gloves:{noise: 1}'" in words


def test_a_cost_of_two_trainings_is_not_judged() -> None:
    rows = [row("none", 0.99), row("gloves", 0.61)]
    assert "this is not judged" in said([*rows, task("none", 0.9), task("gloves", 0.8, n=2)])
    assert "trainings, which may be chance." in said([*rows, task("none", 0.9), task("gloves", 0.89)])
    assert "was not measured" in said(rows)


@pytest.mark.parametrize(
    ("means", "begin"),
    [((0.61, 0.6), "Nothing has to change"), ((0.99, 0.95), "Nothing that was audited is shown to keep")],
)
def test_where_nothing_helps_or_nothing_is_needed_it_says_so(means: tuple[float, float], begin: str) -> None:
    rows = [row("none", means[0]), row("gloves", means[1]), row("thick", means[1])]
    assert said(rows).startswith(begin)
    assert "-" not in said(rows).partition(" To search")[0]


def test_without_a_figure_there_is_no_box() -> None:
    audit = CoinAudit(CoinSpec())
    assert not what_to_do(AuditResult(audit, []))
    failed = replace(row("none", 0.9), mean=None, low=None, high=None, lift=None, lift_low=None, lift_high=None)
    assert not what_to_do(AuditResult(audit, [failed]))


def test_a_wide_interval_is_no_reason_to_change_anything() -> None:
    # One whose units vary, and one of so few that alike ones show little.
    for wide in ({"lift_low": -0.2, "lift_high": 0.25, "lift_std": 0.5}, {"lift_low": -0.2, "lift_high": 0.25}):
        words = said([replace(row("none", 0.62), **wide), row("gloves", 0.99)])
        assert words.startswith("No verdict yet without a defense: little may be read. Audit more")
        assert "(--repetitions) before changing anything" in words


def test_where_nothing_is_decided_more_units_come_before_any_change() -> None:
    wide = {"lift_low": -0.05, "lift_high": 0.48, "lift_std": 0.4}
    rows = [replace(row(name, 0.8), **wide) for name in ("none", "gloves", "thick")]
    words = said(rows)
    assert words.startswith("No verdict yet")
    assert "little or much may be read. Audit more" in words
    assert "(--repetitions) before changing anything" in words
    # One configuration that is decided, and reads much: the others are no reason to wait.
    assert said([row("none", 0.99), *rows[1:]]).startswith("Nothing that was audited is shown to keep")


def test_without_a_defense_the_next_step_is_one() -> None:
    words = what_to_do(AuditResult(CoinAudit(CoinSpec()), [row("none", 0.99)])).sentences
    assert words[0].startswith("No defense was audited: add one with --defense")


def test_a_defense_that_was_not_reached_is_no_reason_to_say_that_nothing_helps() -> None:
    assert said([row("none", 0.99)]).startswith(
        "No verdict yet for gloves and thick: time ran out before they were attacked. Run it again with more time "
        "and the same run folder (--out)."
    )


def test_sensitive_columns_that_are_left_open_are_named() -> None:
    rows = [row("none", 0.99), row("gloves", 0.6)]
    open_ = replace(row("gloves", 0.6, column="side"), lift_high=0.2)
    audit = CoinAudit(CoinSpec.of(defenses=["none", {"name": "gloves", "noise": 1.0}]))
    audit.about = replace(audit.about, sensitive=("side",))
    words = what_to_do(AuditResult(audit, [*rows, open_])).sentences
    assert words[0].startswith("Use gloves")
    assert words[1].endswith("not shown for 1 of 1 sensitive column (side); --repetitions narrows it.")
    assert "sensitive" not in what_to_do(AuditResult(audit, [*rows, replace(open_, lift_high=0.02)])).words
    assert "sensitive" not in what_to_do(AuditResult(audit, [*rows, replace(open_, baseline=1.0)])).words


def test_a_model_that_learns_nothing_under_the_defense_is_told() -> None:
    rows = [row("none", 0.99), row("gloves", 0.61)]
    learnt_nothing = "not shown to be better than always giving the same answer"
    useless = said([*rows, task("none", 0.9), task("gloves", 0.51)])
    assert useless.startswith(
        "Nothing that was audited protects the records of a model that learns: with gloves at most"
    )
    assert learnt_nothing in useless
    assert said([*rows, task("none", 0.9), task("gloves", 0.8)]).startswith("Use gloves")
    assert learnt_nothing not in said([*rows, task("none", 0.9), task("gloves", 0.8)])
    assert learnt_nothing not in said([*rows, task("none", 0.5), task("gloves", 0.5)])


def test_what_was_not_tried_is_the_reason_where_nothing_is_decided() -> None:
    weaker = Finding("SEEP024", "warning", "The exact attack was not tried", "...", (Where(None, "gloves"),))
    spec = CoinSpec.of(defenses=["none", {"name": "gloves", "noise": 1.0}])
    words = what_to_do(
        AuditResult(CoinAudit(spec), [row("none", 0.99), row("gloves", 0.6)], findings=[weaker])
    ).sentences
    assert words[0] == "No verdict yet for gloves: the exact attack was not tried (SEEP024), so that more may be read."


def test_a_figure_that_cannot_be_relied_on_asks_for_no_more_units() -> None:
    broken = Finding("SEEP004", "error", "The positive control did not leak", "...")
    words = what_to_do(AuditResult(CoinAudit(CoinSpec()), [row("none", 0.6)], findings=[broken])).sentences
    assert words[0] == "No verdict yet: the positive control did not leak. What helps: seepage checks SEEP004."
    assert "Audit more" not in " ".join(words)


def test_units_without_time_are_the_reason_where_nothing_is_decided() -> None:
    spec = CoinSpec.of(defenses=["none", {"name": "gloves", "noise": 1.0}], repetitions=9)
    audit = CoinAudit(spec)
    here = next(one for one in audit.configurations if one.defense == "gloves")
    part = next(part for part in audit.parts if part.kind == "attack")
    run = Run(here, part, [], (), None, {}, {}, planned=9)
    assert run.status == "left_out"
    few = replace(row("gloves", 0.6, n=3), lift_low=-0.3, lift_high=0.3)
    words = what_to_do(AuditResult(audit, [row("none", 0.99), few], runs=[run])).sentences
    assert words[0] == (
        "No verdict yet for gloves: time ran out after 3 of 9 tosss. Run it again with the same run folder (--out) to "
        "finish."
    )
