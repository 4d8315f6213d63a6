"""A deployment gate: does an audit stay below what somebody decided to accept?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seepage.assessment.row import ResultRow
from seepage.errors import BadInputError, unknown_name
from seepage.results.checks import Alarm, Where
from seepage.results.checks.wording import place
from seepage.results.tiers import settings, strongest_row
from seepage.results.verdict import blocking
from seepage.text import clean, points


@dataclass(frozen=True)
class Decision:
    """What a gate says.

    Attributes:
        failed: whether the audit must not pass.
        line: why, or that it passed, in one line.
        upper: the greatest upper end of a lift that decided; None where nothing could be measured.
    """

    failed: bool
    line: str
    upper: float | None


def gate(
    rows: Sequence[ResultRow],
    above: float,
    column: str | None = None,
    alarms: Sequence[Alarm] = (),
    unit: str = "victim",
) -> Decision:
    """Decide whether an audit stays below a lift over the best baseline in every configuration.

    In each setting (batch size and defense) the strongest attack counts, the one with the highest accuracy
    on what is looked at. The upper end of the 95% interval of its lift decides, so that few victims never
    help to pass. An audit that shows nothing passes no gate: without an attack, a baseline or an interval,
    where all victims are alike, where the best baseline is always right, or where an error alarm concerns the figure,
    it fails.

    Args:
        rows: results of one audit.
        above: the greatest lift that passes, a difference of accuracies in [0, 1).
        column: column to look at; all cells if None.
        alarms: alarms of the audit.
        unit: what ``n`` counts.

    Raises:
        BadInputError: ``above`` is not in [0, 1), or no row speaks of the column.

    Example:
        >>> from dataclasses import replace
        >>> row = ResultRow(dataset="adult", protocol="fedsgd", model="nn3", attack="tableak", metric="accuracy", n=10)
        >>> row = replace(row, mean=0.7, baseline=0.5, lift=0.2, lift_low=0.1, lift_high=0.3)
        >>> gate([row], above=0.25).failed, gate([row], above=0.3).failed
        (True, False)
    """
    check_gate(above, column, [row.column for row in rows if row.column is not None])
    decisions = [_decide(rows, size, defense, above, column, alarms, unit) for size, defense in settings(rows)]
    return combined(decisions) if decisions else Decision(True, "gate failed: no attack was run.", None)


def combined(decisions: Sequence[Decision]) -> Decision:
    """Return the decision on several audits or settings: the worst of them.

    Example:
        >>> combined([Decision(False, "passed", 0.1), Decision(True, "failed", 0.3)]).line
        'failed'
    """
    return max(decisions, key=lambda one: (one.failed, -1.0 if one.upper is None else one.upper))


def _decide(
    rows: Sequence[ResultRow],
    size: int | None,
    defense: str,
    above: float,
    column: str | None,
    alarms: Sequence[Alarm],
    unit: str,
) -> Decision:
    setting = clean(place(Where(size, defense)), 80) or "no defense"
    what = "all cells" if column is None else f"column {clean(column)}"
    row = strongest_row(rows, size, defense, column)
    if row is None:
        return Decision(True, f"gate failed: no attack was scored on {what} at {setting}.", None)
    at = f"{clean(row.dataset)}, {clean(row.model)}, {setting}"
    told = f"{clean(row.attack)} on {what} ({at})"
    upper = row.lift_high
    failed = upper is not None and upper > above
    problem = None if failed else _nothing_shown(row, alarms, unit)
    if upper is None or problem is not None:
        return Decision(True, f"gate failed: {told} shows nothing: {problem}.", None)
    line = (
        f"{told} gains {points(row.lift)} points over the best baseline, 95% interval up to {points(upper)}; "
        f"up to {points(above)} passes."
    )
    return Decision(failed, f"gate {'failed' if failed else 'passed'}: {line}", upper)


def check_gate(above: float, column: str | None, columns: Iterable[str]) -> None:
    """Refuse a gate that no audit could answer.

    Raises:
        BadInputError: ``above`` is not in [0, 1), or the column is none of ``columns``.
    """
    if not 0 <= above < 1:
        raise BadInputError(
            f"a gate takes a lift over the best baseline from 0 up to but below 1 (0.2 is 20 points), got {above:g}."
        )
    columns = list(dict.fromkeys(columns))
    if column is not None and column not in columns:
        raise unknown_name("column of the gate", column, columns)


def _nothing_shown(row: ResultRow, alarms: Sequence[Alarm], unit: str) -> str | None:
    if row.baseline is None:
        return "no baseline was run to compare with"
    if row.baseline >= 1:
        return f"the best baseline is always right, so no lift is possible on these {unit}s"
    if row.lift_high is None:
        return f"{row.n} {unit} allows no interval"
    if row.lift_low == row.lift_high:
        return f"all {row.n} {unit}s are alike, which allows no interval"
    if alarm := blocking(alarms, row):
        return f"the audit is inconclusive: {alarm.title} ({alarm.code})"
    return None
