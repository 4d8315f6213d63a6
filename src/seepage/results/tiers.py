"""Tiers of leakage, and the rows of results behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from seepage.assessment.decision import WHOLE
from seepage.assessment.row import ResultRow

Tier = Literal["none", "low", "moderate", "high", "total"]
_HALF = 0.5
BOUNDS: tuple[tuple[float, Tier], ...] = ((0.05, "none"), (0.2, "low"), (0.5, "moderate"), (WHOLE, "high"))
TIERS: tuple[Tier, ...] = ("none", "low", "moderate", "high", "total")


def tier_of(closed: float) -> Tier:
    """Return the tier of a share of the gap between the best baseline and certainty."""
    for bound, tier in BOUNDS:
        if closed < bound:
            return tier
    return "total"


def closed_gap(row: ResultRow, field: Literal["lift", "lift_low", "lift_high"] = "lift") -> float | None:
    """Return the share of the gap between the best baseline and certainty that a row's attack closes.

    None without a baseline or the field, or where the best baseline is always right. An attack that is right in every
    unit closes all of the gap in each. No end of an interval lies above certainty.
    """
    end: float | None = getattr(row, field)
    if row.lift is None or end is None or row.baseline is None or row.baseline >= 1:
        return None
    return 1.0 if row.mean is not None and row.mean >= 1 else min(1.0, end / (1 - row.baseline))


def is_whole(exact: ResultRow | None) -> bool:
    """Return whether half of all records are read whole, among those too that the best baseline does not read whole."""
    if exact is None or exact.mean is None:
        return False
    guessed = exact.baseline or 0.0
    return exact.mean - guessed >= _HALF * (1 - guessed) > 0


def settings(rows: Iterable[ResultRow]) -> list[tuple[int | None, str]]:
    """Return the batch sizes (None where there is no such number) and defenses of attacks, in order of appearance."""
    return list(dict.fromkeys((row.batch_size, row.defense) for row in rows if row.is_attack))


def strongest_row(
    rows: Sequence[ResultRow], batch_size: int | None, defense: str, column: str | None = None
) -> ResultRow | None:
    """Return the row of the attack with the highest accuracy on all cells, or a column; None where none was scored."""
    wanted = (batch_size, defense, "accuracy", column)
    scored = [
        (row.mean, row)
        for row in rows
        if row.is_attack and (row.batch_size, row.defense, row.metric, row.column) == wanted and row.mean is not None
    ]
    return max(scored, key=lambda scored_row: scored_row[0], default=(None, None))[1]
