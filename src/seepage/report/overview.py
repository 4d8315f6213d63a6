"""The answer of an audit: its verdict, what each configuration leaves, what to do, and what to doubt."""

from __future__ import annotations

from dataclasses import replace

from seepage.assessment.task import is_error
from seepage.report import grids
from seepage.report.advice import ToDo, what_to_do
from seepage.report.answer import FEW, done, in_hundred, rounded_up, what_is_missed
from seepage.report.cells import truth_and_guess
from seepage.report.document import (
    MISSING,
    Aside,
    Block,
    Box,
    Command,
    Conclusion,
    Flows,
    Folded,
    Grid,
    GridCell,
    Rated,
    Remark,
    Remarks,
    Ruler,
    RulerLine,
    Section,
    heads,
    rows_of,
)
from seepage.report.frames import Record, setting_of, task_name
from seepage.report.grids import closed_columns, setting_columns, spare
from seepage.report.result import AuditResult
from seepage.report.summary import NOT_TRIED, READING, flows, headline, summary
from seepage.results.checks.finding import Finding, explanation, few_of
from seepage.results.verdict import BOUNDS, GRAVITY, NOT_REACHED, UNDEFENDED, style_of
from seepage.run.limits import by_units
from seepage.tabular.infer import Inferred
from seepage.text import capitalised, clean, how_many, listed, lowered, percent, span

# Cells of the example record, those of sensitive columns first.
_CELLS = 5
_LONGEST_LINE = 160


def verdict_section(result: AuditResult) -> Section:
    """Return the verdict on every configuration."""
    about, head = result.audit.about, headline(result)
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
            *map(spare, closed_columns()),
            spare(grids.share("Whole records", "exact")),
            spare(grids.share("Label read", "label_mean")),
            spare(grids.tier("Verdict on the label", "label_tier")),
            spare(grids.count(result.units, "n")),
        ],
        result.overviews,
    )
    # Elsewhere it is said how a verdict is read.
    words = summary(result, reading=False).split("\n\n")
    if result.decision is not None:
        words.insert(0, capitalised(result.decision.line))
    steps, record = what_to_do(result), example(result)
    return Section(
        "verdict",
        f"What {lowered(about.attacker)} learns",
        [
            Conclusion(head.tier, style_of(head.tier), head.sentences),
            *([Rated(head.beside)] if head.beside else []),
            *([Box("What to do", _to_do(steps))] if steps else []),
            Flows(flows(result)),
            _ruler(result),
            *([] if record is None else [record]),
            Aside(_not_tested(result)),
            table,
            Folded("What these words and figures mean", [Aside(READING)]),
            Folded("Each configuration in sentences", words),
        ],
        kind="verdict",
    )


def answer_sections(result: AuditResult) -> list[Section]:
    """Return the answer in as much as one screen holds: verdict, configurations, what to do, and serious findings."""
    head, steps = headline(result), what_to_do(result)
    untried = [(tier, clean(words, _LONGEST_LINE)) for tier, words in head.beside if tier == NOT_TRIED]
    verdict = Conclusion(head.tier, style_of(head.tier), head.sentences)
    answer = [Section("verdict", "", [verdict, _ruler(result), *([Rated(untried)] if untried else [])])]
    if steps:
        answer.append(Section("action", "What to do", _to_do(steps)))
    if serious := [remark(finding) for finding in result.all_findings if finding.severity != "note"]:
        title = f"Checks of this audit: {how_many(len(serious), 'finding')}"
        answer.append(Section("checks", title, [Remarks(serious, short=True)]))
    return answer


def remark(finding: Finding) -> Remark:
    """Return a finding with why it matters and what to do."""
    concerns = ", ".join(few_of([repr(clean(name, 30)) for name in finding.columns]))
    title, message = clean(finding.title, 400), clean(finding.message, 2000)
    return Remark(finding.severity, clean(finding.code), title, message, concerns, explanation(finding.code))


def _to_do(steps: ToDo) -> list[Block]:
    return [*steps.sentences, *(Command(words, command) for words, command in steps.commands)]


def _ruler(result: AuditResult) -> Ruler:
    lines = [
        RulerLine(
            result.label(setting_of(overview), in_words=True),
            overview["closed"],
            overview["closed_low"],
            overview["upper"],
            overview["tier"],
        )
        for overview in result.attacked
    ]
    alone = len(result.attacked) < 2 and not result.frontier and not (result.attacked and result.not_reached)
    return Ruler(lines, BOUNDS, None if alone else _answers_grid(result))


def _answers_grid(result: AuditResult) -> Grid:
    """Return a line for each configuration: the verdict, what is read of what guessing misses, and the task.

    Where there is no room for all, those without a figure are left out first, then the mildest.
    """
    learnt = {setting_of(record): record for record in result.frontier}
    missed = " or ".join(dict.fromkeys(what_is_missed(result, record) for record in result.attacked))
    defended, tier, lines = result.defended or bool(result.not_reached), grids.tier("verdict"), []
    # That nothing was measured must not be taken for a good figure.
    nothing = dict.fromkeys(("attack", "closed", "exact")) | {"tier": NOT_REACHED}
    left = [{"batch_size": size, "defense": defense, **nothing} for size, defense in result.not_reached]
    for record in [*result.attacked, *left]:
        task = None if record in left else learnt.get(setting_of(record))
        defense = "no defense" if record["defense"] == UNDEFENDED else result.marked(record["defense"], 32)
        lines.append(
            [
                *([MISSING if record["batch_size"] is None else str(record["batch_size"])] if result.sized else []),
                *([defense] if defended else []),
                MISSING if record["attack"] is None else result.marked(record["attack"], 24),
                tier.cell(record),
                _read_of_100(result, record),
                percent(record["exact"], 0),
                *([_task_figure(task)] if learnt else []),
            ]
        )
    figures = [f"{done(result).split()[-1]}\nof 100", "whole\nrecords"]
    figures += [lowered(task_name(record["task_metric"])) for record in result.frontier[:1]]
    sizes = [result.audit.about.size.replace(" ", "\n")] if result.sized else []
    names = [*sizes, *(["defense"] if defended else []), "attack", "verdict", *figures]
    caption = f"Of 100 {missed} that an informed guess misses [95% interval]"
    ranks = [GRAVITY.index(record["tier"]) for record in result.attacked] + [-1] * len(left)
    columns = [
        spare(column) if column.title in ("attack", "whole\nrecords") else column
        for column in heads(*names, numbers=[*sizes, *figures])
    ]
    return Grid(caption, columns, rows_of(lines), ranks=ranks, rows_are="configuration")


def _read_of_100(result: AuditResult, record: Record) -> str:
    """Return how many of 100 are read, with the interval where there are units enough for one."""
    if record["closed"] is None:
        return MISSING
    read, wide = f"{in_hundred(record['closed'])}", record["n"] >= FEW or not by_units(result.audit.spec)
    if record["upper"] is None or not wide:
        return read
    return f"{read} [{in_hundred(record['closed_low'])}, {rounded_up(record['upper'])}]"


def _task_figure(record: Record | None) -> str:
    """Return how well the task is learnt: an error as it is, a rate in percent with its interval."""
    if record is None or record["task"] is None:
        return MISSING
    if is_error(record["task_metric"]):
        return f"{record['task']:.4g}"
    return f"{percent(record['task']).removesuffix('%')} {span(record['task_low'], record['task_high'])}".strip()


def _not_tested(result: AuditResult) -> str:
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
    lines = []
    for cell in cells:
        name = clean(cell.column, 32)
        lines.append([GridCell(name, name), *(replace(shown, behind="") for shown in truth_and_guess(cell, 32))])
    return Grid(caption, heads("", "As it was", "As it was read"), lines)
