"""Figures as plain JSON for plotly.js: no part of the Python package of that name is imported.

Colours are names of the page's style variables (``--series-1``), which the page's script looks up, so that figures
follow dark mode and print. Lines also differ in dash and marker, so that colour is never the only carrier. Labels from
tables are placed by position and never by name, and ``label`` makes text of what plotly.js would read as markup.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seepage.report.frames import Record
from seepage.results.tiers import BOUNDS
from seepage.text import clean, percent, points

SERIES = 6
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star")
_DASHES = ("solid", "dash", "dashdot", "longdash", "longdashdot", "solid")
MOST_COLUMNS = 40
_LONGEST = 28
_BASELINE = "--muted"

# A trace and the layout of plotly.js, see its reference.
Trace = dict[str, object]
Layout = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """A figure of plotly.js.

    Attributes:
        name: identifies it within a page.
        title: heading of a few words.
        description: what is to be seen, for those who do not see it.
        data, layout: arguments of plotly.js.
        height: in pixels.
    """

    name: str
    title: str
    description: str
    data: list[Trace]
    layout: Layout
    height: int = 380


def label(value: object, longest: int = _LONGEST) -> str:
    """Return a text escaped for a label of plotly.js, which reads some tags and entities.

    Right-to-left letters are isolated, so that they do not reorder what stands beside them.

    Example:
        >>> label("<b>age</b> & more")
        '&lt;b&gt;age&lt;/b&gt; &amp; more'
    """
    shown = clean(value, longest)
    mixed = any(unicodedata.bidirectional(c) in ("R", "AL", "AN") for c in shown)
    escaped = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"\u2068{escaped}\u2069" if mixed else escaped


def by_batch_size(name: str, records: Sequence[Record], title: str, size: str = "batch size") -> Figure:
    """Return accuracy against batch size, attacks with their intervals and baselines.

    Args:
        records: scores under one defense, see ``frames.scores``.
    """
    return _against(name, records, title, "batch_size", size, f"{size.capitalize()} (records behind one message)")


def by_rounds(name: str, records: Sequence[Record], title: str) -> Figure:
    """Return accuracy against the number of attacked rounds, as ``by_batch_size`` does; records have ``rounds`` too."""
    return _against(name, records, title, "rounds", "rounds:", "Rounds that were attacked")


def by_defense(name: str, records: Sequence[Record], title: str) -> Figure:
    """Return accuracy under each defense, in their order, as ``by_batch_size`` does but without lines."""
    return _against(name, records, title, "defense", "under", "Defense", ordered=False)


def _against(
    name: str, records: Sequence[Record], title: str, axis: str, words: str, horizontal: str, ordered: bool = True
) -> Figure:
    places = list(dict.fromkeys(record[axis] for record in records))
    sizes = sorted(places) if ordered else places
    attacks = list(dict.fromkeys(record["attack"] for record in records if record["is_attack"]))
    baselines = list(dict.fromkeys(record["attack"] for record in records if not record["is_attack"]))
    data = []
    many = len(attacks) + len(baselines)
    for i, part in enumerate([*attacks, *baselines]):
        own = [record for record in records if record["attack"] == part]
        attack = part in attacks
        color = _color(i) if attack else _BASELINE
        style = i if attack else i - len(attacks)
        # Side by side, so that intervals do not cover each other.
        shift = (i - (many - 1) / 2) * (min(0.03, 0.12 / many) if ordered else 0.6 / many)
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if ordered else "markers",
                "name": label(part) + ("" if attack else " (baseline)"),
                "x": [sizes.index(record[axis]) + shift for record in own],
                "y": [100 * record["mean"] for record in own],
                "error_y": _errors(own),
                "line": {
                    "color": color,
                    "dash": _DASHES[style % SERIES] if attack else "dot",
                    "width": 2.5 if attack else 1.5,
                },
                "marker": {
                    "color": color,
                    "size": 9 if attack else 7,
                    "symbol": _SYMBOLS[style % SERIES] + ("" if attack else "-open"),
                },
                "text": [
                    f"{label(part)}, {words} {label(record[axis])}: {percent(record['mean'])} {_between(record)}, "
                    f"n = {record['n']}"
                    for record in own
                ],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    layout = _layout("Read (%)", horizontal)
    layout["yaxis"] |= {"range": [0, 103]}
    layout["xaxis"] |= _ticks(range(len(sizes)), [label(size) for size in sizes]) | {
        "range": [-0.5, len(sizes) - 0.5],
        "zeroline": False,
    }
    best = max((record for record in records if record["is_attack"]), key=lambda record: record["mean"], default=None)
    seen = (
        ""
        if best is None
        else (
            f" The most that an attack reads is {percent(best['mean'])}, "
            f"{'at ' if ordered else ''}{words} {clean(best[axis])}."
        )
    )
    return Figure(name, title, f"{horizontal}: attacks beside baselines.{seen}", data, layout)


def by_column(name: str, records: Sequence[Record], title: str) -> Figure:
    """Return for each column what the best baseline and the attack read, as two marks joined by a line.

    Sensitive columns come first and are marked with a star; beyond 40 columns the rest is left to the table.
    """
    shown = list(records[:MOST_COLUMNS])
    places = list(range(len(shown)))[::-1]
    names = [label(record["column"]) + (" ★" if record["sensitive"] else "") for record in shown]
    hover = [
        f"{name}: read {percent(record['mean'])} {_between(record)}, best baseline {percent(record['baseline'])}, "
        f"lift {points(record['lift'])} points"
        for name, record in zip(names, shown, strict=True)
    ]
    joined_x: list[float | None] = []
    joined_y: list[float | None] = []
    for place, record in zip(places, shown, strict=True):
        if record["baseline"] is not None:
            joined_x += [100 * record["baseline"], 100 * record["mean"], None]
            joined_y += [place, place, None]
    data: list[Trace] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": joined_x,
            "y": joined_y,
            "line": {"color": "--series-1-soft", "width": 5},
            "hoverinfo": "skip",
            "showlegend": False,
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "best baseline",
            "x": [None if record["baseline"] is None else 100 * record["baseline"] for record in shown],
            "y": places,
            "marker": {"color": _BASELINE, "symbol": "diamond-open", "size": 9, "line": {"width": 2}},
            "text": hover,
            "hovertemplate": "%{text}<extra></extra>",
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "attack, with 95% interval",
            "x": [100 * record["mean"] for record in shown],
            "y": places,
            "error_x": _errors(shown),
            "marker": {"color": "--series-1", "symbol": "circle", "size": 10},
            "text": hover,
            "hovertemplate": "%{text}<extra></extra>",
        },
    ]
    layout = _layout("", "Cells of the column that are right (%)")
    layout["xaxis"] |= {"range": [-2, 103]}
    layout["yaxis"] |= _lines(places, names)
    marked = [record for record in shown if record["sensitive"]]
    gains = [record for record in shown if record["lift"] is not None]
    top = max(gains, key=lambda record: record["lift"], default=None)
    seen = f"{len(records)} columns, {len(marked)} of them sensitive."
    if top is not None:
        seen += f" The largest lift is {points(top['lift'])} points, of {clean(top['column'])}."
    return Figure(name, title, seen, data, layout, height=110 + 24 * max(4, len(shown)))


def heat(name: str, settings: Sequence[str], columns: Sequence[Sequence[Record | None]], title: str) -> Figure:
    """Return the lift of every column in every setting, as a grid of shaded and numbered fields.

    Args:
        columns: records of each column, one a setting; None where it has no figure there.
    """
    shown = list(columns[:MOST_COLUMNS])
    places = list(range(len(shown)))[::-1]
    heads = [next(record for record in column if record is not None) for column in shown]
    names = [label(head["column"]) + (" ★" if head["sensitive"] else "") for head in heads]
    lifts = [
        [None if record is None or record["lift"] is None else 100 * record["lift"] for record in column]
        for column in shown
    ]
    data: list[Trace] = [
        {
            "type": "heatmap",
            "x": list(range(len(settings))),
            "y": places,
            "z": lifts,
            "zmin": 0,
            "zmax": 100,
            "colorscale": [[0, "--heat-0"], [0.5, "--heat-1"], [1, "--heat-2"]],
            "showscale": False,
            "xgap": 2,
            "ygap": 2,
            "text": [["–" if lift is None else f"{lift:+.0f}" for lift in line] for line in lifts],
            "texttemplate": "%{text}",
            "textfont": {"size": 12},
            "hoverinfo": "skip",
        }
    ]
    layout = _layout("", "")
    slanted = max(map(len, settings)) * len(settings) > 80
    layout["xaxis"] |= _ticks(range(len(settings)), settings) | {
        "side": "top",
        "showgrid": False,
        "fixedrange": True,
        "tickangle": -35 if slanted else 0,
        "ticklabeloverflow": "allow",
    }
    layout["yaxis"] |= _lines(places, names)
    layout["margin"] |= {"t": 60, "b": 20, "r": 110 if slanted else 20}
    seen = f"Lift over the best baseline in points, {len(columns)} columns in {len(settings)} settings."
    return Figure(name, title, seen, data, layout, height=110 + 24 * max(4, len(shown)))


def reliability(name: str, records: Sequence[Record], title: str) -> Figure:
    """Return accuracy against the attacker's own certainty, the area of a mark by its number of cells."""
    data: list[Trace] = [_diagonal()]
    for i, kind in enumerate(dict.fromkeys(record["kind"] for record in records)):
        own = [record for record in records if record["kind"] == kind]
        most = max(record["cells"] for record in own)
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"{kind} cells" if kind == "discrete" else "continuous cells (certainty by rank)",
                "x": [100 * record["certainty"] for record in own],
                "y": [100 * record["mean"] for record in own],
                "error_y": _errors(own),
                "line": {"color": _color(i), "dash": _DASHES[i], "width": 2},
                "marker": {
                    "color": _color(i),
                    "symbol": _SYMBOLS[i],
                    "size": [6 + 12 * (record["cells"] / most) ** 0.5 for record in own],
                    "opacity": 1,
                },
                "text": [
                    f"certainty {percent(record['certainty'], 0)}: {percent(record['mean'])} right {_between(record)}, "
                    f"{record['cells']:,} cells"
                    for record in own
                ],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    layout = _layout("Cells that are right (%)", "Certainty by the attacker's own account (%)")
    layout["xaxis"] |= {"range": [-3, 103]}
    layout["yaxis"] |= {"range": [-3, 105]}
    ends = [record for record in records if record["bin"] == max(other["bin"] for other in records)]
    ends_read = "; ".join(
        f"of the most certain {record['kind']} cells {percent(record['mean'])} are right" for record in ends
    )
    return Figure(name, title, f"Accuracy by the attacker's certainty: {ends_read}.", data, layout)


def covered(name: str, records: Sequence[Record], title: str) -> Figure:
    """Return the accuracy of the most certain share of cells."""
    data = []
    for i, kind in enumerate(dict.fromkeys(record["kind"] for record in records)):
        own = [record for record in records if record["kind"] == kind]
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{kind} cells",
                "x": [100 * record["share"] for record in own],
                "y": [100 * record["mean"] for record in own],
                "line": {"color": _color(i), "dash": _DASHES[i], "width": 2.5},
                "text": [
                    f"the {percent(record['share'], 0)} of cells it is most certain of: {percent(record['mean'])} right"
                    for record in own
                ],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    layout = _layout("Of these, right (%)", "Share of cells, most certain first (%)")
    layout["xaxis"] |= {"range": [0, 101]}
    layout["yaxis"] |= {"range": [0, 103]}
    last = "; ".join(
        f"{percent(record['mean'])} of all {record['kind']} cells are right"
        for record in records
        if record["share"] == 1
    )
    return Figure(name, title, f"Accuracy of the cells that the attacker is most certain of; {last}.", data, layout)


def groups(name: str, records: Sequence[Record], overall: float | None, title: str) -> Figure:
    """Return the accuracy on the records of each category."""
    shown = list(records[:MOST_COLUMNS])
    places = list(range(len(shown)))[::-1]
    names = [f"{label(record['column'], 18)}: {category(record, 18)}" for record in shown]
    data: list[Trace] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "records of the group",
            "x": [100 * record["mean"] for record in shown],
            "y": places,
            "marker": {"color": "--series-1", "size": 10, "symbol": "circle"},
            "text": [
                f"{name}: {percent(record['mean'])} of {record['cells']:,} cells"
                for name, record in zip(names, shown, strict=True)
            ],
            "hovertemplate": "%{text}<extra></extra>",
        }
    ]
    layout = _layout("", "Cells read (%)")
    if overall is not None:
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "all records",
                "x": [100 * overall] * 2,
                "y": [-0.7, len(shown) - 0.3],
                "line": {"color": _BASELINE, "dash": "dash", "width": 2},
                "hoverinfo": "skip",
            }
        )
    layout["xaxis"] |= {"range": [-2, 103]}
    layout["yaxis"] |= _lines(places, names)
    ends = sorted(records, key=lambda record: record["mean"])
    seen = f"{len(records)} groups; accuracy from {percent(ends[0]['mean'])} to {percent(ends[-1]['mean'])}."
    return Figure(name, title, seen, data, layout, height=110 + 26 * max(4, len(shown)))


def category(record: Record, longest: int = _LONGEST) -> str:
    """Return the label of a group of records."""
    return f"{record['pooled']} small categories together" if record["pooled"] else label(record["category"], longest)


def quarters(name: str, records: Sequence[Record], title: str) -> Figure:
    """Return the accuracy by quarter of the records' rarity."""
    words = ("most common", "second", "third", "rarest")
    data: list[Trace] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "cells read",
            "x": [record["quarter"] for record in records],
            "y": [100 * record["mean"] for record in records],
            "error_y": _errors(records),
            "line": {"color": "--series-1-soft", "width": 3},
            "marker": {"color": "--series-1", "size": 11},
            "hovertext": [
                f"{words[record['quarter'] - 1]} quarter: {percent(record['mean'])} {_between(record)}, "
                f"{record['records']} records"
                for record in records
            ],
            "hovertemplate": "%{hovertext}<extra></extra>",
            "showlegend": False,
        }
    ]
    layout = _layout("Cells read (%)", "Quarter of the records, by how rare their cells are")
    layout["yaxis"] |= {"range": [0, 103]}
    layout["xaxis"] |= _ticks(
        [record["quarter"] for record in records], [words[record["quarter"] - 1] for record in records]
    ) | {"range": [0.5, 4.5]}
    seen = (
        f"From the most common quarter, {percent(records[0]['mean'])}, to the rarest, {percent(records[-1]['mean'])}."
    )
    return Figure(name, title, seen, data, layout, height=340)


def frontier(
    name: str, records: Sequence[Record], title: str, horizontal: str, size: str | None, error: bool = False
) -> Figure:
    """Return leakage against how well the task is learnt, marks of one defense joined and numbered by batch size.

    Args:
        name: name of the figure.
        records: settings, see ``frames.frontier``.
        title: title of the figure.
        horizontal: title of the axis with the task.
        size: what batch sizes are called, where they differ, so that marks are numbered by them; else None.
        error: whether the task is measured by an error, which is no rate.
    """
    scale = 1.0 if error else 100.0
    drawn = [record for record in records if record["closed"] is not None]
    data = []
    for i, defense in enumerate(dict.fromkeys(record["defense"] for record in drawn)):
        own = [record for record in drawn if record["defense"] == defense]
        tasks = [f"{record['task']:.4g}" if error else percent(record["task"]) for record in own]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers+text" if size is not None else "markers",
                "name": label(defense, 48),
                "x": [scale * record["task"] for record in own],
                "y": [100 * record["closed"] for record in own],
                "error_x": _errors(own, "task", "task_low", "task_high", scale),
                "error_y": _errors(own, "closed", "closed_low", "upper"),
                "line": {"color": _color(i), "dash": _DASHES[i % SERIES], "width": 1.5},
                "marker": {"color": _color(i), "symbol": _SYMBOLS[i % SERIES], "size": 11},
                "text": ["" if size is None else str(record["batch_size"]) for record in own],
                "textposition": "top right",
                "hovertext": [
                    f"{_point(label(defense, 60), record, size)}: closed gap {percent(record['closed'])}, task {task}"
                    for record, task in zip(own, tasks, strict=True)
                ],
                "hovertemplate": "%{hovertext}<extra></extra>",
                "cliponaxis": False,
            }
        )
    layout = _layout("Gap to certainty closed (%)", horizontal if error else f"{horizontal} (%)")
    layout["yaxis"] |= {"range": [min(-3.0, 100 * min((record["closed"] for record in drawn), default=0.0) - 3), 106]}
    layout["shapes"] = _thresholds()
    seen = "; ".join(
        f"{_point(clean(record['defense'], 40), record, size)}: closed gap {percent(record['closed'])}"
        for record in drawn[:8]
    )
    return Figure(name, title, f"Leakage beside how well the task is learnt: {seen}.", data, layout, height=440)


def _point(defense: str, record: Record, size: str | None) -> str:
    return defense if size is None else f"{defense}, {size} {record['batch_size']}"


def differences(name: str, records: Sequence[Record], names: tuple[str, str], title: str) -> Figure:
    """Return the same figures of two runs side by side with their intervals."""
    shown = list(records[:MOST_COLUMNS])
    places = list(range(len(shown)))[::-1]
    data = []
    for i, (side, run) in enumerate(zip(("a", "b"), names, strict=True)):
        own = [(place, record[side]) for place, record in zip(places, shown, strict=True)]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": label(run),
                "x": [None if record["mean"] is None else 100 * record["mean"] for _, record in own],
                "y": [place + (0.14 if side == "a" else -0.14) for place, _ in own],
                "error_x": _errors([record for _, record in own]),
                "marker": {"color": _color(i), "symbol": _SYMBOLS[i], "size": 9},
                "text": [f"{percent(record['mean'])} {_between(record)}" for _, record in own],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    layout = _layout("", "Cells read (%)")
    layout["xaxis"] |= {"range": [-2, 103]}
    layout["yaxis"] |= _lines(places, [label(record["label"], 48) for record in shown], grid=True)
    seen = f"{len(records)} figures of {clean(names[0])} and {clean(names[1])} side by side."
    return Figure(name, title, seen, data, layout, height=120 + 34 * max(3, len(shown)))


def _color(i: int) -> str:
    return f"--series-{i % SERIES + 1}"


def _between(record: Record) -> str:
    if record["low"] is None:
        return "(no interval)"
    return f"[{100 * record['low']:.1f}, {100 * record['high']:.1f}]"


def _errors(
    records: Sequence[Record], mean: str = "mean", low: str = "low", high: str = "high", scale: float = 100.0
) -> Trace:
    present = [record[mean] is not None and record[low] is not None and record[high] is not None for record in records]
    pairs = list(zip(records, present, strict=True))
    return {
        "type": "data",
        "symmetric": False,
        "array": [scale * max(0.0, record[high] - record[mean]) if has else None for record, has in pairs],
        "arrayminus": [scale * max(0.0, record[mean] - record[low]) if has else None for record, has in pairs],
        "thickness": 1.4,
        "width": 4,
    }


def _diagonal() -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "certainty equals accuracy",
        "x": [0, 100],
        "y": [0, 100],
        "line": {"color": _BASELINE, "dash": "dot", "width": 1.5},
        "hoverinfo": "skip",
    }


def _thresholds() -> list[Trace]:
    return [
        {
            "type": "line",
            "xref": "paper",
            "x0": 0,
            "x1": 1,
            "y0": 100 * bound,
            "y1": 100 * bound,
            "line": {"color": "--line", "dash": "dot", "width": 1},
            "layer": "below",
        }
        for bound, _ in BOUNDS
    ]


def _lines(places: Sequence[int], names: Sequence[str], grid: bool = False) -> Trace:
    """Return the axis of figures with a line for each name."""
    return _ticks(places, names) | {
        "range": [-0.7, len(places) - 0.3],
        "zeroline": False,
        "showgrid": grid,
        "fixedrange": True,
        "automargin": True,
    }


def _ticks(places: Sequence[int], names: Sequence[str]) -> Trace:
    return {"tickmode": "array", "tickvals": list(places), "ticktext": list(names)}


def _layout(vertical: str, horizontal: str) -> Layout:
    axis = {
        "gridcolor": "--line",
        "linecolor": "--line",
        "zerolinecolor": "--line",
        "tickcolor": "--line",
        "automargin": True,
        "ticksuffix": " ",
    }
    return {
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "--text"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 60, "r": 20, "t": 36, "b": 54},
        "xaxis": {**axis, "title": {"text": horizontal, "standoff": 10}},
        "yaxis": {**axis, "title": {"text": vertical, "standoff": 8}},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom"},
        "hoverlabel": {
            "bgcolor": "--panel",
            "bordercolor": "--line",
            "font": {"color": "--text", "size": 13},
            "align": "left",
        },
        "hovermode": "closest",
    }
