"""Checks of the strength of the attacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seepage.assessment.intervals import CLUSTERS_FOR_VERDICT
from seepage.assessment.row import ResultRow
from seepage.results.checks.facts import NO_CONTROL, Facts, Gap, broken, exceeds_by_more_than_chance, in_words
from seepage.results.checks.finding import Severity, Where
from seepage.results.checks.registry import Fault, check
from seepage.results.checks.wording import few, few_of, place, share
from seepage.text import how_many, listed, points


@check("SEEP001", "error", "An attack does worse than a baseline")
def below_baseline(facts: Facts) -> Iterator[Fault]:
    """The interval of the lift lies wholly below zero, so that figures show nothing about the message's leakage.

    A working defense has the same effect, so there it is a warning, as long as the positive control shows that the
    attack works. Where the control leaves the attack out, another attack on the same messages has to be shown to work.
    """
    working = {(row.batch_size, row.defense) for row in facts.scores if facts.works(row.attack)}
    by_severity: dict[Severity, list[ResultRow]] = {}
    for row in facts.scores:
        if row.lift_high is not None and row.lift_high < 0:
            untried = facts.control is not None and facts.control_row(row.attack) is None
            shown = facts.works(row.attack) or (untried and (row.batch_size, row.defense) in working)
            excused = row.defense != "none" and shown
            by_severity.setdefault("warning" if excused else "error", []).append(row)
    for severity, rows in by_severity.items():
        where = tuple(Where(row.batch_size, row.defense, row.attack) for row in rows)
        cases = [
            f"{place(concerned, facts.size)}: {points(row.lift)} points of accuracy against {row.baseline_name} "
            f"(95% interval {points(row.lift_low)} to {points(row.lift_high)})"
            for concerned, row in zip(where, rows, strict=True)
        ]
        after = (
            "This attack, or where the positive control leaves it out another one on the same messages, works on the "
            "control, so the defense may be the reason. An attacker could use the baseline instead, so read it as no "
            "less than that."
            if severity == "warning"
            else "An attack that loses to a baseline without the message does not show what the message gives away. "
            "Use a stronger attack, more iterations or restarts, or a smaller batch."
        )
        yield Fault(f"{few(cases)}. {after}", where, severity)


@check("SEEP004", "error", "The positive control did not leak", "repetitions")
def control_failed(facts: Facts) -> Iterator[Fault]:
    """An attack is not shown to close more than half of the gap to certainty where nothing protects the record.

    Of fewer than five repetitions the mean decides, since the interval of so few is wide for any attack.
    """
    failed = [
        row
        for row in facts.control or ()
        if row.column in (None, facts.audit.about.label)
        and row.metric == "accuracy"
        and facts.control_row(row.attack) is row
        and row.status != "left_out"
        and broken(row)
    ]
    if failed:
        cases = [
            f"{row.attack} reads {share(row.mean or 0.0)} of the {'cells' if row.column is None else 'labels'}"
            + (" (no interval)" if row.low is None else f" ({share(row.low)} at the lower end of the interval)")
            + " where the best baseline gives "
            + ("no figure" if row.baseline is None else share(row.baseline))
            for row in failed
        ]
        yield Fault(
            f"{facts.audit.about.control} But on {how_many(failed[0].n, facts.audit.spec.unit)} of this control "
            f"{few(cases)}. That does not show that half of the gap to certainty is closed. The attack or its "
            "options are broken, or do not suit the table; that it finds little elsewhere does not make the data safe. "
            "Give the attack more iterations or restarts, or use another one.",
            tuple(Where(attack=row.attack) for row in failed),
        )


@check("SEEP005", "note", "No positive control was run", "repetitions")
def control_missing(facts: Facts) -> Iterator[Fault]:
    """Nothing shows that the attacks work on this table at all."""
    without = [
        name
        for name in dict.fromkeys(row.attack for row in facts.scores)
        if (row := facts.control_row(name)) is None or row.status == "left_out"
    ]
    if without:
        unfit = [name for name in without if facts.control_row(name) is None]
        late = [name for name in without if name not in unfit]
        reasons = {"There was no time for it": late, "It plants nothing that the attack could read": unfit}
        reasons = reasons if facts.audit.spec.control else {"It was switched off": without}
        why = ". ".join(f"{reason} ({few(names)})" for reason, names in reasons.items() if names)
        yield Fault(
            f"{why}. Nothing shows that these attacks work on this table at all: where they find "
            "little, the attack may be at fault.",
            tuple(Where(attack=name) for name in without),
            # A gate passes a deployment because little leakage was shown.
            "warning" if facts.audit.spec.gate is not None else None,
        )


@check("SEEP030", "warning", "The audit is incomplete", "repetitions")
def incomplete(facts: Facts) -> Iterator[Fault]:
    """A default attack that applies was not run often enough, or no positive control shows that it works.

    Little leakage then shows nothing, so that no configuration gets ``none`` or ``low``.
    """
    if facts.gaps:
        where = tuple(dict.fromkeys(Where(gap.batch_size, gap.defense) for gap in facts.gaps))
        what_helps = "Name no attacks, leave the control on, and give more time."
        if all(gap.why == NO_CONTROL for gap in facts.gaps):
            what_helps = "Read the small figures of an attack without one as no evidence."
        yield Fault(
            f"{_by_place(facts.gaps, facts.size)}. Little leakage is shown only by all attacks of the default that "
            "apply, on at "
            f"least {CLUSTERS_FOR_VERDICT} {facts.audit.spec.unit}s each, with their positive controls. "
            f"{what_helps}",
            where,
        )


def _by_place(gaps: Sequence[Gap], size: str) -> str:
    """Return what is missing in words; where configurations lack different things, each by its name."""
    by_words: dict[str, list[str]] = {}
    for batch_size, defense in dict.fromkeys((gap.batch_size, gap.defense) for gap in gaps):
        own = [gap for gap in gaps if (gap.batch_size, gap.defense) == (batch_size, defense)]
        at = place(Where(batch_size, defense), size)
        by_words.setdefault(in_words(own), []).append(at if defense != "none" else f"{at} with no defense".strip())
    if len(by_words) == 1:
        return in_words(gaps)
    sentences = (f"{listed(few_of(places))}, {words}" for words, places in by_words.items())
    return ". ".join(f"{sentence[:1].upper()}{sentence[1:]}" for sentence in sentences)


@check("SEEP021", "error", "The negative control leaked")
def nothing_leaked(facts: Facts) -> Iterator[Fault]:
    """An attack exceeds every baseline on messages without information on the secret, beyond chance."""
    looked_at = facts.of_nothing
    rows = [row for row in looked_at if exceeds_by_more_than_chance(row, len(looked_at))]
    if rows:
        cases = [
            f"{row.attack}: {points(row.lift)} points over {row.baseline_name} (95% interval from "
            f"{points(row.lift_low)})"
            for row in rows
        ]
        # A measurement of the audit itself stands for all attacks of its configuration.
        where = [Where(attack=row.attack) if row.is_attack else Where(row.batch_size, row.defense) for row in rows]
        yield Fault(
            f"On messages that carry nothing of what is scored, {few(cases)}. No attack can read what is not there, so "
            "the audit itself gives the answer away, or the baselines are too weak for this table. Figures of these "
            "attacks cannot be relied on; please report it with the audit's document.",
            tuple(dict.fromkeys(where)),
        )
