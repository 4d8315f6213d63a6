"""Findings: reports of the checks of an audit on its own results, their words and their explanations."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from seepage.text import percent

if TYPE_CHECKING:
    from seepage.run.runner import Run

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
# Findings with which a figure is a lower bound: a stronger attack is known and was not tried.
LOWER_BOUNDS = ("SEEP024",)
# Finding with which a figure is a lower bound of what the same attack reads with more steps; a verdict stays, since one
# training varies.
MORE_STEPS = "SEEP031"
# Finding with which little leakage is not shown: a default attack is missing, or nothing shows that it works.
INCOMPLETE = "SEEP030"
# Findings with which figures are of another training than the clients' own, which leaks less.
UPPER_BOUNDS = ("SEEP025",)


class Where(NamedTuple):
    """Results that a finding concerns; None stands for any."""

    batch_size: int | None = None
    defense: str | None = None
    attack: str | None = None


@dataclass(frozen=True)
class Finding:
    """A report of a check: one paragraph, and the settings and attacks that it concerns (all if empty).

    ``error``: what it concerns cannot be relied on; ``warning``: read the figures with it in mind; ``note``: an
    assumption that a reader should know of. The message may hold column names, as they are. ``columns`` are those
    that it is about, if any.
    """

    code: str
    severity: Severity
    title: str
    message: str
    where: tuple[Where, ...] = ()
    columns: tuple[str, ...] = ()

    def concerns(self, batch_size: int | None, defense: str, attack: str) -> bool:
        """Return whether a finding concerns the figures of an attack in a setting."""
        place = (batch_size, defense, attack)
        return not self.where or any(
            all(wanted in (None, value) for wanted, value in zip(where, place, strict=True)) for where in self.where
        )


# An installed package holds a copy beside this file; a source tree has the document itself.
_HERE = Path(__file__).parent
_PLACES = (_HERE / "checks.md", _HERE.parents[3] / "docs" / "checks.md")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def explanation(code: str) -> list[str]:
    """Return meaning, importance and remedy of a check, a plain paragraph each; empty where there is no text."""
    return list(_sections().get(code, ()))


def titles() -> list[tuple[str, str, str]]:
    """Return code, usual severity and title of each check, read from the modules of checks, which stay unimported."""
    checks = []
    for path in _HERE.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "check":
                    code, severity, title = (str(ast.literal_eval(argument)) for argument in decorator.args[:3])
                    checks.append((code, severity, title))
    return sorted(checks)


@cache
def _sections() -> dict[str, tuple[str, ...]]:
    text = next((place.read_text(encoding="utf-8") for place in _PLACES if place.is_file()), "")
    sections = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        head, _, body = section.partition("\n")
        sections[head.strip()] = tuple(_plain(words) for words in body.strip().split("\n\n"))
    return sections


def _plain(words: str) -> str:
    return " ".join(_LINK.sub(r"\1", words).replace("**", "").replace("*", "").replace("`", "").split())


_SHOWN = 3


def few(items: Sequence[str]) -> str:
    """Return the first items and the number of the others."""
    more = len(items) - _SHOWN
    return "; ".join([*items[:_SHOWN], *([f"and {more} more"] if more > 0 else [])])


def few_of(names: Sequence[str], most: int = _SHOWN) -> list[str]:
    """Return the first names and, as a further name, the number of the others."""
    more = len(names) - most
    return [*names[:most], *([f"{more} more"] if more > 0 else [])]


def place(where: Where, size: str = "batch size") -> str:
    """Return a setting in words; ``size`` is the name of the number of records behind a message."""
    under = "" if where.defense in (None, "none") else f" under {where.defense}"
    sized = "" if where.batch_size is None else f"{size} {where.batch_size}"
    return (" at ".join(part for part in (where.attack or "", sized) if part) + under).strip()


def where_of(run: Run) -> Where:
    """Return the configuration and the label of a run."""
    return Where(run.configuration.batch_size, run.configuration.defense, run.label)


def share(rate: float) -> str:
    """Return a rate in percent."""
    return percent(rate, 0)
