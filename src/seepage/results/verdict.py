"""Tiers of leakage, and the verdict on a configuration with its certainty."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from seepage.assessment.decision import WHOLE
from seepage.assessment.intervals import UNITS_FOR_VERDICT
from seepage.assessment.row import ResultRow
from seepage.results.checks.finding import INCOMPLETE as MISSING
from seepage.results.checks.finding import LOWER_BOUNDS, Finding

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

    None without a baseline or the field, or where the best baseline is always right. No end of an interval lies above
    certainty, and the lower one not below 0, unless the share itself does: below guessing nothing more is told.
    """
    end: float | None = getattr(row, field)
    if row.lift is None or end is None or row.baseline is None or row.baseline >= 1:
        return None
    share = end / (1 - row.baseline)
    if field == "lift_low":
        share = max(share, min(0.0, row.lift / (1 - row.baseline)))
    return min(1.0, share)


def typical_ends(row: ResultRow) -> tuple[float, float] | None:
    """Return the closed gap at both ends of Student's t interval of the lift, which names the tiers; None without one.

    It tells where the lift lies if units vary as a normal distribution does. Both ends are the same where all are
    alike. An attack that is right in every unit closes all of the gap in each, however much the baseline differs
    between them.
    """
    ends = row.lift_ends()
    if ends is None or closed_gap(row) is None:
        return None
    if row.mean is not None and row.mean >= 1:
        return 1.0, 1.0
    gap = 1 - (row.baseline or 0.0)
    return min(1.0, ends[0] / gap), min(1.0, ends[1] / gap)


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


UNDEFENDED = "none"
INCOMPLETE, INCONCLUSIVE = "incomplete", "inconclusive"
UNKNOWN = (INCOMPLETE, INCONCLUSIVE)
# Words that a verdict may end with, from mild to grave; those without a tier come first.
GRAVITY = (*UNKNOWN, *TIERS)
# Tiers that are no lower bound: "at least low" would reassure where more may leak.
_MILD = ("none", "low")


@dataclass(frozen=True)
class Verdict:
    """Verdict on the leakage from an attack's lift, see ``verdict`` for its tiers.

    ``closed`` is (score - best baseline) / (1 - best baseline): 0 is guessing, 1 is certainty. ``low`` and ``high`` are
    the ends of its 95% interval, those of the lift over the baseline's mean. They hold for any distribution and are
    wider than what names the tiers. ``because`` is the finding that took the tier away or made it a lower bound.
    """

    tier: str
    closed: float | None
    low: float | None
    high: float | None
    because: Finding | None = None

    @property
    def gravest(self) -> str:
        """Gravest named tier, or the reason why there is none: one of ``GRAVITY``."""
        return gravest(self.tier)


def gravest(tier: str) -> str:
    """Return the gravest tier of a verdict, or the reason why there is none."""
    return tier.rpartition(" ")[2]


def verdict(
    row: ResultRow, exact: ResultRow | None = None, findings: Sequence[Finding] = (), certified: ResultRow | None = None
) -> Verdict:
    """Return the verdict on an accuracy.

    The tiers are those in which the closed gap lies at both ends of ``typical_ends``: ``none`` below 0.05, ``low``
    below 0.2, ``moderate`` below 0.5, ``high`` below 0.9, else ``total``; two neighbours are both named. The verdict is
    ``total`` also where any record is certified, or half of all records come back whole (see ``tiers.is_whole``) in two
    repetitions or more. A single captured message is no sample: that it gives nearly everything away is ``total``, too.
    It is ``inconclusive`` with fewer than five repetitions, where all of them are alike, where the
    best baseline is always right, or where an error finding concerns the row, or where the ends lie in more than two
    tiers. Where it would begin with ``none`` or ``low`` it is ``incomplete`` if a default attack or its positive
    control is missing, and ``inconclusive`` if a stronger attack was not tried; other tiers are then ``at least`` that.
    Ends that lie in ``total`` stand against a finding: what was read, was read.
    """
    closed, low, high = closed_gap(row), closed_gap(row, "lift_low"), closed_gap(row, "lift_high")
    ends = (closed, low, high)
    if row.captured and row.n == 1 and (is_whole(exact) or (closed or 0.0) >= WHOLE):
        return Verdict("total", *ends)
    if (is_whole(exact) and row.n > 1) or (certified is not None and (certified.mean or 0) > 0):
        return Verdict("total", *ends)
    blocked, typical = blocking(findings, row), typical_ends(row)
    if typical is None or row.n < UNITS_FOR_VERDICT:
        return Verdict(INCONCLUSIVE, *ends, blocked)
    lowest, highest = map(tier_of, typical)
    if lowest != "total" and (blocked is not None or typical[0] == typical[1]):
        return Verdict(INCONCLUSIVE, *ends, blocked)
    weaker = first(findings, row, lambda finding: finding.code in LOWER_BOUNDS)
    missing = first(findings, row, lambda finding: finding.code == MISSING)
    if missing is not None and lowest in _MILD:
        return Verdict(INCOMPLETE, *ends, missing)
    if weaker is not None and lowest != "total":
        return Verdict(INCONCLUSIVE if lowest in _MILD else f"at least {lowest}", *ends, weaker)
    return Verdict(_between(lowest, highest), *ends)


def graver(cells: Verdict, label: Verdict) -> Verdict:
    """Return the verdict on a configuration with two attacked secrets: that on the one with more shown leakage.

    Where one of them is incomplete or inconclusive, the other is a lower bound of the leakage.
    """
    less, more = sorted((cells, label), key=lambda each: (GRAVITY.index(each.gravest), each.closed or 0.0))
    high = None if less.high is None or more.high is None else max(less.high, more.high)
    tier = more.tier
    if less.tier in UNKNOWN and more.gravest in TIERS and not more.tier.startswith("at least"):
        lowest = more.tier.partition(" ")[0]
        tier = more.tier if lowest == "total" else less.tier if lowest in _MILD else f"at least {lowest}"
    because = more.because if tier == more.tier else less.because
    return Verdict(tier, more.closed, more.low, high, because)


def _between(lowest: Tier, highest: Tier) -> str:
    steps = TIERS.index(highest) - TIERS.index(lowest)
    return lowest if steps == 0 else f"{lowest} to {highest}" if steps == 1 else INCONCLUSIVE


def blocking(findings: Sequence[Finding], row: ResultRow) -> Finding | None:
    """Return the first finding because of which a row's figure cannot be relied on, None where there is none."""
    return first(findings, row, lambda finding: finding.severity == "error")


def first(findings: Sequence[Finding], row: ResultRow, wanted: Callable[[Finding], bool]) -> Finding | None:
    """Return the first wanted finding that concerns a row, None where there is none."""
    here = (row.batch_size, row.defense, row.attack)
    return next((finding for finding in findings if wanted(finding) and finding.concerns(*here)), None)


def pick(rows: Iterable[ResultRow], **wanted: object) -> list[ResultRow]:
    """Return the rows whose fields are as wanted."""
    return [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]


def strongest(rows: Sequence[ResultRow], batch_size: int | None, defense: str = UNDEFENDED) -> str | None:
    """Return the attack with the highest accuracy over all cells in a setting; None without attacks."""
    row = strongest_row(rows, batch_size, defense)
    return None if row is None else row.attack
