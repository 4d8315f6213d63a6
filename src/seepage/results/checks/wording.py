"""Wording of findings."""

from __future__ import annotations

from collections.abc import Sequence

from seepage.results.checks.finding import Where
from seepage.run.runner import Run
from seepage.text import percent

_SHOWN = 3


def few(items: Sequence[str]) -> str:
    """Return the first items and the number of the others."""
    more = len(items) - _SHOWN
    return "; ".join([*items[:_SHOWN], *([f"and {more} more"] if more > 0 else [])])


def few_of(names: Sequence[str]) -> list[str]:
    """Return the first names and, as a further name, the number of the others."""
    more = len(names) - _SHOWN
    return [*names[:_SHOWN], *([f"{more} more"] if more > 0 else [])]


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
