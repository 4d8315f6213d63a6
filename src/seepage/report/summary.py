"""What an audit found, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from seepage.assessment.intervals import UNITS_FOR_VERDICT
from seepage.assessment.row import ResultRow
from seepage.report.frames import Record, row_of, setting_of
from seepage.report.result import AuditResult
from seepage.results.checks.finding import LOWER_BOUNDS, MORE_STEPS, UPPER_BOUNDS, Finding
from seepage.results.verdict import (
    GRAVITY,
    INCOMPLETE,
    INCONCLUSIVE,
    TIERS,
    UNDEFENDED,
    UNKNOWN,
    Verdict,
    gravest,
    pick,
    settings,
    strongest,
    strongest_row,
    verdict,
)
from seepage.settings.setting import About
from seepage.text import UNBOUNDED, bounds_nothing, capitalised, clean, listed, lowered, percent

_COLUMNS = 3
# Share of a column's values above which a message is said not to determine it.
_MANY = 0.5
_ALWAYS_RIGHT = "baseline always right"
NOT_REACHED = "not reached"
NOT_TRIED = "not tried"
_READING = (
    "Leakage is the share of the gap between the best baseline and certainty that the attack closes: none below 5%, "
    "low below 20%, moderate below 50%, high below 90%, else total. Two neighbours are both named where the measured "
    "units vary that much; beyond that it is inconclusive. Intervals hold for units of any kind, so that those of few "
    "are wide. It is incomplete where little was found, but a default attack or its positive control is missing. It is "
    "total also where half of all records come back whole in two repetitions or more, and half of those that no "
    "baseline gets whole, or any is certified; and where a single captured message gives nearly everything away. These "
    "are the attacks that were run; a better one may exist."
)


class Headline(NamedTuple):
    """The verdict on the configuration in which most leaks, of those without a defense if any, and on each defense."""

    record: Record | None
    tier: str
    words: str
    beside: tuple[tuple[str, str], ...] = ()


def headline(result: AuditResult) -> Headline:
    """Return the verdict on the configuration without a defense in which most leaks, and those with one beside it."""
    record = result.reference
    if record is None or record["mean"] is None:
        tier = INCOMPLETE if result.gaps else INCONCLUSIVE
        return Headline(None, tier, _nothing(result), tuple(_not_reached(result)))
    about = result.audit.about
    place = result.place(*setting_of(record))
    if record["of"] is not None and about.label_attacker is not None:
        place = about.label_attacker
    words = f"{place} {_doing(about, record)}"
    if record["baseline"] is not None:
        words += f"; guessing without {about.message} {_gets(about, record)}"
    words += f".{_of_missed(result, record)}"
    if record["of"] is None and (label := record["label"]) is not None:
        who = "It" if about.label_attacker is None else about.label_attacker
        guessed = "" if label["baseline"] is None else f"; guessing: {percent(label['baseline'], 0)}"
        words += f" {who} reads {percent(label['mean'], 0)} of the labels ({clean(about.label)}{guessed})"
        words += f": {label['tier']}." if about.label_attacker else "."
    weaker = [finding for finding in result.all_findings if finding.code in (*LOWER_BOUNDS, MORE_STEPS)]
    if weaker:
        words += f" {weaker[0].title}, so this is a lower bound."
    tier = record["tier"]
    words += _bounds_above(result.all_findings)
    words = " ".join([words, *_why_unknown(result, record, tier), *about.limits])
    beside = [_beside(result, overview) for overview in result.beside]
    return Headline(record, tier, words, (*beside, *_not_reached(result)))


def _of_missed(result: AuditResult, record: Record) -> str:
    """Return a sentence on the share of the cells that guessing misses and the attack reads; empty without a figure."""
    about, n = result.audit.about, record["n"]
    if record["closed"] is None:
        return ""
    what = "labels" if record["by_label"] else "cells" if about.trials is None else "trials"
    units = f"{n} {result.audit.spec.unit}{'s' if n != 1 else ''}"
    if n == 1 and not result.audit.repeatable:
        sure = f"of this {result.audit.spec.unit} alone"
    elif record["upper"] is None:
        sure = f"{units}, too few to say how sure that is"
    elif bounds_nothing(record["closed_low"], record["upper"]):
        sure = f"{units}, {UNBOUNDED}"
    else:
        low, high = _in_hundred(record["closed_low"]), round(100 * max(0.0, record["upper"]))
        sure = f"{units}, 95% interval {low} to {high}"
    right = _in_hundred(record["closed"])
    are = "none are" if right == 0 else "1 is" if right == 1 else f"{right} are"
    return f" Of 100 {what} that guessing misses, {are} read ({sure})."


def _in_hundred(rate: float) -> int:
    return int(percent(max(0.0, rate), 0).removesuffix("%"))


def _why_unknown(result: AuditResult, record: Record, tier: str) -> list[str]:
    """Return why there is no verdict, in a sentence; none where there is one."""
    unit = result.audit.spec.unit
    if tier == INCOMPLETE:
        return [f"Incomplete: {result.missing(setting_of(record))}."]
    if tier != INCONCLUSIVE:
        return []
    if record["n"] < UNITS_FOR_VERDICT:
        return [_too_few(record["n"], unit, not result.audit.repeatable)]
    place = (*setting_of(record), record["attack"])
    for finding in result.all_findings:
        if finding.severity == "error" and finding.concerns(*place):
            return [f"No verdict: {lowered(finding.title)}."]
    if why := result.not_tried(setting_of(record), record["attack"]):
        return [f"No verdict: {why}."]
    return [f"No verdict: audit more {unit}s."]


def _not_reached(result: AuditResult) -> list[tuple[str, str]]:
    """Return the configurations without a figure, so that none of them is taken for a good one."""
    notes = []
    for size, defense in result.not_reached:
        words = result.defense(defense)
        at = f" at {result.audit.about.size} {size}" if size is not None else ""
        notes.append((NOT_REACHED, f"{capitalised(words)}{at}: nothing was measured."))
    for name, why in result.audit.not_tried.items():
        notes.append(
            (NOT_TRIED, f"{capitalised(clean(name))} is not tried, and not known to be safe: {clean(why, 400)}")
        )
    return notes


def read(about: About, mean: float | None, n: int, secret: str, column: str | None = None, digits: int = 1) -> str:
    """Return the predicate of a sentence on an attacker: the share of a secret that it reads, or trials it wins."""
    if about.trials is None or mean is None or column is not None:
        return f"reads {percent(mean, digits)} of {secret}"
    return f"{about.trials.does} in {round(mean * n * about.trials.each):,} of {n * about.trials.each:,} trials"


def _doing(about: About, record: Record) -> str:
    secret = about.secret if record["of"] is None else f"the labels ({clean(record['of'])})"
    return read(about, record["mean"], record["n"], secret, record["of"], 0)


def _gets(about: About, record: Record) -> str:
    if about.trials is None or record["of"] is not None:
        return f"gets {percent(record['baseline'], 0)}"
    return f"is right in {record['baseline'] * record['n'] * about.trials.each:,.0f}"


def _beside(result: AuditResult, record: Record) -> tuple[str, str]:
    """Return the verdict on a configuration with a defense, and a sentence."""
    about = result.audit.about
    doing = _doing(about, record)
    if about.trials is not None:
        # The headline says what.
        doing = doing.replace(about.trials.does, "does so")
    words = f"{result.place(record['batch_size'], record['defense'])} {doing}"
    if record["baseline"] is not None:
        words += f" (guessing: {_gets(about, record).removeprefix('gets ').removeprefix('is right in ')})"
    tier = record["tier"]
    return tier, " ".join([f"{words}.", *_why_unknown(result, record, tier)])


def _bounds_above(findings: Sequence[Finding]) -> str:
    """Return a sentence that restricts the figures to some clients; empty where they hold for all clients."""
    bounds = [finding for finding in findings if finding.code in UPPER_BOUNDS]
    return f" {bounds[0].title}: this holds for clients that train without it." if bounds else ""


def summary(result: AuditResult, reading: bool = True) -> str:
    """Return a paragraph for each configuration and, if wanted, on how to read them; never an empty text."""
    # What is read without a defense is what the others are compared with.
    ordered = sorted(settings(result.rows), key=lambda setting: setting[1] != UNDEFENDED)
    sentences = [_of_setting(result, size, defense) for size, defense in ordered]
    paragraphs = [paragraph for paragraph in sentences if paragraph]
    limits = [" ".join(result.audit.about.limits)] if result.audit.about.limits else []
    return "\n\n".join([*paragraphs, *limits, *([_READING] if reading else [])] if paragraphs else [_nothing(result)])


def _nothing(result: AuditResult) -> str:
    """Return the reason for which no attack has a result."""
    attacks = [run for run in result.runs if run.is_attack]
    failures = [failure for run in attacks for failure in run.failures]
    if failures:
        why = f"Attacks failed: {clean(failures[0].message, 300).removesuffix('.')}."
    elif any(run.status == "left_out" for run in attacks):
        why = "The time budget ended before any attack; give more time, or none."
    elif not any(part.kind == "attack" for part in result.audit.parts):
        why = "The audit has no attack; add one."
    else:
        why = "No attack gave a figure."
    return f"Nothing could be measured, so nothing is known about what leaks. {why}"


def _of_setting(result: AuditResult, size: int | None, defense: str) -> str:
    audit, findings = result.audit, result.all_findings
    attack = strongest(result.rows, size, defense)
    label = _of_label(result, size, defense)
    if attack is None:
        return label
    own = pick(result.rows, batch_size=size, defense=defense, attack=attack)
    score = pick(own, metric="accuracy", column=None)[0]
    exact, proved, visible = (row_of(own, metric) for metric in ("exact_match", "certified", "visible"))
    rated = verdict(score, exact, findings, proved)
    of = f"{score.n} {audit.spec.unit}{'s' if score.n != 1 else ''}"
    between = "" if score.low is None else f", 95% interval {percent(score.low)} to {percent(score.high)}"
    text = f"{result.place(size, defense)} {read(audit.about, score.mean, score.n, audit.about.secret)} "
    text += f"({clean(attack)}, {of}{between})"
    text += _beside_baseline(score)
    if exact is not None and exact.mean is not None:
        text += f"; {percent(exact.mean)} of the records come back whole"
    if proved is not None and proved.mean:
        text += f", and {percent(proved.mean)} are certified, under the conditions that check SEEP020 names"
    if visible is not None and visible.mean is not None:
        above = percent(visible.mean)
        text += f"; {above} are in the message at all"
        if visible.mean < 1:
            text += ": of others the client's rounding of numbers leaves no trace"
    text += f". Leakage: {rated.tier}{_ends(rated)}."
    if rated.tier == INCOMPLETE:
        text += f" Incomplete: {result.missing((size, defense))}."
    elif rated.tier == INCONCLUSIVE:
        text += f" {_why_inconclusive(score, rated, audit.spec.unit)}"
    elif rated.because is not None:
        text += f" It is a lower bound: {lowered(rated.because.title)} ({rated.because.code})."
    text += _bounds_above(findings)
    # What is read whole, or nearly, is no chance, whatever the interval of the mean.
    shown = gravest(rated.tier) in ("moderate", "high", "total")
    unclear = score.lift_low is not None and score.lift_low <= 0 and not shown
    if unclear and score.lift_high is not None and score.lift_high >= 0:
        text += (
            " The interval of that difference includes zero: over all of it, these figures do not tell the attack from "
            "the baseline. That does not show that nothing leaks."
        )
    elif unclear:
        text += " The baseline does better than this attack, which does not show that nothing leaks."
    text = " ".join([text, *_of_cells(own), *_of_columns(audit.about.sensitive, own, findings, unclear)])
    return f"{text} {label}".strip()


def _of_label(result: AuditResult, size: int | None, defense: str) -> str:
    """Return what is read of the label and the verdict on it; nothing where it is no secret."""
    about = result.audit.about
    score = None if about.label is None else strongest_row(result.rows, size, defense, about.label)
    if score is None:
        return ""
    rated = verdict(score, findings=result.all_findings)
    text = f"The label {clean(about.label)}: {lowered(about.label_attacker or about.attacker)} reads "
    text += f"{percent(score.mean)} ({clean(score.attack)})"
    text += f"{_beside_baseline(score)}. Leakage of the label: {rated.tier}{_ends(rated)}."
    if rated.tier == INCONCLUSIVE:
        text += f" {_why_inconclusive(score, rated, result.audit.spec.unit)}"
    return text


def _beside_baseline(score: ResultRow) -> str:
    """Return how much more an attack reads than the best baseline; empty without one."""
    if score.lift is None:
        return ""
    more = "more" if score.lift >= 0 else "fewer"
    best = f"{clean(score.baseline_name)}, {percent(score.baseline)}"
    return f", {abs(100 * score.lift):.1f} points {more} than the best baseline ({best})"


def _too_few(n: int, unit: str, captured: bool) -> str:
    if captured and n == 1:
        return f"These figures are of one {unit} alone, and less than nearly all of it was read."
    few = f"One {unit} allows" if n == 1 else f"{n} {unit}s allow"
    return f"{few} no verdict: {'capture' if captured else 'audit'} {UNITS_FOR_VERDICT} or more."


def _of_cells(own: Sequence[ResultRow]) -> list[str]:
    """Return a sentence on the private cells that the returned messages determine."""
    if not any(row.metric == "still_possible" for row in own):
        # Certificates of other settings are spoken of by record.
        return []
    sentences = []
    proved = row_of(own, "certified_cells")
    if proved is not None and proved.mean:
        sentences.append(f"{percent(proved.mean)} of the cells are certified: only one value replays what came back.")
    left = [row for row in own if row.metric == "still_possible" and row.column and (row.mean or 0) >= _MANY]
    if left:
        shares = ", ".join(f"{clean(str(row.column))} ({percent(row.mean)} of its values)" for row in left)
        sentences.append(f"Not determined, as many values replay what came back: {shares}.")
    return sentences


def _ends(rated: Verdict) -> str:
    """Return both ends of the closed gap where they tell more than the tier does."""
    if rated.low is None or rated.high is None or rated.tier in (*UNKNOWN, *TIERS):
        return ""
    return f" (95% interval {percent(rated.low, 0)} to {percent(rated.high, 0)} of the gap)"


def _why_inconclusive(score: ResultRow, rated: Verdict, unit: str) -> str:
    if rated.because is not None:
        return f"{rated.because.title} ({rated.because.code})."
    if score.baseline is None:
        return "No baseline was run, so there is nothing to compare with: add one."
    if score.baseline >= 1:
        return "The best baseline is always right already."
    if score.n < UNITS_FOR_VERDICT:
        return _too_few(score.n, unit, score.captured)
    if score.lift_std:
        return f"The {unit}s differ so much that more than two tiers are possible: audit more {unit}s."
    return f"All {score.n} {unit}s are alike, which does not show how much others differ: audit more."


def _of_columns(
    sensitive: Sequence[str], own: Sequence[ResultRow], findings: Sequence[Finding], unclear: bool
) -> list[str]:
    columns = [row for row in pick(own, metric="accuracy") if row.column is not None and row.lift is not None]
    ranked = sorted(columns, key=lambda row: row.lift or 0.0, reverse=True)
    sentences = []
    if exposed := [_column(row) for row in ranked if _is_named(row)][:_COLUMNS]:
        # Of many columns some exceed the baseline by chance, which shows where all of them together do not.
        some = f"{len(columns)} columns were looked at, of which a few may do so by chance"
        sentences.append(
            f"Single columns lie above the baseline all the same: {listed(exposed)}; {some}."
            if unclear
            else f"Furthest above the baseline: {listed(exposed)}."
        )
    tiers: dict[str, list[str]] = {}
    for row in ranked:
        if row.column in sensitive:
            rated = _ALWAYS_RIGHT if (row.baseline or 0.0) >= 1 else verdict(row, findings=findings).tier
            tiers.setdefault(rated, []).append(clean(row.column))
    if tiers:
        order = (*reversed(GRAVITY), _ALWAYS_RIGHT)
        ranked_tiers = sorted(tiers, key=lambda tier: order.index(tier if tier == _ALWAYS_RIGHT else gravest(tier)))
        parts = "; ".join(f"{tier}: {', '.join(tiers[tier])}" for tier in ranked_tiers)
        sentences.append(f"Sensitive columns by leakage: {parts}.")
    return sentences


def _is_named(row: ResultRow) -> bool:
    # A screen, no claim: columns are named that exceed the baseline by more than their units vary.
    ends = row.lift_ends()
    return ends is not None and 0 < ends[0] < ends[1]


def _column(row: ResultRow) -> str:
    return f"{clean(row.column)} ({percent(row.mean, 0)}, baseline {percent(row.baseline, 0)})"
