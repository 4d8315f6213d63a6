"""What captured messages give away: parts of a page, and the same on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Column
from rich.text import Text
from torch import Tensor

from seepage.assessment.row import ResultRow
from seepage.captures.alignment import Alignment, Rate
from seepage.captures.audit import ReadRecords
from seepage.captures.captured import left_out_words
from seepage.captures.federation import OUTCOMES, ClientFinding, FederationFindings, Outcome, UpdateFinding
from seepage.captures.recovery import Recovered
from seepage.captures.transcript_attacks import TranscriptFindings, TriedAttack
from seepage.report import grids
from seepage.report.frames import Record
from seepage.report.grids import Grid, Section
from seepage.report.html import AuditPart, page
from seepage.report.result import AuditResult
from seepage.report.sections import sections
from seepage.report.terminal import make_table
from seepage.text import as_sentence, clean, flattened, how_many, percent, plain_number, shown_value, span

# Tier with whose colour a page marks an outcome.
_TIERS = {"proved": "whole", "estimated": "gain", "not tried": "open", "failed": "open"}
_STYLES = {"tier whole": "bold red", "tier gain": "yellow", "tier open": "magenta"}
# What an attack says of its own answers.
_SHOWN = {
    "certified_cells": "private cells certified",
    "still_possible": "share of values that still replay the message",
    "replayed": "records whose message an answer replays",
    "ties": "records with several answers that fit alike",
}
_SOME = 4
_RATES = 20  # values and means that a table on alignment shows at most


def show_sections(console: Console, parts: Sequence[Section]) -> None:
    """Print words, facts and tables of parts of a page, but no figures."""
    console.print()
    for section in parts:
        console.print(Text(section.title, "bold"))
        for words in section.words:
            console.print(Text(clean(words, 2000)))
        for point in section.points:
            console.print(Text(f"  · {clean(point, 600)}"))
        for grid in section.grids:
            show_grid(console, grid)


def show_grid(console: Console, grid: Grid) -> None:
    """Print a table; texts that do not fit are folded."""
    heads = [
        Column(
            column.title, justify="right" if column.align == grids.NUMBER else "left", no_wrap=i == 0, overflow="fold"
        )
        for i, column in enumerate(grid.columns)
    ]
    rows = [
        [Text(f"{cell.text} {cell.behind}".strip(), _STYLES.get(cell.kind or "", "")) for cell in row]
        for row in grid.rows
    ]
    console.print(make_table(grid.caption, heads, rows))


Findings = Recovered | FederationFindings | TranscriptFindings | ReadRecords


def captured_sections(findings: Findings) -> list[Section]:
    """Return the sections of a report on captured messages; none holds a record."""
    if isinstance(findings, ReadRecords):
        points = [clean(point, 300) for point in findings.points]
        return [Section("read", findings.title, [clean(line, 2000) for line in findings.words], points)]
    if isinstance(findings, Recovered):
        return [_of_update(findings)]
    if isinstance(findings, FederationFindings):
        return _of_federation(findings)
    return _of_transcript(findings)


def render_captured(
    findings: Findings,
    report: AuditResult | None = None,
    provenance: Mapping[str, object] | None = None,
) -> str:
    """Return a report on captured messages as one page; ``report`` is None where nothing could be attacked."""
    title = "Captured updates" if report is None else f"Audit of {clean(report.audit.about.dataset)}"
    parts = [*captured_sections(findings), *([] if report is None else sections(report))]
    return page(
        "report.html",
        title,
        lead="" if report is None else report.audit.about.lead,
        parts=[AuditPart("audit-1", title, parts)],
        several=False,
        over_rounds=None,
        overall=None,
        heads=[],
        provenance=flattened(provenance or {}),
        own=True,
        records=True,
    )


def _of_update(recovered: Recovered) -> Section:
    settings, knowledge = recovered.settings, recovered.knowledge
    unsent = left_out_words(recovered.capture.view.model)
    facts = [
        f"number of records: {knowledge['records']}",
        f"columns: {knowledge['statistics']}",
        f"labels: {knowledge['labels']}",
        *([] if recovered.guess.regime is None else [f"method: {recovered.guess.regime[0]}"]),
        *(note for note in recovered.notes if note != unsent),
    ]
    records = settings["batch_size"]
    assert isinstance(records, int)
    title = f"{settings['attack']} on an update of {how_many(records, 'record')}"
    words = f"{settings['protocol']}, model {clean(settings['model'])}"
    headline = [words] if unsent is None else [words, clean(as_sentence(unsent), 400)]
    return Section("read", title, headline, [clean(fact, 300) for fact in facts])


def records_grid(recovered: Recovered) -> Grid:
    """Return the first records that were read, with the attacker's certainty, for those who may see them."""
    records = recovered.records
    shown = min(_SOME, len(records))
    heads = [grids.text("column", "column"), *(grids.text(f"record {r + 1}", str(r)) for r in range(shown))]
    lines: list[Record] = []
    for i, name in enumerate(recovered.schema.names):
        cells = {
            str(r): _cell(records.iat[r, i], recovered.certainty[r, i], recovered.spread[r, i]) for r in range(shown)
        }
        lines.append({"column": clean(name, 32), **cells})
    if recovered.guess.labels is not None:
        target = recovered.schema.target.name
        labels = {str(r): clean(records[target].iat[r], 24) for r in range(shown)}
        lines.append({"column": f"{clean(target, 32)} (label)", **labels})
    part = "" if shown == len(records) else f", first {shown} of {len(records)} records"
    return grids.grid(f"What was read{part} (certainty)", heads, lines)


def _cell(value: object, certainty: Tensor, spread: Tensor) -> str:
    text = shown_value(value, 24)
    if not bool(certainty.isfinite()):
        return text
    around = f", ±{plain_number(float(spread))}" if bool(spread.isfinite()) else ""
    return f"{text} ({percent(float(certainty), 0)}{around})"


def federation_words(findings: FederationFindings) -> list[str]:
    """Return what was found in the updates of a federation as sentences."""
    updates, clients = len(findings.updates), len({update.client for update in findings.updates})
    counts = ", ".join(f"{count} {outcome}" for outcome, count in findings.counts.items())
    words = [
        f"{updates} update{'s' * (updates != 1)} of {clients} client{'s' * (clients != 1)}, attacked by "
        f"{clean(findings.attack)}: {counts}."
    ]
    if findings.counts["estimated"]:
        words.append(
            "Estimates are records that the attacker is sure of without a proof; attempts can agree and be wrong."
        )
    if findings.counts["nothing"]:
        words.append("Nothing found does not show that an update is safe: a better attack may exist.")
    partial = sum(any(note.startswith("not sent: ") for note in update.notes) for update in findings.updates)
    if partial:
        words.append(
            f"Of {how_many(partial, 'update')} something stayed with the client. Where its values are not declared, "
            "the attack is weaker, and nothing is proved."
        )
    if findings.counts["not tried"] or findings.counts["failed"]:
        words.append("An update that was not tried, or failed, is not known to be safe.")
    return words


def _of_federation(findings: FederationFindings) -> list[Section]:
    client = grids.text("Client", "client", 24)
    numbers = [
        grids.count("Records", "records"),
        grids.count("Proved", "proved"),
        grids.count("Proved cells", "cells"),
        grids.count("Estimated", "estimated"),
        grids.share("Cells read", "mean"),
        grids.share("Best baseline", "baseline"),
        grids.gain("Lift", "lift"),
    ]
    why = grids.Column("Why", grids.text("Why", "why", 600).cell, "text wide")
    outcome = grids.Column("Outcome", _outcome, grids.TEXT)
    updates = [{**_record(update), "round": update.round, "outcome": update.outcome} for update in findings.updates]
    each = "What each update gives away"
    table = grids.filled(each, [client, grids.count("Round", "round"), outcome, *numbers, why], updates)
    parts = [Section("updates", each, federation_words(findings), grids=[table])]
    if findings.clients:
        clients = [{**_record(client), "rounds": client.rounds} for client in findings.clients]
        all_ = "What all rounds of a client give away together"
        table = grids.filled(all_, [client, grids.count("Rounds", "rounds"), *numbers, why], clients)
        parts.append(Section("clients", all_, ["Records are the most that a client was taken to hold."], grids=[table]))
    return parts


def _record(finding: UpdateFinding | ClientFinding) -> Record:
    tried, score = finding.records is not None, finding.score
    notes = finding.notes if isinstance(finding, UpdateFinding) else ()
    return {
        "client": finding.client,
        "records": finding.records,
        "proved": finding.proved_records if tried else None,
        "cells": finding.proved_cells if tried else None,
        "estimated": finding.estimated_records if tried else None,
        **{name: None if score is None else getattr(score, name) for name in ("mean", "baseline", "lift")},
        "why": "; ".join(part for part in (finding.why, *notes) if part),
    }


def _outcome(record: Record) -> grids.GridCell:
    outcome: Outcome = record["outcome"]
    # Nothing found is not shown to be safe, so that it has no colour.
    kind = f"tier {_TIERS[outcome]}" if outcome in _TIERS else None
    return grids.GridCell(outcome, float(OUTCOMES.index(outcome)), kind)


def transcript_words(findings: TranscriptFindings) -> list[str]:
    """Return what was found in a transcript, and what could not be tried, as sentences."""
    tried = findings.tried
    sentences = [
        f"{how_many(findings.records, 'record')} in {how_many(findings.rounds, 'round')} of {findings.setting} "
        f"learning, private: {', '.join(findings.private)}. Attacks that ran: "
        f"{', '.join(attack.attack for attack in tried) or 'none'}.",
        *findings.doubts,
    ]
    best = max(tried, key=lambda attack: attack.shown.get(("certified_cells", None)) or 0.0, default=None)
    certified = None if best is None else best.shown.get(("certified_cells", None))
    if best is not None and certified:
        sentences.append(
            f"{best.attack} certifies {percent(certified)} of the private cells: no other values replay their "
            f"messages, given the declared network, weights, loss and defense.{_below_baseline(best.rows or ())}"
        )
    sentences += findings.limits
    if findings.left_out:
        sentences.append(
            f"Not run: {', '.join(findings.left_out)}. No audit of {findings.setting} learning runs them by default; "
            "--attack NAME does."
        )
    if findings.not_tried:
        names = list(findings.not_tried)
        which = ", ".join(names) if len(names) <= _SOME else f"{len(names)} attacks"
        sentences.append(f"Not tried: {which}. What was not tried is not known to be safe; reasons below.")
    return sentences


def _below_baseline(rows: Sequence[ResultRow]) -> str:
    """Return, as a sentence, that an attack reads less of the cells than a baseline; empty where it does not."""
    for row in rows:
        if (row.metric, row.column) == ("accuracy", None) and row.lift is not None and row.lift < 0:
            return (
                f" Of all private cells it reads {percent(row.mean)}, less than the baseline {row.baseline_name} "
                f"with {percent(row.baseline)}."
            )
    return ""


def _of_transcript(findings: TranscriptFindings) -> list[Section]:
    lines = [
        {"attack": attack.attack, "sought": attack.sought, "records": attack.records, "shown": _own_answers(attack)}
        for attack in findings.tried
    ]
    columns = [grids.text("Attack", "attack"), grids.text("Guesses", "sought"), grids.count("Records", "records")]
    caption = "What each attack says of its own answers"
    table = grids.filled(caption, [*columns, grids.text("Of its answers", "shown", 300)], lines)
    notes = list(findings.notes)
    if findings.scored is not None and findings.assumed:
        some = 0 < len(findings.assumed) <= len(findings.private)
        of = f" of {clean(', '.join(findings.assumed), 200)}" if some else ""
        notes.append(
            f"the best baseline, which sees no message and holds no marginals{of}, takes all values as equally likely"
        )
    if findings.scored is not None:
        notes.append(f"figures are of the {findings.scored:,} records with a known truth")
    parts = [Section("read", "What the transcript gives away", transcript_words(findings), notes, grids=[table])]
    if findings.alignment is not None:
        parts.append(_of_alignment(findings.alignment))
    by_reason: dict[str, list[str]] = {}
    for name, reason in findings.not_tried.items():
        by_reason.setdefault(reason, []).append(name)
    reasons = [
        f"{clean(', '.join(names), 400)}: {clean(reason if len(names) == 1 else _of_several(reason), 400)}."
        for reason, names in by_reason.items()
    ]
    return [*parts, *([Section("not-tried", "Not tried", points=reasons)] if reasons else [])]


def _of_several(reason: str) -> str:
    """Return the reason why one attack could not be tried, of several."""
    for singular, plural in (("it needs", "they need"), ("it takes", "they take"), ("it tells", "they tell")):
        reason = reason.replace(singular, plural)
    return reason.replace("it is active", "they are active").replace("that it changes", "that they change")


def _of_alignment(aligned: Alignment) -> Section:
    """Return what the attacker learnt of its own records before any training."""
    words = [
        f"The attacker learns that {aligned.shared:,} of its {aligned.records:,} records are with the attacked party, "
        "too; the attacked party learns the same of its own."
    ]
    if aligned.predicted is None:
        words.append(
            "What this tells is measured where own.csv has records that the other party lacks, ten of them at least."
        )
        return Section("alignment", "What alignment gives away", words)
    words.append(
        f"Its own columns predict {percent(aligned.predicted.mean)} of these memberships "
        f"({span(aligned.predicted.low, aligned.predicted.high)}), the more frequent one {percent(aligned.usual)}; "
        "alignment tells all."
    )
    strongest = sorted(aligned.rates, key=_clearest, reverse=True)[:_RATES]
    shares = [_rate(rate) for rate in strongest if rate.value is not None]
    means = [_rate(rate) for rate in strongest if rate.value is None]
    head = grids.text("Column", "column", 32)
    tables = []
    if shares:
        columns = [
            *(head, grids.text("Value", "value", 32), grids.share("With the other party", "shared")),
            *(grids.share("Only here", "others"), grids.gain("Difference (points)", "mean")),
            grids.interval("95% interval"),
        ]
        tables.append(grids.grid("What membership tells of a value", columns, shares))
    if means:
        columns = [
            *(head, grids.number("With the other party", "shared", 4), grids.number("Only here", "others", 4)),
            *(grids.number("Difference", "mean"), grids.interval("95% interval", scale=1.0)),
        ]
        tables.append(grids.grid("What membership tells of a number: means", columns, means))
    note = f"The {len(strongest)} of {len(aligned.rates)} values and means that differ most clearly."
    return Section("alignment", "What alignment gives away", words, [note], grids=tables)


def _clearest(rate: Rate) -> float:
    """Return how far a difference is from zero, in halves of its interval."""
    low, high, mean = rate.difference.low, rate.difference.high, rate.difference.mean
    if low is None or high is None or mean is None:
        return 0.0
    return abs(mean) / max((high - low) / 2, 1e-12)


def _rate(rate: Rate) -> Record:
    difference = rate.difference
    return {
        **{"column": clean(rate.column, 32), "value": None if rate.value is None else clean(rate.value, 32)},
        **{"shared": rate.shared.mean, "others": rate.others.mean, "mean": difference.mean},
        **{"low": difference.low, "high": difference.high},
    }


def _own_answers(attack: TriedAttack) -> str:
    figures = {metric: attack.shown.get((metric, None)) for metric in _SHOWN}
    return "; ".join(f"{percent(value)} {_SHOWN[name]}" for name, value in figures.items() if value is not None)
