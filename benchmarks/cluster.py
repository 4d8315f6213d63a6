"""What a Dask cluster costs for each job, and how many jobs a second one driver can hand out.

    python benchmarks/cluster.py --out benchmarks/results/cluster.csv

Audits of German Credit and Adult with jobs that compute next to nothing run on a scheduler and workers of this machine,
with encrypted connections. Processor time is taken of the driver, which stores results too, and of the scheduler: other
programs on the machine disturb it less than wall time. Each has a core of its own in a real cluster, so that the slower
of the two sets the pace. The round trip is wall time of one empty job after the other.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import tempfile
import time
from concurrent.futures import Executor
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from csv_lines import signed

from seepage.auditing import prepare_all
from seepage.integrations.dask import cluster
from seepage.run.elsewhere import Machines, Sealed, itself
from seepage.run.plan import make_plan
from seepage.run.runner import run_audits
from seepage.run.store import Store
from seepage.settings.horizontal.spec import make_spec
from tests.integrations.dask_cluster import LoopbackCluster, certificates

FIELDS = [
    *("dataset", "workers", "jobs", "audit_megabytes", "driver_ms_per_job", "scheduler_ms_per_job"),
    *("jobs_per_second", "round_trip_ms", "commit"),
]
ROUND_TRIPS = 100


def main() -> None:
    """Write one line a dataset to a CSV file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--victims", type=int, default=480)
    parser.add_argument("--dataset", action="append", help="German Credit and Adult if none is named")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, arguments.out.open("w", encoding="utf-8", newline="") as file:
        folder = Path(place)
        tls = certificates(folder)
        loopback = LoopbackCluster(folder, tls)
        try:
            for _ in range(arguments.workers):
                loopback.add_worker("--nthreads=1", "--no-nanny")
            loopback.wait_for_workers()
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            with cluster(loopback.address, **tls) as machines:
                for dataset in arguments.dataset or ("german", "adult"):
                    found = measure(dataset, arguments.victims, machines, loopback.scheduler.pid, folder)
                    print(found, file=sys.stderr, flush=True)
                    writer.writerow(signed(found))
                    file.flush()
        finally:
            loopback.end()


def measure(dataset: str, victims: int, machines: Machines, scheduler: int, folder: Path) -> dict[str, object]:
    """Return the figures of one audit."""
    spec = make_spec(
        dataset=dataset,
        model="nn1",
        batch_sizes=1,
        attacks="dlg",
        restarts=1,
        iterations=1,
        victims=victims,
        control=False,
    )
    audits = prepare_all([spec])
    # The first job of each worker loads the program and receives the audit.
    run_audits(prepare_all([spec.model_copy(update={"victims": 48})]), Store(None), machines=machines)
    with Store(folder / dataset) as store:
        plan = make_plan(audits, store, slots=machines.slots())
        before, driver = processor_seconds(scheduler), time.process_time()
        run_audits(audits, store, plan=plan, machines=machines)
        driver, handed_on = time.process_time() - driver, processor_seconds(scheduler) - before
    jobs = len(plan.jobs)
    return {
        "dataset": dataset,
        "workers": machines.slots(),
        "jobs": jobs,
        "audit_megabytes": round(len(Sealed.of(audits).content) / 1e6, 1),
        "driver_ms_per_job": round(driver / jobs * 1e3, 1),
        "scheduler_ms_per_job": round(handed_on / jobs * 1e3, 1),
        "jobs_per_second": round(jobs / max(driver, handed_on)),
        "round_trip_ms": round(round_trip(machines.executor) * 1e3, 1),
    }


def processor_seconds(process: int) -> float:
    """Return the processor time of another process so far, user and system."""
    times = psutil.Process(process).cpu_times()
    return times.user + times.system


def round_trip(executor: Executor) -> float:
    """Return the median of the seconds from handing an empty job out to its result."""
    nothing, seconds = Sealed.of(None), []
    for _ in range(ROUND_TRIPS):
        begun = time.perf_counter()
        executor.submit(itself, nothing).result()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
