"""Two runs side by side, as a document."""

from __future__ import annotations

from collections.abc import Sequence

from seepage.report import figures, grids
from seepage.report.document import Aside, Block, Document, Folded, Grid, Plot, Section
from seepage.report.frames import Record
from seepage.report.grids import joining, spare
from seepage.results.compare import Comparison, by_column, in_words, label, overall
from seepage.results.gate import Decision
from seepage.text import capitalised, clean

_MOST_RECORDS = 3000


def comparison_document(comparison: Comparison, decision: Decision | None = None) -> Document:
    """Return the comparison, and the decision if one was asked for."""
    line = [] if decision is None else [capitalised(decision.line)]
    parts = {
        "overall": ("Cells read in both runs, with 95% intervals", overall(comparison)),
        "columns": (
            "Columns, those that differ clearly first and then by the size of the difference",
            by_column(comparison),
        ),
    }
    plots: list[Block] = []
    for name, (title, records) in parts.items():
        if records:
            drawn = []
            for record in records:
                prefix = "" if record["column"] is None else f"{clean(record['column'], 24)} · "
                drawn.append({**record, "label": f"{prefix}{label(record)}"})
            figure = figures.differences(name, drawn, comparison.names, title)
            plots.append(Plot(figure, _grid(title, comparison, records[:_MOST_RECORDS], rates=True)))
    everything = _grid("Every figure that both runs have", comparison, comparison.records[:_MOST_RECORDS], rates=False)
    left_out = len(comparison.records) - _MOST_RECORDS
    more = [Aside(f"{left_out} more are left out; results.json of both runs has them.")] if left_out > 0 else []
    differing = _differences_grid(comparison)
    same = "Spec and provenance are the same but for the time."
    all_figures = [
        "Shares are shares of 1. A difference is clear where its 95% interval leaves out zero; of many figures some "
        "differ clearly by chance.",
        Folded(f"{everything.caption} ({len(everything.rows)} rows)", [everything, *more], filed=True),
    ]
    short = [
        Section("short", "In short", [*line, *in_words(comparison)]),
        Section("differing", "What differs", [differing if differing.rows else same]),
    ]
    nothing = "The runs have no accuracy in common."
    # Of columns a screen has those that differ clearly alone.
    clear = [record for record in by_column(comparison) if record["clear"]]
    columns = [_grid("Columns that differ clearly", comparison, clear, rates=True)] if clear else []
    return Document(
        " and ".join(map(clean, comparison.names)),
        [
            *short,
            Section("figures", "Cells read", plots or [nothing]),
            Section("everything", "All figures", all_figures),
        ],
        [*short, Section("figures", "Cells read", [*(plots or [nothing])[:1], *columns])],
        lead="Two runs side by side. Differences are the second less the first.",
        closing="",
    )


def _differences_grid(comparison: Comparison) -> Grid:
    records = [{"entry": name, "a": record, "b": other} for name, record, other in comparison.differing]
    first, second = map(clean, comparison.names)
    columns = [
        grids.text("Entry", "entry", 120),
        grids.text(first, "a", 200),
        grids.text(second, "b", 200),
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
    first, second = map(clean, comparison.names)
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
        spare(grids.count("n", "a_n")),
        joining(grids.count("n", "b_n"), "and {}"),
    ]
    return grids.filled(caption, columns, flat)
