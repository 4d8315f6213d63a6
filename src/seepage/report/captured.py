"""What captured messages give away: parts of a page, and the same on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.table import Column
from rich.text import Text

from seepage.report import grids
from seepage.report.frames import Record
from seepage.report.grids import Grid, Section
from seepage.report.html import AuditPart, page
from seepage.report.result import AuditResult
from seepage.report.sections import sections
from seepage.report.terminal import make_table
from seepage.settings.captured import Findings, FindingsTable, Written
from seepage.text import clean, flattened

# Outcomes of an attack on an update, with the tier in whose colour a page marks each: nothing found is not shown to be
# safe, so that it has no colour.
_TIERS = {"proved": "whole", "estimated": "gain", "nothing": None, "not tried": "open", "failed": "open"}
_STYLES = {"tier whole": "bold red", "tier gain": "yellow", "tier open": "magenta"}
_LONGEST = 600


def show_sections(console: Console, parts: Sequence[Section]) -> None:
    """Print words, facts and tables of parts of a page, but no figures."""
    console.print()
    for section in parts:
        console.print(Text(section.title, "bold"))
        for words in section.words:
            console.print(Text(clean(words, 2000)))
        for point in section.points:
            console.print(Text(f"  · {clean(point, _LONGEST)}"))
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


def captured_sections(findings: Findings) -> list[Section]:
    """Return the sections of a report on captured messages; none holds a record."""
    return [
        Section(part.name, part.title, part.words, part.points, grids=[findings_grid(table) for table in part.tables])
        for part in findings.sections
    ]


def findings_grid(table: FindingsTable) -> Grid:
    """Return a table of findings."""
    columns = [_COLUMNS[form](title, key) for title, key, form in table.columns]
    return (grids.filled if table.sparse else grids.grid)(table.caption, columns, list(map(dict, table.records)))


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


def _outcome(title: str, key: str) -> grids.Column:
    """Return a column of outcomes, sorted by gravity."""

    def cell(record: Record) -> grids.GridCell:
        outcome = str(record[key])
        tier = _TIERS[outcome]
        return grids.GridCell(outcome, float(list(_TIERS).index(outcome)), None if tier is None else f"tier {tier}")

    return grids.Column(title, cell, grids.TEXT)


_COLUMNS: Mapping[Written, Callable[[str, str], grids.Column]] = {
    "text": lambda title, key: grids.text(title, key, _LONGEST),
    "long": lambda title, key: grids.Column(title, grids.text(title, key, _LONGEST).cell, "text wide"),
    "count": grids.count,
    "share": grids.share,
    "gain": grids.gain,
    "number": lambda title, key: grids.number(title, key, 4),
    "interval": lambda title, _: grids.interval(title, scale=1.0),
    "share_interval": lambda title, _: grids.interval(title),
    "outcome": _outcome,
}
