"""Pages of measured tables, and counts of how many of their cells agree with the print, from the CSV files.

A page of the documentation asks for what it shows with a comment:

    <!-- summary: tableak -->   counts for each published table of a paper
    <!-- own: exact -->         list of the paper's tables that stand beside no print of the same thing
    <!-- cells: below -->       list of all cells that are shown to read less than printed, with their causes
    <!-- cells: far -->         list of all others that are more than 20 points off
    <!-- data: speed -->        all lines of benchmarks/results/speed.csv
    <!-- data: unmix_batch dataset=adult -->   those lines of the file

Outcomes are calculated from each line's own mean, deviation and number of units, never read from the file.
"""

from __future__ import annotations

import functools
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import site_figures
from seepage.datasets.about import card_of
from seepage.kernel import KERNEL_VERSION
from seepage.reproduce.causes import FAR, SOMETHING_ELSE, causes
from seepage.reproduce.compare import judged_anew
from seepage.reproduce.table import PublishedTable, tables
from seepage.results.agreement import MARGIN

FOLDER = "benchmarks/results"
# Where the site has a page for each file.
PAGES = "results/tables"
PAPERS = ("tableak", "exact", "uifv", "property")
# Columns of counts, by outcome and direction.
OUTCOMES = {
    "agree": ("agrees", ""),
    "differ, below": ("differs", "below"),
    "differ, above": ("differs", "above"),
    "differ, no rate": ("differs", ""),
    "shown within": ("shown within", ""),
    "shown below": ("shown below", "below"),
    "shown above": ("shown above", "above"),
    "open": ("open", ""),
    "not judgeable": ("not judgeable", ""),
    "not run": ("not run", ""),
}

Link = Callable[[str], str]
Files = Mapping[str, tuple[PublishedTable, list[site_figures.Line]]]
_DIRECTIVE = re.compile(r"^<!-- (?P<name>summary|own|cells|data): (?P<of>\w+)(?P<only>( \w+=[\w.]+)*) -->$", re.M)
_NONE = "–"
_SPACE = "\N{NO-BREAK SPACE}"
# What lines of benchmarks are sorted by, as far as it differs between them.
_ORDER = ("network", "dataset", "hidden_layers", "units", "rounds", "epochs", "batches", "noise", "batch_size")
_RATES = re.compile(r"accuracy|exact_match|gain|default|switched|f1|value|two_standard_errors|^std$")


def measured(root: Path) -> dict[str, tuple[PublishedTable, list[site_figures.Line]]]:
    """Return each table that there is a file of, by the file's name, with its lines, judged anew."""
    found = {}
    for table in tables().values():
        path = root / FOLDER / f"{table.name.replace('/', '_')}.csv"
        if path.is_file():
            found[path.stem] = (table, [dict(line) for line in _judged_file(table.name, path, path.stat().st_mtime_ns)])
    return found


@functools.cache
def _judged_file(name: str, path: Path, written: int) -> list[site_figures.Line]:
    """Return the lines of a table's file judged anew, once for each time that it was ``written``."""
    return [judged_anew(tables()[name], line) for line in site_figures.read(path)]


def fill(markdown: str, root: Path, link: Link) -> str:
    """Return the text with each comment that asks for tables replaced by them.

    Args:
        markdown: text of a page.
        root: root of the repository.
        link: from the name of a file, without its ending, to the address that a page links to.

    Raises:
        FigureError: there is no such paper or file.
    """

    def made(found: re.Match[str]) -> str:
        if found["name"] == "data":
            only = [word.split("=", 1) for word in found["only"].split()]
            lines = site_figures.read(root / FOLDER / f"{found['of']}.csv")
            kept = [line for line in lines if all(line.get(name) == value for name, value in only)]
            if not kept:
                raise site_figures.FigureError(f"{found[0]!r} asks for lines that the file does not have.")
            return data(kept)
        return {"summary": summary, "own": own, "cells": cells}[found["name"]](found["of"], measured(root), link)

    return _DIRECTIVE.sub(made, markdown)


def summary(paper: str, files: Files, link: Link) -> str:
    """Return one line for each published table of a paper with the outcomes of its printed cells, measured or not.

    Tables of which nothing can be judged share a line. Outcomes that the paper has none of are left out.

    Args:
        paper: first part of the tables' names.
        files: measured tables by file name.
        link: from the name of a file to the address that the line links to.

    Raises:
        FigureError: nothing of the paper was measured.
    """
    rows, within, apart, distances = [], 0, list[str](), list[float]()
    total, elsewhere = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for name, (table, lines) in _of(paper, files):
        printed = [line for line in lines if line["agreement"]]
        counts = Counter((line["agreement"], line["direction"]) for line in printed)
        counts["not run", ""] = sum(1 for _ in table.cells()) - counts.total()
        total += counts
        address = f"[{table.name.partition('/')[2].replace('table', 'table ')}]({link(name)})"
        judged = _judged(lines)
        if not judged:
            elsewhere += counts
            apart += [address] if printed else []
            continue
        signed = [float(line["difference"]) for line in judged]
        distances += signed
        away = [abs(distance) for distance in signed]
        near = sum(distance <= MARGIN for distance in away)
        within += near
        last = [site_figures.points(str(statistics.median(away))), _mean(signed), str(near)]
        rows.append([address, table.title, _range(int(line["n"]) for line in judged), *_counts(counts), *last])
    for table in tables().values():
        unmeasured = sum(1 for _ in table.cells()) if table.name.replace("/", "_") not in files else 0
        if unmeasured and table.name.startswith(f"{paper}/"):
            counts = Counter({("not run", ""): unmeasured})
            total += counts
            rows.append([f"`{table.name}`", table.title, "", *_counts(counts), "", "", ""])
    if not rows:
        raise site_figures.FigureError(f"nothing of the paper {paper!r} was measured.")
    if apart:
        rows.append([", ".join(apart), "Of other data or another measure", "", *_counts(elsewhere), "", "", ""])
    rows.append(["**all**", "", "", *_counts(total), "", _mean(distances), str(within)])
    head = [
        "table",
        "what it shows",
        "our n",
        "cells",
        *OUTCOMES,
        "median distance, points",
        "mean difference, points",
        f"within {100 * MARGIN:g} points",
    ]
    used = [i for i, name in enumerate(head) if name not in OUTCOMES or rows[-1][i] != "0"]
    return _table([head[i] for i in used], [[row[i] for i in used] for row in rows])


def _mean(distances: Sequence[float]) -> str:
    """Return the mean of ours less the print, in points."""
    return site_figures.points(str(statistics.fmean(distances)), signed=True)


def _judged(lines: Sequence[site_figures.Line]) -> list[site_figures.Line]:
    """Return the lines beside a printed rate of the same thing."""
    return [line for line in lines if line["agreement"] and line["difference"] and line["unit"] == "percent"]


def _counts(counts: Counter[tuple[str, str]]) -> list[str]:
    return [str(counts.total()), *(str(counts[outcome]) for outcome in OUTCOMES.values())]


def own(paper: str, files: Files, link: Link) -> str:
    """Return one line for each table of a paper's setting that stands beside no print of the same thing.

    Args:
        paper: first part of the tables' names.
        files: measured tables by file name.
        link: from the name of a file to the address that the line links to.
    """
    rows = [
        [f"[`{table.name}`]({link(name)})", table.title, _range(int(line["n"]) for line in lines)]
        for name, (table, lines) in _of(paper, files)
        if not _judged(lines)
    ]
    return _table(["table", "what it shows", "n"], rows)


def below(files: Files, link: Link) -> str:
    """Return the cells that are shown to read less than printed, by cause, with their distances in points.

    Args:
        files: measured tables by file name.
        link: from the name of a file to the address that the line links to.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for name, table, line in _cells(files, "below"):
        address = f"[{table.name.replace('/table', ' ')}]({link(name)})"
        cell = f"{_place(table, line)} {_number(line['difference'], plain=False, signed=True)}"
        found.setdefault(line["cause"], {}).setdefault(address, []).append(cell)
    rows = [
        [
            f"{cause}: {causes().names[cause]}",
            str(sum(map(len, where.values()))),
            "; ".join(f"{at}: {', '.join(listed)}" for at, listed in where.items()),
        ]
        for cause, where in sorted(found.items())
    ]
    return _table(["cause", "cells", "where, and how many points less than printed"], rows)


def cells(which: str, files: Files, link: Link) -> str:
    """Return a line for each cell that is shown to read less than printed, or that is far off without that.

    Args:
        which: ``below`` or ``far``.
        files: measured tables by file name.
        link: from the name of a file to the address that the line links to.

    Raises:
        FigureError: no such list is known.
    """
    if which not in ("below", "far"):
        raise site_figures.FigureError(f"there is no list of cells {which!r}; there are 'below' and 'far'.")
    rows = [
        [
            f"[{table.name}]({link(name)})",
            _place(table, line),
            line["n"],
            _spread(line, "ours", plain=False),
            _spread(line, "published", plain=False),
            _between(line, plain=False),
            _outcome(line),
            line["cause"],
        ]
        for name, table, line in _cells(files, which)
    ]
    return _table(["table", "cell", "n", "ours", "printed", "difference [95%]", "outcome", "cause"], rows)


def _cells(files: Files, which: str) -> list[tuple[str, PublishedTable, site_figures.Line]]:
    return [
        (name, table, line)
        for paper in PAPERS
        for name, (table, lines) in _of(paper, files)
        for line in _judged(lines)
        if (line["direction"] == "below") == (which == "below")
        if which == "below" or abs(float(line["difference"])) > FAR
    ]


def _place(table: PublishedTable, line: site_figures.Line) -> str:
    return " ".join(line[axis] for axis in table.axes if line[axis])


def _outcome(line: site_figures.Line) -> str:
    """Return the outcome of a cell, with how many of our units would tell or why nothing does."""
    if line["agreement"] == "open":
        return f"open, n = {line['needed']} would tell" if line["needed"] else "open, at the margin"
    if line["agreement"] == "not judgeable":
        return f"not judgeable: {line['reason']}"
    return line["agreement"]


def page(name: str, table: PublishedTable, lines: Sequence[site_figures.Line], folder: str) -> str:
    """Return the page of one table: cells beside the print, and apart from them all others.

    Args:
        name: name of the file, without its ending.
        table: the table.
        lines: lines of the file.
        folder: where the files are, seen from the page.
    """
    beside = [line for line in lines if line["agreement"] and line["reason"] != SOMETHING_ELSE]
    unlike = [line for line in lines if line["reason"] == SOMETHING_ELSE]
    others = [line for line in lines if not line["published"]]
    text = f"# {table.name}\n\n{_about(name, table, lines, folder)}\n"
    if beside:
        text += f"\n## Ours beside the print\n\n{_RULE}\n\n{_beside(table, beside)}\n"
    if unlike:
        text += (
            "\n## Beside a print of something else\n\nThe printed figures are of other data or of another measure. "
            f"They give the scale and no verdict.\n\n{_alone(table, unlike, printed=True)}\n"
        )
    if others:
        head = "Other attackers and settings" if beside or unlike else "Measured"
        text += f"\n## {head}\n\n"
        if beside or unlike:
            text += "The paper prints nothing that these could be compared with.\n\n"
        text += _alone(table, others) + "\n"
    return text


def data_page(name: str, lines: Sequence[site_figures.Line], folder: str) -> str:
    """Return the page of a file that belongs to no published table.

    Args:
        name: name of the file, without its ending.
        lines: lines of the file.
        folder: where the files are, seen from the page.
    """
    return f"# {name}\n\nAs data: [{name}.csv]({folder}/{name}.csv).\n\n{data(lines)}\n"


def data(lines: Sequence[site_figures.Line]) -> str:
    """Return the lines of a file as a table, rates in percent.

    Columns that are empty everywhere are left out. An interval stands beside its figure. In files of many columns those
    that never change are said once, below the table, as are the commit and the version of the kernel behind proofs.

    Args:
        lines: some or all lines of a file.
    """
    names = [name for name in lines[0] if any(line[name] for line in lines)]
    ends = {name: both for name in names if (both := _ends(name, names))}
    hidden = {end for both in ends.values() for end in both} | {"commit", "kernel"}
    many = len(names) > 8 and len(lines) > 1
    constant = [name for name in names if many and name not in hidden and len({line[name] for line in lines}) == 1]
    shown = [name for name in names if name not in hidden and name not in constant]
    order = [name for name in _ORDER if name in shown and many]
    rows = [
        [_cell(name, line[name], name in ends) + _interval(name, line, ends) for name in shown]
        for line in sorted(lines, key=lambda line: [_order(line[name]) for name in order])
    ]
    text = _table([_words(name) + (" [95%]" if name in ends else "") for name in shown], rows)
    said = [f"{_words(name)} {_cell(name, lines[0][name])}" for name in constant]
    if said:
        text += f"\n\nIn all lines: {', '.join(said)}."
    commits = [commit for commit in dict.fromkeys(line.get("commit", "") for line in lines) if commit]
    kernels = sorted({line["kernel"] for line in lines if line.get("kernel")}, key=int)
    proofs = ""
    if kernels:
        earlier = "" if kernels == [str(KERNEL_VERSION)] else f"; today's is kernel {KERNEL_VERSION}"
        proofs = f" Proofs are by kernel {' and '.join(kernels)}{earlier}."
    return text + (f"\n\nMeasured at commit {', '.join(commits)}.{proofs}" if commits else "")


_RULE = (
    "Rates are in percent: mean ± standard deviation. A cell *agrees* where the difference is shown to lie within the "
    "margin, and *differs* where it is shown to lie beyond it, by two one-sided Welch tests at 5%. A print without a "
    "deviation is taken at its word: ours is *shown within* 5 points, *below* or *above* by its own deviation. Else a "
    "cell is *open*, with how many of our units would tell by the figures so far. "
    "[Causes](../../discrepancies.md#where-our-figures-and-the-print-differ) have a page."
)


def _of(paper: str, files: Files) -> list[tuple[str, tuple[PublishedTable, list[site_figures.Line]]]]:
    found = [(name, both) for name, both in files.items() if both[0].name.startswith(f"{paper}/")]
    return sorted(found, key=lambda item: [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", item[0])])


def _beside(table: PublishedTable, lines: Sequence[site_figures.Line]) -> str:
    with_lift = any(line["lift"] for line in lines)
    rows = []
    for line in lines:
        plain = line["unit"] == "plain"
        row = [
            *(line[axis] or _NONE for axis in table.axes),
            line["n"],
            _spread(line, "ours", plain),
            _spread(line, "published", plain),
            _between(line, plain),
            f"{100 * float(line['margin']):g}" if line["margin"] else _NONE,
            _outcome(line),
            line["cause"] or _NONE,
        ]
        rows.append(row + (_baseline(line, plain) if with_lift else []))
    head = [*map(_words, table.axes), "n", "ours", "printed", "difference [95%]", "margin", "outcome", "cause"]
    return _table(head + (["best baseline", "lift"] if with_lift else []), rows)


def _alone(table: PublishedTable, lines: Sequence[site_figures.Line], printed: bool = False) -> str:
    intervals, lifts = any(line["ours_low"] for line in lines), any(line["lift"] for line in lines)
    head = ["run", *map(_words, table.axes), "n", "ours", *(["95% interval"] if intervals else [])]
    head += [*(["printed, of something else"] if printed else []), *(["best baseline", "lift"] if lifts else [])]
    rows = []
    for line in lines:
        plain = line["unit"] == "plain"
        row = [line["run"], *(line[axis] or _NONE for axis in table.axes), line["n"], _spread(line, "ours", plain)]
        if intervals:
            low, high = _number(line["ours_low"], plain), _number(line["ours_high"], plain)
            row.append(f"{low} to {high}" if line["ours_low"] else _NONE)
        if printed:
            row.append(_spread(line, "published", plain))
        rows.append(row + (_baseline(line, plain) if lifts else []))
    return _table(head, rows)


def _about(name: str, table: PublishedTable, lines: Sequence[site_figures.Line], folder: str) -> str:
    source = "ours" if table.source.startswith("ours") else table.source
    said = [f"{table.title}.", f"Source of the table: {source}."]
    victims = max((int(line["n"]) for line in lines if line["seconds_per_victim"]), default=0)
    command = f"seepage reproduce {table.name}" + (f" --victims {victims}" if victims else "")
    for axis in table.axes:
        values = list(dict.fromkeys(line[axis] for line in lines))
        if axis == "dataset" and len(values) < len({audit.spec.dataset for audit in table.planned()}):
            command += "".join(f" --only {axis}={value}" for value in values)
    said.append(f"Command: `{command}`.")
    said.append(f"As data: [{name}.csv]({folder}/{name}.csv).")
    commits = [commit for commit in dict.fromkeys(line["commit"] for line in lines) if commit]
    if commits:
        said.append(f"Measured at commit {', '.join(commits)}.")
    for dataset, rows in dict.fromkeys((_dataset(table, line), line["rows"]) for line in lines):
        card = card_of(dataset)
        if rows and card is not None and int(rows) < card.rows:
            said.append(f"Partial data: {int(rows):,} of the {card.rows:,} rows of `{dataset}`.")
    notes = "\n".join(f"- {note[0].upper()}{note[1:]}." for note in table.notes)
    return " ".join(said) + (f"\n\n{notes}" if notes else "")


def _dataset(table: PublishedTable, line: site_figures.Line) -> str:
    return line.get("dataset") or str(table.spec.get("dataset", ""))


def _number(text: str, plain: bool, signed: bool = False) -> str:
    if not plain:
        return site_figures.points(text, signed)
    return f"{float(text):{'+' if signed else ''}.2f}".replace("-", "−") if text else _NONE


def _spread(line: site_figures.Line, name: str, plain: bool) -> str:
    if not line[name]:
        return _NONE
    std = line[f"{name}_std"]
    # A figure and its deviation stay on one line.
    return _number(line[name], plain) + (f"{_SPACE}±{_SPACE}{_number(std, plain)}" if std else "")


def _between(line: site_figures.Line, plain: bool) -> str:
    """Return the difference with its interval."""
    shown, low, high = (_number(line[name], plain, signed=True) for name in ("difference", "low", "high"))
    return f"{shown} [{low}, {high}]" if line["low"] else shown


def _baseline(line: site_figures.Line, plain: bool) -> list[str]:
    guess = f"{_number(line['guess'], plain)} {line['guess_name']}" if line["guess"] else _NONE
    return [guess, _number(line["lift"], plain, signed=True)]


def _cell(name: str, text: str, rate: bool = False) -> str:
    try:
        number = float(text)
    except ValueError:
        return text or _NONE
    if rate or _RATES.search(name):
        return site_figures.points(text, signed=name == "gain")
    if number.is_integer() and abs(number) >= 1000:
        return f"{number:,.0f}"
    return text


def _ends(name: str, names: Sequence[str]) -> tuple[str, str] | None:
    """Return the columns with the ends of a figure's interval, None where it has none."""
    own = (f"{name}_low", f"{name}_high")
    if own[0] in names and own[1] in names:
        return own
    return ("low", "high") if name in ("gain", "value") and "low" in names and "high" in names else None


def _interval(name: str, line: site_figures.Line, ends: Mapping[str, tuple[str, str]]) -> str:
    if name not in ends or not line[ends[name][0]]:
        return ""
    low, high = (line[end] for end in ends[name])
    # Where all repeats are alike there is nothing to say.
    return "" if low == high == line[name] else f" [{_cell(name, low, True)}, {_cell(name, high, True)}]"


def _order(text: str) -> tuple[int, float, str]:
    try:
        return 0, float(text), ""
    except ValueError:
        return 1, 0.0, text


def _words(name: str) -> str:
    return name.replace("_", " ")


def _range(values: Iterable[int]) -> str:
    known = sorted({*values})
    return " to ".join(map(str, dict.fromkeys((known[0], known[-1]))))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
