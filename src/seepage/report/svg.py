"""Figures drawn as SVG: text, marks and lines that a page shows without a script, in its own colours.

Of plotly.js's reference, what ``figures`` uses is drawn: scatter plots with error bars, fields of a heat map, axes with
ticks of their own, a legend and horizontal lines. Colours are the page's style variables, so that figures follow
dark mode and print. A mark's words are its ``title``, which browsers show when the pointer is on it.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from seepage.report.figures import Figure

# Pixels and values: plain whole numbers too.
Number = float | int
# Width of figures in a column of text and on a phone, in pixels.
WIDE, NARROW = 860, 330
_SIZE, _LINE = 12.5, 16.0
# Mean width of a letter as a share of its size: a little more than most have, so that no label is cut.
_LETTER = 0.57
_PAD = 8.0
_SLANT = math.radians(38)
_LONGEST = {WIDE: 32, NARROW: 17}
_TICKS = {WIDE: 6, NARROW: 4}
_DASHES = {"dash": "7 5", "dot": "2 4", "dashdot": "8 4 2 4", "longdash": "12 5", "longdashdot": "12 4 2 4"}


@dataclass(frozen=True)
class _Axis:
    """One axis: places of values, and labels at some of them.

    Attributes:
        low, high: values at its ends.
        begin, end: pixels of its ends.
        ticks: labelled values.
        title: heading of the axis.
        grid: whether lines lead from its ticks over the figure.
    """

    low: Number
    high: Number
    begin: Number
    end: Number
    ticks: tuple[tuple[Number, str], ...]
    title: str
    grid: bool

    def __call__(self, value: Number) -> Number:
        """Return the pixel of a value; those beyond the ends are at the ends."""
        share = (value - self.low) / (self.high - self.low or 1.0)
        return self.begin + min(max(share, -0.02), 1.02) * (self.end - self.begin)


def draw(figure: Figure, width: int = WIDE) -> Markup:
    """Return a figure as an SVG element of a width, all its texts escaped.

    Args:
        figure: figure to draw.
        width: ``WIDE`` or ``NARROW``, in pixels.

    Example:
        >>> point = {"type": "scatter", "mode": "markers", "name": "<b>", "x": [1], "y": [2], "marker": {"size": 8}}
        >>> drawn = draw(Figure("one", "One", "A point.", [point], {"xaxis": {}, "yaxis": {}}))
        >>> "<b>" in drawn, drawn.count("<circle")
        (False, 2)
    """
    layout, traces = figure.layout, [_Trace(data) for data in figure.data]
    legend, legend_height = _legend([trace for trace in traces if trace.shown_in_legend], width)
    top_axis = layout["xaxis"].get("side") == "top"
    x_ticks, y_ticks = _ticks(layout["xaxis"], traces, "x", width), _ticks(layout["yaxis"], traces, "y", width)
    y_title = str(layout["yaxis"].get("title", {}).get("text", ""))
    left = _PAD + max((_wide(text) for _, text in y_ticks), default=0.0) + 6 + (_LINE + 4 if y_title else 0)
    right = 20.0
    slot = (width - left - right) / max(1, len(x_ticks))
    slanted = "ticktext" in layout["xaxis"] and any(_wide(text) > slot - 6 for _, text in x_ticks)
    longest = max((_wide(text) for _, text in x_ticks), default=0.0)
    depth = longest * math.sin(_SLANT) + _LINE if slanted else _LINE + 4
    if slanted and top_axis:
        right = max(right, longest * math.cos(_SLANT) - slot / 2 + 10)
    x_title = _wrapped(str(layout["xaxis"].get("title", {}).get("text", "")), width - _PAD * 2)
    if slanted and not top_axis:
        left = max(left, longest * math.cos(_SLANT) - (width - left - right) / max(1, len(x_ticks)) / 2 + _PAD)
    top = _PAD + legend_height + (depth + 6 if top_axis else 6)
    bottom = (0 if top_axis else depth + 6) + _LINE * len(x_title) + _PAD
    height = max(figure.height, top + bottom + 120)
    x = _axis(layout["xaxis"], traces, "x", x_ticks, (left, width - right))
    y = _axis(layout["yaxis"], traces, "y", y_ticks, (height - bottom, top))
    parts = [*legend]
    parts += _frame(x, y, slanted, top_axis)
    parts += [
        # Below the middle of the axis, as far as it is not cut.
        _text(
            line,
            min(max((x.begin + x.end) / 2, _wide(line) / 2), width - _wide(line) / 2),
            height - _PAD - _LINE * (len(x_title) - 1 - i),
            "middle",
        )
        for i, line in enumerate(x_title)
    ]
    if y_title:
        middle = (y.begin + y.end) / 2
        parts.append(
            _text(
                y_title,
                _PAD + _SIZE / 2,
                middle,
                "middle",
                f' transform="rotate(-90 {_PAD + _SIZE / 2:.1f} {middle:.1f})"',
            )
        )
    for shape in layout.get("shapes", ()):
        at = y(shape["y0"])
        parts.append(_segment(x.begin, at, x.end, at, _stroke(shape["line"])))
    for trace in traces:
        parts.append(Markup('<g class="{}">').format("hm" if trace.fields else "trace"))
        parts += trace.fields_drawn(x, y) if trace.fields else trace.drawn(x, y)
        parts.append(Markup("</g>"))
    kind = "narrow" if width == NARROW else "wide-figure"
    head = Markup(
        '<svg class="{}" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {:.0f}" aria-hidden="true">'
    ).format(kind, width, height)
    return head + Markup("").join(parts) + Markup("</svg>")


class _Trace:
    """One trace of a figure."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.fields = data["type"] == "heatmap"
        self.mode = str(data.get("mode", ""))
        self.marker, self.line = data.get("marker", {}), data.get("line", {})

    @property
    def name(self) -> str:
        return _plain(self.data.get("name", ""))

    @property
    def shown_in_legend(self) -> bool:
        return bool(self.data.get("showlegend", True)) and bool(self.name)

    def values(self, axis: str) -> Iterator[Number]:
        """Yield all finite values along an axis, ends of error bars included."""
        error = self.data.get(f"error_{axis}", {})
        for i, value in enumerate(self.data[axis]):
            if _finite(value):
                yield value
                for name, sign in (("array", 1), ("arrayminus", -1)):
                    length = error.get(name, ())
                    if i < len(length) and _finite(length[i]):
                        yield value + sign * length[i]

    def drawn(self, x: _Axis, y: _Axis) -> Iterator[Markup]:
        """Yield lines, error bars, marks and their labels."""
        places = [
            (x(a), y(b)) if _finite(a) and _finite(b) else None
            for a, b in zip(self.data["x"], self.data["y"], strict=True)
        ]
        if "lines" in self.mode:
            for run in _runs(places):
                path = " ".join(f"{'L' if i else 'M'}{a:.1f} {b:.1f}" for i, (a, b) in enumerate(run))
                yield Markup('<path d="{}" fill="none" style="{}"/>').format(path, _stroke(self.line))
        for i, place in enumerate(places):
            if place is not None:
                yield from self._bars(i, x, y, place)
        if "markers" in self.mode:
            words = self.data.get("hovertext", () if "text" in self.mode.split("+") else self.data.get("text", ()))
            sizes = self.marker.get("size", 8)
            for i, place in enumerate(places):
                if place is not None:
                    size = sizes[i] if isinstance(sizes, list) else sizes
                    yield self.mark(*place, size, words[i] if i < len(words) else "")
        if "text" in self.mode.split("+"):
            for place, text in zip(places, self.data["text"], strict=True):
                if place is not None and text:
                    yield _text(text, place[0] + 8, place[1] - 7, "start")

    def _bars(self, i: int, x: _Axis, y: _Axis, place: tuple[Number, Number]) -> Iterator[Markup]:
        for axis, along in (("x", x), ("y", y)):
            error = self.data.get(f"error_{axis}")
            if error is None or not _finite(error["array"][i]) or not _finite(error["arrayminus"][i]):
                continue
            value = self.data[axis][i]
            low, high = along(value - error["arrayminus"][i]), along(value + error["array"][i])
            style = _stroke({"color": self.marker.get("color", self.line.get("color")), "width": error["thickness"]})
            reach, (a, b) = error["width"], place
            if axis == "x":
                ends = [(low, b, high, b), (low, b - reach, low, b + reach), (high, b - reach, high, b + reach)]
            else:
                ends = [(a, low, a, high), (a - reach, low, a + reach, low), (a - reach, high, a + reach, high)]
            yield from (_segment(a1, b1, a2, b2, style) for a1, b1, a2, b2 in ends)

    def mark(self, a: Number, b: Number, size: Number, words: str = "") -> Markup:
        """Return a mark with its words."""
        symbol, _, _open = str(self.marker.get("symbol", "circle")).partition("-open")
        opened = "-open" in str(self.marker.get("symbol", ""))
        colour = _colour(self.marker.get("color", self.line.get("color", "--series-1")))
        fill = "var(--page)" if opened else colour
        style = f"fill:{fill};stroke:{colour};stroke-width:{2 if opened else 1}"
        title = Markup("<title>{}</title>").format(_plain(words)) if words else Markup("")
        r = size / 2
        if symbol == "circle":
            return Markup('<circle class="point" cx="{:.1f}" cy="{:.1f}" r="{:.1f}" style="{}">{}</circle>').format(
                a, b, r, style, title
            )
        corners = " ".join(f"{a + r * dx:.1f},{b + r * dy:.1f}" for dx, dy in _CORNERS[symbol])
        return Markup('<polygon class="point" points="{}" style="{}">{}</polygon>').format(corners, style, title)

    def fields_drawn(self, x: _Axis, y: _Axis) -> Iterator[Markup]:
        """Yield the shaded fields of a heat map with their texts."""
        columns, rows = self.data["x"], self.data["y"]
        wide, high = abs(x(1) - x(0)) - 2, abs(y(1) - y(0)) - 2
        for row, values, texts in zip(rows, self.data["z"], self.data["text"], strict=True):
            for column, value, text in zip(columns, values, texts, strict=True):
                a, b = x(column), y(row)
                if value is not None:
                    share = min(max(value, 0.0), 100.0) / 50
                    low, high_name = ("--heat-0", "--heat-1") if share < 1 else ("--heat-1", "--heat-2")
                    fill = (
                        f"color-mix(in srgb, var({high_name}) {100 * (share % 1 if share < 2 else 1):.0f}%, var({low}))"
                    )
                    yield Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" style="fill:{}"/>').format(
                        a - wide / 2, b - high / 2, wide, high, fill
                    )
                if _wide(text) <= wide + 6:
                    yield _text(text, a, b + _SIZE * 0.36, "middle")


def _star() -> list[tuple[Number, Number]]:
    points = ((1.25 if k % 2 == 0 else 0.55, math.pi * (k / 5 - 0.5)) for k in range(10))
    return [(r * math.cos(angle), r * math.sin(angle)) for r, angle in points]


_CORNERS: dict[str, Sequence[tuple[Number, Number]]] = {
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "diamond": ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
    "triangle-up": ((0, -1.15), (1.1, 0.85), (-1.1, 0.85)),
    "cross": (
        *((-0.4, -1.1), (0.4, -1.1), (0.4, -0.4), (1.1, -0.4), (1.1, 0.4), (0.4, 0.4)),
        *((0.4, 1.1), (-0.4, 1.1), (-0.4, 0.4), (-1.1, 0.4), (-1.1, -0.4), (-0.4, -0.4)),
    ),
    "star": _star(),
}


def _legend(traces: Sequence[_Trace], width: Number) -> tuple[list[Markup], Number]:
    """Return a legend above the figure, in as many rows as it takes, and its height."""
    parts: list[Markup] = []
    a, b = _PAD, _PAD + _LINE / 2
    for trace in traces:
        name = _short(trace.name, int((width - 60) / (_SIZE * _LETTER)))
        needed = 34 + _wide(name) + 14
        if a > _PAD and a + needed > width:
            a, b = _PAD, b + _LINE + 3
        if "lines" in trace.mode:
            parts.append(_segment(a, b, a + 26, b, _stroke(trace.line)))
        if "markers" in trace.mode:
            parts.append(trace.mark(a + 13, b, 9))
        parts.append(_text(name, a + 32, b + _SIZE * 0.36, "start"))
        a += needed
    return parts, (b + _LINE / 2 if traces else 0.0)


def _frame(x: _Axis, y: _Axis, slanted: bool, top_axis: bool) -> Iterator[Markup]:
    """Yield lines and labels of both axes."""
    faint = "stroke:var(--line);stroke-width:1"
    edge = y.end if top_axis else y.begin
    for value, text in y.ticks:
        if y.grid:
            yield _segment(x.begin, y(value), x.end, y(value), faint)
        yield _text(text, x.begin - 6, y(value) + _SIZE * 0.36, "end", ' class="ytick"')
    for value, text in x.ticks:
        at = x(value)
        if x.grid:
            yield _segment(at, y.begin, at, y.end, faint)
        if slanted:
            away = -6 if top_axis else _SIZE
            turn = f' class="xtick" transform="rotate(-38 {at:.1f} {edge + away:.1f})"'
            yield _text(text, at, edge + away, "start" if top_axis else "end", turn)
        else:
            yield _text(text, at, edge - 7 if top_axis else edge + _LINE, "middle", ' class="xtick"')
    yield _segment(x.begin, edge, x.end, edge, faint)


def _axis(
    layout: dict[str, Any],
    traces: Sequence[_Trace],
    name: str,
    ticks: Sequence[tuple[Number, str]],
    pixels: tuple[Number, Number],
) -> _Axis:
    low, high = _range(layout, traces, name)
    title = str(layout.get("title", {}).get("text", ""))
    return _Axis(low, high, *pixels, tuple(ticks), title, bool(layout.get("showgrid", True)))


def _range(layout: dict[str, Any], traces: Sequence[_Trace], name: str) -> tuple[Number, Number]:
    if "range" in layout:
        return layout["range"][0], layout["range"][1]
    if "tickvals" in layout:
        return min(layout["tickvals"], default=0) - 0.5, max(layout["tickvals"], default=0) + 0.5
    values = [value for trace in traces for value in trace.values(name)] or [0.0, 1.0]
    low, high = min(values), max(values)
    pad = 0.06 * (high - low) or abs(high) * 0.1 or 1.0
    return low - pad, high + pad


def _ticks(layout: dict[str, Any], traces: Sequence[_Trace], name: str, width: int) -> list[tuple[Number, str]]:
    if "ticktext" in layout:
        texts = [_short(_plain(text), _LONGEST[width]) for text in layout["ticktext"]]
        return list(zip(layout["tickvals"], texts, strict=True))
    low, high = _range(layout, traces, name)
    raw = (high - low) / (_TICKS[width] if name == "x" else 6)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    count = math.floor(high / step + 1e-9) - math.ceil(low / step - 1e-9) + 1
    first = math.ceil(low / step - 1e-9)
    return [(step * (first + i), f"{step * (first + i):.6g}".replace("-", "\u2212")) for i in range(count)]


def _runs(places: Sequence[tuple[Number, Number] | None]) -> Iterator[list[tuple[Number, Number]]]:
    """Yield the stretches between gaps."""
    run: list[tuple[Number, Number]] = []
    for place in [*places, None]:
        if place is not None:
            run.append(place)
        elif run:
            yield run
            run = []


def _text(text: object, a: Number, b: Number, anchor: str, more: str = "") -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}"{}>{}</text>').format(
        a, b, anchor, Markup(more), escape(_plain(text))
    )


def _segment(a: Number, b: Number, c: Number, d: Number, style: str) -> Markup:
    return Markup('<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" style="{}"/>').format(a, b, c, d, style)


def _stroke(line: dict[str, Any]) -> str:
    dash = _DASHES.get(str(line.get("dash", "solid")))
    style = f"stroke:{_colour(line.get('color', '--series-1'))};stroke-width:{line.get('width', 2)}"
    return style + (f";stroke-dasharray:{dash}" if dash else "")


def _colour(name: object) -> str:
    return f"var({name})" if str(name).startswith("--") else "var(--text)"


def _plain(text: object) -> str:
    """Return a label as text: labels are written for plotly.js, which reads entities."""
    return html.unescape(str(text))


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _wide(text: str) -> Number:
    return len(text) * _SIZE * _LETTER


def _wrapped(text: str, width: Number) -> list[str]:
    """Return a title in lines that fit a width."""
    lines: list[str] = []
    for word in text.split():
        if lines and _wide(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
