"""Checks of an attack's proofs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from seepage.results.checks.facts import Facts
from seepage.results.checks.finding import Where
from seepage.results.checks.registry import Fault, check
from seepage.results.checks.wording import few, place, share, where_of
from seepage.wire.horizontal import NOT_TRIED


@check("SEEP019", "error", "A certified cell is wrong")
def falsely_certified(facts: Facts) -> Iterator[Fault]:
    """An attack called cells certain that are not the record's."""
    wrong = facts.contradicted
    if wrong:
        cases = [f"{place(where, facts.size)}: {share(rate)}" for where, rate in wrong.items()]
        yield Fault(
            f"Of the cells that an attack called certified, this share is wrong: {few(cases)}. That is a mistake in "
            "seepage; please report it with the audit's document. Nothing counts as certified in this report. "
            "Accuracies are scored against the truth all the same.",
            tuple(wrong),
        )


@check("SEEP020", "note", "Which records are certified", "proofs")
def regimes(facts: Facts) -> Iterator[Fault]:
    """An attack with proofs reports for each setting its proofs and their conditions, or why it only estimated."""
    cases, where = [], []
    conditions: Counter[str] = Counter()
    for run in facts.runs:
        if run.evidence is None or run.evidence.regime is None:
            continue
        here = where_of(run)
        count = len(run.evidence.regime)
        ways = Counter(run.evidence.regime).most_common()
        cases.append(
            f"{place(here, facts.size)}: "
            + "; ".join(f"{way} ({times} of {count} {facts.audit.spec.unit}s)" for way, times in ways[:3])
        )
        where.append(here)
        conditions.update(text for text in run.evidence.conditions or () if text)
    if cases:
        shown_conditions = few([text for text, _ in conditions.most_common()])
        given = f" What is certified is so on these conditions: {shown_conditions}" if conditions else ""
        yield Fault(
            f"{few(cases)}. What is proved is no estimate: it is in the message, and another attacker reads the same."
            f"{given} What is estimated is what this attacker could not prove.",
            tuple(where),
        )


@check("SEEP024", "warning", "The exact attack was not tried", "proofs")
def fell_back(facts: Facts) -> Iterator[Fault]:
    """An attack with proofs only estimated, for a reason that is not in the message."""
    reasons: dict[Where, str] = {}
    for run in facts.runs:
        ways = () if run.evidence is None else run.evidence.regime or ()
        untried = [way.removeprefix(NOT_TRIED) for way in ways if way.startswith(NOT_TRIED)]
        if untried:
            here = where_of(run)
            count = f"{len(untried)} of {len(run.units)} {facts.audit.spec.unit}s"
            reasons[here] = f"{place(here, facts.size)}: {untried[0]} ({count})"
    if reasons:
        yield Fault(
            f"{few(list(reasons.values()))}. The attack only estimated instead, which reads less. Its figures are a "
            "lower bound of what the message gives away: an attacker with another method may read every record.",
            tuple(reasons),
        )
