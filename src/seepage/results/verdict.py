"""The verdict on a configuration: what is shown to be read, what is not excluded, or why neither is decided.

Terminal, page, notebook, advice, checks and gate read the same value, so that no page says two things.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from seepage.assessment.decision import WHOLE
from seepage.assessment.row import ResultRow
from seepage.results.checks.finding import INCOMPLETE as MISSING
from seepage.results.checks.finding import LOWER_BOUNDS, Finding

Tier = Literal["little read", "incomplete", "not decided", "gain shown", "mostly read", "whole records read"]
LITTLE, INCOMPLETE, UNDECIDED, GAIN, MOSTLY, WHOLE_RECORDS = GRAVITY = (
    "little read",
    "incomplete",
    "not decided",
    "gain shown",
    "mostly read",
    "whole records read",
)
"""Verdicts from mild to grave."""
UNKNOWN = (INCOMPLETE, UNDECIDED)
NOT_REACHED = "not reached"
"""What stands in place of a verdict where no attack has a figure."""
# Verdicts that say that more is read than guessing gets.
SHOWN = (GAIN, MOSTLY, WHOLE_RECORDS)
ENOUGH = 0.2
"""Share of the gap between the best baseline and certainty below whose upper bound little is read."""
HALF = 0.5
"""Share of the gap from whose lower bound on most is read, and of the records of a single captured message."""
BOUNDS: tuple[tuple[float, Tier], ...] = ((ENOUGH, "little read"), (HALF, "gain shown"))
"""Ends of the zones in which a closed gap is drawn; above the last one most is read."""
# Classes of the page's colours.
_STYLES = {LITTLE: "little", GAIN: "gain", MOSTLY: "mostly", WHOLE_RECORDS: "whole"}


def style_of(tier: str) -> str:
    """Return the class of a verdict's colour; ``open`` where nothing is known."""
    return _STYLES.get(tier, "open")


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


def reads_whole(exact: ResultRow | None) -> bool:
    """Return whether records are read whole that no baseline gets: one is enough.

    Where baselines get whole records, too, the gain must be shown. One captured message is no sample: half of its
    records, and half of those that no baseline gets, must be read.
    """
    if exact is None or not exact.mean:
        return False
    guessed = exact.baseline or 0.0
    if exact.captured and exact.n == 1:
        return exact.mean - guessed >= HALF * (1 - guessed) > 0
    return guessed == 0 or (exact.lift_low is not None and exact.lift_low > 0)


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


@dataclass(frozen=True)
class Verdict:
    """Verdict on what an attack reads, see ``verdict``.

    Attributes:
        tier: one of ``GRAVITY``.
        closed: (score - best baseline) / (1 - best baseline): 0 is guessing, 1 is certainty.
        low, high: ends of its 95% interval.
        because: finding that took the verdict away.
        proved: whether a cell is certified.
    """

    tier: str
    closed: float | None
    low: float | None
    high: float | None
    because: Finding | None = None
    proved: bool = False

    @property
    def rank(self) -> int:
        """Place among the verdicts, from mild to grave."""
        return GRAVITY.index(self.tier)


def verdict(
    row: ResultRow, exact: ResultRow | None = None, findings: Sequence[Finding] = (), certified: ResultRow | None = None
) -> Verdict:
    """Return the verdict on an accuracy.

    The lower bound of the closed gap names what is grave, the upper bound what is mild, and no mean decides:
    ``whole records read`` where a record is certified, or one is read whole that no baseline gets; ``mostly read``
    where at least half of the gap is shown to be closed; ``gain shown`` where the attack is shown to read more than the
    best baseline gets; ``little read`` where at most a fifth of the gap is not excluded. Else it is ``not decided``,
    as where an error finding concerns the row, or where little is read by these attacks and a stronger one was not
    tried. Where little is read and a default attack or its positive control is missing it is ``incomplete``.

    A single captured message is no sample, and has no interval: the share itself decides whether most of it is read.
    """
    closed, low, high = closed_gap(row), closed_gap(row, "lift_low"), closed_gap(row, "lift_high")
    proved = certified is not None and bool(certified.mean)
    ends = (closed, low, high)
    if proved or reads_whole(exact):
        return Verdict(WHOLE_RECORDS, *ends, proved=proved)
    blocked = blocking(findings, row)
    if row.captured and row.n == 1 and (closed or 0.0) >= WHOLE:
        return Verdict(MOSTLY, *ends)
    if low is not None and low >= WHOLE:
        # What was read, was read, whatever a finding says.
        return Verdict(MOSTLY, *ends)
    if blocked is not None or low is None or high is None:
        return Verdict(UNDECIDED, *ends, blocked)
    if high < ENOUGH:
        missing = first(findings, row, lambda finding: finding.code == MISSING)
        weaker = first(findings, row, lambda finding: finding.code in LOWER_BOUNDS)
        if missing is not None:
            return Verdict(INCOMPLETE, *ends, missing)
        return Verdict(LITTLE, *ends) if weaker is None else Verdict(UNDECIDED, *ends, weaker)
    if low > 0:
        return Verdict(MOSTLY if low >= HALF else GAIN, *ends)
    return Verdict(UNDECIDED, *ends)


def graver(cells: Verdict, label: Verdict) -> Verdict:
    """Return the verdict on a configuration with two attacked secrets: the graver one."""
    return max((cells, label), key=lambda rated: (rated.rank, -1.0 if rated.closed is None else rated.closed))


def blocking(findings: Sequence[Finding], row: ResultRow) -> Finding | None:
    """Return the first finding because of which a row's figure cannot be relied on, None where there is none."""
    return first(findings, row, lambda finding: finding.severity == "error")


def first(findings: Sequence[Finding], row: ResultRow, wanted: Callable[[Finding], bool]) -> Finding | None:
    """Return the first wanted finding that concerns a row, None where there is none."""
    point = (row.batch_size, row.defense, row.attack)
    return next((finding for finding in findings if wanted(finding) and finding.concerns(*point)), None)


def pick(rows: Iterable[ResultRow], **wanted: object) -> list[ResultRow]:
    """Return the rows whose fields are as wanted."""
    return [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]


def strongest(rows: Sequence[ResultRow], batch_size: int | None, defense: str = UNDEFENDED) -> str | None:
    """Return the attack with the highest accuracy over all cells in a setting; None without attacks."""
    row = strongest_row(rows, batch_size, defense)
    return None if row is None else row.attack
