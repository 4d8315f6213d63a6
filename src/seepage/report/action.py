"""What to do: the box under the verdict, with what an action leaves to the attacker and what it costs."""

from __future__ import annotations

from collections.abc import Sequence

from seepage.report.frames import Record, is_error, task_name
from seepage.report.result import AuditResult
from seepage.results.verdict import INCONCLUSIVE, OPEN, UNDEFENDED, gravest
from seepage.settings.option import fields_of
from seepage.text import clean, lowered, percent, points

# Share of the gap to certainty below which leakage is called low.
ENOUGH = 0.2
# Trainings below which a difference of the task is not judged.
LEAST_TRAININGS = 3


def what_to_do(result: AuditResult) -> list[str]:
    """Return what to do, what it leaves and what it costs, in sentences; none where nothing was attacked."""
    attacked = [record for record in result.overviews if record["attack"] is not None and record["mean"] is not None]
    return actions(result, attacked) if attacked else []


def actions(result: AuditResult, attacked: Sequence[Record]) -> list[str]:
    """Return what to do as sentences.

    Args:
        result: the audit.
        attacked: strongest attack of each configuration, see ``frames.overview``.
    """
    task = {(record["batch_size"], record["defense"]): record for record in result.frontier}
    given = [record for record in attacked if record["defense"] == UNDEFENDED]
    fine = [record for record in attacked if _low(record)]
    name = clean(result.audit.setting, 40)
    search = (
        f"To search for the cheapest change and have it confirmed: seepage recommend --setting {name} --below 0.2, "
        "with the table, model and further options of this audit."
    )
    if given and all(_low(record) for record in given):
        worst = max(given, key=lambda record: record["upper"])
        return [
            f"Nothing has to change against these attacks: they close at most {percent(worst['upper'])} of the gap."
        ]
    if not fine:
        return [_undecided(result, attacked) or _nothing_helps(result, attacked), search]
    best = max(fine, key=lambda record: _worth(task.get((record["batch_size"], record["defense"]))))
    before = max((record["closed"] for record in given if record["closed"] is not None), default=None)
    instead = "" if before is None else f", instead of {percent(before)}"
    words = [
        f"Use {_name(result, best)}: it leaves at most {percent(best['upper'])} of the gap between the best baseline "
        f"and certainty{instead}."
    ]
    words.append(_cost(task.get((best["batch_size"], best["defense"])), _reference(task, best)))
    return [*words, search]


def _undecided(result: AuditResult, attacked: Sequence[Record]) -> str | None:
    """Return what is missing where a configuration may leave little, but too few repetitions show it; else None."""
    unclear = [
        record
        for record in attacked
        if record["tier"] in (OPEN, INCONCLUSIVE) and record["closed"] is not None and record["closed"] < ENOUGH
    ]
    if not unclear:
        return None
    best = min(unclear, key=lambda record: record["closed"])
    spec = result.audit.spec
    more = fields_of(type(spec))[spec.repeats].flag
    reaches = "has no interval" if best["upper"] is None else f"may be up to {percent(best['upper'])}"
    return (
        f"Nothing is decided: {_name(result, best)} leaves {percent(max(0.0, best['closed']))} of the gap, which "
        f"{reaches} with {best['n']} {spec.unit}{'s' if best['n'] != 1 else ''}. Audit more of them ({more}) before "
        "changing anything."
    )


def _nothing_helps(result: AuditResult, attacked: Sequence[Record]) -> str:
    if not result.defended:
        return "No defense was audited: add one with --defense (seepage defenses lists them)."
    known = [record for record in attacked if record["upper"] is not None]
    least = min(known, key=lambda record: record["upper"], default=None)
    left = "" if least is None else f" The least is left by {_name(result, least)}: up to {percent(least['upper'])}."
    return f"Nothing that was audited brings the closed gap below {ENOUGH:.0%}.{left}"


def _low(record: Record) -> bool:
    return (
        record["upper"] is not None
        and record["upper"] < ENOUGH
        and gravest(record["tier"]) not in (INCONCLUSIVE, "total")
        and not record["tier"].startswith("at least")
    )


def _name(result: AuditResult, record: Record) -> str:
    return clean(result.label((record["batch_size"], record["defense"])), 80)


def _worth(record: Record | None) -> float:
    if record is None or record["task"] is None:
        return float("-inf")
    return -record["task"] if is_error(record["task_metric"]) else record["task"]


def _reference(task: dict[tuple[int | None, str], Record], best: Record) -> Record | None:
    return task.get((best["batch_size"], UNDEFENDED))


def _cost(task: Record | None, before: Record | None) -> str:
    """Return what a configuration costs the task, in a sentence."""
    if task is None or before is None or task["task"] is None or before["task"] is None:
        return "What it costs the task was not measured."
    name = lowered(task_name(task["task_metric"]))
    error = is_error(task["task_metric"])
    now, then = (f"{record['task']:.4g}" if error else percent(record["task"]) for record in (task, before))
    change = task["task"] - before["task"]
    by = f"{change:+.3g}" if error else f"{points(change)} points"
    if min(task["task_n"], before["task_n"]) < LEAST_TRAININGS:
        return f"Its {name} is {now}, without it {then}; of fewer than {LEAST_TRAININGS} trainings this is not judged."
    apart = task["task_low"] is not None and before["task_low"] is not None
    apart = apart and (task["task_high"] < before["task_low"] or before["task_high"] < task["task_low"])
    clearly = "" if apart else ", which these trainings do not tell from none"
    return f"It changes {name} by {by}: {now} instead of {then}, over {task['task_n']} trainings{clearly}."
