"""Figures drawn as SVG: text, marks and lines that a page shows without a script, in its own colours.

Colours are the page's style variables, so that figures follow dark mode and print. A mark's words are its ``title``,
which browsers show when the pointer is on it.

A value v of an axis from a to b is at ``begin + (v - a) / (b - a) (end - begin)``. Its ticks are the multiples of a
step: the smallest of 1, 2, 2.5, 5 and 10 times a power of ten that is at least ``(b - a) / n``, with n ticks wanted.
Names that are wider than their slot are turned by an angle: one of length l takes ``l sin`` below and ``l cos`` beside.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal, TypeGuard

from markupsafe import Markup

from seepage.report.figures import Axis, Curve, Errors, Figure, Heat, Marks, Number, Stroke

# Width of figures in a column of text and on a phone, in pixels.
WIDE, NARROW = 860, 330
_SIZE, _LINE = 12.5, 16.0
# Mean width of a letter as a share of its size: a little more than most have, so that no label is cut.
_LETTER = 0.57
_PAD = 8.0
_SLANT = math.radians(38)
_LONGEST = {WIDE: 32, NARROW: 17}
_TICKS = {WIDE: 6, NARROW: 4}
_NOWHERE = Markup("")
_DASHES = {"dash": "7 5", "dot": "2 4", "dashdot": "8 4 2 4", "longdash": "12 5", "longdashdot": "12 4 2 4"}


@dataclass(frozen=True)
class _Scale:
    """Places of an axis's values."""

    low: Number
    high: Number
    begin: Number
    end: Number
    ticks: Sequence[tuple[Number, str]]
    grid: bool

    def __call__(self, value: Number) -> Number:
        """Return the pixel of a value; those beyond the ends are at the ends."""
        share = (value - self.low) / (self.high - self.low or 1.0)
        return self.begin + min(max(share, -0.02), 1.02) * (self.end - self.begin)


def draw(figure: Figure, width: int = WIDE) -> Markup:
    """Return a figure as an SVG element of a width, all its texts escaped."""
    parts, height = _drawn(figure, width)
    return _element(parts, width, height)


def _element(parts: Sequence[Markup], width: int, height: Number, place: Markup = _NOWHERE) -> Markup:
    """Return marks and texts as an SVG element; ``place`` are attributes that say where it stands in another one."""
    kind = "narrow" if width == NARROW else "wide-figure"
    head = Markup(
        '<svg {}class="{}" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {:.0f}" aria-hidden="true">'
    ).format(place, kind, width, height)
    return head + Markup("").join(parts) + Markup("</svg>")


def _drawn(figure: Figure, width: int) -> tuple[list[Markup], Number]:
    """Return the marks and texts of a figure of a width, and its height."""
    legend, legend_height = _legend([series for series in figure.data if isinstance(series, Curve)], width)
    top_axis = figure.x.top
    x_ends, y_ends = _range(figure, "x"), _range(figure, "y")
    x_ticks, y_ticks = _ticks(figure.x, x_ends, _TICKS[width], width), _ticks(figure.y, y_ends, 6, width)
    left = _PAD + max((_wide(text) for _, text in y_ticks), default=0.0) + 6 + (_LINE + 4 if figure.y.title else 0)
    right = 20.0
    slot = (width - left - right) / max(1, len(x_ticks))
    slanted = figure.x.ticks is not None and any(_wide(text) > slot - 6 for _, text in x_ticks)
    longest = max((_wide(text) for _, text in x_ticks), default=0.0)
    depth = longest * math.sin(_SLANT) + _LINE if slanted else _LINE + 4
    if slanted and top_axis:
        right = max(right, longest * math.cos(_SLANT) - slot / 2 + 10)
    x_title = _wrapped(figure.x.title, width - _PAD * 2)
    if slanted and not top_axis:
        left = max(left, longest * math.cos(_SLANT) - (width - left - right) / max(1, len(x_ticks)) / 2 + _PAD)
    top = _PAD + legend_height + (depth + 6 if top_axis else 6)
    bottom = (0 if top_axis else depth + 6) + _LINE * len(x_title) + _PAD
    height = max(figure.height, top + bottom + 120)
    x = _Scale(*x_ends, left, width - right, x_ticks, figure.x.grid)
    y = _Scale(*y_ends, height - bottom, top, y_ticks, figure.y.grid)
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
    if figure.y.title:
        center, middle = _PAD + _SIZE / 2, (y.begin + y.end) / 2
        parts.append(
            _text(figure.y.title, center, middle, "middle", f' transform="rotate(-90 {center:.1f} {middle:.1f})"')
        )
    for value, color in figure.limits:
        parts.append(_segment(x.begin, y(value), x.end, y(value), _stroke(Stroke(color, 1, "dot"))))
    for series in figure.data:
        drawn = _fields(series, x, y) if isinstance(series, Heat) else _points(series, x, y)
        kind = "hm" if isinstance(series, Heat) else "trace"
        parts += [Markup('<g class="{}">').format(kind), *drawn, Markup("</g>")]
    return parts, height


def standalone(figures: Sequence[Figure], title: str, columns: int = 1) -> str:
    """Return figures side by side as the text of an SVG file, in the page's colours on white.

    Args:
        figures: the panels, row by row, each under its title.
        title: heading of the file, and its description.
        columns: number of panels in a row.
    """
    style = (resources.files("seepage.report") / "templates" / "style.css").read_text("utf-8")
    colors = re.match(r":root \{.*?\n\}", style, re.S)
    assert colors is not None
    gap, parts, below = 30.0, list[Markup](), 40.0
    for first in range(0, len(figures), columns):
        row = figures[first : first + columns]
        panels = [_drawn(figure, WIDE) for figure in row]
        for left, figure, (marks, height) in zip(range(0, WIDE * columns, WIDE), row, panels, strict=False):
            parts.append(
                Markup('<text x="{}" y="{}" font-weight="600">{}</text>').format(left + _PAD, below, figure.title)
            )
            place = Markup('x="{}" y="{}" width="{}" height="{:.0f}" ').format(left, below + 8, WIDE, height)
            parts.append(_element(marks, WIDE, height, place))
        below += max(round(height) for _, height in panels) + gap
    width, shown = WIDE * min(columns, len(figures)), html.escape(title, quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {below:.0f}" role="img" aria-label="{shown}">\n'
        f"<style>{colors[0]}\ntext {{font-family: system-ui, sans-serif; font-size: {_SIZE}px; fill: var(--text);}}"
        f"</style>\n"
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n'
        f'<text x="{_PAD}" y="20" font-weight="600">{html.escape(title)}</text>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _points(series: Curve, x: _Scale, y: _Scale) -> Iterator[Markup]:
    """Yield lines, error bars, marks and their labels."""
    points = list(zip(series.x, series.y, strict=True))
    places = [(x(a), y(b)) if _finite(a) and _finite(b) else None for a, b in points]
    if series.line is not None:
        for run in _runs(places):
            path = " ".join(f"{'L' if i else 'M'}{a:.1f} {b:.1f}" for i, (a, b) in enumerate(run))
            yield Markup('<path d="{}" fill="none" style="{}"/>').format(path, _stroke(series.line))
    if series.marks is None:
        return
    for i, place in enumerate(places):
        if place is not None:
            yield from _bars(series, i, x, y, place)
    sizes = series.marks.size
    for i, place in enumerate(places):
        if place is not None:
            size = sizes[i] if isinstance(sizes, Sequence) else sizes
            yield _mark(series.marks, *place, size, series.words[i] if i < len(series.words) else "")
    for place, text in zip(places, series.labels, strict=False):
        if place is not None and text:
            yield _text(text, place[0] + 8, place[1] - 7, "start")


def _bars(series: Curve, i: int, x: _Scale, y: _Scale, place: tuple[Number, Number]) -> Iterator[Markup]:
    assert series.marks is not None
    style, reach, (a, b) = _stroke(Stroke(series.marks.color, 1.4)), 4, place
    if (ends := _bar(series.x_errors, series.x, i)) is not None:
        low, high = map(x, ends)
        yield _segment(low, b, high, b, style)
        yield from (_segment(end, b - reach, end, b + reach, style) for end in (low, high))
    if (ends := _bar(series.y_errors, series.y, i)) is not None:
        low, high = map(y, ends)
        yield _segment(a, low, a, high, style)
        yield from (_segment(a - reach, end, a + reach, end, style) for end in (low, high))


def _bar(errors: Errors, values: Sequence[Number | None], i: int) -> tuple[Number, Number] | None:
    """Return the ends of a point's error bar; None without one."""
    value, error = values[i], errors[i] if errors else None
    if not _finite(value) or error is None or not all(map(_finite, error)):
        return None
    return value - error[0], value + error[1]


def _finite(value: Number | None) -> TypeGuard[Number]:
    return value is not None and math.isfinite(value)


def _mark(marks: Marks, a: Number, b: Number, size: Number, words: str = "") -> Markup:
    """Return a mark with its words."""
    symbol, opened, _ = marks.symbol.partition("-open")
    colour = f"var({marks.color})"
    fill = "var(--page)" if opened else colour
    style = f"fill:{fill};stroke:{colour};stroke-width:{2 if opened else 1}"
    title = Markup("<title>{}</title>").format(words) if words else Markup("")
    r = size / 2
    if symbol == "circle":
        return Markup('<circle class="point" cx="{:.1f}" cy="{:.1f}" r="{:.1f}" style="{}">{}</circle>').format(
            a, b, r, style, title
        )
    corners = " ".join(f"{a + r * dx:.1f},{b + r * dy:.1f}" for dx, dy in _CORNERS[symbol])
    return Markup('<polygon class="point" points="{}" style="{}">{}</polygon>').format(corners, style, title)


def _fields(heat: Heat, x: _Scale, y: _Scale) -> Iterator[Markup]:
    """Yield the shaded fields of a heat map with their texts."""
    wide, high = abs(x(1) - x(0)) - 2, abs(y(1) - y(0)) - 2
    for row, values, texts in zip(heat.y, heat.values, heat.texts, strict=True):
        for column, value, text in zip(heat.x, values, texts, strict=True):
            a, b = x(column), y(row)
            if value is not None:
                share = min(max(value, 0.0), 100.0) / 50
                low, high_name = ("--heat-0", "--heat-1") if share < 1 else ("--heat-1", "--heat-2")
                fill = f"color-mix(in srgb, var({high_name}) {100 * (share % 1 if share < 2 else 1):.0f}%, var({low}))"
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


def _legend(all_series: Sequence[Curve], width: Number) -> tuple[list[Markup], Number]:
    """Return a legend above the figure, in as many rows as it takes, and its height."""
    parts: list[Markup] = []
    named = [series for series in all_series if series.name]
    a, b = _PAD, _PAD + _LINE / 2
    for series in named:
        name = _short(series.name, int((width - 60) / (_SIZE * _LETTER)))
        needed = 34 + _wide(name) + 14
        if a > _PAD and a + needed > width:
            a, b = _PAD, b + _LINE + 3
        if series.line is not None:
            parts.append(_segment(a, b, a + 26, b, _stroke(series.line)))
        if series.marks is not None:
            parts.append(_mark(series.marks, a + 13, b, 9))
        parts.append(_text(name, a + 32, b + _SIZE * 0.36, "start"))
        a += needed
    return parts, (b + _LINE / 2 if named else 0.0)


def _frame(x: _Scale, y: _Scale, slanted: bool, top_axis: bool) -> Iterator[Markup]:
    """Yield lines and labels of both axes."""
    faint = "stroke:var(--line);stroke-width:1"
    edge = y.end if top_axis else y.begin
    for value, text in y.ticks:
        if y.grid:
            yield _segment(x.begin, y(value), x.end, y(value), faint)
        yield _text(text, x.begin - 6, y(value) + _SIZE * 0.36, "end", ' class="ytick"')
    for value, text in x.ticks:
        place = x(value)
        if x.grid:
            yield _segment(place, y.begin, place, y.end, faint)
        if slanted:
            away = -6 if top_axis else _SIZE
            turn = f' class="xtick" transform="rotate(-38 {place:.1f} {edge + away:.1f})"'
            yield _text(text, place, edge + away, "start" if top_axis else "end", turn)
        else:
            yield _text(text, place, edge - 7 if top_axis else edge + _LINE, "middle", ' class="xtick"')
    yield _segment(x.begin, edge, x.end, edge, faint)


def _range(figure: Figure, name: Literal["x", "y"]) -> tuple[Number, Number]:
    """Return the values at the ends of an axis."""
    axis = figure.x if name == "x" else figure.y
    if axis.range is not None:
        return axis.range
    if axis.ticks is not None:
        values = [value for value, _ in axis.ticks] or [0]
        return min(values) - 0.5, max(values) + 0.5
    values = [value for series in figure.data if isinstance(series, Curve) for value in _values(series, name)]
    low, high = min(values, default=0.0), max(values, default=1.0)
    pad = 0.06 * (high - low) or abs(high) * 0.1 or 1.0
    return low - pad, high + pad


def _values(series: Curve, name: Literal["x", "y"]) -> Iterator[Number]:
    """Yield all values along an axis, ends of error bars included."""
    values, errors = (series.x, series.x_errors) if name == "x" else (series.y, series.y_errors)
    for i, value in enumerate(values):
        if _finite(value):
            yield value
            yield from _bar(errors, values, i) or ()


def _ticks(axis: Axis, ends: tuple[Number, Number], most: int, width: int) -> list[tuple[Number, str]]:
    if axis.ticks is not None:
        return [(value, _short(text, _LONGEST[width])) for value, text in axis.ticks]
    low, high = ends
    raw = (high - low) / most
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


def _text(text: str, a: Number, b: Number, anchor: str, more: str = "") -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}"{}>{}</text>').format(a, b, anchor, Markup(more), text)


def _segment(a: Number, b: Number, c: Number, d: Number, style: str) -> Markup:
    return Markup('<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" style="{}"/>').format(a, b, c, d, style)


def _stroke(line: Stroke) -> str:
    dash = _DASHES.get(line.dash)
    return f"stroke:var({line.color});stroke-width:{line.width}" + (f";stroke-dasharray:{dash}" if dash else "")


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
