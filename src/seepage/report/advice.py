"""What to change: the least that brings leakage below a threshold, and what to do about it, in sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seepage.assessment.task import is_error
from seepage.report.answer import SAME_FOLDER, done, in_hundred, more_units, ran_out_of_time, rounded_up
from seepage.report.frames import Record, Setting, setting_of, task_name
from seepage.report.result import AuditResult
from seepage.results.checks.finding import few_of
from seepage.results.verdict import ENOUGH, INCOMPLETE, LITTLE, UNDEFENDED, UNKNOWN, WHOLE_RECORDS
from seepage.settings.command import given_options, quoted, table_option, written
from seepage.settings.option import fields_of
from seepage.settings.spec import Spec
from seepage.text import clean, how_many, listed, lowered, percent, points

THRESHOLDS = (0.05, ENOUGH, 0.5)
"""Shares of the gap for each of which the smallest change is named."""


def advice(
    overviews: Sequence[Record],
    sensitive: Mapping[Setting, float | None],
    task: Mapping[Setting, float],
    higher_is_better: bool = True,
) -> list[Record]:
    """Return for each threshold the smallest batch size without a defense, and the cheapest defense, that keep below.

    A setting keeps below a threshold when the upper ends of the intervals of the closed gap do, over all cells and,
    where the schema marks sensitive columns, in the worst of those. A batch size counts only if every larger one of the
    sweep keeps below too. The cheapest defense is the one under which the task is learnt best; where that was not
    measured, the one that lets most through.
    """
    records = []
    for threshold in THRESHOLDS:
        below = {setting_of(record): keeps_below(record, threshold, sensitive) for record in overviews}
        sizes = sorted((size for size, defense in below if defense == UNDEFENDED), key=lambda size: size or 0)
        enough, undefended = None, False
        for size in reversed(sizes):
            if not below[size, UNDEFENDED]:
                break
            enough, undefended = size, True
        defended = [record for record in overviews if record["defense"] != UNDEFENDED and below[setting_of(record)]]
        best = max(defended, key=lambda record: _worth(record, task, higher_is_better), default=None)
        where = None if best is None else setting_of(best)
        least = {"batch_size": enough, "undefended": undefended, "defended": where}
        records.append({"threshold": threshold, **least, "task": None if where is None else task.get(where)})
    return records


def keeps_below(record: Record, threshold: float, sensitive: Mapping[Setting, float | None] | None = None) -> bool:
    """Return whether a setting is shown to keep below a threshold, in its sensitive columns too, see ``advice``."""
    if record["upper"] is None or record["upper"] >= threshold or record["tier"] in (*UNKNOWN, WHOLE_RECORDS):
        return False
    if not sensitive:
        return True
    worst = sensitive.get(setting_of(record))
    return worst is not None and worst < threshold


def _worth(record: Record, task: Mapping[Setting, float], higher_is_better: bool) -> tuple[float, float]:
    learnt = task.get(setting_of(record))
    if learnt is None:
        return (-math.inf, record["closed"] or 0.0)
    return (learnt if higher_is_better else -learnt, record["closed"] or 0.0)


def sentences(
    records: Sequence[Record],
    sizes: Sequence[int],
    defenses: Sequence[str],
    secret: str = "all cells",
    marked: bool = False,
    metric: str = "task_accuracy",
    size_name: str = "batch size",
    option: str = "--batch-size",
) -> list[str]:
    """Return advice as sentences; ``sizes`` is empty where batch sizes do not differ, so that none is advised."""
    over = f"{secret} and of every sensitive column" if marked else secret
    by_change: dict[str, list[str]] = {}
    for record in records:
        changes = []
        if record["undefended"]:
            changes.append(
                f"{size_name} {record['batch_size']} or more, without a defense" if sizes else "no defense needed"
            )
        if record["defended"] is not None:
            size, defense = record["defended"]
            with_size = f" at {size_name} {size}" if sizes else ""
            changes.append(f"{clean(defense, 80)}{with_size}{_task_words(record['task'], metric)}")
        change = "; or ".join(changes) if changes else "nothing in this sweep does"
        by_change.setdefault(change, []).append(f"{100 * record['threshold']:.0f}%")
    lines = [
        f"To keep the closed gap of {over} below {' or '.join(thresholds)}: {change}."
        for change, thresholds in by_change.items()
    ]
    lacking = [not record["undefended"] and record["defended"] is None for record in records]
    if all(lacking):
        lines = ["Nothing that was audited brings the leakage below any threshold."]
    if any(lacking):
        larger = f"{option} {4 * max(sizes, default=0)} {option} {16 * max(sizes, default=0)}"
        steps = [f"a larger {size_name} ({larger})"] if sizes else []
        kind = "other or stronger defenses" if any(defense != UNDEFENDED for defense in defenses) else "defenses"
        steps.append(f"{kind} (--defense NAME; seepage defenses lists them)")
        lines.append(f"Next, audit {' and '.join(steps)} beside these.")
    return lines


def _task_words(task: float | None, metric: str) -> str:
    """Return how well the task is learnt under a defense; empty where that was not measured."""
    if task is None:
        return ""
    return f", {lowered(task_name(metric))} {f'{task:.4g}' if is_error(metric) else percent(task)}"


# Trainings below which a difference of the task is not judged.
LEAST_TRAININGS = 3


@dataclass(frozen=True)
class ToDo:
    """What to do: sentences, and what can be pasted into a shell, each with the words before it."""

    sentences: tuple[str, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is anything to do."""
        return bool(self.sentences)

    @property
    def words(self) -> str:
        """Sentences and commands as one text."""
        return " ".join([*self.sentences, *(f"{words}: {command}" for words, command in self.commands)])


def what_to_do(result: AuditResult) -> ToDo:
    """Return what to do, what it leaves and what it costs; nothing where nothing was attacked."""
    if not result.audit.repeatable:
        left = "What was captured can no longer be defended."
        return ToDo((left,), (("To see what a change would leave, audit the deployment", "seepage audit --help"),))
    return actions(result, result.attacked) if result.attacked else ToDo()


def actions(result: AuditResult, attacked: Sequence[Record]) -> ToDo:
    """Return what to do, by the strongest attack of each configuration."""
    task = {setting_of(record): record for record in result.frontier}
    given = [record for record in attacked if record["defense"] == UNDEFENDED]
    fine = [record for record in attacked if keeps_below(record, ENOUGH)]
    search = ("To search for the cheapest change", search_command(result.audit.spec))
    missed = missed_by_guessing(result)
    reached = all(defense != UNDEFENDED for _, defense in result.not_reached)
    if given and all(keeps_below(record, ENOUGH) for record in given) and reached:
        worst = max(given, key=lambda record: record["upper"])
        nothing = (
            f"Nothing has to change against these attacks: at most {rounded_up(worst['upper'])} {missed} are "
            f"{done(result)}."
        )
        return ToDo((nothing, *_open_columns(result, given)))
    if not fine:
        # Where nothing is decided yet, more figures come before any change.
        unknown = all(record["tier"] in UNKNOWN for record in attacked)
        if (open_ := _undecided_words(result, attacked)) is not None:
            return ToDo((open_,), () if unknown else (search,))
        return ToDo((_nothing_helps(result, attacked),), (search,))
    best = max(fine, key=lambda record: _task_rank(task.get(setting_of(record))))
    before = max((record["closed"] for record in given if record["closed"] is not None), default=None)
    instead = "" if before is None else f", instead of {in_hundred(before)}"
    now, then = task.get(setting_of(best)), task.get((best["batch_size"], UNDEFENDED))
    use = f"Use {_name(result, best)}:"
    if _useless(now, then):
        use = f"Nothing that was audited protects the records of a model that learns: with {_name(result, best)}"
    words = f"{use} at most {rounded_up(best['upper'])} {missed} are {done(result)}{instead}."
    return ToDo(
        (words, *_open_columns(result, [best]), _cost_of_task(now, then)), (*_defense_option(result, best), search)
    )


def search_command(spec: Spec) -> str:
    """Return the command that searches from the deployment of a spec on, quoted for a shell."""
    # A search starts from one configuration without a defense, which it tries itself.
    fields = fields_of(type(spec))
    sweeps = {name for name, field in fields.items() if field.option.swept and len(getattr(spec, name)) > 1}
    # It runs as many units as its limit needs, and refuses fewer.
    options = given_options(spec, {"defenses", spec.repeats, *sweeps})
    limit = f"--setting {quoted(spec.setting)} --below 0.2"
    pieces = ("seepage recommend", limit, table_option(spec), options)
    return " ".join(piece for piece in pieces if piece)


def missed_by_guessing(result: AuditResult) -> str:
    """Return the words behind a number on the first screen: what is counted."""
    what = "trials" if result.audit.about.trials is not None else "cells"
    if any(record["of"] is not None or record["label"] is not None for record in result.overviews):
        what = "labels" if all(record["of"] is not None for record in result.overviews) else "cells or labels"
    return f"of 100 {what} that guessing misses"


def _open_columns(result: AuditResult, records: Sequence[Record]) -> list[str]:
    """Return a sentence on the sensitive columns that are not shown to stay below the limit in all configurations."""
    sensitive = [column for record in records for column in result.by_column[setting_of(record)] if column["sensitive"]]
    guessed = {column["column"] for column in sensitive if (column["baseline"] or 0.0) >= 1}
    names = {column["column"] for column in sensitive} - guessed
    exceeding = [column["column"] for column in sensitive if not keeps_below(column, ENOUGH)]
    wide = [clean(name, 40) for name in dict.fromkeys(exceeding) if name in names]
    if not wide:
        return []
    flag = fields_of(type(result.audit.spec))[result.audit.spec.repeats].flag
    return [
        f"That is all cells together: below {100 * ENOUGH:.0f} is not shown for {len(wide)} of "
        f"{how_many(len(names), 'sensitive column')} ({listed(few_of(wide))}); {flag} narrows it."
    ]


def _undecided_words(result: AuditResult, attacked: Sequence[Record]) -> str | None:
    """Return what is missing where a configuration may leave little, but nothing shows it yet; else None.

    Where nothing is decided at all, any may.
    """
    unclear = [
        record
        for record in attacked
        if record["closed"] is not None and record["closed"] < ENOUGH and record["tier"] in (*UNKNOWN, LITTLE)
    ]
    spec = result.audit.spec
    if not unclear and not result.not_reached and all(record["tier"] in UNKNOWN for record in attacked):
        unclear = [record for record in attacked if record["closed"] is not None]
    if not unclear:
        waiting = listed(result.not_reached_in_words)
        was = "it was" if len(result.not_reached) == 1 else "they were"
        missing = f"No verdict yet for {lowered(waiting)}: time ran out before {was} attacked."
        return f"{missing} Run it again with more time and {SAME_FOLDER}." if result.not_reached else None
    best = min(unclear, key=lambda record: record["closed"])
    yet = f"No verdict yet{_configuration_clause(result, best)}"
    if best["tier"] == INCOMPLETE:
        return f"{yet}: {result.missing(setting_of(best))}. Give it more time."
    if (finding := result.unreliable(setting_of(best), best["attack"])) is not None:
        return f"{yet}: {lowered(finding.title)}. What helps: seepage checks {finding.code}."
    if why := result.not_tried(setting_of(best), best["attack"]):
        return f"{yet}: {why}, so that more may be read."
    if (late := ran_out_of_time(result, best)) is not None:
        return f"{yet}: {late}"
    share = "little" if best["closed"] < ENOUGH else "little or much"
    return f"{yet}: {share} may be read. Audit {more_units(spec)} before changing anything."


def _configuration_clause(result: AuditResult, record: Record) -> str:
    """Return the configuration as the end of a clause; empty where there is one alone."""
    if record["defense"] != UNDEFENDED:
        return f" for {_name(result, record)}"
    without = " without a defense" if result.defended else ""
    return f"{without} at {result.audit.about.size} {record['batch_size']}" if result.sized else without


def _nothing_helps(result: AuditResult, attacked: Sequence[Record]) -> str:
    if not result.defended:
        return "No defense was audited: add one with --defense (seepage defenses lists them)."
    rated = [record for record in attacked if record["upper"] is not None and record["tier"] not in UNKNOWN]
    least = min(rated, key=lambda record: record["upper"], default=None)
    limit = f"{100 * ENOUGH:.0f} {missed_by_guessing(result)}"
    most = max((record["upper"] for record in rated if record["defense"] == UNDEFENDED), default=1.0)
    left = (
        f" The least is read with {_name(result, least)}: up to {rounded_up(least['upper'])}."
        if least is not None and least["upper"] < most
        else ""
    )
    unknown = [_name(result, record) for record in attacked if record["tier"] in UNKNOWN]
    open_ = f" Not decided yet: {listed(unknown)}." if unknown else ""
    return f"Nothing that was audited is shown to keep the attacks below {limit}.{left}{open_}"


def _name(result: AuditResult, record: Record) -> str:
    size = f" at {result.audit.about.size} {record['batch_size']}" if result.sized else ""
    return f"{result.defense(record['defense'])}{size}"


def _defense_option(result: AuditResult, record: Record) -> list[tuple[str, str]]:
    """Return the option that sets a defense, with the words before it; empty where no option does."""
    spec = result.audit.spec
    part = next((part for part in spec.defenses if part.title == record["defense"]), None)
    if part is None or part.passed is not None or record["defense"] == UNDEFENDED:
        return []
    return [("The option that sets it", f"{fields_of(type(spec))['defenses'].flag} {quoted(written(part))}")]


def _task_rank(record: Record | None) -> float:
    if record is None or record["task"] is None:
        return float("-inf")
    return -record["task"] if is_error(record["task_metric"]) else record["task"]


def _cost_of_task(task: Record | None, before: Record | None) -> str:
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
    ends, ends_before = _typical_ends(task), _typical_ends(before)
    apart = ends[1] < ends_before[0] or ends_before[1] < ends[0]
    clearly = "" if apart else ", which may be chance"
    words = f"It changes {name} by {by}: {now} instead of {then}, over {task['task_n']} trainings{clearly}."
    if not _useless(task, before):
        return words
    return f"{words} That is not shown to be better than always giving the same answer."


def _useless(task: Record | None, before: Record | None) -> bool:
    """Return whether a model learns nothing under a defense, and something without one."""
    if task is None or before is None or task["task"] is None or before["task"] is None:
        return False
    few = min(task["task_n"], before["task_n"]) < LEAST_TRAININGS
    return not few and _learnt(before) and not _learnt(task)


def _learnt(task: Record) -> bool:
    """Return whether the task is learnt better than by the best constant answer, as far as the trainings tell."""
    if task["task_baseline"] is None:
        return True
    low, high = _typical_ends(task)
    return high < task["task_baseline"] if is_error(task["task_metric"]) else low > task["task_baseline"]


def _typical_ends(task: Record) -> tuple[float, float]:
    """Return the ends of the interval of a task, over trainings and test rows; the figure itself without one."""
    if task["task_low"] is None or task["task_high"] is None:
        return task["task"], task["task"]
    return task["task_low"], task["task_high"]
