"""Figures of published tables that are curves: what is printed and ours in one picture, a panel for each setting.

A figure is drawn from the lines of a table's ``comparison.csv``, so that the picture and its data are one thing. Ours
have full marks and 95% intervals; printed values, where the paper has any, are hollow and dashed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seepage.report.figures import Axis, Curve, Errors, Figure, Marks, Stroke
from seepage.report.svg import standalone
from seepage.reproduce.table import PublishedTable

Line = Mapping[str, str]
# Colours and shapes of lines; more lines repeat them.
_COLORS, _SHAPES = 6, ("circle", "square", "diamond", "triangle-up", "cross", "star")
_RATES = (0, 103)


def drawing(table: PublishedTable, lines: Sequence[Line]) -> str | None:
    """Return the figure of a table as the text of an SVG file; None where it is no figure or nothing was measured.

    Args:
        table: the table, whose ``drawn`` says what is drawn.
        lines: lines of its comparison, as texts by the names of their columns, rates in [0, 1].

    Example:
        >>> from seepage.reproduce.table import load_table
        >>> line = {"run": "faithful", "labels": "true", "method": "dlg", "unit": "percent", "ours": "0.6",
        ...         "ours_low": "", "ours_high": "", "n": "20", "published": "0.61"}
        >>> text = drawing(load_table("tableak/table17"), [{**line, "batch_size": size} for size in ("16", "32")])
        >>> text[:4], text.count("printed")
        ('<svg', 1)
    """
    figures = panels(table, lines)
    return (
        standalone(figures, f"{table.name}: {table.title}", columns=1 if len(figures) <= 2 else 2) if figures else None
    )


def panels(table: PublishedTable, lines: Sequence[Line]) -> list[Figure]:
    """Return a figure for each value on the axes of panels, with a curve for each other place; none without lines."""
    drawn = table.drawn
    shown = [
        line for line in lines if drawn is not None and line["ours"] and line["run"] in (drawn.runs or [line["run"]])
    ]
    if drawn is None or not shown:
        return []
    others = [axis for axis in table.axes if axis not in (drawn.across, *drawn.panels)]
    positions = sorted({line[drawn.across] for line in shown}, key=_ordered)
    curves_of = list(dict.fromkeys((tuple(line[axis] for axis in others), line["run"]) for line in shown))
    runs = {line["run"] for line in shown}
    figures = []
    for number, panel in enumerate(dict.fromkeys(tuple(line[axis] for axis in drawn.panels) for line in shown)):
        inside = [line for line in shown if tuple(line[axis] for axis in drawn.panels) == panel]
        curves: list[Curve] = []
        for index, (place, run) in enumerate(curves_of):
            of_place = [line for line in inside if tuple(line[axis] for axis in others) == place and line["run"] == run]
            if of_place:
                name = ", ".join(_words(value) for value in place if value) or _words(run)
                name += f" ({_words(run)})" if len(runs) > 1 and name != _words(run) else ""
                curves += _pair(name, index, of_place, drawn.across, positions)
        heading = ", ".join(f"{_words(axis)} {_words(value)}" for axis, value in zip(drawn.panels, panel, strict=True))
        rate = inside[0]["unit"] == "percent"
        figures.append(
            Figure(
                f"panel{number}",
                heading,
                f"{table.title}. {heading}".strip(),
                curves,
                Axis(_words(drawn.across), (-0.5, len(positions) - 0.5), list(enumerate(map(_words, positions)))),
                Axis("%" if rate else "", _RATES if rate else None),
                height=320,
            )
        )
    return figures


def _pair(name: str, index: int, lines: Sequence[Line], across: str, positions: Sequence[str]) -> list[Curve]:
    """Return the curve of ours, and that of the printed values where there are any."""
    lines = sorted(lines, key=lambda line: positions.index(line[across]))
    # Curves beyond the colours differ from the first ones in their shapes.
    color, shape = f"--series-{index % _COLORS + 1}", _SHAPES[(index + index // _COLORS) % len(_SHAPES)]
    scale = 100 if lines[0]["unit"] == "percent" else 1
    places = [positions.index(line[across]) for line in lines]
    ours = [scale * float(line["ours"]) for line in lines]
    errors: list[tuple[float, float] | None] = [
        (value - scale * float(line["ours_low"]), scale * float(line["ours_high"]) - value)
        if line["ours_low"]
        else None
        for value, line in zip(ours, lines, strict=True)
    ]
    words = [
        f"{name}, {across} {line[across]}: {value:.1f}, n = {line['n']}"
        for value, line in zip(ours, lines, strict=True)
    ]
    bars: Errors = errors if any(errors) else ()
    curves = [Curve(name, places, ours, Stroke(color, 2.5), Marks(color, 9, shape), words, y_errors=bars)]
    printed = [scale * float(line["published"]) if line["published"] else None for line in lines]
    if any(value is not None for value in printed):
        curves.append(
            Curve(f"{name}, printed", places, printed, Stroke(color, 1.5, "dash"), Marks(color, 8, f"{shape}-open"))
        )
    return curves


def _ordered(value: str) -> tuple[float, str]:
    """Return the order of a position: numbers by size, texts behind them."""
    try:
        return float(value), ""
    except ValueError:
        return float("inf"), value


def _words(name: str) -> str:
    return name.replace("_", " ")
