"""Figures as data: series of points, fields of a heat map and axes, which ``svg`` draws.

Colours are names of the page's style variables (``--series-1``), so that figures follow dark mode and print. Lines also
differ in dash and marker, so that colour is never the only carrier.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seepage.report.frames import Record
from seepage.results.verdict import BOUNDS
from seepage.text import clean, percent, points, span

SERIES = 6
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star")
_DASHES = ("solid", "dash", "dashdot", "longdash", "longdashdot", "solid")
# Columns of a table that are shown, those of which most is read; beyond them a page would be too large.
MOST_COLUMNS = 40
_LONGEST = 28
_BASELINE = "--muted"
_RATE = (-2, 103)

# Pixels and values: plain whole numbers too.
Number = float | int
Places = Sequence[Number | None]
# Lengths of error bars below and above each point.
Errors = Sequence[tuple[Number, Number] | None]


class Stroke(NamedTuple):
    """Line through points; its width is in pixels."""

    color: str
    width: Number
    dash: str = "solid"


class Marks(NamedTuple):
    """Marks at points: their diameters in pixels, and a shape, hollow where it ends with ``-open``."""

    color: str
    size: Number | Sequence[Number]
    symbol: str = "circle"


@dataclass(frozen=True)
class Curve:
    """Points, None for a gap; ``words`` show when the pointer is on a mark, ``labels`` stand beside it."""

    name: str
    x: Places
    y: Places
    line: Stroke | None = None
    marks: Marks | None = None
    words: Sequence[str] = ()
    labels: Sequence[str] = ()
    x_errors: Errors = ()
    y_errors: Errors = ()


@dataclass(frozen=True)
class Heat:
    """Shaded fields with texts, one for each row and column; shades are those of percentages."""

    x: Sequence[int]
    y: Sequence[int]
    values: Sequence[Places]
    texts: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Axis:
    """One axis of a figure; without range or ticks it has those of its points, with round numbers."""

    title: str
    range: tuple[Number, Number] | None = None
    ticks: Sequence[tuple[Number, str]] | None = None
    grid: bool = True
    top: bool = False


@dataclass(frozen=True)
class Figure:
    """A figure; ``name`` identifies it within a document, and ``description`` is for those who do not see it."""

    name: str
    title: str
    description: str
    data: Sequence[Curve | Heat]
    x: Axis
    y: Axis
    height: int = 380
    limits: Sequence[tuple[Number, str]] = ()


def label(value: object, longest: int = _LONGEST) -> str:
    """Return a text as a short label; right-to-left letters do not reorder what stands beside them."""
    shown = clean(value, longest)
    mixed = any(unicodedata.bidirectional(c) in ("R", "AL", "AN") for c in shown)
    return f"\u2068{shown}\u2069" if mixed else shown


def by_batch_size(name: str, records: Sequence[Record], title: str, size: str = "batch size") -> Figure:
    """Return accuracy against batch size under one defense, attacks with their intervals and baselines."""
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
        series = [record for record in records if record["attack"] == part]
        # Side by side, so that intervals do not cover each other.
        shift = (i - (many - 1) / 2) * (min(0.03, 0.12 / many) if ordered else 0.6 / many)
        if part in attacks:
            line, marks = Stroke(_color(i), 2.5, _DASHES[i % SERIES]), Marks(_color(i), 9, _SYMBOLS[i % SERIES])
        else:
            symbol = f"{_SYMBOLS[(i - len(attacks)) % SERIES]}-open"
            line, marks = Stroke(_BASELINE, 1.5, "dot"), Marks(_BASELINE, 7, symbol)
        data.append(
            Curve(
                label(part) + ("" if part in attacks else " (baseline)"),
                [sizes.index(record[axis]) + shift for record in series],
                [100 * record["mean"] for record in series],
                line if ordered else None,
                marks,
                [
                    f"{label(part)}, {words} {label(record[axis])}: {percent(record['mean'])} {_between(record)}, "
                    f"n = {record['n']}"
                    for record in series
                ],
                y_errors=_errors(series),
            )
        )
    x = Axis(horizontal, (-0.5, len(sizes) - 0.5), [(i, label(size)) for i, size in enumerate(sizes)])
    description = f"{horizontal}: attacks beside baselines."
    best = max((record for record in records if record["is_attack"]), key=lambda record: record["mean"], default=None)
    if best is not None:
        preposition = "at " if ordered else ""
        description += (
            f" The most that an attack reads is {percent(best['mean'])}, {preposition}{words} {clean(best[axis])}."
        )
    return Figure(name, title, description, data, x, Axis("Read (%)", (0, 103)))


def by_column(name: str, records: Sequence[Record], title: str) -> Figure:
    """Return for each column what the best baseline and the attack read, as two marks joined by a line."""
    places = _places(records)
    names = [_starred(record) for record in records]
    words = [
        f"{name}: read {percent(record['mean'])} {_between(record)}, best baseline {percent(record['baseline'])}, "
        f"lift {points(record['lift'])} points"
        for name, record in zip(names, records, strict=True)
    ]
    joined_x: list[float | None] = []
    joined_y: list[float | None] = []
    for place, record in zip(places, records, strict=True):
        if record["baseline"] is not None:
            joined_x += [100 * record["baseline"], 100 * record["mean"], None]
            joined_y += [place, place, None]
    baselines = [None if record["baseline"] is None else 100 * record["baseline"] for record in records]
    means = [100 * record["mean"] for record in records]
    attack = Marks("--series-1", 10)
    data = [
        Curve("", joined_x, joined_y, Stroke("--series-1-soft", 5)),
        Curve("best baseline", baselines, places, marks=Marks(_BASELINE, 9, "diamond-open"), words=words),
        Curve("attack, with 95% interval", means, places, marks=attack, words=words, x_errors=_errors(records)),
    ]
    marked = [record for record in records if record["sensitive"]]
    gains = [record for record in records if record["lift"] is not None]
    top = max(gains, key=lambda record: record["lift"], default=None)
    description = f"{len(records)} columns, {len(marked)} of them sensitive."
    if top is not None:
        description += f" The largest lift is {points(top['lift'])} points, of {clean(top['column'])}."
    x = Axis("Cells of the column that are right (%)", _RATE)
    return Figure(name, title, description, data, x, _named(names), height=110 + 24 * max(4, len(records)))


def heat(name: str, settings: Sequence[str], columns: Sequence[Sequence[Record | None]], title: str) -> Figure:
    """Return the lift of every column (None: no figure) in every setting, as a grid of shaded and numbered fields."""
    names = [_starred(next(record for record in column if record is not None)) for column in columns]
    lifts = [
        [None if record is None or record["lift"] is None else 100 * record["lift"] for record in column]
        for column in columns
    ]
    texts = [["–" if lift is None else f"{lift:+.0f}" for lift in line] for line in lifts]
    description = f"Lift over the best baseline in points, {len(columns)} columns in {len(settings)} settings."
    data = [Heat(range(len(settings)), _places(columns), lifts, texts)]
    x = Axis("", ticks=list(enumerate(settings)), grid=False, top=True)
    return Figure(name, title, description, data, x, _named(names), height=110 + 24 * max(4, len(columns)))


def reliability(name: str, records: Sequence[Record], title: str) -> Figure:
    """Return accuracy against the attacker's own certainty, the area of a mark by its number of cells."""
    data = [Curve("certainty equals accuracy", [0, 100], [0, 100], Stroke(_BASELINE, 1.5, "dot"))]
    for i, kind in enumerate(dict.fromkeys(record["kind"] for record in records)):
        series = [record for record in records if record["kind"] == kind]
        most = max(record["cells"] for record in series)
        data.append(
            Curve(
                f"{kind} cells" if kind == "discrete" else "continuous cells (certainty by rank)",
                [100 * record["certainty"] for record in series],
                [100 * record["mean"] for record in series],
                Stroke(_color(i), 2, _DASHES[i]),
                Marks(_color(i), [6 + 12 * (record["cells"] / most) ** 0.5 for record in series], _SYMBOLS[i]),
                [
                    f"certainty {percent(record['certainty'], 0)}: {percent(record['mean'])} right {_between(record)}, "
                    f"{record['cells']:,} cells"
                    for record in series
                ],
                y_errors=_errors(series),
            )
        )
    ends = [record for record in records if record["bin"] == max(other["bin"] for other in records)]
    ends_read = "; ".join(
        f"of the most certain {record['kind']} cells {percent(record['mean'])} are right" for record in ends
    )
    x = Axis("Certainty by the attacker's own account (%)", (-3, 103))
    y = Axis("Cells that are right (%)", (-3, 105))
    return Figure(name, title, f"Accuracy by the attacker's certainty: {ends_read}.", data, x, y)


def covered(name: str, records: Sequence[Record], title: str) -> Figure:
    """Return the accuracy of the most certain share of cells."""
    data = []
    for i, kind in enumerate(dict.fromkeys(record["kind"] for record in records)):
        series = [record for record in records if record["kind"] == kind]
        shares, means = ([100 * record[figure] for record in series] for figure in ("share", "mean"))
        data.append(Curve(f"{kind} cells", shares, means, Stroke(_color(i), 2.5, _DASHES[i])))
    last = "; ".join(
        f"{percent(record['mean'])} of all {record['kind']} cells are right"
        for record in records
        if record["share"] == 1
    )
    x, y = Axis("Share of cells, most certain first (%)", (0, 101)), Axis("Of these, right (%)", (0, 103))
    return Figure(name, title, f"Accuracy of the cells that the attacker is most certain of; {last}.", data, x, y)


def groups(name: str, records: Sequence[Record], overall: float | None, title: str) -> Figure:
    """Return the accuracy on the records of each category."""
    shown = list(records[:MOST_COLUMNS])
    names = [f"{label(record['column'], 18)}: {_category(record)}" for record in shown]
    words = [
        f"{name}: {percent(record['mean'])} of {record['cells']:,} cells"
        for name, record in zip(names, shown, strict=True)
    ]
    means = [100 * record["mean"] for record in shown]
    data = [Curve("records of the group", means, _places(shown), marks=Marks("--series-1", 10), words=words)]
    if overall is not None:
        ends = [-0.7, len(shown) - 0.3]
        data.append(Curve("all records", [100 * overall] * 2, ends, Stroke(_BASELINE, 2, "dash")))
    ordered = sorted(records, key=lambda record: record["mean"])
    description = (
        f"{len(records)} groups; accuracy from {percent(ordered[0]['mean'])} to {percent(ordered[-1]['mean'])}."
    )
    x = Axis("Cells read (%)", _RATE)
    return Figure(name, title, description, data, x, _named(names), height=110 + 26 * max(4, len(shown)))


def _category(record: Record) -> str:
    return f"{record['pooled']} small categories together" if record["pooled"] else label(record["category"], 18)


def quarters(name: str, records: Sequence[Record], title: str) -> Figure:
    """Return the accuracy by quarter of the records' rarity."""
    quarter_names = ("most common", "second", "third", "rarest")
    ticks = [(record["quarter"], quarter_names[record["quarter"] - 1]) for record in records]
    data = Curve(
        "",
        [record["quarter"] for record in records],
        [100 * record["mean"] for record in records],
        Stroke("--series-1-soft", 3),
        Marks("--series-1", 11),
        [
            f"{quarter} quarter: {percent(record['mean'])} {_between(record)}, {record['records']} records"
            for (_, quarter), record in zip(ticks, records, strict=True)
        ],
        y_errors=_errors(records),
    )
    description = (
        f"From the most common quarter, {percent(records[0]['mean'])}, to the rarest, {percent(records[-1]['mean'])}."
    )
    x = Axis("Quarter of the records, by how rare their cells are", (0.5, 4.5), ticks)
    return Figure(name, title, description, [data], x, Axis("Cells read (%)", (0, 103)), height=340)


def frontier(
    name: str, records: Sequence[Record], title: str, horizontal: str, size: str | None, error: bool = False
) -> Figure:
    """Return leakage against how well the task is learnt, marks of one defense joined and numbered by batch size.

    ``size`` is what batch sizes are called, None where they do not differ; ``error`` is whether the task's metric is no
    rate.
    """
    scale = 1.0 if error else 100.0
    drawn = [record for record in records if record["closed"] is not None]
    data = []
    for i, defense in enumerate(dict.fromkeys(record["defense"] for record in drawn)):
        series = [record for record in drawn if record["defense"] == defense]
        tasks = [f"{record['task']:.4g}" if error else percent(record["task"]) for record in series]
        data.append(
            Curve(
                label(defense, 48),
                [scale * record["task"] for record in series],
                [100 * record["closed"] for record in series],
                None if size is None else Stroke(_color(i), 1.5, _DASHES[i % SERIES]),
                Marks(_color(i), 11, _SYMBOLS[i % SERIES]),
                [
                    f"{_point(label(defense, 60), record, size)}: closed gap {percent(record['closed'])}, task {task}"
                    for record, task in zip(series, tasks, strict=True)
                ],
                () if size is None else [str(record["batch_size"]) for record in series],
                _errors(series, "task", "task_low", "task_high", scale),
                _errors(series, "closed", "closed_low", "upper"),
            )
        )
    description = "; ".join(
        f"{_point(clean(record['defense'], 40), record, size)}: closed gap {percent(record['closed'])}"
        for record in drawn[:8]
    )
    least = min(-3.0, 100 * min((record["closed"] for record in drawn), default=0.0) - 3)
    return Figure(
        name,
        title,
        f"Leakage beside how well the task is learnt: {description}.",
        data,
        Axis(horizontal if error else f"{horizontal} (%)"),
        Axis("Gap to certainty closed (%)", (least, 106)),
        height=440,
        limits=[(100 * bound, "--line") for bound, _ in BOUNDS],
    )


def _point(defense: str, record: Record, size: str | None) -> str:
    return defense if size is None else f"{defense}, {size} {record['batch_size']}"


def differences(name: str, records: Sequence[Record], names: tuple[str, str], title: str) -> Figure:
    """Return the same figures of two runs side by side with their intervals."""
    shown = list(records[:MOST_COLUMNS])
    data = []
    for i, (side, run) in enumerate(zip(("a", "b"), names, strict=True)):
        series = [record[side] for record in shown]
        data.append(
            Curve(
                label(run),
                [None if record["mean"] is None else 100 * record["mean"] for record in series],
                [place + (0.14 if side == "a" else -0.14) for place in _places(shown)],
                marks=Marks(_color(i), 9, _SYMBOLS[i]),
                words=[f"{percent(record['mean'])} {_between(record)}" for record in series],
                x_errors=_errors(series),
            )
        )
    y = _named([label(record["label"], 48) for record in shown], grid=True)
    description = f"{len(records)} figures of {clean(names[0])} and {clean(names[1])} side by side."
    height = 120 + 34 * max(3, len(shown))
    return Figure(name, title, description, data, Axis("Cells read (%)", _RATE), y, height=height)


def _color(i: int) -> str:
    return f"--series-{i % SERIES + 1}"


def _between(record: Record) -> str:
    if record["low"] is None:
        return "(no interval)"
    return span(record["low"], record["high"])


def _errors(
    records: Sequence[Record], mean: str = "mean", low: str = "low", high: str = "high", scale: float = 100.0
) -> Errors:
    return [
        None
        if None in (record[mean], record[low], record[high])
        else (scale * max(0.0, record[mean] - record[low]), scale * max(0.0, record[high] - record[mean]))
        for record in records
    ]


def _starred(record: Record) -> str:
    return label(record["column"]) + (" ★" if record["sensitive"] else "")


def _places(lines: Sequence[object]) -> list[int]:
    """Return the places of lines that stand below each other."""
    return list(range(len(lines)))[::-1]


def _named(names: Sequence[str], grid: bool = False) -> Axis:
    """Return the axis of figures with a line for each name."""
    return Axis("", (-0.7, len(names) - 0.3), list(zip(_places(names), names, strict=True)), grid)
