"""How bad is it: the share of the gap between the best baseline and certainty that an attack closes, in tiers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seepage.assessment.row import ResultRow
from seepage.results.checks import Alarm
from seepage.results.tiers import Tier, closed_gap, is_whole, strongest_row, tier_of

UNDEFENDED = "none"


@dataclass(frozen=True)
class Verdict:
    """Of a row of accuracies.

    Attributes:
        tier: by the upper end of the interval of ``closed``.
        closed: (score - best baseline) / (1 - best baseline): 0 is guessing, 1 is certainty.
        upper: upper end of its 95% interval.
        because: the alarm that took the tier away, None where none did.
    """

    tier: Tier
    closed: float | None
    upper: float | None
    because: Alarm | None = None


def verdict(
    row: ResultRow, exact: ResultRow | None = None, alarms: Sequence[Alarm] = (), certified: ResultRow | None = None
) -> Verdict:
    """Return the tier of an accuracy.

    ``none`` below 0.05 of the gap closed, ``low`` below 0.2, ``moderate`` below 0.5, ``high`` below
    0.9, else ``total``; ``total`` also where half of all records come back whole (see ``tiers.is_whole``) or any
    record is certified. The upper end of the interval decides, so that few victims never make an audit look better.
    Without an interval (one victim, or victims so alike that theirs is a point, which claims too much), where
    guessing is always right, or where an alarm says that the figure cannot be relied on, there is no tier:
    ``inconclusive``. Only ``total`` stands all the same; against an alarm, if the whole interval is
    there: what was read, was read.

    Args:
        row: row of an attack's accuracy.
        exact: the row of the same attack's exact matches, where the tier is of all columns.
        alarms: alarms of the audit; those of severity ``error`` that concern the row count.
        certified: the row of the same attack's share of certified records, if it proves any.

    Example:
        >>> from dataclasses import replace
        >>> row = ResultRow(dataset="adult", protocol="fedsgd", model="nn3", attack="tableak", metric="accuracy")
        >>> verdict(replace(row, lift=0.4, lift_low=0.36, lift_high=0.44, baseline=0.5)).tier
        'high'
    """
    whole = is_whole(exact) or (certified is not None and (certified.mean or 0) > 0)
    closed, upper = closed_gap(row), closed_gap(row, "lift_high")
    tier = "total" if whole else tier_of(upper)
    because = blocking(alarms, row)
    if because is not None and not whole and tier_of(closed_gap(row, "lift_low")) != "total":
        return Verdict("inconclusive", closed, upper, because)
    if tier != "total" and row.lift_low == row.lift_high:
        tier = "inconclusive"
    return Verdict(tier, closed, upper)


def blocking(alarms: Sequence[Alarm], row: ResultRow) -> Alarm | None:
    """Return the first alarm because of which a row's figure cannot be relied on, None where there is none."""
    for alarm in alarms:
        if alarm.severity == "error" and alarm.concerns(row.batch_size, row.defense, row.attack):
            return alarm
    return None


def pick(rows: Iterable[ResultRow], **wanted: object) -> list[ResultRow]:
    """Return the rows whose fields are as wanted.

    Example:
        >>> from dataclasses import replace
        >>> row = ResultRow(dataset="adult", protocol="fedsgd", model="nn3", attack="tableak", metric="accuracy")
        >>> pick([row, replace(row, attack="mode")], attack="tableak") == [row]
        True
    """
    return [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]


def strongest(rows: Sequence[ResultRow], batch_size: int | None, defense: str = UNDEFENDED) -> str | None:
    """Return the attack with the highest accuracy over all cells in a setting; None without attacks."""
    found = strongest_row(rows, batch_size, defense)
    return None if found is None else found.attack
