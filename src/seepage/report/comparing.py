"""The page of two runs side by side."""

from __future__ import annotations

from collections.abc import Sequence

from seepage.report import figures, grids
from seepage.report.frames import Record
from seepage.report.grids import Grid
from seepage.report.html import page
from seepage.results.compare import Comparison, by_column, in_words, label, overall
from seepage.results.gate import Decision
from seepage.text import capitalised, clean

MOST_ROWS = 3000


def render_comparison(comparison: Comparison, decision: Decision | None = None) -> str:
    """Return the comparison, and the decision if one was asked for, as one page in the look of reports."""
    line = [] if decision is None else [capitalised(decision.line)]
    parts = {
        "overall-figure": ("Cells read in both runs, with 95% intervals", overall(comparison)),
        "columns-figure": (
            "Columns, those that differ clearly first and then by the size of the difference",
            by_column(comparison),
        ),
    }
    drawings: list[tuple[figures.Figure, Grid]] = []
    for name, (title, records) in parts.items():
        if records:
            drawn = [{**record, "label": _line(record)} for record in records]
            figure = figures.differences(name, drawn, comparison.names, title)
            shown = records if name == "overall-figure" else records[:MOST_ROWS]
            drawings.append((figure, _grid(title, comparison, shown, rates=True)))
    return page(
        "compare.html",
        f"{comparison.names[0]} and {comparison.names[1]}",
        names=comparison.names,
        words=[*line, *in_words(comparison)],
        drawings_of=drawings,
        differing=_differences_grid(comparison),
        everything=_grid("Every figure that both runs have", comparison, comparison.records[:MOST_ROWS], rates=False),
        left_out=max(0, len(comparison.records) - MOST_ROWS),
    )


def _line(record: Record) -> str:
    return label(record) if record["column"] is None else f"{clean(record['column'], 24)} · {label(record)}"


def _differences_grid(comparison: Comparison) -> Grid:
    records = [{"entry": name, "a": record, "b": other} for name, record, other in comparison.differing]
    columns = [
        grids.text("Entry", "entry", 120),
        grids.text(comparison.names[0], "a", 200),
        grids.text(comparison.names[1], "b", 200),
    ]
    return grids.grid("What differs in spec and provenance, but for the time", columns, records)


def _grid(caption: str, comparison: Comparison, records: Sequence[Record], rates: bool) -> Grid:
    flat = [
        {
            **record,
            **{f"{side}_{name}": record[side][name] for side in ("a", "b") for name in ("mean", "low", "high", "n")},
            "clearly": "yes" if record["clear"] else "no",
        }
        for record in records
    ]
    first, second = comparison.names
    figure = grids.share if rates else grids.number
    scale = 100.0 if rates else 1.0
    columns = [
        *([] if rates else [grids.text("Metric", "metric")]),
        grids.text("Column", "column"),
        grids.text("Attack or baseline", "attack"),
        grids.count("Batch size", "batch_size"),
        grids.text("Defense", "defense"),
        figure(first, "a_mean"),
        grids.interval("its interval", "a_low", "a_high", scale),
        figure(second, "b_mean"),
        grids.interval("its interval", "b_low", "b_high", scale),
        (grids.gain if rates else grids.number)("Difference", "difference"),
        grids.interval("Interval of difference", "difference_low", "difference_high", scale),
        grids.text("Clear", "clearly"),
        grids.count("n", "a_n"),
        grids.count("n", "b_n"),
    ]
    return grids.filled(caption, columns, flat)
