"""Figures and configurations of method cards, as Markdown tables: from the result files and the code, never typed.

A page asks for one with a comment in which all but the name is handed on:

    <!-- figures: dlg -->
    <!-- figures: tableak labels=restored -->
    <!-- configuration: dlg -->
    <!-- switches -->
    <!-- overview -->
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from seepage.attacks.horizontal.matching.optimise import Descent
from seepage.attacks.horizontal.matching.profiles import Profile
from seepage.attacks.horizontal.matching.reconstruct import Reconstruction
from seepage.registry import attacks
from seepage.reproduce.table import load_table

# Files of `seepage reproduce`, by the name of the table that they stand beside.
PUBLISHED = {
    "tableak/table17": "benchmarks/results/tableak_table17.csv",
    "tableak/table18": "benchmarks/results/tableak_table18.csv",
}
SWITCHES = "benchmarks/results/tableak_switches.csv"
_DIRECTIVE = re.compile(r"^<!-- (?P<name>figures|configuration|switches|overview)(?:: (?P<rest>[^>]*?))? -->$", re.M)
_NONE = "–"
# A figure and its interval stay on one line.
_SPACE = "\N{NO-BREAK SPACE}"

Line = dict[str, str]


class FigureError(ValueError):
    """A page asks for what is not there."""


def fill(markdown: str, root: Path) -> str:
    """Return the text with each comment that asks for figures replaced by a table.

    Args:
        markdown: of a page.
        root: of the repository.

    Raises:
        FigureError: there are no such figures.
    """
    made: dict[str, Callable[..., str]] = {
        "figures": figures,
        "configuration": configuration,
        "switches": switches,
        "overview": overview,
    }

    def table(found: re.Match[str]) -> str:
        words = (found["rest"] or "").split()
        named = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        given = (root, *plain) if found["name"] != "configuration" else tuple(plain)
        try:
            return made[found["name"]](*given, **named)
        except TypeError as error:
            raise FigureError(f"{found[0]!r} cannot be read: {error}") from None

    return _DIRECTIVE.sub(table, markdown)


def figures(root: Path, method: str, labels: str = "true") -> str:
    """Return a table for each published one: printed figures, ours, their difference and its interval.

    Args:
        root: of the repository.
        method: as the result files call it.
        labels: granted (``true``) or restored.
    """
    parts = []
    for name, path in PUBLISHED.items():
        lines = [line for line in read(root / path) if (line["method"], line["labels"]) == (method, labels)]
        faithful = {line["batch_size"]: line for line in lines if line["run"] == "faithful"}
        default = {line["batch_size"]: line for line in lines if line["run"] == "default"}
        if not faithful:
            raise FigureError(f"{path} holds no line of the run faithful for method {method!r} with labels {labels!r}.")
        about = load_table(name)
        head = ["batch size", "printed", "`faithful`", "n", "difference [95%]", "outcome"]
        # What is stronger than the published attack is not held against its figures.
        head += ["`default`", "n"] if default else []
        head += ["best baseline"] if any(line["guess"] for line in faithful.values()) else []
        rows = []
        for size, line in faithful.items():
            row = [size, _spread(line, "published"), *_ours(line)]
            row += [line["agreement"] or _NONE]
            if default:
                row += _ours(default[size])[:2] if size in default else [_NONE] * 2
            if "best baseline" in head:
                row += [f"{points(line['guess'])}{_SPACE}({line['guess_name']})" if line["guess"] else _NONE]
            rows.append(row)
        parts.append(
            f"**{about.spec['dataset'].capitalize()}**, {labels} labels, share of all cells in percent, mean ± "
            f"standard deviation over n victims (printed: {about.published_victims}); printed in {about.source}.\n\n"
            + _table(head, rows)
        )
    return "\n\n".join(parts)


def configuration(method: str) -> str:
    """Return what each profile of a method is made of, as the code builds it; its defaults where it has none."""
    own: Any = attacks.create(method)
    if not isinstance(own, Reconstruction):
        # What it hands the rest to has a card of its own.
        held = {field.name: getattr(own, field.name) for field in fields(own)}
        arguments = [[f"`{name}`", _value(v)] for name, v in held.items() if not isinstance(v, Reconstruction)]
        return _table(["argument", "default"], arguments or [["none", _NONE]])
    made = {profile: attacks.create(method, profile=profile) for profile in get_args(Profile)}
    names = [field.name for field in fields(Reconstruction) if field.name not in ("descent", "rows_at_once")]
    rows = [[f"`{name}`", *(_value(getattr(one, name)) for one in made.values())] for name in names]
    rows += [
        [f"`{field.name}`", *(_value(getattr(one.descent, field.name)) for one in made.values())]
        for field in fields(Descent)
    ]
    return _table(["argument", *(f"`{profile}`" for profile in made)], rows)


def switches(root: Path) -> str:
    """Return what each part of the default profile gains over the published one, on the same victims."""
    rows = [
        [
            "all of them" if line["part"] == "all" else f"`{line['as_published']}`",
            line["batch_size"],
            line["n"],
            points(line["default"]),
            points(line["switched"]),
            _between(line, "gain"),
        ]
        for line in read(root / SWITCHES)
    ]
    head = ["as published", "batch size", "n", "`default`", "with that part as published", "gain of `default` [95%]"]
    return _table(head, rows)


def overview(root: Path, dataset: str = "adult", sizes: str = "8,32,128") -> str:
    """Return all published methods of one data set at some batch sizes: printed, faithful, default."""
    [(name, path)] = [(n, p) for n, p in PUBLISHED.items() if load_table(n).spec["dataset"] == dataset]
    lines = [line for line in read(root / path) if line["labels"] == "true"]
    wanted = sizes.split(",")
    methods = list(dict.fromkeys(line["method"] for line in lines))
    rows = []
    for method in methods:
        for run in ("faithful", "default"):
            own = {line["batch_size"]: line for line in lines if (line["method"], line["run"]) == (method, run)}
            if not own:
                continue
            cells = [
                f"{points(own[s]['ours'])} (n{_SPACE}={_SPACE}{own[s]['n']})"
                + (f"; {points(own[s]['published'])}" if run == "faithful" else "")
                if s in own
                else _NONE
                for s in wanted
            ]
            rows.append([f"`{method}`", f"`{run}`", *cells])
    return (
        f"{dataset.capitalize()}, true labels, share of all cells in percent: ours (n victims); for `faithful` also "
        f"the printed figure ({load_table(name).published_victims} victims).\n\n"
        + _table(["method", "profile", *(f"batch size {size}" for size in wanted)], rows)
    )


def read(path: Path) -> list[Line]:
    """Return the lines of a result file."""
    if not path.is_file():
        raise FigureError(f"the result file {path.name} is missing.")
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def points(rate: str, signed: bool = False) -> str:
    """Return a rate in percent with one decimal; a dash where there is none.

    Example:
        >>> points("0.8641"), points("-0.001", signed=True), points("")
        ('86.4', '−0.1', '–')
    """
    if not rate:
        return _NONE
    # Zero has no sign.
    shown = f"{100 * float(rate):{'+' if signed else ''}.1f}"
    return "0.0" if float(shown) == 0 else shown.replace("-", "−")


def _ours(line: Line) -> list[str]:
    return [_spread(line, "ours"), line["n"], _between(line, "difference")]


def _spread(line: Line, name: str) -> str:
    return f"{points(line[name])}{_SPACE}±{_SPACE}{points(line[f'{name}_std'])}" if line[name] else _NONE


def _between(line: Line, name: str) -> str:
    if not line[name]:
        return _NONE
    low, high = points(line["low"], True), points(line["high"], True)
    return points(line[name], True) + (f"{_SPACE}[{low},{_SPACE}{high}]" if line["low"] else "")


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(_value, value)) or _NONE
    return f"`{value}`" if isinstance(value, str) else str(value) if isinstance(value, int | float) else _class(value)


def _class(value: object) -> str:
    return f"`{type(value).__name__}`"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
