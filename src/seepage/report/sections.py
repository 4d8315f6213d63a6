"""The parts of a report in the order in which they are read: words, figures and tables.

Parts whose data do not exist are listed at the end with the reason; nothing is said of them where an audit keeps
nothing of the kind.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from seepage.assessment.row import ResultRow
from seepage.report import grids
from seepage.report.advice import what_to_do
from seepage.report.cells import examples_section, exposed_section, groups_section, reliability_section, truth_and_guess
from seepage.report.frames import setting_of
from seepage.report.grids import (
    MOST_COLUMNS,
    MOST_ROWS,
    Grid,
    GridCell,
    Section,
    attack_column,
    closed_columns,
    cut,
    cut_columns,
    setting_columns,
)
from seepage.report.leakage import (
    advice_section,
    columns_section,
    frontier_section,
    labels_section,
    leakage_section,
    pictures_section,
)
from seepage.report.questions import questions_section
from seepage.report.result import AuditResult, Cell
from seepage.report.summary import READING, flows, headline, summary
from seepage.results.checks.every import CHECKS
from seepage.results.checks.facts import broken, control_share, exceeds_by_more_than_chance, leaks
from seepage.results.checks.finding import SEVERITIES, explanation, few_of
from seepage.results.verdict import BOUNDS, pick
from seepage.settings.catalogue import view_in_words
from seepage.settings.threat_model import NEEDS
from seepage.tabular.infer import Inferred
from seepage.text import as_sentence, clean, listed, lowered, percent, points

# Number of figures of columns in the table of all figures, where a table has many columns.
_MOST_OF_WIDE = 500


@dataclass(frozen=True)
class Ruler:
    """One line of the scale of verdicts: the closed gap and the ends of its 95% interval."""

    label: str
    closed: float | None
    lower: float | None
    upper: float | None
    tier: str


def sections(result: AuditResult) -> list[Section]:
    """Return all parts of one audit's report; those on what else could be run only where something else can be."""
    scored, more = bool(result.attacked), result.audit.repeatable
    filled = [
        verdict_section(result) if scored or more else None,
        _threat_model(result),
        _checks(result),
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
        _all(result),
    ]
    filled = [_folded(result, section) for section in filled if section is not None]
    return [*(section for section in filled if section.kind != "empty"), *_missing(filled)]


# Fewest units of which a plot is shown at once.
_PLOTTED = 10
# What an answer does not need: pages show the titles of these parts until they are opened.
_BEHIND = ("questions", "reliability", "exposed", "examples", "groups", "advice")


def _folded(result: AuditResult, section: Section) -> Section:
    """Return a part with plots of few units folded, and folded as a whole where it holds what few look for."""
    few = max((record["n"] or 0 for record in result.overviews), default=0) < _PLOTTED
    figures = [(replace(figure, folded=few or i > 0), table) for i, (figure, table) in enumerate(section.figures)]
    return replace(section, figures=figures, folded=section.name in _BEHIND)


def _missing(all_sections: Sequence[Section]) -> list[Section]:
    """Return a section that lists empty sections with the reason for each; no section where none is empty."""
    reasons = [f"{section.title}: {' '.join(section.words)}" for section in all_sections if section.kind == "empty"]
    return [Section("missing", "What is not shown, and why", points=reasons, folded=True)] if reasons else []


def anchored(section: Section, prefix: str) -> Section:
    """Return a part whose anchors, and those of its figures, are unique on a page of several audits."""
    figures = [(replace(figure, name=f"{prefix}figure-{figure.name}"), table) for figure, table in section.figures]
    return replace(section, name=f"{prefix}{section.name}", figures=figures)


def verdict_section(result: AuditResult) -> Section:
    """Return the verdict on every configuration."""
    about = result.audit.about
    both = any(record["label"] is not None and record["of"] is None for record in result.overviews)
    larger = ". What is read is that of these cells or of the label, whichever is more" if both else ""
    table = grids.filled(
        f"The strongest attack of each configuration, beside the best baseline: {clean(about.secret, 200)}{larger}",
        [
            *setting_columns(result),
            grids.tier("Verdict"),
            grids.text("Strongest attack", "attack"),
            grids.share("Read", "mean"),
            grids.interval("95% interval"),
            grids.share("Best baseline", "baseline"),
            grids.gain("Lift (points)", "lift"),
            *closed_columns(),
            grids.share("Whole records", "exact"),
            grids.share("Label read", "label_mean"),
            grids.tier("Verdict on the label", "label_tier"),
            grids.count(result.units, "n"),
        ],
        result.overviews,
    )
    ruler = [
        Ruler(
            result.label(setting_of(overview), in_words=True),
            overview["closed"],
            overview["closed_low"],
            overview["upper"],
            overview["tier"],
        )
        for overview in result.attacked
    ]
    # The page says elsewhere how a verdict is read.
    words = summary(result, reading=False).split("\n\n")
    if result.decision is not None:
        line = result.decision.line
        words.insert(0, f"{line[0].upper()}{line[1:]}")
    return Section(
        "verdict",
        f"What {lowered(about.attacker)} learns",
        grids=[table],
        kind="verdict",
        extra={
            "headline": headline(result),
            "action": what_to_do(result),
            "untested": not_tested(result),
            "example": example(result),
            "flows": flows(result),
            "ruler": ruler,
            "bounds": BOUNDS,
            "reading": READING,
            "summary": words,
        },
    )


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
    words = [
        "Every figure below holds under these assumptions. A low figure means that these attacks found little, "
        "not that nothing can be found."
    ]
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
    grid = grids.filled("Attacks and whether they apply to this deployment", [*columns, why], lines, folded=True)
    named = [grids.text("Name", "name"), grids.text("What it does", "does", 300), grids.text("Source", "source", 300)]
    named_parts = "Attacks and defenses of this audit"
    tables = [grids.filled(named_parts, named, names, folded=True)] if (names := result.names) else []
    tables += [grid] if lines else []
    title, under = "Threat model and attacks that apply", "What the attacker sees and knows, and what was set up"
    return Section("threat-model", title, words, facts, grids=tables, points_under=under)


def _checks(result: AuditResult) -> Section:
    shown = sorted(result.all_findings, key=lambda finding: SEVERITIES.index(finding.severity))
    codes = dict.fromkeys(finding.code for finding in shown)
    words = []
    if result.findings is None:
        words.append("The checks were not run, so nothing is known against these figures or for them.")
    elif not shown:
        words.append("No check found anything to object to.")
    omitted = [{"code": code, "title": CHECKS[code].title, "why": why} for code, why in result.not_applicable.items()]
    grid = grids.grid(
        "Checks that do not apply to this audit",
        [grids.text("Code", "code"), grids.text("Check", "title"), grids.text("Why it does not apply", "why", 300)],
        omitted,
        folded=True,
    )
    return Section(
        "checks",
        "Checks of this audit",
        [*words, _positive(result), _negative(result)],
        grids=[grid] if omitted else [],
        kind="findings",
        extra={"findings": shown, "explained": {code: words for code in codes if (words := explanation(code))}},
    )


def _attacks_of(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Return the accuracies of a control's attacks over all cells."""
    return [row for row in pick(rows, metric="accuracy", column=None, kind="attack") if row.mean is not None]


def _positive(result: AuditResult) -> str:
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


def _negative(result: AuditResult) -> str:
    """Return what the negative control showed."""
    if result.negative is None:
        return "Negative control: none was run."
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


def _all(result: AuditResult) -> Section:
    """Return all figures as one folded table, those of whole configurations before those of columns."""
    names = {row.column for row in result.rows} - {None}
    wide = len(names) > MOST_COLUMNS
    each = sum(row.column is not None for row in result.rows) / max(1, len(names))
    most = max(1, min(MOST_COLUMNS, int(_MOST_OF_WIDE / each))) if wide else len(names)
    # Of each configuration in turn, the column of which it gives away most.
    by_place = itertools.zip_longest(*(own[:most] for own in result.by_column.values()))
    worst = [*dict.fromkeys(record["column"] for place in by_place for record in place if record is not None)][:most]
    ordered = sorted(
        (row for row in result.rows if not wide or row.column is None or row.column in worst),
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
        [row.as_dict() for row in ordered[:MOST_ROWS]],
        cut_columns(len(names), len(worst)) if wide else cut(len(ordered)),
        folded=True,
    )
    words = ["Rates are shares of 1. results.json and results.csv beside this file hold the same with all settings."]
    return Section("all", "All figures", words, grids=[table])


# Cells of the example record, those of sensitive columns first.
_CELLS = 5


def not_tested(result: AuditResult) -> str:
    """Return the limits of the figures: attacks that were not run, and columns left out."""
    run = {part.part.name for part in result.audit.parts if part.kind == "attack"}
    further = sum(entry.applies and entry.attack not in run for entry in result.grid)
    others = f"{further} further known attack{'s' if further != 1 else ''}, listed below, and " if further else ""
    return " ".join([f"Not tested: {others}attacks that nobody has published.", *left_out(result.audit.inferred)])


def left_out(inferred: Inferred | None) -> list[str]:
    """Return the columns that the audit leaves out, in a sentence; empty for none."""
    columns = () if inferred is None else inferred.columns
    names = [clean(column.name) for column in columns if column.taken == "left out"]
    if not names:
        return []
    return [f"Left out of the audit: {listed(few_of(names))}."]


def example(result: AuditResult) -> Grid | None:
    """Return the first record as it was and as it was read; None where records are not shown or not kept."""
    record = result.reference
    if record is None or not result.open:
        return None
    place = (*setting_of(record), record["attack"])
    first = next((e for e in result.examples if (e.batch_size, e.defense, e.attack) == place), None)
    if first is None:
        return None
    sensitive = set(result.audit.about.sensitive)
    cells = sorted(first.cells, key=lambda cell: cell.column not in sensitive)[:_CELLS]
    caption = f"The first record: {sum(cell.right for cell in first.cells)} of {len(first.cells)} cells are right"
    return Grid(caption, grids.heads(["", "As it was", "As it was read"]), [_line(cell) for cell in cells])


def _line(cell: Cell) -> list[GridCell]:
    name = clean(cell.column, 32)
    return [GridCell(name, name), *(replace(read, behind="") for read in truth_and_guess(cell, 32))]
