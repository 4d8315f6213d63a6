"""A part of a report, and what several parts show alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from seepage.report import grids
from seepage.report.figures import Figure
from seepage.report.frames import Record
from seepage.report.grids import Grid
from seepage.report.result import AuditResult
from seepage.text import clean

MOST_ROWS = 2000
# Columns of a table that are shown, those of which most is read; beyond them a page would be too large.
MOST_COLUMNS = 40


@dataclass(frozen=True)
class Section:
    """One part of a page.

    Attributes:
        figures: each with the table of its data.
        kind: a word for parts with a layout of their own.
        extra: what that layout needs.
    """

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


def closed_gap(result: AuditResult) -> str:
    """Return the head of a column of closed gaps: where a label counts too, it is the larger of both."""
    both = any(record["label"] is not None and record["of"] is None for record in result.overviews)
    return "Gap closed, of cells or label" if both else "Gap closed"


def where(result: AuditResult, record: Record) -> str:
    """Return the attack and the configuration of a record."""
    return f"{clean(record['attack'])}, {result.label((record['batch_size'], record['defense']))}"


def cut_columns(count: int) -> str | None:
    """Return a note on a table that shows only the most exposed columns; None where it shows all columns."""
    if count <= MOST_COLUMNS:
        return None
    return (
        f"The {MOST_COLUMNS} of {count:,} columns of which most is read; results.csv beside this file has all of them."
    )


def cut(count: int) -> str | None:
    """Return a note on a table that does not show all rows; None where it shows all."""
    if count <= MOST_ROWS:
        return None
    return f"The first {MOST_ROWS:,} of {count:,}; results.csv beside this file has all of them."
