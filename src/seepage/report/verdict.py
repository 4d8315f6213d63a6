"""How bad is it: the share of the gap between guessing and certainty that an attack closes, in tiers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from seepage.audit import Row

Tier = Literal["none", "low", "moderate", "high", "total", "inconclusive"]
BOUNDS: tuple[tuple[float, Tier], ...] = ((0.05, "none"), (0.2, "low"), (0.5, "moderate"), (0.9, "high"))
_HALF = 0.5


@dataclass(frozen=True)
class Verdict:
    """Of a row of accuracies.

    Attributes:
        tier: by the upper end of the interval of ``closed``.
        closed: (score - best baseline) / (1 - best baseline): 0 is guessing, 1 is certainty.
        upper: upper end of its 95% interval.
    """

    tier: Tier
    closed: float | None
    upper: float | None


def verdict(row: Row, exact: Row | None = None) -> Verdict:
    """Return the tier of an accuracy.

    ``none`` below 0.05 of the gap closed, ``low`` below 0.2, ``moderate`` below 0.5, ``high`` below
    0.9, else ``total``; ``total`` also where half of all records come back whole. The upper end of
    the interval decides, so that few victims never make an audit look better. Without an interval
    (one victim, or victims so alike that theirs is a point, which claims too much) or where guessing
    is always right there is no tier: ``inconclusive``. Only ``total`` stands without one.

    Args:
        row: of an attack's accuracy.
        exact: the row of the same attack's exact matches, where the tier is of all columns.

    Example:
        >>> verdict({"lift": 0.4, "lift_low": 0.36, "lift_high": 0.44, "baseline": 0.5}).tier
        'high'
    """
    whole = exact is not None and exact["mean"] is not None and exact["mean"] >= _HALF
    if row["lift"] is None or row["baseline"] is None or row["baseline"] >= 1:
        return Verdict("total" if whole else "inconclusive", None, None)
    gap = 1 - row["baseline"]
    closed, upper = row["lift"] / gap, None if row["lift_high"] is None else row["lift_high"] / gap
    tier = "total" if whole else _tier(upper)
    if tier != "total" and row["lift_low"] == row["lift_high"]:
        tier = "inconclusive"
    return Verdict(tier, closed, upper)


def _tier(upper: float | None) -> Tier:
    if upper is None:
        return "inconclusive"
    for bound, tier in BOUNDS:
        if upper < bound:
            return tier
    return "total"


def pick(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """Return the rows whose fields are as wanted.

    Example:
        >>> pick([{"metric": "a"}, {"metric": "b"}], metric="b")
        [{'metric': 'b'}]
    """
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def strongest(rows: Sequence[Row], batch_size: int) -> str | None:
    """Return the attack with the highest accuracy over all cells at a batch size; None without attacks."""
    scored = [
        row
        for row in pick(rows, batch_size=batch_size, metric="accuracy", column=None)
        if row["seconds_per_victim"] is not None and row["mean"] is not None
    ]
    return max(scored, key=lambda row: row["mean"])["attack"] if scored else None
