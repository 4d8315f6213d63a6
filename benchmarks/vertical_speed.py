"""How long UIFV's four attacks take on one data set, and what further trainings beside the first one cost.

    python benchmarks/vertical_speed.py --dataset adult --trainings 1 3 --threads 2

Training, guesses and attacks are timed apart. Seconds of the processor are those of all threads; beside other programs
they are the more honest figure.
"""

from __future__ import annotations

import argparse
import json
import time

from seepage.datasets import load
from seepage.devices import threads
from seepage.settings.vertical.audit import VerticalAudit
from seepage.settings.vertical.spec import VerticalSpec

PASSIVE = {
    "adult": ("workclass", "education", "marital-status", "occupation", "age"),
    "german": ("age", "housing", "job"),
}


def main() -> None:
    """Measure and print one JSON object a number of trainings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="adult")
    parser.add_argument("--trainings", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    data = load(arguments.dataset)
    for units in arguments.trainings:
        passive = (PASSIVE[data.name],) if data.name in PASSIVE else ()
        spec = VerticalSpec.of(dataset=data.name, repetitions=units, passive=passive, threads=arguments.threads)
        audit = VerticalAudit(spec, data)
        found: dict[str, dict[str, float]] = {}
        with threads(arguments.threads):
            begun = (time.perf_counter(), time.process_time())
            exposure = audit.expose(audit.configurations[0], range(units))
            found["set-up"] = _since(begun)
            for part in audit.parts:
                begun = (time.perf_counter(), time.process_time())
                exposure.measure(part)
                found[part.label] = _since(begun)
        total = {name: round(sum(one[name] for one in found.values()), 1) for name in ("wall", "processor")}
        print(json.dumps({"dataset": data.name, "trainings": units, "threads": arguments.threads, **total, **found}))


def _since(begun: tuple[float, float]) -> dict[str, float]:
    return {
        "wall": round(time.perf_counter() - begun[0], 1),
        "processor": round(time.process_time() - begun[1], 1),
    }


if __name__ == "__main__":
    main()
