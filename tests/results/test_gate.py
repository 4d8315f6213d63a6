"""The gate passes only what is shown to stay below."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from seepage.auditing import run_all
from seepage.errors import BadInputError
from seepage.report.report import Report
from seepage.results.checks.finding import Finding, Where
from seepage.results.gate import Decision, check_gate, combined, decide
from seepage.run.limits import Limits
from seepage.settings.spec import Gate
from tests.report.parts import COIN, PEEK, SETUP, CoinAudit
from tests.rows import row
from tests.run.test_limits import SAFE, measured, spec

LOW = Gate(above=0.2)


def decided(
    figures: dict[tuple[str, str], float] = SAFE,
    findings: list[Finding] | None = None,
    parts: tuple[str, ...] = (SETUP, COIN, PEEK),
    broken: tuple[str, ...] = (),
    **fields: Any,
) -> Decision:
    """Return the decision on an audit with planted figures."""
    audit = CoinAudit(spec(**fields), figures=figures, spread=0.0005, parts=parts, broken=broken)
    [report] = run_all([audit])
    if findings is None:
        assert report.decision is not None
        return report.decision
    return again(report, findings)


def again(report: Report, findings: list[Finding]) -> Decision:
    """Return the decision on what a report found, with other findings."""
    limits = Limits(report.audit)
    assert report.decision is not None
    limits.standings = {one.figure: one for one in report.decision.figures}
    return decide(limits, report.rows, report.runs, findings)


@pytest.mark.parametrize(
    ("peek", "outcome", "why"),
    [
        (0.5, "passed", "shown to stay below 20.0 points"),
        (0.95, "failed", "shown above the limit of 20.0"),
        (0.72, "undecided", "above the limit of 20.0, but not shown to be"),
        (0.66, "undecided", "More flips are needed, about "),
    ],
)
def test_it_passes_what_is_shown_below_and_says_why(peek: float, outcome: str, why: str) -> None:
    found = decided({("none", COIN): 0.5, ("none", PEEK): peek})
    assert found.outcome == outcome, found.line
    assert found.line.startswith(f"gate {outcome}: ")
    assert why in found.line
    assert "\n" not in found.line


def test_a_lift_that_is_shown_above_fails_before_the_budget_ends() -> None:
    found = decided({("none", COIN): 0.1, ("none", PEEK): 0.85})
    assert found.outcome == "failed"
    assert "shown above the limit of 20.0" in found.line
    assert {one.n for one in found.figures} == {19}


def test_a_certified_record_fails_whatever_the_mean_is() -> None:
    audit = CoinAudit(spec(), figures=SAFE)
    limits = Limits(audit)
    half = [0.5] * 40
    own = [measured(half), measured([0.05] * 40, "certified")]
    limits.look(lambda configuration, name, figures: (own, {"plain": [measured(half)]}))
    assert limits.failed
    rows = [
        row(batch_size=None, attack=PEEK, mean=0.5, baseline=0.5, lift=0.0, lift_low=-0.01, lift_high=0.01),
        row(batch_size=None, attack=PEEK, metric="certified", mean=0.05),
    ]
    found = decide(limits, rows, [])
    assert found.outcome == "failed"
    assert "5.0% of the records are certified" in found.line


def test_records_that_come_back_whole_fail() -> None:
    limits = Limits(CoinAudit(spec(), figures=SAFE))
    score = row(batch_size=None, attack=PEEK, mean=0.6, baseline=0.5, lift=0.1, lift_low=0.0, lift_high=0.15)
    whole = row(batch_size=None, attack=PEEK, metric="exact_match", mean=0.6, baseline=0.0, n=2)
    once = replace(score, n=1)
    score = replace(score, n=2)
    assert "whole records are read" in decide(limits, [score, whole], []).line
    assert decide(limits, [score, whole], []).outcome == "failed"
    # A record that no baseline gets is one, however many repetitions there are.
    assert decide(limits, [once, whole], []).outcome == "failed"
    assert decide(limits, [score, replace(whole, baseline=0.55, lift=0.05, lift_low=-0.1)], []).outcome == "undecided"


@pytest.mark.parametrize(
    ("severity", "where", "outcome"),
    [
        ("error", (), "undecided"),
        ("error", (Where(attack=PEEK),), "undecided"),
        ("error", (Where(attack="other"),), "passed"),
        ("warning", (), "passed"),
    ],
)
def test_an_error_that_concerns_the_figure_shows_nothing(severity: Any, where: tuple[Where, ...], outcome: str) -> None:
    found = decided(findings=[Finding("SEEP004", severity, "The control failed", "...", where)])
    assert found.outcome == outcome
    assert ("SEEP004" in found.line) is (outcome != "passed")


def test_an_attack_that_was_not_tried_shows_nothing_and_a_missing_control_is_said_beside_the_pass() -> None:
    found = decided(findings=[Finding("SEEP024", "warning", "The exact attack was not tried", "...")])
    assert found.outcome == "undecided"
    assert "the exact attack was not tried (SEEP024), so little leakage is not shown." in found.line
    unproved = decided(findings=[Finding("SEEP005", "note", "No positive control was run", "...")])
    assert unproved.outcome == "passed"
    assert "But: no positive control was run (SEEP005)." in unproved.line


def test_what_shows_nothing_does_not_pass() -> None:
    without = decided(parts=(SETUP, PEEK))
    assert without.outcome == "undecided"
    assert "was not scored on all cells beside a baseline" in without.line
    assert decided(parts=(SETUP, COIN)).line == "gate undecided: no attack was run."
    right = {("none", COIN): 1.0, ("none", PEEK): 1.0}
    audit = CoinAudit(spec(), figures=right, spread=0.0)
    [report] = run_all([audit])
    assert report.decision is not None
    assert "the best baseline is always right on all cells" in report.decision.line


def test_failed_jobs_are_refused() -> None:
    found = decided(broken=(PEEK,))
    assert found.outcome == "refused"
    assert "failed; run the same command again" in found.line


REFERENCE = {("none", COIN): 0.5, ("none", PEEK): 0.95, ("gloves", COIN): 0.5, ("gloves", PEEK): 0.52}


def test_the_undefended_reference_of_a_defended_deployment_fails_nothing() -> None:
    beside = decided(REFERENCE)
    assert beside.outcome == "passed", beside.line
    assert "gloves" in beside.line
    assert {one.figure.configuration.defense for one in beside.figures} == {"gloves"}
    named = decided(REFERENCE, deployed=["none"])
    assert (named.outcome, "shown above the limit" in named.line) == ("failed", True)
    both = decided(REFERENCE, deployed=["none", "gloves"])
    assert both.outcome == "failed"


def test_findings_on_the_reference_are_not_held_against_what_is_deployed() -> None:
    weaker = Finding("SEEP024", "warning", "The exact attack was not tried", "...", (Where(None, "none", PEEK),))
    beside = decided(REFERENCE, findings=[weaker])
    assert (beside.outcome, "SEEP024" in beside.line) == ("passed", False)
    broken = Finding("SEEP002", "error", "An attack did not converge", "...", (Where(None, "none", PEEK),))
    assert decided(REFERENCE, findings=[broken]).outcome == "passed"


def test_failed_jobs_of_the_reference_are_named_and_refuse_nothing() -> None:
    audit = CoinAudit(spec(), figures=REFERENCE, spread=0.0005, broken=(f"none {PEEK}",))
    [report] = run_all([audit])
    assert report.decision is not None
    assert report.decision.outcome == "passed"
    assert f"jobs of {PEEK} failed, which is not deployed" in report.decision.line
    # The exit status 3 is about these.
    assert not report.failed
    deployed = CoinAudit(spec(), figures=REFERENCE, spread=0.0005, broken=(f"gloves {PEEK}",))
    [report] = run_all([deployed])
    assert report.decision is not None
    assert report.decision.outcome == "refused"
    assert [run.label for run in report.failed] == [PEEK]


def with_labels(labels: float, limit: float = 0.25, column: str | None = None, whole_records: float = 0.0) -> Decision:
    """Return the decision where cells are safe, and this share of a label is read of which most are alike."""
    audit = CoinAudit(spec(limit, column=column), figures=SAFE, spread=0.0005, label="a", target="a")
    limits = Limits(audit)
    half, alike = [0.5] * 60, ([1.0] * 8 + [0.0] * 2) * 6
    read = [1.0 if k < 60 * labels else 0.0 for k in range(60)]

    def seen(configuration: Any, name: str, figures: Any) -> Any:
        own = [measured(half), measured(read, column="a"), measured([0.0] * 60, "certified")]
        return own, {"plain": [measured(half), measured(alike, column="a")]}

    limits.look(seen)
    row_ = row(batch_size=None, attack=PEEK, mean=0.5, baseline=0.5, lift=0.0, lift_low=-0.01, lift_high=0.01, n=60)
    whole = replace(row_, column="a", mean=labels, baseline=0.8, lift=labels - 0.8)
    whole = replace(whole, lift_low=labels - 0.82, lift_high=labels - 0.78, n=60)
    records = row(batch_size=None, attack=PEEK, metric="exact_match", mean=whole_records, baseline=0.0)
    return decide(limits, [row_, whole, records], [])


def test_a_label_that_is_read_passes_no_limit_above_what_could_be_gained() -> None:
    # Four labels in five are alike, so that nothing could gain 25 points.
    read = with_labels(1.0)
    assert read.outcome == "failed"
    assert "the label a is mostly read (100.0%)" in read.line
    nearly = with_labels(58 / 60)
    assert nearly.outcome == "undecided", nearly.line
    assert f"{PEEK} on the label a (" in nearly.line
    assert "83% of what is possible" in nearly.line
    kept = with_labels(0.8)
    assert kept.outcome == "passed", kept.line


def test_a_line_about_other_cells_names_a_label_that_is_read_too() -> None:
    found = with_labels(58 / 60, whole_records=0.6)
    assert found.outcome == "failed"
    assert "whole records are read" in found.line
    assert f"Beside it, {PEEK} on the label a (" in found.line
    assert "83% of what is possible" in found.line
    assert "label" not in with_labels(0.8, whole_records=0.6).line


def test_a_gate_on_another_column_leaves_the_label_out() -> None:
    assert "label" not in with_labels(1.0, column="b").line


def test_an_attack_on_labels_alone_is_not_asked_for_cells() -> None:
    audit = CoinAudit(spec(), figures=SAFE, label="a", target="a")
    audit.parts = [replace(part, column="a" if part.kind == "attack" else None) for part in audit.parts]
    assert Limits(audit).attacks == [PEEK]
    limits = Limits(audit)
    half = [0.5] * 60
    limits.look(
        lambda configuration, name, figures: ([measured(half, column="a")], {"plain": [measured(half, column="a")]})
    )
    assert decide(limits, [], []).outcome == "passed"
    other = CoinAudit(spec(column="b"), figures=SAFE, label="a", target="a")
    other.parts = audit.parts
    assert Limits(other).attacks == []


def test_a_share_of_the_worst_has_a_limit_of_its_own() -> None:
    assert decided(worst=[0.1, 0.5]).outcome == "passed"
    few = decided(worst=[0.1, 0.5], flips=20)
    assert few.outcome == "undecided"
    assert "at least 36 of them" in few.line
    assert decided(worst=[0.1, 0.0]).outcome == "failed"


def test_a_gate_that_no_audit_could_answer_is_refused() -> None:
    check_gate(LOW, ["age"], ["none"])
    with pytest.raises(BadInputError, match="did you mean 'age'"):
        check_gate(Gate(above=0.2, column="aeg"), ["age"], ["none"])
    with pytest.raises(BadInputError, match="did you mean 'gloves'"):
        check_gate(Gate(above=0.2, deployed=("glove",)), ["age"], ["none", "gloves"])


@pytest.mark.parametrize("above", [0, -0.1, 1.0, 20.0, float("nan")])
def test_a_limit_that_nothing_could_show_is_refused(above: float) -> None:
    with pytest.raises(ValueError, match="20 points"):
        Gate(above=above)


def test_the_worst_of_several_decides() -> None:
    outcomes: list[Any] = ["passed", "undecided", "refused", "failed"]
    made = [Decision(outcome, outcome) for outcome in outcomes]
    for i in range(4):
        assert combined(made[: i + 1][::-1]) is made[i]
