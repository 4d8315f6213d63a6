"""Checks of the number of figures and of the victims behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seepage.assessment.row import ResultRow
from seepage.results.checks.facts import Facts
from seepage.results.checks.finding import Where
from seepage.results.checks.registry import Fault, check
from seepage.results.checks.wording import few, place, share
from seepage.results.tiers import closed_gap, is_whole, settings, strongest_row, tier_of
from seepage.text import how_many

_FEW_VICTIMS = 5


@check("SEEP006", "warning", "An interval is too wide to decide")
def undecided(facts: Facts) -> Iterator[Fault]:
    """The ends of a 95% interval lie in different tiers, or there is no interval."""
    cases, where = [], []
    marked = facts.audit.about.sensitive
    for size, defense in settings(facts.rows):
        overall = open_tier(facts.rows, size, defense, facts.audit.spec.unit)
        columns = [
            c for c in marked if (row := strongest_row(facts.rows, size, defense, c)) is not None and _doubt(row)
        ]
        parts = [overall] if overall else []
        if columns:
            parts.append(f"{len(columns)} of {how_many(len(marked), 'sensitive column')}")
        if parts:
            at = Where(size, defense)
            cases.append(f"{place(at, facts.size) or 'no defense'}: {' and '.join(parts)}")
            where.append(at)
    if cases:
        yield Fault(
            f"With these {facts.audit.spec.unit}s several tiers of leakage are possible ({few(cases)}). Audit more of "
            "them; four times as many halve an interval.",
            tuple(where),
        )


def open_tier(rows: Sequence[ResultRow], batch_size: int | None, defense: str, unit: str = "victim") -> str | None:
    """Return why the tier of a setting is open; None where it is decided or open for another reason."""
    score = strongest_row(rows, batch_size, defense)
    if score is None:
        return None
    wanted = (batch_size, defense, score.attack, "exact_match", None)
    own = (row for row in rows if row.is_attack)
    exact = (row for row in own if (row.batch_size, row.defense, row.attack, row.metric, row.column) == wanted)
    return None if any(map(is_whole, exact)) else _doubt(score, unit)


def _doubt(row: ResultRow, unit: str = "victim") -> str | None:
    low, high = closed_gap(row, "lift_low"), closed_gap(row, "lift_high")
    if low is None or high is None:
        return None
    if row.lift_low == row.lift_high:
        return None if tier_of(high) == "total" else f"no interval, as all {row.n} {unit}s are alike"
    if tier_of(low) == tier_of(high):
        return None
    return f"{tier_of(low)} to {tier_of(high)} ({share(low)} to {share(min(high, 1.0))} of the gap closed)"


@check("SEEP007", "warning", "Few repetitions")
def few_victims(facts: Facts) -> Iterator[Fault]:
    """A figure rests on fewer than five victims, trainings or attack seeds."""
    rows = [row for row in facts.scores if row.n < _FEW_VICTIMS]
    if rows:
        fewest = min(row.n for row in rows)
        unit = facts.audit.spec.unit
        without = f" One {unit} allows no interval." if fewest == 1 else ""
        yield Fault(
            f"Figures rest on as few as {fewest} {unit}(s).{without} Intervals from so few assume that {unit}s vary as "
            f"a normal distribution does, which these cannot show. Audit at least {_FEW_VICTIMS}, better 20.",
            tuple(Where(row.batch_size, row.defense, row.attack) for row in rows),
        )


@check("SEEP016", "warning", "Nothing to compare with")
def no_baseline(facts: Facts) -> Iterator[Fault]:
    """No baseline was run."""
    rows = [row for row in facts.scores if row.baseline is None]
    if rows:
        yield Fault(
            "No baseline was run, so leakage cannot be separated from what is known without the message. "
            "Leave the baselines on; they cost next to nothing.",
            tuple(dict.fromkeys(Where(row.batch_size, row.defense) for row in rows)),
        )
