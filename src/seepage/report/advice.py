"""What to change: the least that brings leakage below a threshold, among the settings that were audited."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from seepage.report.frames import Record, Setting
from seepage.results.tiers import BOUNDS
from seepage.results.verdict import UNDEFENDED
from seepage.text import clean, percent


def advice(
    overviews: Sequence[Record],
    sensitive: Mapping[Setting, float | None],
    task: Mapping[Setting, float],
    higher_is_better: bool = True,
) -> list[Record]:
    """Return for each threshold the smallest batch size without a defense, and the cheapest defense, that keep below.

    A setting keeps below a threshold when the upper ends of the intervals of the closed gap do, over all cells and,
    where the schema marks sensitive columns, in the worst of those. A batch size counts only if every larger one of
    the sweep keeps below too. The cheapest defense is the one under which the task is learnt best; where that was
    not measured, the one that lets most through.

    Args:
        overviews: of every setting, see ``frames.overview``.
        sensitive: the worst upper end over sensitive columns of each setting; None where it is not known. Empty
            where no column is sensitive.
        task: how well the task is learnt in each setting, where it was measured.
        higher_is_better: whether a higher figure of the task is a better one.

    Returns:
        One a threshold, strictest first: threshold, tier, batch_size (None: no audited one) and defended, a setting
        or None.

    Example:
        >>> one = {"batch_size": 8, "defense": "none", "upper": 0.1, "closed": 0.08, "tier": "low"}
        >>> [(found["tier"], found["batch_size"]) for found in advice([one], {}, {})]
        [('none', None), ('low', 8), ('moderate', 8), ('high', 8)]
    """
    made = []
    for threshold, tier in BOUNDS:
        below = {(one["batch_size"], one["defense"]): _keeps_below(one, sensitive, threshold) for one in overviews}
        sizes = sorted(size for size, defense in below if defense == UNDEFENDED)
        enough = None
        for size in reversed(sizes):
            if not below[size, UNDEFENDED]:
                break
            enough = size
        defended = [
            one for one in overviews if one["defense"] != UNDEFENDED and below[one["batch_size"], one["defense"]]
        ]
        best = max(defended, key=lambda one: _worth(one, task, higher_is_better), default=None)
        made.append(
            {
                "threshold": threshold,
                "tier": tier,
                "batch_size": enough,
                "defended": None if best is None else (best["batch_size"], best["defense"]),
                "task": None if best is None else task.get((best["batch_size"], best["defense"])),
            }
        )
    return made


def _keeps_below(one: Record, sensitive: Mapping[Setting, float | None], threshold: float) -> bool:
    if one["upper"] is None or one["upper"] >= threshold or one["tier"] in ("inconclusive", "total"):
        return False
    if not sensitive:
        return True
    worst = sensitive.get((one["batch_size"], one["defense"]))
    return worst is not None and worst < threshold


def _worth(one: Record, task: Mapping[Setting, float], higher_is_better: bool) -> tuple[float, float]:
    learnt = task.get((one["batch_size"], one["defense"]))
    if learnt is None:
        return (-math.inf, one["closed"] or 0.0)
    return (learnt if higher_is_better else -learnt, one["closed"] or 0.0)


def sentences(
    found: Sequence[Record], sizes: Sequence[int], defenses: Sequence[str], marked: bool, rate: bool = True
) -> list[str]:
    """Return advice as sentences; ``rate`` says whether the task is measured by its accuracy or by its RMSE."""
    over = "all cells and of every sensitive column" if marked else "all cells"
    by_way: dict[str, list[str]] = {}
    for one in found:
        ways = []
        if one["batch_size"] is not None:
            ways.append(f"batches of {one['batch_size']} or more, without a defense")
        if one["defended"] is not None:
            size, defense = one["defended"]
            learnt = f"accuracy of {percent(one['task'])}" if rate else f"RMSE of {one['task'] or 0:.4g}"
            cost = "" if one["task"] is None else f", at a task {learnt}"
            ways.append(f"{clean(defense, 80)} at batch size {size}{cost}")
        told = "; or ".join(ways) if ways else "nothing in this sweep does"
        by_way.setdefault(told, []).append(f"{100 * one['threshold']:.0f}% ({one['tier']})")
    made = [f"To keep the closed gap of {over} below {' or '.join(some)}: {told}." for told, some in by_way.items()]
    if all(one["batch_size"] is None and one["defended"] is None for one in found):
        made = ["Nothing that was audited brings the leakage below any threshold."]
    if any(one["batch_size"] is None and one["defended"] is None for one in found):
        largest = max(sizes)
        steps = [f"larger batches (--batch-size {4 * largest} --batch-size {16 * largest})"]
        kind = "other or stronger defenses" if any(defense != UNDEFENDED for defense in defenses) else "defenses"
        steps.append(f"{kind} (--defense 'gaussian_noise:{{scale: 0.01}}'; seepage defenses lists them)")
        made.append(f"Next, audit {' and '.join(steps)} beside these.")
    return made
