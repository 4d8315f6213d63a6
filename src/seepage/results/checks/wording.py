"""Wording of findings."""

from __future__ import annotations

from collections.abc import Sequence

from seepage.results.checks.finding import Where
from seepage.text import percent

_SHOWN = 3


def few(items: Sequence[str]) -> str:
    """Return the first items and the number of the others.

    Example:
        >>> few(["a", "b", "c", "d", "e"])
        'a; b; c; and 2 more'
    """
    more = len(items) - _SHOWN
    return "; ".join([*items[:_SHOWN], *([f"and {more} more"] if more > 0 else [])])


def few_of(names: Sequence[str]) -> list[str]:
    """Return the first names and, as a further name, the number of the others.

    Example:
        >>> few_of(["a", "b", "c", "d", "e"])
        ['a', 'b', 'c', '2 more']
    """
    more = len(names) - _SHOWN
    return [*names[:_SHOWN], *([f"{more} more"] if more > 0 else [])]


def place(where: Where, size: str = "batch size") -> str:
    """Return a setting in words; ``size`` is the name of the number of records behind a message.

    Example:
        >>> place(Where(8, "none", "tableak")), place(Where(8, "noise")), place(Where(None, "noise"))
        ('tableak at batch size 8', 'batch size 8 under noise', 'under noise')
    """
    under = "" if where.defense in (None, "none") else f" under {where.defense}"
    sized = "" if where.batch_size is None else f"{size} {where.batch_size}"
    return (" at ".join(part for part in (where.attack or "", sized) if part) + under).strip()


def share(rate: float) -> str:
    """Return a rate in percent.

    Example:
        >>> share(0.1234), share(-0.5)
        ('12%', '-50%')
    """
    return percent(rate, 0)
