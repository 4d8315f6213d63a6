"""The first screen of an audit beside verdict and action: an example record, and what was not tested."""

from __future__ import annotations

from dataclasses import replace

from seepage.report import grids
from seepage.report.cells import truth_and_guess
from seepage.report.frames import setting_of
from seepage.report.grids import Grid, GridCell
from seepage.report.result import AuditResult
from seepage.results.checks.wording import few_of
from seepage.results.examples import Cell
from seepage.tabular.infer import Inferred
from seepage.text import clean, listed

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
