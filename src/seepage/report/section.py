"""A part of a report, and what several parts show alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from seepage.report import grids
from seepage.report.figures import MOST_COLUMNS, Figure
from seepage.report.frames import Record
from seepage.report.grids import Grid
from seepage.report.result import AuditResult
from seepage.text import clean

MOST_ROWS = 2000


@dataclass(frozen=True)
class Section:
    """One part of a page; ``kind`` is a word for parts with a layout of their own, which needs ``extra``."""

    name: str
    title: str
    words: Sequence[str] = ()
    points: Sequence[str] = ()
    figures: Sequence[tuple[Figure, Grid]] = ()
    grids: Sequence[Grid] = ()
    kind: str = "plain"
    extra: Mapping[str, object] = field(default_factory=dict)


def empty(name: str, title: str, why: str) -> Section:
    """Return a part that only says why there is nothing to show."""
    return Section(name, title, [why], kind="empty")


def setting_columns(result: AuditResult) -> list[grids.Column]:
    """Return the columns that tell the configurations of an audit apart."""
    sizes = [grids.count(result.audit.about.size.capitalize(), "batch_size")] if result.sized else []
    return (
        [*sizes, grids.text("Defense", "defense", marks=result.audit.about.marks)]
        if result.defended or not sizes
        else sizes
    )


def score_columns(result: AuditResult, baseline: bool = True) -> list[grids.Column]:
    """Return the columns of a share that was read, beside the best baseline where that is no row of its own."""
    return [
        grids.share("Read", "mean"),
        grids.interval("95% interval"),
        *([grids.share("Best baseline", "baseline"), grids.text("which", "baseline_name")] if baseline else []),
        grids.gain("Lift (points)", "lift"),
        grids.interval("Interval of lift", "lift_low", "lift_high"),
        *([] if baseline else [grids.text("over", "baseline_name")]),
        grids.tier("Leakage"),
        grids.count(result.units, "n"),
    ]


def attack_column(result: AuditResult) -> grids.Column:
    """Return the column of attacks and baselines with their remarks."""
    return grids.text("Attack or baseline", "attack", marks=result.audit.about.marks)


def closed_columns() -> list[grids.Column]:
    """Return the columns of closed gaps."""
    return [grids.share("Gap closed", "closed"), grids.interval("its 95% interval", "closed_low", "upper")]


def task_columns(task: str, error: bool) -> list[grids.Column]:
    """Return the columns of how well the task is learnt."""
    learnt = grids.number if error else grids.share
    return [learnt(task, "task"), grids.interval("its interval", "task_low", "task_high", 1.0 if error else 100.0)]


def canary_columns() -> list[grids.Column]:
    """Return the columns of the epsilon of one message, in closed form and by canaries."""
    return [
        grids.number("Epsilon of one message", "message_epsilon"),
        grids.number("Canaries show at least", "measured_low"),
        grids.number("and at most", "measured_high"),
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
