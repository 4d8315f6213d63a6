"""What runs lose that are killed or interrupted: finished jobs, processes that stay, figures that differ.

    python benchmarks/kills.py --times 10 --out benchmarks/results/kills.csv

Each time an audit of German Credit with two workers is started into a fresh folder and disturbed at a random moment
after its first stored job. It is then continued to its end. Kinds: the main process alone, one worker alone, all
processes at once, two interrupts of the terminal a moment apart.

Jobs are lost where they were stored before and are not after. Processes left are those of the run that still live a
minute later. Rows differ from those of a run that nothing disturbed, bit for bit.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.processes import Program, Sweep, group_of, until, workers_of
from tests.stores import jobs_done, measurements

SWEEP = Sweep(victims=32, iterations=120)
FIELDS = ["kind", "times", "mid_run", "lost_jobs", "processes_left", "differing_rows", "other_statuses"]
# Seconds after the first stored job within which a run is disturbed.
LATEST = 6.0


def main() -> None:
    """Write one line a kind of kill to a CSV file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    moments = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as place, arguments.out.open("w", encoding="utf-8", newline="") as file:
        whole = Path(place) / "whole"
        assert SWEEP.start(whole, workers=2).ended() == 0
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        for kind, disturb in KINDS.items():
            counts = dict.fromkeys(FIELDS[1:], 0)
            for i in range(arguments.times):
                found = once(Path(place) / f"{kind} {i}", whole, kind, disturb, moments)
                counts = {name: counts[name] + found[name] for name in counts}
                print(kind, i, found, file=sys.stderr)
            writer.writerow({"kind": kind, **counts})
            file.flush()


def once(
    folder: Path, whole: Path, kind: str, disturb: Callable[[Program, random.Random], None], moments: random.Random
) -> dict[str, int]:
    """Disturb one run, continue it, and return the counts."""
    running = SWEEP.start(folder, workers=2)
    assert until(lambda: jobs_done(folder, in_use=True) > 0, running), running.told()
    until(lambda: False, running, moments.uniform(0.0, LATEST))
    mid_run = running.process.poll() is None
    before = jobs_done(folder, in_use=True)
    disturb(running, moments)
    wanted = STATUSES[kind]
    status = running.ended()
    until(lambda: not group_of(running.process.pid), seconds=60.0)
    left = len(group_of(running.process.pid))
    running.end()
    lost = max(0, before - jobs_done(folder))
    after = SWEEP.start(folder, workers=2).ended()
    one, other = measurements(folder), measurements(whole)
    return {
        "times": 1,
        "mid_run": mid_run,
        "lost_jobs": lost,
        "processes_left": left,
        "differing_rows": sum(len(set(one[name]) ^ set(other[name])) for name in one),
        "other_statuses": (status not in wanted) + (after != 0),
    }


def kill_main(running: Program, moments: random.Random) -> None:
    """Kill the main process alone."""
    running.process.kill()


def kill_worker(running: Program, moments: random.Random) -> None:
    """Kill one worker alone."""
    workers = workers_of(running.process.pid)
    if workers:
        os.kill(moments.choice(workers), signal.SIGKILL)


def kill_all(running: Program, moments: random.Random) -> None:
    """Kill all processes of the run."""
    if running.process.poll() is None:
        os.killpg(running.process.pid, signal.SIGKILL)


def interrupt_twice(running: Program, moments: random.Random) -> None:
    """Interrupt all processes of the run, as a terminal does, twice."""
    for pause in (moments.uniform(0.0, 1.0), 0.0):
        if running.process.poll() is None:
            os.killpg(running.process.pid, signal.SIGINT)
            time.sleep(pause)


KINDS = {
    "main process alone": kill_main,
    "one worker alone": kill_worker,
    "all processes": kill_all,
    "two interrupts": interrupt_twice,
}
# A run that had ended before, or goes on, ends with 0.
STATUSES = {
    "main process alone": (0, -signal.SIGKILL),
    "one worker alone": (0,),
    "all processes": (0, -signal.SIGKILL),
    "two interrupts": (0, 130),
}


if __name__ == "__main__":
    main()
