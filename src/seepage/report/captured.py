"""What captured messages give away, as a document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from seepage.report import grids
from seepage.report.document import TEXT, Block, Column, Document, Grid, GridCell, Points, Section
from seepage.report.frames import Record
from seepage.report.result import AuditResult
from seepage.report.sections import audit_document, notice_of, provenance_section
from seepage.settings.findings import Findings, FindingsTable, Written
from seepage.text import clean

# Outcomes of an attack on an update, with the tier in whose colour each is marked: nothing found is not shown to be
# safe, so that it has no colour.
_TIERS = {"proved": "whole", "estimated": "gain", "nothing": None, "not tried": "open", "failed": "open"}
_LONGEST = 600


def captured_document(
    findings: Findings, report: AuditResult | None = None, provenance: Mapping[str, object] | None = None
) -> Document:
    """Return what was found and, where it was scored, the audit of it; without any record.

    ``report`` is None where nothing could be attacked.
    """
    audit = Document("Captured updates", []) if report is None else audit_document(report)
    parts = [*captured_sections(findings), *audit.sections, provenance_section(provenance or {})]
    return Document(audit.title, parts, lead=audit.lead, notice=notice_of(confidential=True, records=True))


def read_document(findings: Findings) -> Document:
    """Return what was found and the first records that were read, for those who may see them."""
    records = [] if findings.records is None else [Section("records", "", [_grid(findings.records)])]
    return Document("Captured messages", [*captured_sections(findings), *records])


def captured_sections(findings: Findings) -> list[Section]:
    """Return the sections on captured messages; none holds a record."""
    sections = []
    for part in findings.sections:
        blocks: list[Block] = [clean(words, 2000) for words in part.words]
        if part.points:
            blocks.append(Points([clean(point, _LONGEST) for point in part.points]))
        sections.append(Section(part.name, part.title, [*blocks, *map(_grid, part.tables)]))
    return sections


def _grid(table: FindingsTable) -> Grid:
    columns = [_COLUMNS[form](title, key) for title, key, form in table.columns]
    grid = (grids.filled if table.sparse else grids.grid)(table.caption, columns, [*map(dict, table.records)])
    return replace(grid, most=None)


def _outcome(title: str, key: str) -> Column:
    """Return a column of outcomes, sorted by gravity."""

    def cell(record: Record) -> GridCell:
        outcome = str(record[key])
        tier = _TIERS[outcome]
        return GridCell(outcome, float(list(_TIERS).index(outcome)), None if tier is None else f"tier {tier}")

    return Column(title, cell, TEXT)


_COLUMNS: Mapping[Written, Callable[[str, str], Column]] = {
    "text": lambda title, key: grids.text(title, key, _LONGEST),
    "long": lambda title, key: replace(grids.text(title, key, _LONGEST), align="text wide"),
    "count": grids.count,
    "share": grids.share,
    "gain": grids.gain,
    "number": lambda title, key: grids.number(title, key, 4),
    "interval": lambda title, _: grids.interval(title, scale=1.0),
    "share_interval": lambda title, _: grids.interval(title),
    "outcome": _outcome,
}
