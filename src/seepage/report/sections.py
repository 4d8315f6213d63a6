"""The sections of an audit's report in the order in which they are read.

Parts whose data do not exist are listed at the end with the reason; nothing is said of them where an audit keeps
nothing of the kind.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from seepage.assessment.row import ResultRow
from seepage.files import write_whole
from seepage.report import grids
from seepage.report.accumulated import accumulated
from seepage.report.cells import examples_section, exposed_section, groups_section, reliability_section
from seepage.report.document import (
    Aside,
    Block,
    Conclusion,
    Document,
    Folded,
    Grid,
    Plot,
    Points,
    Rated,
    Remarks,
    Section,
    folded_grid,
    heads,
    rows_of,
)
from seepage.report.frames import worst
from seepage.report.grids import MOST_COLUMNS, MOST_LINES, attack_column, cut, cut_columns, setting_columns
from seepage.report.leakage import (
    advice_section,
    columns_section,
    frontier_section,
    labels_section,
    leakage_section,
    pictures_section,
)
from seepage.report.overview import answer_sections, remark, verdict_section
from seepage.report.page import page
from seepage.report.questions import questions_section
from seepage.report.result import AuditResult
from seepage.report.summary import Headline, headline
from seepage.results.checks.every import CHECKS
from seepage.results.checks.facts import broken, control_share, exceeds_by_more_than_chance, leaks
from seepage.results.checks.finding import SEVERITIES
from seepage.results.verdict import pick, style_of
from seepage.settings.catalogue import view_in_words
from seepage.settings.threat_model import NEEDS
from seepage.text import as_sentence, clean, flattened, listed, percent, points

FILE = "report.html"
# Number of figures of columns in the table of all figures, where a table has many columns.
_MOST_OF_WIDE = 500
# Fewest units of which a plot is shown at once.
_PLOTTED = 10
# What an answer does not need: these sections show their titles until they are opened.
_BEHIND = ("questions", "reliability", "exposed", "examples", "groups", "advice")


def write_html(
    path: Path, reports: Sequence[AuditResult], provenance: Mapping[str, object], private: bool | None = None
) -> None:
    """Write the report of a run as one file, for its owner alone where a table is one's own or ``private`` says so."""
    confidential = any(report.audit.own for report in reports) if private is None else private
    write_whole(path, render(reports, provenance), confidential)


def render(reports: Sequence[AuditResult], provenance: Mapping[str, object]) -> str:
    """Return the page of a run's audits."""
    return page(run_document(reports, provenance))


def audit_document(result: AuditResult) -> Document:
    """Return all that an audit found, and its answer in as much as one screen holds."""
    audit, about = result.audit, result.audit.about
    variant = "" if audit.spec.variant is None else f" · {clean(audit.spec.variant, 80)}"
    facts = (
        f"{about.rows:,} rows · {clean(about.protocol)}, model {clean(about.model)}{variant} · {result.units_run} · "
        f"seed {audit.spec.seed}"
    )
    title, notice = f"Audit of {clean(about.dataset)}", notice_of(audit.own, audit.spec.keep_records)
    return Document(title, sections(result), answer_sections(result), facts, about.lead, notice)


def run_document(reports: Sequence[AuditResult], provenance: Mapping[str, object] | None = None) -> Document:
    """Return the document of a run's audits; of several, what each found comes first, then the gravest."""
    origin = [] if provenance is None else [provenance_section(provenance)]
    if len(reports) == 1:
        document = audit_document(reports[0])
        return replace(document, sections=[*document.sections, *origin])
    documents, headlines = list(map(audit_document, reports)), list(map(headline, reports))
    names = _audit_names(reports)
    gravest = worst([head.record for head in headlines if head.record is not None])
    first = next((i for i, head in enumerate(headlines) if head.record is gravest and gravest is not None), 0)
    parts = [
        Section(f"a{i}", name, aside=document.facts, sections=document.sections)
        for i, (name, document) in enumerate(zip(names, documents, strict=True), start=1)
    ]
    overall = [_overall_section(parts, headlines, first)] if reports else []
    over_rounds, confidential = accumulated(reports), any(report.audit.own for report in reports)
    tables = list(dict.fromkeys(clean(report.audit.about.dataset) for report in reports))
    answer: list[Section] = []
    if reports:
        tier = grids.tier("verdict")
        lines = rows_of([name, tier.cell({"tier": head.tier})] for name, head in zip(names, headlines, strict=True))
        caption = f"{len(reports)} audits; below them the gravest"
        each = Grid(caption, heads("audit", "verdict"), lines, most=None)
        grave = documents[first]
        answer = [Section("audits", "", [each]), Section("gravest", grave.title, aside=grave.facts), *grave.answer]
    return Document(
        f"Audit of {listed(tables)}" if reports else "Audit",
        [*overall, *([] if over_rounds is None else [over_rounds]), *parts, *origin],
        answer,
        lead=" ".join(dict.fromkeys(report.audit.about.lead for report in reports)),
        notice=notice_of(confidential, any(report.audit.spec.keep_records for report in reports)),
    )


def notice_of(confidential: bool, records: bool) -> str:
    """Return how to treat a report on a table of one's own, with its records or without; empty on any other table."""
    holds = "records, rates and positions" if records else "rates and positions"
    return (
        f"This report is about a table of your own. It holds {holds}; treat it as confidential." if confidential else ""
    )


def _overall_section(parts: Sequence[Section], headlines: Sequence[Headline], first: int) -> Section:
    """Return the verdict on the gravest of several audits, and a line on each."""
    grave = headlines[first]
    lines = [(head.tier, head.words) for head in headlines]
    return Section(
        "overall",
        "All audits of this run",
        [
            Conclusion(grave.tier, style_of(grave.tier), grave.sentences),
            Aside(f"The gravest of {len(parts)} audits: {parts[first].title}."),
            Rated(lines, [(part.name, part.title) for part in parts]),
        ],
    )


def provenance_section(provenance: Mapping[str, object]) -> Section:
    """Return what figures come from."""
    entries = flattened(provenance)
    lines = rows_of([clean(text, 400) for text in entry] for entry in entries)
    table = Grid("Provenance of this run", heads("Entry", "Value"), lines)
    return Section(
        "provenance",
        "Provenance",
        [
            "What these figures come from. The same spec, code and packages on the same kind of machine give the same "
            "figures.",
            Folded(f"Versions, commit, device and spec ({len(entries)} entries)", [table], filed=True),
        ],
    )


def _audit_names(reports: Sequence[AuditResult]) -> list[str]:
    """Return distinct names for the audits of a run: data, protocol, model and variant, or a number."""
    names: list[str] = []
    for report in reports:
        about, variant = report.audit.about, report.audit.spec.variant
        parts = [clean(about.dataset), clean(about.protocol).replace("_", " "), f"model {clean(about.model)}"]
        name = ", ".join([*parts, *([clean(variant, 80)] if variant else [])])
        names.append(f"{name} ({len(names) + 1})" if name in names else name)
    return names


def sections(result: AuditResult) -> list[Section]:
    """Return all sections on one audit; those on what else could be run only where something else can be."""
    scored, more = bool(result.attacked), result.audit.repeatable
    filled = [
        verdict_section(result) if scored or more else None,
        _threat_model(result),
        _checks_section(result),
        leakage_section(result),
        labels_section(result),
        columns_section(result),
        questions_section(result),
        reliability_section(result),
        exposed_section(result),
        examples_section(result),
        pictures_section(result),
        groups_section(result),
        frontier_section(result) if more else None,
        advice_section(result) if more else None,
        _all_figures(result),
    ]
    shown = [_folded_section(result, section) for section in filled if section is not None]
    missing = [f"{section.title}: {' '.join(map(str, section.blocks))}" for section in shown if section.kind == "empty"]
    why = (
        [Section("missing", "What is not shown, and why", [Points(missing)], "detail", folded=True)] if missing else []
    )
    return [*(section for section in shown if section.kind != "empty"), *why]


def _folded_section(result: AuditResult, section: Section) -> Section:
    """Return a section with plots of few units folded, and folded as a whole where it holds what few look for."""
    few = max((record["n"] or 0 for record in result.overviews), default=0) < _PLOTTED

    def blocks() -> Iterator[Block]:
        folded = few
        for block in section.blocks:
            yield replace(block, folded=folded) if isinstance(block, Plot) else block
            folded = folded or isinstance(block, Plot)

    kind = "detail" if section.kind == "plain" else section.kind
    return replace(section, blocks=list(blocks()), kind=kind, folded=section.name in _BEHIND)


def _threat_model(result: AuditResult) -> Section:
    about = result.audit.about
    marked = [clean(name) for name in about.sensitive]
    sizes = {entry["batch_size"] for entry in result.overviews}
    facts = [
        *(clean(fact, 600) for fact in result.audit.threat_model()),
        *([f"The {about.size} is {next(iter(sizes))} in all configurations."] if len(sizes - {None}) == 1 else []),
        *(as_sentence(clean(note, 200)) for note in about.notes),
        f"Columns marked as sensitive (★): {listed(marked[:20])}{', ...' if len(marked) > 20 else ''}."
        if marked
        else "No column is marked as sensitive, so none is singled out below.",
    ]
    words = (
        "Every figure below holds under these assumptions. A low figure means that these attacks found little, "
        "not that nothing can be found."
    )
    run = {part.part.name for part in result.audit.parts if part.kind == "attack"}
    lines = [
        {
            "attack": entry.attack,
            "applies": "yes" if entry.applies else "no",
            "run": "yes" if entry.attack in run else "no",
            "sees": " or ".join(map(view_in_words, entry.sees)),
            "needs": ", ".join(NEEDS[need] for need in entry.needs),
            "why": entry.reason,
        }
        for entry in result.grid
    ]
    titles = {"attack": "Attack", "applies": "Applies", "run": "Run here", "sees": "Sees", "needs": "Needs"}
    columns = [grids.text(title, key) for key, title in titles.items()]
    why = grids.text("Why it does not apply", "why", 300)
    named = [grids.text("Name", "name"), grids.text("What it does", "does", 300), grids.text("Source", "source", 300)]
    tables = [
        (result.names, "Attacks and defenses of this audit", named),
        (lines, "Attacks and whether they apply to this deployment", [*columns, why]),
    ]
    return Section(
        "threat-model",
        "Threat model and attacks that apply",
        [
            words,
            Folded(f"What the attacker sees and knows, and what was set up ({len(facts)} points)", [Points(facts)]),
            *(folded_grid(grids.filled(caption, columns, rows)) for rows, caption, columns in tables if rows),
        ],
    )


def _checks_section(result: AuditResult) -> Section:
    shown = sorted(result.all_findings, key=lambda finding: SEVERITIES.index(finding.severity))
    notes = [remark(finding) for finding in shown if finding.severity == "note"]
    serious = [remark(finding) for finding in shown if finding.severity != "note"]
    blocks: list[Block] = [Remarks(serious)] if serious else []
    if notes:
        blocks.append(Folded(f"Notes ({len(notes)}): {'; '.join(note.title for note in notes)}", [Remarks(notes)]))
    if result.findings is None:
        blocks.append("The checks were not run, so nothing is known against these figures or for them.")
    elif not shown:
        blocks.append("No check found anything to object to.")
    blocks += [_positive_control(result), _negative_control(result)]
    omitted = [{"code": code, "title": CHECKS[code].title, "why": why} for code, why in result.not_applicable.items()]
    if omitted:
        why = grids.text("Why it does not apply", "why", 300)
        columns = [grids.text("Code", "code"), grids.text("Check", "title"), why]
        blocks.append(folded_grid(grids.grid("Checks that do not apply to this audit", columns, omitted)))
    return Section("checks", "Checks of this audit", blocks, kind="findings")


def _attacks_of(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Return the accuracies of a control's attacks over all cells."""
    return [row for row in pick(rows, metric="accuracy", column=None, kind="attack") if row.mean is not None]


def _positive_control(result: AuditResult) -> str:
    """Return what the positive control showed."""
    unknown = "Nothing shows that the attacks work on this table at all."
    if result.control is None:
        small = result.audit.too_small_for_control
        none = "The table has too few rows for it." if small else "There is none for this audit."
        reason = none if result.audit.spec.control else "It was switched off."
        return f"Positive control: none. {reason} {unknown}"
    controls = {
        row.attack: (row, share) for row in _attacks_of(result.control) if (share := control_share(row)) is not None
    }
    if not controls:
        return f"Positive control: no result. {unknown}"
    figures = [
        f"{clean(name)} reads {percent(row.mean)} and closes {percent(share)} of the gap"
        for name, (row, share) in controls.items()
    ]
    failed = [clean(name) for name, (row, _) in controls.items() if broken(row)]
    few = [clean(name) for name, (row, _) in controls.items() if not leaks(row) and not broken(row)]
    ending = (
        f"Something is wrong with {listed(failed)} or its options; the data are not shown to be safe."
        if failed
        else f"Too few repetitions show that {listed(few)} works."
        if few
        else f"So the {'attack works' if len(controls) == 1 else 'attacks work'} here."
    )
    return (
        f"Positive control: {result.audit.about.control} Of what is planted there, {listed(figures)} between the best "
        f"baseline and certainty. {ending}"
    )


def _negative_control(result: AuditResult) -> str:
    """Return what the negative control showed."""
    if result.negative is None:
        return f"Negative control: none was run. {result.audit.no_negative}".rstrip()
    rows = [row for row in _attacks_of(result.negative) if row.lift is not None]
    if not rows:
        return "Negative control: no result."
    figures = [f"{clean(row.attack)} {points(row.lift)}" for row in rows]
    over = [clean(row.attack) for row in rows if exceeds_by_more_than_chance(row, len(rows))]
    ending = (
        f"So {listed(over)} finds what is not there, and its figures cannot be relied on."
        if over
        else "No attack clearly exceeds the best baseline there, as it should be."
    )
    return (
        "Negative control: the messages carry nothing of what is scored. The lift over the best baseline, in points, "
        f"is: {listed(figures)}. {ending}"
    )


def _all_figures(result: AuditResult) -> Section:
    """Return all figures as one folded table, those of whole configurations before those of columns."""
    names = {row.column for row in result.rows} - {None}
    wide = len(names) > MOST_COLUMNS
    each = sum(row.column is not None for row in result.rows) / max(1, len(names))
    most = max(1, min(MOST_COLUMNS, int(_MOST_OF_WIDE / each))) if wide else len(names)
    # Of each configuration in turn, the column of which it gives away most.
    by_place = itertools.zip_longest(*(columns[:most] for columns in result.by_column.values()))
    shown = [*dict.fromkeys(record["column"] for place in by_place for record in place if record is not None)][:most]
    ordered = sorted(
        (row for row in result.rows if not wide or row.column is None or row.column in shown),
        key=lambda row: row.column is not None,
    )
    table = grids.filled(
        "Every figure of this audit",
        [
            grids.text("Metric", "metric"),
            grids.text("Column", "column"),
            *setting_columns(result),
            attack_column(result),
            grids.number("Mean", "mean"),
            grids.interval("95% interval", scale=1.0),
            grids.number("Std", "std"),
            grids.count("n", "n"),
            grids.number("Best baseline", "baseline"),
            grids.text("which", "baseline_name"),
            grids.number("Lift", "lift"),
            grids.interval("Interval of lift", "lift_low", "lift_high", scale=1.0),
            grids.number("Seconds", "seconds_per_victim"),
            grids.text("Status", "status"),
        ],
        [row.as_dict() for row in ordered[:MOST_LINES]],
        cut_columns(len(names), len(shown)) if wide else cut(len(ordered)),
    )
    words = "Rates are shares of 1. results.json and results.csv beside this file hold the same with all settings."
    return Section("all", "All figures", [words, folded_grid(table, filed=True)])
