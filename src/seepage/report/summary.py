"""What an audit found, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from seepage.assessment.row import ResultRow
from seepage.report.answer import answer, exposed_columns
from seepage.report.document import Flow
from seepage.report.frames import Record, row_of, setting_of
from seepage.report.result import AuditResult
from seepage.results.checks.finding import LOWER_BOUNDS, MORE_STEPS, UPPER_BOUNDS, Finding
from seepage.results.verdict import (
    GRAVITY,
    INCOMPLETE,
    NOT_REACHED,
    UNDECIDED,
    UNDEFENDED,
    UNKNOWN,
    pick,
    settings,
    strongest,
    strongest_row,
    verdict,
)
from seepage.settings.setting import About
from seepage.text import clean, listed, lowered, percent

# Share of a column's values above which a message is said not to determine it.
_MANY = 0.5
_COLUMNS = 3
_ALWAYS_RIGHT = "baseline always right"
NOT_TRIED = "not tried"
READING = (
    "What guessing misses is 1 - best baseline, and of it (read - best baseline) is read: 0% is an informed guess, "
    "100% is certainty. Whole records read: at least one whole record that no baseline gets, or one that is proved. "
    "Mostly read: at least half of what guessing misses is shown to be read. Gain shown: more is shown to be read "
    "than guessing gets. Little read: at most a fifth of what guessing misses is not excluded. Not decided: none of "
    "these is shown. Incomplete: little was found, but a default attack or its positive control is missing. The "
    "intervals assume nothing about how units differ, so few units give wide ones. These are the attacks that were "
    "run; a better one may exist."
)
# What a baseline knows, where that is more than marginals.
_KNOWS = {"cross_tables": "knowing only the published cross tables gives"}


class Headline(NamedTuple):
    """The verdict on the configuration in which most leaks, of those without a defense if any, and on each defense."""

    record: Record | None
    tier: str
    sentences: tuple[str, ...]
    beside: tuple[tuple[str, str], ...] = ()

    @property
    def words(self) -> str:
        """The sentences as one text."""
        return " ".join(self.sentences)


def flows(result: AuditResult) -> list[Flow]:
    """Return what is sent and read in the configuration of the headline; the label's flow after that of the cells."""
    about, record = result.audit.about, result.reference
    secret = clean(about.secret, 80)
    if record is None or record["mean"] is None:
        return [Flow(about.sender, secret, about.message, about.attacker, "nothing measured")]
    of_label = record["of"] is not None and about.label_attacker is not None
    label = record if of_label else record["label"]
    lines = [] if of_label else [_flow(about, record, about.sender, about.attacker)]
    if about.label is not None and label is not None and label["mean"] is not None:
        labels = {**label, "of": about.label}
        if about.label_attacker is not None:
            lines.append(_flow(about, labels, about.attacker, about.label_attacker, "what is sent back"))
        elif record["of"] is None:
            lines.append(_flow(about, labels, about.sender, about.attacker))
    return lines


def _flow(about: About, record: Record, sender: str, attacker: str, message: str | None = None) -> Flow:
    of_label = record["of"] is not None
    secret = f"the label {clean(record['of'], 40)}" if of_label else clean(about.secret, 80)
    guessed = "" if record["baseline"] is None else f"; {_gets(about, record)}"
    reads = f"{_doing(about, record)}{guessed}"
    return Flow(sender, secret, clean(message or about.message, 80), attacker, reads)


def headline(result: AuditResult) -> Headline:
    """Return the verdict on the configuration without a defense in which most leaks, and those with one beside it."""
    record = result.reference
    if record is None or record["mean"] is None:
        tier = INCOMPLETE if result.gaps else UNDECIDED
        return Headline(None, tier, (_nothing(result),), tuple(_not_reached(result)))
    about = result.audit.about
    place = result.place(*setting_of(record))
    if record["of"] is not None and about.label_attacker is not None:
        place = about.label_attacker
    words = f"{place} {_doing(about, record)}"
    if record["baseline"] is not None:
        words += f"; {_gets(about, record)}"
    answered, of_label = answer(result, record), _label_sentence(about, record)
    # What a number of 100 labels is of stands before it.
    parts = [f"{words}.", *([*of_label, *answered] if record["by_label"] else [*answered, *of_label])]
    parts += exposed_columns(result, record)
    parts += [*_bounds_below(result, record, parts), *_bounds_above(result.all_findings), *about.limits]
    parts += _unneeded_attacks(result)
    beside = [_defended_verdict(result, overview) for overview in result.beside]
    return Headline(record, record["tier"], tuple(parts), (*beside, *_not_reached(result)))


def _label_sentence(about: About, record: Record) -> list[str]:
    """Return a sentence on what is read of the label, where a record is of other cells; none without a figure."""
    label = record["label"]
    if label is None or record["of"] is not None:
        return []
    who = "It" if about.label_attacker is None else about.label_attacker
    guessed = "" if label["baseline"] is None else f"; an informed guess: {percent(label['baseline'], 0)}"
    return [f"{who} reads {percent(label['mean'], 0)} of the labels ({clean(about.label)}{guessed})."]


def _not_reached(result: AuditResult) -> list[tuple[str, str]]:
    """Return the configurations without a figure, so that none of them is taken for a good one."""
    notes = [(NOT_REACHED, f"Nothing was measured with {lowered(words)}.") for words in result.not_reached_in_words]
    for name, why in result.audit.not_tried.items():
        notes.append((NOT_TRIED, f"{clean(name)} is not tried, and not known to be safe: {clean(why, 400)}"))
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
    """Return what the best baseline gets, as a part of a sentence."""
    if about.trials is None or record["of"] is not None:
        knows = _KNOWS.get(record["baseline_name"] or "", "an informed guess gets")
        return f"{knows} {percent(record['baseline'], 0)}"
    return f"an informed guess is right in {record['baseline'] * record['n'] * about.trials.each:,.0f}"


def _defended_verdict(result: AuditResult, record: Record) -> tuple[str, str]:
    """Return the verdict on a configuration with a defense, and a sentence."""
    about = result.audit.about
    doing = _doing(about, record)
    if about.trials is not None:
        # The headline says what.
        doing = doing.replace(about.trials.does, "does so")
    words = f"{result.place(record['batch_size'], record['defense'])} {doing}"
    return record["tier"], " ".join([f"{words}.", *answer(result, record)])


def _bounds_below(result: AuditResult, record: Record, before: Sequence[str]) -> list[str]:
    """Return that a figure is a lower bound; none where all is read, and where the sentences before give the code."""
    if record["mean"] == 1:
        return []
    place, bounding = (*setting_of(record), record["attack"]), (*LOWER_BOUNDS, MORE_STEPS)
    weaker = [finding for finding in result.all_findings if finding.code in bounding and finding.concerns(*place)]
    named = any(weaker[0].code in sentence for sentence in before) if weaker else True
    return [] if named else [f"{weaker[0].title}, so this is a lower bound."]


def _bounds_above(findings: Sequence[Finding]) -> list[str]:
    """Return a sentence that restricts the figures to some clients; none where they hold for all clients."""
    bounds = [finding for finding in findings if finding.code in UPPER_BOUNDS]
    return [f"{bounds[0].title}: this holds for clients that train without it."] if bounds else []


def summary(result: AuditResult, reading: bool = True) -> str:
    """Return a paragraph for each configuration and, if wanted, on how to read them; never an empty text."""
    # What is read without a defense is what the others are compared with.
    ordered = sorted(settings(result.rows), key=lambda setting: setting[1] != UNDEFENDED)
    sentences = [_setting_paragraph(result, size, defense) for size, defense in ordered]
    paragraphs = [paragraph for paragraph in sentences if paragraph]
    limits = [" ".join(result.audit.about.limits)] if result.audit.about.limits else []
    return "\n\n".join([*paragraphs, *limits, *([READING] if reading else [])] if paragraphs else [_nothing(result)])


def _unneeded_attacks(result: AuditResult) -> list[str]:
    """Return a sentence on each attack that was left out where another one had proved all; none without any."""
    places: dict[str, list[str]] = {}
    for run in result.runs:
        if run.nothing_to_add:
            place = (run.configuration.batch_size, run.configuration.defense)
            places.setdefault(run.label, []).append(result.label(place))
    provers = result.audit.yields
    return [
        f"{clean(name)} was not needed ({listed(where)}): {clean(provers[name])} proved every record."
        for name, where in places.items()
    ]


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


def _setting_paragraph(result: AuditResult, size: int | None, defense: str) -> str:
    audit, findings = result.audit, result.all_findings
    attack = strongest(result.rows, size, defense)
    label = _label_verdict(result, size, defense)
    if attack is None:
        return label
    rows = pick(result.rows, batch_size=size, defense=defense, attack=attack)
    score = pick(rows, metric="accuracy", column=None)[0]
    exact, proved, visible = (row_of(rows, metric) for metric in ("exact_match", "certified", "visible"))
    rated = verdict(score, exact, findings, proved)
    overview = next(record for record in result.overviews if setting_of(record) == (size, defense))
    # The label has a sentence of its own.
    of_cells = {"closed": rated.closed, "closed_low": rated.low, "upper": rated.high, "tier": rated.tier}
    record = {**overview, **of_cells, "by_label": False}
    of = f"{score.n} {audit.spec.unit}{'s' if score.n != 1 else ''}"
    text = f"{result.place(size, defense)} {read(audit.about, score.mean, score.n, audit.about.secret)} "
    text += f"({clean(attack)}, {of})"
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
    sentences = [f"{text}. Verdict: {rated.tier}.", *answer(result, record)]
    sentences += [*_bounds_below(result, record, sentences), *_bounds_above(findings)]
    unclear = rated.tier in UNKNOWN
    sentences += [*_certified_cells(rows), *_column_sentences(audit.about.sensitive, rows, findings, unclear), label]
    return " ".join(filter(None, sentences))


def _label_verdict(result: AuditResult, size: int | None, defense: str) -> str:
    """Return what is read of the label and the verdict on it; nothing where it is no secret."""
    about = result.audit.about
    score = None if about.label is None else strongest_row(result.rows, size, defense, about.label)
    if score is None:
        return ""
    rated = verdict(score, findings=result.all_findings)
    text = f"The label {clean(about.label)}: {lowered(about.label_attacker or about.attacker)} reads "
    text += f"{percent(score.mean)} ({clean(score.attack)})"
    return f"{text}{_beside_baseline(score)}. Verdict on the label: {rated.tier}."


def _beside_baseline(score: ResultRow) -> str:
    """Return how much more an attack reads than the best baseline; empty without one."""
    if score.lift is None:
        return ""
    more = "more" if score.lift >= 0 else "fewer"
    best = f"{clean(score.baseline_name)}, {percent(score.baseline)}"
    return f", {abs(100 * score.lift):.1f} points {more} than the best baseline ({best})"


def _certified_cells(rows: Sequence[ResultRow]) -> list[str]:
    """Return a sentence on the private cells that the returned messages determine."""
    if not any(row.metric == "still_possible" for row in rows):
        # Certificates of other settings are spoken of by record.
        return []
    sentences = []
    proved = row_of(rows, "certified_cells")
    if proved is not None and proved.mean:
        sentences.append(f"{percent(proved.mean)} of the cells are certified: only one value replays what came back.")
    left = [row for row in rows if row.metric == "still_possible" and row.column and (row.mean or 0) >= _MANY]
    if left:
        shares = ", ".join(f"{clean(str(row.column))} ({percent(row.mean)} of its values)" for row in left)
        sentences.append(f"Not determined, as many values replay what came back: {shares}.")
    return sentences


def _column_sentences(
    sensitive: Sequence[str], rows: Sequence[ResultRow], findings: Sequence[Finding], unclear: bool
) -> list[str]:
    columns = [row for row in pick(rows, metric="accuracy") if row.column is not None and row.lift is not None]
    ranked = sorted(columns, key=lambda row: row.lift or 0.0, reverse=True)
    sentences = []
    exposed = [
        f"{clean(row.column)} ({percent(row.mean, 0)}, baseline {percent(row.baseline, 0)})"
        for row in ranked
        if _exceeds_baseline(row)
    ][:_COLUMNS]
    if exposed:
        # Of many columns some exceed the baseline by chance, which shows where all of them together do not.
        caution = f"{len(columns)} columns were looked at, of which a few may do so by chance"
        sentences.append(
            f"Single columns lie above the baseline all the same: {listed(exposed)}; {caution}."
            if unclear
            else f"Furthest above the baseline: {listed(exposed)}."
        )
    tiers: dict[str, list[str]] = {}
    for row in ranked:
        if row.column in sensitive:
            rated = _ALWAYS_RIGHT if (row.baseline or 0.0) >= 1 else verdict(row, findings=findings).tier
            tiers.setdefault(rated, []).append(clean(row.column))
    if tiers:
        ranked_tiers = sorted(tiers, key=[*reversed(GRAVITY), _ALWAYS_RIGHT].index)
        parts = "; ".join(f"{tier}: {', '.join(tiers[tier])}" for tier in ranked_tiers)
        sentences.append(f"Sensitive columns by verdict: {parts}.")
    return sentences


def _exceeds_baseline(row: ResultRow) -> bool:
    # A screen, no claim: columns are named that exceed the baseline by more than their units vary.
    ends = row.lift_ends()
    return (ends is not None and 0 < ends[0] < ends[1]) or (row.lift_low is not None and row.lift_low > 0)
