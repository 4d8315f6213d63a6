"""Deployment gate: whether an audit is shown to stay below an accepted limit.

A gate asks whether the mean lift m of every judged figure is below a limit. Bets on either answer (``assessment.
decision``) give three: shown below, shown above, or neither; a mean of the units that were run is none by itself. The
questions come in an order in which no later one can change an answer: what is certainly bad fails, whatever else is
missing; jobs that failed refuse, and what makes figures unreliable leaves undecided, before a figure can pass; only
then the bounds count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from seepage.assessment.decision import WHOLE, least_units
from seepage.assessment.row import ResultRow
from seepage.errors import unknown_name
from seepage.results.checks.facts import Gap, in_words
from seepage.results.checks.finding import LOWER_BOUNDS, Finding, Where, place, where_of
from seepage.results.verdict import MOSTLY, WHOLE_RECORDS, blocking, pick, verdict
from seepage.run.limits import LimitedFigure, Limits, Standing, by_units, least_for_share
from seepage.run.runner import Run
from seepage.settings.option import fields_of
from seepage.settings.setting import Audit, Configuration
from seepage.settings.spec import Gate, Spec
from seepage.text import clean, listed, lowered, percent, points

Outcome = Literal["passed", "undecided", "refused", "failed"]
# Without a positive control nothing shows that the attacks work on this table.
_NO_CONTROL = "SEEP005"
# From good to bad: the last one counts.
_OUTCOMES: tuple[Outcome, ...] = ("passed", "undecided", "refused", "failed")


@dataclass(frozen=True)
class Decision:
    """Decision of a gate, see ``decide``.

    ``passed``: shown below the limit. ``failed``: shown above it, or whole records are read. ``undecided``: neither,
    whatever the mean is. ``refused``: jobs failed.
    """

    outcome: Outcome
    line: str
    figures: tuple[Standing, ...] = ()


# Share of the possible lift above which a line about other cells names the label too.
_MOST_OF_IT = 0.5


def decide(
    limits: Limits,
    rows: Sequence[ResultRow],
    runs: Sequence[Run],
    findings: Sequence[Finding] = (),
    gaps: Sequence[Gap] = (),
) -> Decision:
    """Decide whether an audit is shown to stay below its limit.

    Every attack in every deployed configuration counts, on all cells, whole records, the label and sensitive columns,
    or on the column of the gate alone. Each must be shown to be below, at any number of units and however often one
    looked (``assessment.decision``). An audit that shows nothing, or has gaps, passes no gate.
    """
    decision = _decided(limits, rows, runs, findings, gaps)
    line = decision.line if decision.outcome == "passed" else f"{decision.line}{_label_too(limits, decision.line)}"
    return Decision(decision.outcome, f"gate {decision.outcome}: {line}", tuple(limits.standings.values()))


def combined(decisions: Sequence[Decision]) -> Decision:
    """Return the decision on several audits: the worst of them."""
    return max(decisions, key=lambda decision: _OUTCOMES.index(decision.outcome))


def _decided(
    limits: Limits, rows: Sequence[ResultRow], runs: Sequence[Run], findings: Sequence[Finding], gaps: Sequence[Gap]
) -> Decision:
    audit, limit = limits.audit, limits.limit.above
    deployed = [
        row for row in rows if any((row.batch_size, row.defense) == _key(standing) for standing in limits.deployed)
    ]
    if whole := _read(deployed, findings, audit.about.size) or _read_label(limits, deployed, findings):
        return Decision("failed", whole)
    standings = list(limits.standings.values())
    if above := [standing for standing in standings if standing.above]:
        worst = max(above, key=lambda standing: standing.mean)
        return Decision("failed", f"{_gains(worst, audit, bound=False)}, shown above the limit of {100 * limit:.1f}.")
    failed = [run for run in runs if run.is_attack and run.failures and run.configuration in limits.deployed]
    if failed:
        where = place(where_of(failed[0]), audit.about.size)
        return Decision("refused", f"jobs of {clean(where, 120)} failed; run the same command again.")
    if unreliable := [finding for row in deployed if row.is_attack and (finding := blocking(findings, row))]:
        reason = f"{unreliable[0].title} ({unreliable[0].code}), so nothing is shown."
        return Decision("undecided", reason)
    missing = [gap for gap in gaps if any((gap.batch_size, gap.defense) == _key(point) for point in limits.deployed)]
    if missing:
        return Decision("undecided", f"incomplete: {in_words(missing)}.")
    if weaker := [finding for finding in findings if finding.code in LOWER_BOUNDS and _concerns(finding, limits)]:
        reason = f"{lowered(weaker[0].title)} ({weaker[0].code}), so little leakage is not shown."
        return Decision("undecided", reason)
    if lacking := _lacking(limits, deployed):
        return Decision("undecided", lacking)
    return _by_standings(limits, runs, findings)


def _label_too(limits: Limits, line: str) -> str:
    """Return the lift of the label as a further sentence, where a line is about other cells."""
    label = limits.audit.about.label
    labels = [
        standing for standing in limits.standings.values() if label is not None and standing.figure.column == label
    ]
    labels = [standing for standing in labels if standing.closed is not None and standing.closed >= _MOST_OF_IT]
    if not labels or f"the label {clean(label)}" in line:
        return ""
    return f" Beside it, {_gains(max(labels, key=lambda standing: standing.closed or 0.0), limits.audit)}."


def _by_standings(limits: Limits, runs: Sequence[Run], findings: Sequence[Finding]) -> Decision:
    audit, limit, standings = limits.audit, limits.limit.above, list(limits.standings.values())
    if limits.limit.worst is not None:
        share, lift = limits.limit.worst
        worst = max(standings, key=lambda standing: standing.share or 0.0)
        if worst.share is not None and worst.share >= share:
            return Decision(
                "failed" if worst.least_share is not None and worst.least_share >= share else "undecided",
                f"up to {percent(worst.share)} of the {_members(worst, audit)} may be above {100 * lift:.1f} points "
                f"({figure_in_words(worst.figure, audit)}, n={worst.n}). Less than {percent(share)} is asked for, "
                f"which needs at least {least_for_share(share)} of them.",
            )
    if limits.passed:
        worst = max(standings, key=lambda standing: standing.upper)
        unproved = [finding for finding in findings if finding.code == _NO_CONTROL and _concerns(finding, limits)]
        caveats = [f"{lowered(finding.title)} ({finding.code})" for finding in unproved[:1]]
        if aside := [run for run in runs if run.failures and run.configuration not in limits.deployed]:
            where = clean(place(where_of(aside[0]), audit.about.size), 120)
            caveats.append(f"jobs of {where} failed, which is not deployed")
        but = f" But: {listed(caveats)}." if caveats else ""
        count = len(standings)
        subject = f"all {count} figures are" if count > 1 else "the figure is"
        these = "" if by_units(audit.spec) else f", for these {audit.units} {audit.spec.unit}s"
        return Decision(
            "passed", f"{subject} shown to stay below {100 * limit:.1f} points{these}; {_gains(worst, audit)}.{but}"
        )
    pending = [standing for standing in standings if not standing.below]
    worst = max(pending, key=lambda standing: standing.mean)
    possible = all(standing.possible for standing in standings)
    ending = "that is" if possible else "passing has become impossible within"
    budget = f"{ending} the budget of {audit.units} {audit.spec.unit}s"
    if not by_units(audit.spec):
        budget = (
            f"{max(standing.n for standing in standings)} {audit.spec.member}s of each {audit.spec.unit} were attacked"
        )
    if worst.mean > limit:
        above = (
            f"{_gains(worst, audit)}; that is above the limit of {100 * limit:.1f}, but not shown to be, and {budget}"
        )
        return Decision("undecided", f"{above}. {_more(limits, pending)}")
    slow = max(pending, key=lambda standing: standing.upper)
    return Decision("undecided", f"{_gains(slow, audit)}; {budget}. {_more(limits, pending)}")


def _more(limits: Limits, pending: Sequence[Standing]) -> str:
    """Return the number of further units for the slowest figure."""
    spec = limits.audit.spec
    field = spec.repeats if by_units(spec) else spec.members
    missing = [standing.more for standing in pending if standing.more is not None]
    if len(missing) < len(pending):
        return f"No number of {_members(pending[0], limits.audit)} like these would show it."
    if not by_units(spec) and "test_share" in fields_of(type(spec)):
        field = f"{field}; where all held-out ones are attacked already, a larger test_share"
    return f"More {_members(pending[0], limits.audit)} are needed, about {max(missing)} ({field})."


def _concerns(finding: Finding, limits: Limits) -> bool:
    """Return whether a finding concerns an attack in a deployed configuration."""
    return any(
        finding.concerns(*_key(configuration), attack) for configuration in limits.deployed for attack in limits.attacks
    )


def _read(rows: Sequence[ResultRow], findings: Sequence[Finding], size: str) -> str | None:
    """Return a sentence on certified or wholly read records; None without any."""
    for score in pick(rows, kind="attack", metric="accuracy", column=None):
        figures = pick(rows, attack=score.attack, batch_size=score.batch_size, defense=score.defense, column=None)
        beside = {row.metric: row for row in figures}
        words = clean(place(Where(score.batch_size, score.defense, score.attack), size), 120)
        certified = beside.get("certified")
        if certified is not None and certified.mean:
            return f"{words}: {percent(certified.mean)} of the records are certified."
        if verdict(score, beside.get("exact_match"), findings).tier == WHOLE_RECORDS:
            return f"{words}: whole records are read ({percent(score.mean)} of the cells)."
    return None


def _read_label(limits: Limits, rows: Sequence[ResultRow], findings: Sequence[Finding]) -> str | None:
    """Return a sentence where the label is wholly read; None where it is not, or where another column counts."""
    label = limits.audit.about.label
    if label is None or limits.limit.column not in (None, label):
        return None
    for score in pick(rows, kind="attack", metric="accuracy", column=label):
        rated = verdict(score, findings=findings)
        if rated.tier == MOSTLY and rated.closed is not None and rated.closed >= WHOLE:
            words = clean(place(Where(score.batch_size, score.defense, score.attack), limits.audit.about.size), 120)
            return f"{words}: the label {clean(label)} is mostly read ({percent(score.mean)})."
    return None


def _lacking(limits: Limits, rows: Sequence[ResultRow]) -> str | None:
    """Return the reason why an audit shows nothing; None where every attack has the judged figure."""
    if not limits.attacks:
        return "no attack was run."
    for configuration in limits.deployed:
        for attack in limits.attacks:
            column = limits.limit.column or limits.columns[attack]
            metric = "exact_match" if limits.limit.whole_records else "accuracy"
            what = "all cells" if column is None else f"column {clean(column)}"
            what = "whole records" if limits.limit.whole_records else what
            words = clean(place(Where(*_key(configuration), attack), limits.audit.about.size), 120)
            wanted = (configuration, attack, metric, column)
            figures = [
                (standing.configuration, standing.attack, standing.metric, standing.column)
                for standing in limits.standings
            ]
            if wanted not in figures:
                return f"{words} was not scored on {what} beside a baseline."
            size, defense = _key(configuration)
            scores = pick(rows, attack=attack, metric=metric, column=column, batch_size=size, defense=defense)
            if any(score.baseline is not None and score.baseline >= 1 for score in scores):
                return f"{words}: the best baseline is always right on {what}, so no lift is possible."
    return None


def _gains(standing: Standing, audit: Audit, bound: bool = True) -> str:
    closed = "" if standing.closed is None else f", {percent(standing.closed, 0)} of what is possible"
    figure = figure_in_words(standing.figure, audit)
    most = f", at most {points(standing.upper)}" if bound else ""
    return (
        f"{figure} gains {points(standing.mean)} points over the best baseline{closed}{most} "
        f"(n={standing.n} {_members(standing, audit)})"
    )


def figure_in_words(figure: LimitedFigure, audit: Audit) -> str:
    """Return a limited figure in words: the attack, the cells and the configuration."""
    what = "whole records" if figure.metric == "exact_match" else clean(audit.about.secret, 80)
    if figure.column is not None:
        what = f"{'the label' if figure.column == audit.about.label else 'column'} {clean(figure.column)}"
    sample = "" if figure.sample is None else f", {audit.spec.unit} {figure.sample + 1}"
    where = clean(place(Where(*_key(figure.configuration)), audit.about.size), 80) or "no defense"
    which = f"{clean(audit.about.dataset)}, {clean(audit.about.model)}, {where}{sample}"
    return f"{clean(figure.attack)} on {what} ({which})"


def _members(standing: Standing, audit: Audit) -> str:
    return f"{audit.spec.unit if standing.figure.sample is None else audit.spec.member}s"


def _key(configuration: Configuration) -> tuple[int | None, str]:
    return configuration.batch_size, configuration.defense


def check_gate(gate: Gate, columns: Iterable[str], defenses: Iterable[str]) -> None:
    """Refuse a gate that no audit could answer."""
    names = list(dict.fromkeys(columns))
    if gate.column is not None and gate.column not in names:
        raise unknown_name("column of the gate", gate.column, names)
    labels = list(dict.fromkeys(defenses))
    for label in gate.deployed:
        if label not in labels:
            raise unknown_name("deployed defense", label, labels)


def needed(spec: Spec, gate: Gate) -> str:
    """Return the least number of units of a spec's gate and its budget, as a sentence."""
    least = least_units(gate.above)
    column = "" if gate.column is None else f" in column {clean(gate.column)}"
    limit = f"{100 * gate.above:.1f}"
    if by_units(spec):
        return (
            f"The gate at {limit} points{column} needs at least {least} {spec.unit}s in each deployed configuration; "
            f"its budget is {spec.repeated}."
        )
    among = f"in each of the {spec.repeated} {spec.unit}s"
    return f"The gate at {limit} points{column} needs at least {least} {spec.member}s {among}."
