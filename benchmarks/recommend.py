"""What `seepage recommend` finds, how long it takes, and whether fresh audits and trainings confirm what it says.

    python benchmarks/recommend.py --dataset german --setting horizontal --below 0.2
    python benchmarks/recommend.py --dataset german --setting split --below 0.2

One line a configuration that was looked at. The recommended one is audited again, ``--fresh`` times with other seeds
and as many units as the recommendation names: ``passed`` of ``fresh`` audits pass the limit and ``refuted`` show it to
be exceeded, with the bounds ``fresh_upper``. Its cost is measured again, with and without the change from each of
``true_n`` other seeds: ``true_cost`` is the mean difference with Student's t interval, and ``holds`` says whether it
lies between ``cost_low`` and ``cost_high``, which the recommendation printed. ``forecast`` is the time to go that the
search said first, ``took`` what it then took.

Horizontal learning has batches of 8; the other settings have their defaults. In pooled learning there are 400 target
models, for German 1,000. German has 1,000 rows: in pooled learning parties have 100 of them and the telephone is the
sensitive column. In split learning three tenths are held out and in vertical learning half, and clients of trees have
150, so that rows are left to judge attack and task on. Seconds are those of the whole search, by the clock and of the
processor (with those of its worker processes). Searches in the file are not made again; one that was stopped goes on
from its ``--folder``.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from csv_lines import add_lines, read_lines

from seepage.advise.recommend import recommended, task_alone
from seepage.advise.recommendation import Recommendation, loss
from seepage.assessment.intervals import student
from seepage.auditing import prepare_all, run_all
from seepage.run.limits import by_units
from seepage.run.store import Store
from seepage.settings.catalogue import setting
from seepage.settings.spec import Gate, Spec

OUT = Path(__file__).parent / "results" / "recommend.csv"
FIELDS = ("dataset", "setting", "below", "outcome", "options", "change", "status", "attack", "figure", "lift", "upper")
FIELDS += ("n", "chance", "audited", "beside", "beside_lift", "task_metric", "task", "task_low", "task_high", "task_n")
FIELDS += ("task_baseline", "cost", "cost_low", "cost_high", "epsilon", "rounds")
FIELDS += ("message_epsilon", "measured_low", "seconds", "processor_seconds", "forecast", "took")
FIELDS += ("passed", "refuted", "fresh", "fresh_n", "fresh_upper", "true_cost", "true_low", "true_high", "true_n")
FIELDS += ("holds", "machine", "commit", "kernel")
_SECONDS = {"s": 1, "min": 60, "h": 3600}
OPTIONS: Mapping[tuple[str, str], Mapping[str, object]] = {
    ("pooled", "adult"): {"targets": 400},
    ("pooled", "german"): {
        "sensitive": "telephone",
        "rows": 100,
        "auxiliary": 300,
        "queries": 200,
        "shadows": 40,
        "targets": 1000,
    },
    ("split", "german"): {"test_share": 0.3},
    ("vertical", "german"): {"test_share": 0.5},
    ("trees", "german"): {"rows": 150},
}


def processor_seconds() -> float:
    """Return the processor time of this process and of the workers that ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def seconds_of(line: str) -> int | None:
    """Return the time to go that a line of the search says."""
    found = re.search(r"about (?:(\d+) h )?(\d+) (s|min|h)(?: to go)", line)
    return None if found is None else 3600 * int(found[1] or 0) + int(found[2]) * _SECONDS[found[3]]


def as_advised(found: Recommendation, spec: Spec) -> Spec:
    """Return a spec with the recommended change."""
    chosen = found.chosen
    assert chosen is not None
    return spec if chosen.lever is None else chosen.lever.applied(spec, chosen.strength)


def changed(spec: Spec, values: Mapping[str, object]) -> Spec:
    """Return a spec with other values of some fields."""
    return type(spec).of(**{name: getattr(spec, name) for name in spec.model_fields_set} | values)


def audited_again(found: Recommendation, spec: Spec, times: int, folder: Path | None) -> dict[str, object]:
    """Return how many fresh audits of the advised size pass the limit, with their bounds."""
    chosen = found.chosen
    if chosen is None or not times:
        return {}
    advised = as_advised(found, spec)
    counted = advised.repeats if by_units(advised) else advised.members
    update: dict[str, object] = {"recommend": None, "gate": Gate(above=found.wish.below), counted: chosen.audited}
    outcomes, bounds, units = [], [], 0
    for seed in range(1, times + 1):
        fresh = changed(advised.reseeded(1_000 * seed + spec.seed), update)
        [report] = run_all(prepare_all([fresh]), None if folder is None else folder / f"fresh_{seed}")
        assert report.decision is not None
        print(report.decision.line, flush=True)
        outcomes.append(report.decision.outcome)
        bounds.append(max(standing.upper for standing in report.decision.figures))
        units = min(standing.n for standing in report.decision.figures)
    upper = " ".join(f"{bound:.4f}" for bound in bounds)
    counts = {"passed": outcomes.count("passed"), "refuted": outcomes.count("failed")}
    return {**counts, "fresh": times, "fresh_n": units, "fresh_upper": upper}


def cost_again(found: Recommendation, spec: Spec, seeds: int, folder: Path | None) -> dict[str, object]:
    """Return what the recommended change costs on trainings from other seeds, and whether its interval holds that."""
    chosen = found.chosen
    if chosen is None or chosen.lever is None or not seeds:
        return {}
    costs = []
    with Store(None if folder is None else folder / "cost") as store:
        for seed in range(1, seeds + 1):
            pair = []
            for deployed in (spec, as_advised(found, spec)):
                fresh = changed(deployed.reseeded(100_000 * seed + spec.seed), {"recommend": None, "control": False})
                if found.given.report is not None and found.given.report.audit.shared:
                    fresh = changed(fresh, {fresh.repeats: 5 if fresh.member is None else 1})
                [audit] = prepare_all([fresh])
                pair.append(task_alone(audit, store, lambda _: None))
            cost = loss(*pair)
            print(f"seed {seed}: cost {cost}", flush=True)
            if cost is not None:
                costs.append(cost)
    if len(costs) < 2:
        return {}
    mean, printed = float(np.mean(costs)), found.cost_interval(chosen)
    ends = student(mean, float(np.std(costs, ddof=1)), len(costs))
    assert ends is not None
    measured = {"true_cost": round(mean, 5), "true_low": round(ends[0], 5), "true_high": round(ends[1], 5)}
    if printed is None or printed.low is None or printed.high is None:
        return {**measured, "true_n": len(costs)}
    return {**measured, "true_n": len(costs), "holds": int(printed.low <= mean <= printed.high)}


def main() -> None:
    """Search once and add what was found to the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="german")
    parser.add_argument("--setting", default="horizontal")
    parser.add_argument("--below", type=float, default=0.2)
    parser.add_argument("--fresh", type=int, default=2, help="audits with fresh seeds of what is recommended")
    parser.add_argument("--seeds", type=int, default=6, help="other seeds from which the cost is measured again")
    parser.add_argument("--time-budget", help="time for the search, such as 8m")
    parser.add_argument("--folder", type=Path, help="folder of runs, from which a search that was stopped goes on")
    parser.add_argument("--out", type=Path, default=OUT)
    chosen = parser.parse_args()
    key = (chosen.dataset, chosen.setting, str(chosen.below))
    if any((line["dataset"], line["setting"], line["below"]) == key for line in read_lines(chosen.out)):
        print("the file has this search already.")
        return
    options = dict(OPTIONS.get((chosen.setting, chosen.dataset), {}))
    if chosen.setting == "horizontal":
        options["batch_sizes"] = 8
    if chosen.time_budget is not None:
        options["time_budget"] = chosen.time_budget
    spec = setting(chosen.setting).spec.of(dataset=chosen.dataset, recommend=chosen.below, **options)
    began, processor = time.time(), processor_seconds()
    forecasts: list[tuple[float, int]] = []

    def say(line: str) -> None:
        print(f"{time.time() - began:.0f} s ({processor_seconds() - processor:.0f}): {line}", flush=True)
        if (forecast := seconds_of(line)) is not None:
            forecasts.append((time.time(), forecast))

    found = recommended(spec, None if chosen.folder is None else chosen.folder / "search", say=say)
    taken: dict[str, object] = {"seconds": round(time.time() - began)}
    taken["processor_seconds"] = round(processor_seconds() - processor)
    if forecasts:
        taken |= {"forecast": forecasts[0][1], "took": round(time.time() - forecasts[0][0])}
    print(found.line, flush=True)
    plain = changed(spec, {"time_budget": None})
    again = audited_again(found, plain, chosen.fresh, chosen.folder)
    again |= cost_again(found, plain, chosen.seeds, chosen.folder)
    print(again, flush=True)
    taken["machine"] = f"{platform.system()} {platform.machine()}, CPU"
    known = {"dataset": chosen.dataset, "setting": chosen.setting, "below": chosen.below, "outcome": found.outcome}
    lines = []
    for record in found.records():
        cells = {name: record.get(name) for name in FIELDS if name in record}
        rounded = {name: round(cell, 5) if isinstance(cell, float) else cell for name, cell in cells.items()}
        confirmed = again if record["status"] == "recommended" else {}
        lines.append({**rounded, **known, **taken, **confirmed, "options": found.options})
    add_lines(chosen.out, FIELDS, lines)


if __name__ == "__main__":
    main()
