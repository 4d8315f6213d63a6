"""What `seepage recommend` finds, and how long it takes: one line a configuration that was looked at.

    python benchmarks/recommend.py --dataset german --setting horizontal --below 0.2
    python benchmarks/recommend.py --dataset german --setting split --below 0.2

Horizontal learning has batches of 8; the other settings have their defaults. In pooled learning there are 400 target
models. German has 1,000 rows: in pooled learning parties have 100 of them and the telephone is the sensitive column. In
split learning three tenths are held out and in vertical learning half, and clients of trees have 150, so that rows are
left to judge attack and task on. Seconds are those of the whole search, by the clock and of the processor (with those
of its worker processes). Searches in the file are not made again.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping
from pathlib import Path

from csv_lines import add_lines, read_lines

from seepage.advise.recommend import recommended
from seepage.settings.catalogue import setting

OUT = Path(__file__).parent / "results" / "recommend.csv"
FIELDS = ("dataset", "setting", "below", "outcome", "options", "change", "status", "attack", "figure", "lift", "upper")
FIELDS += ("n", "chance", "audited", "beside", "beside_lift", "task_metric", "task", "task_low", "task_high", "task_n")
FIELDS += ("task_baseline", "cost", "cost_low", "cost_high", "epsilon", "rounds")
FIELDS += ("message_epsilon", "measured_low", "seconds", "processor_seconds", "commit")
OPTIONS: Mapping[tuple[str, str], Mapping[str, object]] = {
    ("pooled", "german"): {
        "sensitive": "telephone",
        "rows": 100,
        "auxiliary": 300,
        "queries": 200,
        "shadows": 40,
        "targets": 400,
    },
    ("pooled", "adult"): {"targets": 400},
    ("split", "german"): {"test_share": 0.3},
    ("vertical", "german"): {"test_share": 0.5},
    ("trees", "german"): {"rows": 150},
}


def processor_seconds() -> float:
    """Return the processor time of this process and of the workers that ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    """Search once and add what was found to the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="german")
    parser.add_argument("--setting", default="horizontal")
    parser.add_argument("--below", type=float, default=0.2)
    parser.add_argument("--folder", type=Path, help="run folder, from which a search that was stopped goes on")
    parser.add_argument("--out", type=Path, default=OUT)
    chosen = parser.parse_args()
    key = (chosen.dataset, chosen.setting, str(chosen.below))
    if any((line["dataset"], line["setting"], line["below"]) == key for line in read_lines(chosen.out)):
        print("the file has this search already.")
        return
    options = dict(OPTIONS.get((chosen.setting, chosen.dataset), {}))
    if chosen.setting == "horizontal":
        options["batch_sizes"] = 8
    spec = setting(chosen.setting).spec.of(dataset=chosen.dataset, recommend=chosen.below, **options)
    began, processor = time.time(), processor_seconds()
    found = recommended(spec, chosen.folder, say=lambda line: print(f"{time.time() - began:.0f} s: {line}", flush=True))
    taken = {"seconds": round(time.time() - began), "processor_seconds": round(processor_seconds() - processor)}
    known = {"dataset": chosen.dataset, "setting": chosen.setting, "below": chosen.below, "outcome": found.outcome}
    lines = []
    for record in found.records():
        cells = {name: record.get(name) for name in FIELDS if name in record}
        rounded = {name: round(cell, 5) if isinstance(cell, float) else cell for name, cell in cells.items()}
        lines.append({**rounded, **known, **taken, "options": found.options})
    add_lines(chosen.out, FIELDS, lines)
    print(found.line)


if __name__ == "__main__":
    main()
