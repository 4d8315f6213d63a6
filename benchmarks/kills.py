"""What runs lose that are killed or interrupted: finished jobs, processes that stay, figures that differ.

    python benchmarks/kills.py --times 10 --out benchmarks/results/kills.csv

An audit of German Credit with two workers is disturbed at a random moment after its next stored job, and started again,
until it was disturbed often enough; then it runs to its end. Where it ends before, it begins anew in a fresh folder.
Kinds: the main process alone, one worker alone (the run goes on, and some jobs later the next is killed), all
processes at once, two interrupts of the terminal a moment apart. Three kinds disturb the start of the workers, each
time in a fresh folder, up to some seconds after the first is there: one worker, all workers, and the process that
Python starts beside them (the resource tracker) with all workers. These runs go on, too.

Jobs are lost where they were stored before and are not after. Processes left are those of the run that still live a
minute later. Rows differ from those of a run that nothing disturbed, bit for bit. Other statuses are exits with
another status than that of the kind, or, at its end, than 0.
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
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from csv_lines import signed

from tests.processes import Program, Sweep, children_of, group_of, until, workers_of
from tests.stores import jobs_done, measurements

SWEEP = Sweep(victims=96, iterations=120)
FIELDS = ["kind", "times", "runs", "lost_jobs", "processes_left", "differing_rows", "other_statuses"]
# Seconds after the next stored job within which a run is disturbed.
LATEST = 5.0
# Seconds after the first worker is there within which one is killed while the workers start.
STARTING = 6.0
# Jobs stored between two kills of a worker: a job whose worker is killed twice counts as failed, until it is run again.
APART = 6


def main() -> None:
    """Write one line a kind of kill to a CSV file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", action="append", choices=KINDS, help="all kinds if none is named")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    moments = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as place, arguments.out.open("w", encoding="utf-8", newline="") as file:
        whole = Path(place) / "whole"
        assert SWEEP.start(whole, workers=2).ended() == 0
        writer = csv.DictWriter(file, [*FIELDS, "commit"], lineterminator="\n")
        writer.writeheader()
        for kind in arguments.kind or KINDS:
            counts = dict.fromkeys(FIELDS[1:], 0)
            while counts["times"] < arguments.times:
                folder = Path(place) / f"{kind} {counts['runs']}"
                most = arguments.times - counts["times"]
                found = until_it_ends(folder, whole, kind, most, moments, counts["times"] == 0)
                counts = {name: counts[name] + found[name] for name in counts}
                print(kind, counts, file=sys.stderr, flush=True)
            writer.writerow(signed({"kind": kind, **counts}))
            file.flush()


def until_it_ends(
    folder: Path, whole: Path, kind: str, most: int, moments: random.Random, first: bool
) -> dict[str, int]:
    """Disturb one run some times, go on with it each time, and return the counts."""
    disturb, wanted = KINDS[kind]
    counts = dict.fromkeys(FIELDS[1:], 0) | {"runs": 1}
    running = SWEEP.start(folder, workers=2)
    if kind in STARTS and until(lambda: bool(workers_of(running.process.pid)), running):
        # The first of them at once.
        until(lambda: False, running, 0.0 if first else moments.uniform(0.0, STARTING))
        disturb(running, moments)
        counts["times"], most = 1, 0
    while True:
        done = jobs_done(folder, in_use=True) + (APART if wanted == 0 and counts["times"] else 0)
        if counts["times"] < most and until(partial(stored_beyond, folder, done), running):
            until(lambda: False, running, moments.uniform(0.0, LATEST))
            before = jobs_done(folder, in_use=True)
            if running.process.poll() is None:
                disturb(running, moments)
                counts["times"] += 1
                if wanted == 0:
                    continue
            counts["other_statuses"] += running.ended() not in (0, wanted)
            until(partial(gone, running), seconds=60.0)
            counts["processes_left"] += len(group_of(running.process.pid))
            running.end()
            counts["lost_jobs"] += max(0, before - jobs_done(folder))
            running = SWEEP.start(folder, workers=2)
            continue
        counts["other_statuses"] += running.ended() != 0
        until(partial(gone, running), seconds=60.0)
        counts["processes_left"] += len(group_of(running.process.pid))
        break
    one, other = measurements(folder), measurements(whole)
    counts["differing_rows"] = sum(len(set(one[name]) ^ set(other[name])) for name in one)
    return counts


def stored_beyond(folder: Path, done: int) -> bool:
    """Return whether more jobs are stored than a number."""
    return jobs_done(folder, in_use=True) > done


def gone(program: Program) -> bool:
    """Return whether no process of a run is left."""
    return not group_of(program.process.pid)


def kill_main(running: Program, moments: random.Random) -> None:
    """Kill the main process alone."""
    running.process.kill()


def kill_worker(running: Program, moments: random.Random) -> None:
    """Kill one worker alone."""
    workers = workers_of(running.process.pid)
    if workers:
        os.kill(moments.choice(workers), signal.SIGKILL)


def kill_workers(running: Program, moments: random.Random) -> None:
    """Kill all workers."""
    for worker in workers_of(running.process.pid):
        os.kill(worker, signal.SIGKILL)


def kill_tracker(running: Program, moments: random.Random) -> None:
    """Kill the resource tracker and all workers."""
    for process in children_of(running.process.pid):
        os.kill(process, signal.SIGKILL)


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


# What is done, and the status of a run that it ends; 0 for one that goes on.
KINDS: dict[str, tuple[Callable[[Program, random.Random], None], int]] = {
    "main process alone": (kill_main, -signal.SIGKILL),
    "one worker alone": (kill_worker, 0),
    "all processes": (kill_all, -signal.SIGKILL),
    "two interrupts": (interrupt_twice, 130),
    "one worker at the start": (kill_worker, 0),
    "all workers at the start": (kill_workers, 0),
    "tracker and workers at the start": (kill_tracker, 0),
}
STARTS = tuple(kind for kind in KINDS if kind.endswith("at the start"))


if __name__ == "__main__":
    main()
