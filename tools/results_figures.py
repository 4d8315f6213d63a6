"""Draws the figures of the results from the CSV files in ``benchmarks/results``, and the page that shows them all.

python tools/results_figures.py          write docs/results/*.svg, docs/results/figures and docs/results/figures.md anew
python tools/results_figures.py --check  fail if one would change

One figure of each paper is drawn here; those of published tables are as ``seepage reproduce`` draws them.
"""

from __future__ import annotations

import argparse
import html
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scipy import stats

import site_figures
import site_tables
from seepage.reproduce.drawing import drawing

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "benchmarks/results"
DRAWN = "docs/results"

# Told apart by readers with any colour vision, on white.
BLUE, ORANGE, GREEN, PURPLE, GREY, BLACK = "#0b62a8", "#c65102", "#00795c", "#8a4d9e", "#6b6b6b", "#1b1b1b"
WIDTH, FONT = 760, "font-family='system-ui,Segoe UI,Helvetica,Arial,sans-serif'"


@dataclass(frozen=True)
class Point:
    """One measured or printed rate.

    Attributes:
        at: position on the axis of positions.
        value: the rate, in percent.
        low, high: its interval; None for none.
    """

    at: int
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """Points that belong together.

    Attributes:
        label: text of the legend.
        color: colour of marks and lines.
        points: the points, in the order of their positions.
        hollow: whether marks are hollow and lines dashed, as printed figures are drawn.
        mark: ``circle``, ``diamond`` or ``bar``.
        joined: whether a line joins the points.
    """

    label: str
    color: str
    points: Sequence[Point]
    hollow: bool = False
    mark: str = "circle"
    joined: bool = True


@dataclass
class Drawing:
    """Elements of an SVG file."""

    width: int
    height: int
    parts: list[str] = field(default_factory=list)

    def line(self, x1: float, y1: float, x2: float, y2: float, color: str, width: float = 1, dash: str = "") -> None:
        """Add a straight line."""
        dashed = f" stroke-dasharray='{dash}'" if dash else ""
        self.parts.append(
            f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{color}' "
            f"stroke-width='{width}'{dashed}/>"
        )

    def text(self, x: float, y: float, words: str, anchor: str = "start", color: str = BLACK, more: str = "") -> None:
        """Add a line of text; ``more`` are further attributes."""
        self.parts.append(
            f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' fill='{color}'{more}>{html.escape(words)}</text>"
        )

    def mark(self, x: float, y: float, series: Series) -> None:
        """Add the mark of one point."""
        fill = "#ffffff" if series.hollow else series.color
        paint = f"fill='{fill}' stroke='{series.color}' stroke-width='1.6'"
        if series.mark == "circle":
            self.parts.append(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4' {paint}/>")
        elif series.mark == "diamond":
            self.parts.append(f"<path d='M{x:.1f} {y - 5.5:.1f}l5.5 5.5l-5.5 5.5l-5.5 -5.5z' {paint}/>")
        else:
            self.line(x, y - 7, x, y + 7, series.color, 3)

    def done(self, title: str) -> str:
        """Return the text of the file."""
        return (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {self.width} {self.height}' width='{self.width}' "
            f"height='{self.height}' role='img' aria-label='{html.escape(title, quote=True)}' font-size='13' {FONT}>\n"
            f"<rect width='{self.width}' height='{self.height}' fill='#ffffff'/>\n"
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def curves(
    title: str, across: str, places: Sequence[str], series: Sequence[Series], low: int, band: Point | None = None
) -> str:
    """Return a figure with positions from left to right and rates upwards.

    Args:
        title: heading of the figure.
        across: label of the positions.
        places: name of each position.
        series: what is drawn.
        low: least rate that is shown, in percent.
        band: a rate with its interval that is drawn across all positions, as of a baseline.
    """
    legend = 2 if len(series) > 3 else 1
    left, right, top, bottom = 56, 20, 44 + 20 * legend, 50
    height = 400
    made = Drawing(WIDTH, height)
    made.text(12, 22, title, more=" font-weight='600' font-size='15'")
    _legend(made, series, 46, 3 if legend == 2 else len(series))

    def x(at: int) -> float:
        return left + (WIDTH - left - right) * (at + 0.5) / len(places)

    def y(value: float) -> float:
        return top + (height - top - bottom) * (100 - value) / (100 - low)

    for rate in range(low, 101, 20 if low == 0 else 10):
        made.line(left, y(rate), WIDTH - right, y(rate), "#dddddd")
        made.text(left - 8, y(rate) + 4, f"{rate}%", "end", GREY)
    for at, name in enumerate(places):
        made.text(x(at), height - bottom + 20, name, "middle", GREY)
    made.text(left + (WIDTH - left - right) / 2, height - 10, across, "middle")
    if band is not None:
        if band.low is not None and band.high is not None:
            made.parts.append(
                f"<rect x='{left}' y='{y(band.high):.1f}' width='{WIDTH - left - right}' "
                f"height='{y(band.low) - y(band.high):.1f}' fill='{GREY}' opacity='0.18'/>"
            )
        made.line(left, y(band.value), WIDTH - right, y(band.value), GREY, 1.6, "6 4")
        made.text(left + 6, y(band.value) - 5, "prior alone", color=GREY)
    for number, one in enumerate(series):
        # Side by side, so that intervals of one position stay apart.
        shift = 7 * (number - (len(series) - 1) / 2)
        if one.joined:
            for first, second in zip(one.points, one.points[1:], strict=False):
                made.line(
                    x(first.at) + shift,
                    y(first.value),
                    x(second.at) + shift,
                    y(second.value),
                    one.color,
                    1.4,
                    "5 4" if one.hollow else "",
                )
        for point in one.points:
            if point.low is not None and point.high is not None:
                made.line(x(point.at) + shift, y(point.low), x(point.at) + shift, y(point.high), one.color, 1.6)
            made.mark(x(point.at) + shift, y(point.value), one)
    return made.done(title)


def rows(title: str, across: str, places: Sequence[str], series: Sequence[Series], breaks: Iterable[int] = ()) -> str:
    """Return a figure with a row for each position and rates from left to right.

    Args:
        title: heading of the figure.
        across: label of the rates.
        places: name of each row.
        series: what is drawn, never joined.
        breaks: rows that a rule stands above.
    """
    left, right, top, bottom, step = 240, 28, 72, 48, 30
    height = top + step * len(places) + bottom
    made = Drawing(WIDTH, height)
    made.text(12, 22, title, more=" font-weight='600' font-size='15'")
    _legend(made, series, 46, len(series))

    def x(value: float) -> float:
        return left + (WIDTH - left - right) * value / 100

    for rate in range(0, 101, 20):
        made.line(x(rate), top, x(rate), height - bottom, "#dddddd")
        made.text(x(rate), height - bottom + 18, f"{rate}%", "middle", GREY)
    made.text(left + (WIDTH - left - right) / 2, height - 8, across, "middle")
    for at, name in enumerate(places):
        made.text(left - 10, top + step * (at + 0.5) + 4, name, "end")
    for at in breaks:
        made.line(12, top + step * at, WIDTH - right, top + step * at, "#bbbbbb")
    for one in series:
        for point in one.points:
            y = top + step * (point.at + 0.5)
            if point.low is not None and point.high is not None:
                made.line(x(max(point.low, 0)), y, x(min(point.high, 100)), y, one.color, 1.6)
            made.mark(x(point.value), y, one)
    return made.done(title)


def tableak(root: Path) -> str:
    """Return TabLeak's table 17: accuracy by batch size, printed and ours."""
    lines = [line for line in _read(root, "tableak_table17") if line["labels"] == "true"]
    sizes = list(dict.fromkeys(line["batch_size"] for line in lines))

    def of(run: str, method: str, name: str = "ours") -> list[Point]:
        own = [line for line in lines if (line["run"], line["method"]) == (run, method)]
        return [_point(sizes.index(line["batch_size"]), line, name) for line in own]

    return curves(
        "TabLeak, table 17: cells of Adult that are read, true labels",
        "records in a batch",
        sizes,
        [
            Series("TabLeak, printed", BLUE, of("faithful", "tableak", "published"), hollow=True),
            Series("TabLeak, our repeat", BLUE, of("faithful", "tableak")),
            Series("our default profile", GREEN, of("default", "tableak")),
            Series("Inverting Gradients, printed", ORANGE, of("faithful", "inverting_gradients", "published"), True),
            Series("Inverting Gradients, our repeat", ORANGE, of("faithful", "inverting_gradients")),
            Series("random baseline, ours", GREY, of("faithful", "random")),
        ],
        40,
    )


def exact(root: Path) -> str:
    """Return what attackers read of split learning's private cells as noise grows."""
    lines = _read(root, "exact_frontier_cells")
    noises = [name for name in dict.fromkeys(line["noise_in_bounds"] for line in lines) if name]

    def one(at: int, line: Mapping[str, str]) -> Point:
        low, high = (100 * float(line[name]) if line[name] else None for name in ("low", "high"))
        return Point(at, 100 * float(line["value"]), low, high)

    def of(attack: str) -> list[Point]:
        return [one(noises.index(line["noise_in_bounds"]), line) for line in lines if line["attack"] == attack]

    [prior] = [one(0, line) for line in lines if line["attack"] == "prior"]
    return curves(
        "Split learning: private cells of Adult that are read under noise",
        "noise on the returned gradient, in clipping bounds",
        noises,
        [
            Series("exact (the paper's attack)", BLUE, of("exact")),
            Series("exact, clips its candidates", PURPLE, of("exact_aware")),
            Series("posterior (ours)", GREEN, of("posterior")),
            Series("fsha", ORANGE, of("fsha")),
            Series("unsplit", BLACK, of("unsplit")),
        ],
        0,
        prior,
    )


def uifv(root: Path) -> str:
    """Return UIFV's table 6: accuracy of its four attacks, printed and ours, and the best baseline."""
    lines = [line for line in _read(root, "uifv_table6") if line["kind"] == "all" and line["run"] == "faithful"]
    data = {"adult": "Adult", "bank_additional": "Bank", "credit": "Credit"}
    names = {
        "uifv_qa": "query attack",
        "uifv_iqa": "isolated query attack",
        "uifv_sa": "stealth attack",
        "uifv_dpa": "data-passive attack",
    }
    places = [(dataset, method) for dataset in data for method in names]
    at = {(line["dataset"], line["method"]): line for line in lines}
    trainings = f"{lines[0]['n']} trainings"
    return rows(
        "UIFV, table 6: reconstructed cells, printed and ours",
        "cells that are right",
        [f"{data[dataset]}: {names[method]}" for dataset, method in places],
        [
            Series("best baseline", GREY, [_point(i, at[p], "guess") for i, p in enumerate(places)], mark="bar"),
            Series(
                "printed", ORANGE, [_point(i, at[p], "published") for i, p in enumerate(places)], True, mark="diamond"
            ),
            Series(f"ours, {trainings}", BLUE, [_point(i, at[p], "ours") for i, p in enumerate(places)]),
        ],
        (4, 8),
    )


def dataset_properties(root: Path) -> str:
    """Return table 4 of dataset properties on Adult, with models trained for 3 and for 20 epochs."""
    brief = {
        (line["run"], line["sensitive"], line["kept"]): line
        for line in _read(root, "property_table4")
        if line["dataset"] == "adult_education"
    }
    long = {
        (line["run"], line["sensitive"], line["kept"]): line
        for line in _read(root, "property_training")
        if line["training"] == "20 epochs of batches of 128"
    }
    places = [(column, kept) for column in ("gender", "income") for kept in ("with", "without")]

    def of(lines: Mapping[tuple[str, str, str], Mapping[str, str]], run: str, name: str = "ours") -> list[Point]:
        return [_point(i, lines[run, *place], name) for i, place in enumerate(places)]

    return rows(
        "Dataset properties, table 4: is the share 33% or 67%? Adult, linear models",
        "models that are answered right (guessing: 50%)",
        [f"{column}: {'an input' if kept == 'with' else 'not an input'}" for column, kept in places],
        [
            Series("printed", ORANGE, of(brief, "faithful", "published"), True, mark="diamond"),
            Series("its attack, 20 epochs", BLUE, of(long, "faithful")),
            Series("its attack, 3 epochs", PURPLE, of(brief, "faithful")),
            Series("shuffled control", GREY, of(brief, "shuffled"), mark="bar"),
        ],
    )


def property_splits(root: Path) -> str:
    """Return how often a split of Adult's columns is told from its mirror image, from far apart to nearly even."""
    lines = _read(root, "property_splits")
    splits = list(dict.fromkeys(line["split"] for line in lines))

    def of(run: str, column: str) -> list[Point]:
        own = [line for line in lines if (line["run"], line["sensitive"]) == (run, column)]
        return [_point(splits.index(line["split"]), line, "ours") for line in own]

    return curves(
        "Dataset properties: is the victim's share the first or the second? Adult, linear models",
        "share of the rows with the attribute and without it, told from its mirror image (guessing: 50%)",
        splits,
        [
            Series("income, published attack", ORANGE, of("faithful", "income"), joined=True),
            Series("income, ours", BLUE, of("default", "income"), joined=True),
            Series("gender, published attack", ORANGE, of("faithful", "gender"), True, joined=True),
            Series("gender, ours", BLUE, of("default", "gender"), True, joined=True),
        ],
        0,
    )


def trees(root: Path) -> str:
    """Return what histograms of federated trees give away under each defense, beside the best baseline."""
    names = {
        "none": "no defense",
        "min_child_weight weight: 5": "leaves of weight 5",
        "max_bin bins: 16": "16 bins",
        "shared_cuts bins: 32": "32 shared cuts",
        "sum of 5 clients": "sums of 5 clients",
        "histogram_noise deviation: 0.1": "noise of 0.1",
        "histogram_noise deviation: 1": "noise of 1",
        "histogram_noise deviation: 10": "noise of 10",
    }
    lines = {
        line["defense"]: line
        for line in _read(root, "trees")
        if (line["table"], line["protocol"], line["rows"], line["trees"]) == ("adult", "histogram", "200", "10")
    }

    def rate(at: int, line: Mapping[str, str], name: str) -> Point:
        ends = ("low", "high") if name == "accuracy" else ()
        return Point(at, *(100 * float(line[column]) for column in (name, *ends)))

    def best(line: Mapping[str, str]) -> str:
        return max(("random", "own_marginals"), key=lambda name: float(line[name]))

    own = [(i, lines[defense]) for i, defense in enumerate(names)]
    return rows(
        "Federated trees: cells of Adult that histograms give away",
        "cells that are right (10 rounds, 200 rows a client)",
        list(names.values()),
        [
            Series("best baseline", GREY, [rate(i, line, best(line)) for i, line in own], mark="bar"),
            Series("whole records", ORANGE, [rate(i, line, "whole") for i, line in own], True, mark="diamond"),
            Series("anchor", BLUE, [rate(i, line, "accuracy") for i, line in own]),
        ],
    )


FIGURES = {
    "tableak": tableak,
    "exact": exact,
    "uifv": uifv,
    "dataset-properties": dataset_properties,
    "dataset-properties-splits": property_splits,
    "trees": trees,
}


def drawn(root: Path) -> dict[str, str]:
    """Return the texts of all files by their paths: figures of papers, of tables, and the page of the latter."""
    files = {f"{name}.svg": draw(root) for name, draw in FIGURES.items()}
    sections: dict[str, list[str]] = {}
    for name, (table, lines) in site_tables.measured(root).items():
        if (text := drawing(table, lines)) is not None:
            files[f"figures/{name}.svg"] = text
            shown = f"![{table.title}](figures/{name}.svg)\n\n`seepage reproduce {table.name}`"
            data = f"as data: [{name}.csv](../../benchmarks/results/{name}.csv)"
            sections.setdefault(PAPER_NAMES[table.name.partition("/")[0]], []).append(
                f"### {table.title}\n\n{shown}; {data}. Source: {table.source}.\n"
            )
    page = "".join(f"\n## {paper}\n\n" + "\n".join(shown) for paper, shown in sections.items())
    files["figures.md"] = f"{_PAGE}{page}"
    return files


PAPER_NAMES = {
    "exact": "EXACT: split learning",
    "property": "Dataset properties: pooled learning",
    "tableak": "TabLeak: horizontal learning",
    "uifv": "UIFV: vertical learning",
}
_PAGE = """# Figures of the papers

For readers who compare our repeats with a paper at a glance. Full marks are ours, with 95% intervals; hollow, dashed
ones are printed. `seepage reproduce` draws each of them into its run folder, beside the data.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check all figures; return the exit status.

    Args:
        arguments: command line; that of the process if None.
    """
    parser = argparse.ArgumentParser(description="Draw the figures of the results anew.")
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if a figure would change")
    check, stale = parser.parse_args(arguments).check, []
    for name, made in drawn(ROOT).items():
        path = ROOT / DRAWN / name
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(made, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != made:
            stale.append(path.name)
    if stale:
        print(f"{', '.join(stale)}: not what the CSV files say; run: python tools/results_figures.py", file=sys.stderr)
    return 1 if stale else 0


def _read(root: Path, name: str) -> list[site_figures.Line]:
    return site_figures.read(root / FOLDER / f"{name}.csv")


def _point(at: int, line: Mapping[str, str], name: str) -> Point:
    """Return a point of a line; its interval is that of our mean, by t where the file has none."""
    value = float(line[name])
    low = high = None
    if name == "ours" and line["ours_low"]:
        low, high = float(line["ours_low"]), float(line["ours_high"])
    elif name == "ours" and line["ours_std"]:
        number = int(line["n"])
        half = float(stats.t.ppf(0.975, number - 1)) * float(line["ours_std"]) / math.sqrt(number)
        low, high = value - half, value + half
    return Point(at, 100 * value, *(None if end is None else 100 * end for end in (low, high)))


def _legend(made: Drawing, series: Sequence[Series], top: int, columns: int) -> None:
    for number, one in enumerate(series):
        x = 20 + (WIDTH - 30) / columns * (number % columns)
        y = top + 20 * (number // columns)
        made.mark(x, y - 4, one)
        made.text(x + 12, y, one.label)


if __name__ == "__main__":
    sys.exit(main())
