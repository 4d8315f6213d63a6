"""Columns of tables made of records, and the columns that tables of audits share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from seepage.report.document import MISSING, TEXT, Column, Grid, GridCell
from seepage.report.figures import MOST_COLUMNS
from seepage.report.frames import Record
from seepage.report.result import AuditResult
from seepage.results.verdict import GRAVITY, NOT_REACHED, style_of
from seepage.text import clean, percent, points, span

LONGEST = 80
_NOTHING = GridCell(MISSING, None, "missing")


def spare(column: Column) -> Column:
    """Return a column that is left out where there is little room."""
    return replace(column, spare=True)


def joining(column: Column, joins: str = "{}") -> Column:
    """Return a column that stands in the cells of the column before it where there is little room."""
    return replace(column, joins=joins)


def grid(caption: str, columns: Sequence[Column], records: Sequence[Record], note: str | None = None) -> Grid:
    """Return a table of records."""
    return Grid(caption, columns, [[column.cell(record) for column in columns] for record in records], note)


def filled(caption: str, columns: Sequence[Column], records: Sequence[Record], note: str | None = None) -> Grid:
    """Return a table of records without the columns that are missing in all of them."""
    whole = grid(caption, columns, records, note)
    places = [i for i in range(len(columns)) if i == 0 or any(row[i].sort is not None for row in whole.rows)]
    rows = [[row[i] for i in places] for row in whole.rows]
    return replace(whole, columns=[columns[i] for i in places], rows=rows)


def text(
    title: str, key: str, longest: int = LONGEST, mark: str | None = None, marks: Mapping[str, str] | None = None
) -> Column:
    """Return a column of texts; a text is followed by ``mark`` where that field is true, or by its own of ``marks``."""

    def cell(record: Record) -> GridCell:
        value = record[key]
        if value is None or value == "":
            return _NOTHING
        shown = clean(value, longest)
        behind = mark if mark is not None and record[mark] else (marks or {}).get(value)
        return GridCell(shown, shown, behind="" if behind is None else f"({behind})")

    return Column(title, cell, TEXT)


def count(title: str, key: str) -> Column:
    """Return a column of whole numbers."""
    return _numbers(title, key, lambda value: f"{value:,}")


def number(title: str, key: str, digits: int = 3) -> Column:
    """Return a column of numbers with so many significant digits."""
    return _numbers(title, key, lambda value: f"{value:.{digits}g}")


def share(title: str, key: str, digits: int = 1) -> Column:
    """Return a column of rates, in percent."""
    return _numbers(title, key, lambda value: percent(value, digits))


def gain(title: str, key: str) -> Column:
    """Return a column of differences of rates, in percentage points."""
    return _numbers(title, key, points)


def _numbers(title: str, key: str, shown: Callable[[float], str]) -> Column:
    def cell(record: Record) -> GridCell:
        value = record[key]
        if value is None or not math.isfinite(value):
            return _NOTHING
        return GridCell(shown(value), float(value))

    return Column(title, cell)


def interval(title: str, low: str = "low", high: str = "high", scale: float = 100.0) -> Column:
    """Return a column of intervals of rates, in percent (or points), sorted by the lower end."""

    def cell(record: Record) -> GridCell:
        if record[low] is None or record[high] is None:
            return _NOTHING
        shown = span(record[low], record[high])
        return GridCell(shown if scale == 100.0 else f"[{record[low]:.4g}, {record[high]:.4g}]", float(record[low]))

    return joining(Column(title, cell))


def tier(title: str, key: str = "tier") -> Column:
    """Return a column of verdicts, sorted from mild to grave."""

    def cell(record: Record) -> GridCell:
        value = record[key]
        if value is None:
            return _NOTHING
        # What was not reached comes before the mildest.
        return GridCell(value, float((NOT_REACHED, *GRAVITY).index(value)), f"tier {style_of(value)}")

    return Column(title, cell, TEXT)


MOST_LINES = 2000
"""Rows of the table of all figures."""


def setting_columns(result: AuditResult) -> list[Column]:
    """Return the columns that tell the configurations of an audit apart."""
    sizes = [count(result.audit.about.size.capitalize(), "batch_size")] if result.sized else []
    return (
        [*sizes, text("Defense", "defense", marks=result.audit.about.marks)] if result.defended or not sizes else sizes
    )


def score_columns(result: AuditResult, baseline: bool = True) -> list[Column]:
    """Return the columns of a share that was read, beside the best baseline where that is no row of its own."""
    best = [share("Best baseline", "baseline"), joining(text("which", "baseline_name"))]
    return [
        share("Read", "mean"),
        interval("95% interval"),
        *(best if baseline else []),
        gain("Lift (points)", "lift"),
        spare(interval("Interval of lift", "lift_low", "lift_high")),
        *([] if baseline else [joining(text("over", "baseline_name"), "over {}")]),
        tier("Verdict"),
        spare(count(result.units, "n")),
    ]


def attack_column(result: AuditResult) -> Column:
    """Return the column of attacks and baselines with their remarks."""
    return text("Attack or baseline", "attack", marks=result.audit.about.marks)


def closed_columns() -> list[Column]:
    """Return the columns of closed gaps."""
    return [share("Read of what guessing misses", "closed"), interval("its 95% interval", "closed_low", "upper")]


def task_columns(task: str, error: bool) -> list[Column]:
    """Return the columns of how well the task is learnt."""
    learnt = number if error else share
    return [learnt(task, "task"), interval("its interval", "task_low", "task_high", 1.0 if error else 100.0)]


def canary_columns() -> list[Column]:
    """Return the columns of the epsilon of one message, in closed form and by canaries."""
    return [
        number("Epsilon of one message", "message_epsilon"),
        number("Canaries show at least", "measured_low"),
        number("and at most", "measured_high"),
    ]


def where(result: AuditResult, record: Record) -> str:
    """Return the attack and the configuration of a record."""
    return f"{clean(record['attack'])}, {result.label((record['batch_size'], record['defense']))}"


def cut_columns(count: int, shown: int = MOST_COLUMNS) -> str | None:
    """Return a note on a table that shows only the most exposed columns; None where it shows all columns."""
    if count <= shown:
        return None
    return f"The {shown} of {count:,} columns of which most is read; results.csv beside this file has all of them."


def cut(count: int) -> str | None:
    """Return a note on a table that does not show all rows; None where it shows all."""
    if count <= MOST_LINES:
        return None
    return f"The first {MOST_LINES:,} of {count:,}; results.csv beside this file has all of them."
