"""Checks of whether the attacks are any good."""

from __future__ import annotations

from collections.abc import Iterator

from seepage.assessment.row import ResultRow
from seepage.results.checks.alarm import Severity, Where
from seepage.results.checks.facts import Facts, control_share
from seepage.results.checks.registry import Finding, check
from seepage.results.checks.wording import few, place, share
from seepage.settings.setting import LEAKED
from seepage.text import points


@check("SEEP001", "error", "An attack does worse than a baseline")
def below_baseline(facts: Facts) -> Iterator[Finding]:
    """The interval of the lift lies wholly below zero.

    An attack that does worse than a baseline without the message does not use the message well, so its figures say
    nothing about what that gives away. A working defense has the same effect, so there it is a warning, as long as the
    positive control shows that the attack works.
    """
    by_severity: dict[Severity, list[ResultRow]] = {}
    for row in facts.scores:
        if row.lift_high is not None and row.lift_high < 0:
            works = (facts.control_closed(row.attack) or 0.0) >= LEAKED
            excused = row.defense != "none" and works
            by_severity.setdefault("warning" if excused else "error", []).append(row)
    for severity, rows in by_severity.items():
        where = tuple(Where(row.batch_size, row.defense, row.attack) for row in rows)
        told = [
            f"{place(one)}: {points(row.lift)} points of accuracy against {row.baseline_name} (95% interval "
            f"{points(row.lift_low)} to {points(row.lift_high)})"
            for one, row in zip(where, rows, strict=True)
        ]
        after = (
            "The same attack works on the positive control, so the defense may be the reason. An attacker could use "
            "the baseline instead, so read it as no less than that."
            if severity == "warning"
            else "An attack that loses to a baseline without the message does not show what the message gives away. "
            "Use a stronger attack, more iterations or restarts, or a smaller batch."
        )
        yield Finding(f"{few(told)}. {after}", where, severity)


@check("SEEP004", "error", "The positive control did not leak")
def control_failed(facts: Facts) -> Iterator[Finding]:
    """An attack closes less than half of the gap to certainty where nothing protects the record."""
    failed: list[tuple[ResultRow, float | None]] = []
    for row in facts.control or ():
        if facts.control_row(row.attack) is row and row.status != "left_out":
            closed = control_share(row)
            if closed is None or closed < LEAKED:
                failed.append((row, closed))
    if failed:
        told = [
            f"{row.attack} reads {share(row.mean or 0.0)} of the cells where the best baseline gives "
            + ("no figure" if row.baseline is None else share(row.baseline))
            for row, _ in failed
        ]
        yield Finding(
            f"{facts.audit.about.control} But on {failed[0][0].n} {facts.audit.spec.unit}(s) of this control "
            f"{few(told)}. The attack or its options are broken, or do not suit the table; that it finds little "
            "elsewhere does not make the data safe. Give the attack more iterations or restarts, or use another one.",
            tuple(Where(attack=row.attack) for row, _ in failed),
        )


@check("SEEP005", "note", "No positive control was run")
def control_missing(facts: Facts) -> Iterator[Finding]:
    """Nothing shows that the attacks work on this table at all."""
    without = [
        name
        for name in dict.fromkeys(row.attack for row in facts.scores)
        if (row := facts.control_row(name)) is None or row.status == "left_out"
    ]
    if without:
        yield Finding(
            f"It was switched off, or there was no time for it ({few(without)}). "
            "Nothing shows that the attacks work on this table at all: where they find little, the attack may be at "
            "fault. Leave the positive control on; it takes seconds.",
            tuple(Where(attack=name) for name in without),
        )


@check("SEEP021", "error", "The negative control leaked")
def nothing_leaked(facts: Facts) -> Iterator[Finding]:
    """An attack exceeds every baseline on messages that carry nothing of what is scored."""
    rows = [
        row
        for row in facts.negative or ()
        if row.is_attack and (row.metric, row.column) == ("accuracy", None) and (row.lift_low or 0.0) > 0
    ]
    if rows:
        told = [f"{row.attack}: {points(row.lift_low)} points or more over {row.baseline_name}" for row in rows]
        yield Finding(
            f"On messages that carry nothing of what is scored, {few(told)}. No attack can read what is not there, so "
            "the audit itself gives the answer away, or the baselines are too weak for this table. Figures of these "
            "attacks cannot be relied on; please report it with the audit's document.",
            tuple(Where(attack=row.attack) for row in rows),
        )
