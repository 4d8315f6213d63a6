"""Tables as data, and the sections of a report that hold them. Nothing here is HTML; templates escape all of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from seepage.report.figures import MOST_COLUMNS, Figure
from seepage.report.frames import Record
from seepage.report.result import AuditResult
from seepage.results.verdict import GRAVITY, NOT_REACHED, style_of
from seepage.text import clean, percent, points, span

LONGEST = 80
NUMBER = "number"
TEXT = "text"
MISSING = "–"


@dataclass(frozen=True)
class GridCell:
    """One cell; a missing value (``sort`` is None) sorts last either way, and ``kind`` is a word for its style."""

    text: str
    sort: float | str | None
    kind: str | None = None
    behind: str = ""


@dataclass(frozen=True)
class Column:
    """One column; ``number`` columns stand to the right."""

    title: str
    cell: Callable[[Record], GridCell]
    align: str = NUMBER


def heads(titles: Sequence[str]) -> list[Column]:
    """Return the columns of a table whose cells are not made of records."""
    return [Column(title, lambda _: GridCell(MISSING, None, "missing"), TEXT) for title in titles]


@dataclass(frozen=True)
class Grid:
    """A table with its caption; the first column names the row, and a page shows a ``folded`` one when asked to."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[GridCell]]
    note: str | None = None
    folded: bool = False


def grid(
    caption: str, columns: Sequence[Column], records: Sequence[Record], note: str | None = None, folded: bool = False
) -> Grid:
    """Return a table of records."""
    return Grid(caption, columns, [[column.cell(record) for column in columns] for record in records], note, folded)


def filled(
    caption: str, columns: Sequence[Column], records: Sequence[Record], note: str | None = None, folded: bool = False
) -> Grid:
    """Return a table of records without the columns that are missing in all of them."""
    filled_grid = grid(caption, columns, records, note)
    places = [i for i in range(len(columns)) if i == 0 or any(row[i].sort is not None for row in filled_grid.rows)]
    rows = [[row[i] for i in places] for row in filled_grid.rows]
    return Grid(caption, [columns[i] for i in places], rows, note, folded)


def text(
    title: str, key: str, longest: int = LONGEST, mark: str | None = None, marks: Mapping[str, str] | None = None
) -> Column:
    """Return a column of texts; a text is followed by ``mark`` where that field is true, or by its own of ``marks``."""

    def cell(record: Record) -> GridCell:
        value = record[key]
        if value is None or value == "":
            return GridCell(MISSING, None, "missing")
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
            return GridCell(MISSING, None, "missing")
        return GridCell(shown(value), float(value))

    return Column(title, cell)


def interval(title: str, low: str = "low", high: str = "high", scale: float = 100.0) -> Column:
    """Return a column of intervals of rates, in percent (or points), sorted by the lower end."""

    def cell(record: Record) -> GridCell:
        if record[low] is None or record[high] is None:
            return GridCell(MISSING, None, "missing")
        if scale == 100.0:
            return GridCell(span(record[low], record[high]), float(record[low]))
        return GridCell(f"[{record[low]:.4g}, {record[high]:.4g}]", float(record[low]))

    return Column(title, cell)


def gap_interval(title: str, low: str, high: str) -> Column:
    """Return a column of intervals of shares of a gap, in percent, sorted by the lower end."""

    def cell(record: Record) -> GridCell:
        if record[low] is None or record[high] is None:
            return GridCell(MISSING, None, "missing")
        return GridCell(span(record[low], record[high]), float(record[low]))

    return Column(title, cell)


def tier(title: str, key: str = "tier") -> Column:
    """Return a column of verdicts, sorted from mild to grave."""

    def cell(record: Record) -> GridCell:
        value = record[key]
        if value is None:
            return GridCell(MISSING, None, "missing")
        # What was not reached comes before the mildest.
        return GridCell(value, float((NOT_REACHED, *GRAVITY).index(value)), f"tier {style_of(value)}")

    return Column(title, cell, TEXT)


MOST_ROWS = 2000


@dataclass(frozen=True)
class Section:
    """One part of a page.

    ``kind`` is a word for parts with a layout of their own, which needs ``extra``. Of a ``folded`` part a page shows
    the title until it is opened, and of points under a title, ``points_under``, that title.
    """

    name: str
    title: str
    words: Sequence[str] = ()
    points: Sequence[str] = ()
    figures: Sequence[tuple[Figure, Grid]] = ()
    grids: Sequence[Grid] = ()
    kind: str = "plain"
    folded: bool = False
    points_under: str | None = None
    extra: Mapping[str, object] = field(default_factory=dict)


def empty(name: str, title: str, why: str) -> Section:
    """Return a part that only says why there is nothing to show."""
    return Section(name, title, [why], kind="empty")


def setting_columns(result: AuditResult) -> list[Column]:
    """Return the columns that tell the configurations of an audit apart."""
    sizes = [count(result.audit.about.size.capitalize(), "batch_size")] if result.sized else []
    return (
        [*sizes, text("Defense", "defense", marks=result.audit.about.marks)] if result.defended or not sizes else sizes
    )


def score_columns(result: AuditResult, baseline: bool = True) -> list[Column]:
    """Return the columns of a share that was read, beside the best baseline where that is no row of its own."""
    return [
        share("Read", "mean"),
        interval("95% interval"),
        *([share("Best baseline", "baseline"), text("which", "baseline_name")] if baseline else []),
        gain("Lift (points)", "lift"),
        interval("Interval of lift", "lift_low", "lift_high"),
        *([] if baseline else [text("over", "baseline_name")]),
        tier("Verdict"),
        count(result.units, "n"),
    ]


def attack_column(result: AuditResult) -> Column:
    """Return the column of attacks and baselines with their remarks."""
    return text("Attack or baseline", "attack", marks=result.audit.about.marks)


def closed_columns() -> list[Column]:
    """Return the columns of closed gaps."""
    return [share("Read of what guessing misses", "closed"), gap_interval("its 95% interval", "closed_low", "upper")]


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
    if count <= MOST_ROWS:
        return None
    return f"The first {MOST_ROWS:,} of {count:,}; results.csv beside this file has all of them."
