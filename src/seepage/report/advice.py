"""What to change: the least that brings leakage below a threshold, among the settings that were audited."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from seepage.report.frames import Record, Setting, is_error, setting_of, task_name
from seepage.results.tiers import BOUNDS
from seepage.results.verdict import UNDEFENDED, UNKNOWN, gravest
from seepage.text import clean, lowered, percent


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
    for threshold, tier in BOUNDS:
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
        records.append(
            {"threshold": threshold, "tier": tier, **least, "task": None if where is None else task.get(where)}
        )
    return records


def keeps_below(record: Record, threshold: float, sensitive: Mapping[Setting, float | None] | None = None) -> bool:
    """Return whether a setting is shown to keep below a threshold, in its sensitive columns too, see ``advice``."""
    if (
        record["upper"] is None
        or record["upper"] >= threshold
        or gravest(record["tier"]) in (*UNKNOWN, "total")
        or record["tier"].startswith("at least")
    ):
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
    by_way: dict[str, list[str]] = {}
    for record in records:
        ways = []
        if record["undefended"]:
            ways.append(
                f"{size_name} {record['batch_size']} or more, without a defense" if sizes else "no defense needed"
            )
        if record["defended"] is not None:
            size, defense = record["defended"]
            at = f" at {size_name} {size}" if sizes else ""
            ways.append(f"{clean(defense, 80)}{at}{_cost(record['task'], metric)}")
        way = "; or ".join(ways) if ways else "nothing in this sweep does"
        by_way.setdefault(way, []).append(f"{100 * record['threshold']:.0f}% ({record['tier']})")
    lines = [f"To keep the closed gap of {over} below {' or '.join(some)}: {way}." for way, some in by_way.items()]
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


def _cost(task: float | None, metric: str) -> str:
    """Return how well the task is learnt under a defense; empty where that was not measured."""
    if task is None:
        return ""
    return f", {lowered(task_name(metric))} {f'{task:.4g}' if is_error(metric) else percent(task)}"
