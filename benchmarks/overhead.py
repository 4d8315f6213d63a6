"""What the runner, the store and the report add to the attacks of an audit.

    python benchmarks/overhead.py                               # the default audit, three times
    python benchmarks/overhead.py --repeats 1 -- --victims 2    # another, once

Runs the audit as the command does, once with its worker processes and once without, and takes CPU time, which other
programs on the machine disturb less than wall time. Without workers, the time in which attacks run is taken apart
from the rest: loading the data, the short trials that plan the work, baselines, the store and the report. Scores
count as the attack's.
Importing the program is taken apart too. What workers add is the difference of the two audits.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ALONE = """
import time
begun = time.process_time()
import json, sys
from seepage.settings.horizontal.audit import HorizontalExposure
from seepage.cli import main
imported = time.process_time() - begun
plain, attacks = HorizontalExposure.measure, 0.0
def counted(exposure, part, progress=None):
    global attacks
    begun = time.process_time()
    outcome = plain(exposure, part, progress)
    if part.kind == "attack":
        attacks += time.process_time() - begun
    return outcome
HorizontalExposure.measure = counted
try:
    main()
except SystemExit as stopped:
    assert not stopped.code
print(json.dumps({"imports": imported, "attacks": attacks, "all": time.process_time()}))
"""


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("options", nargs="*", help="of seepage audit, after --")
    arguments = parser.parse_args()
    runs = [measure(arguments.options) for _ in range(arguments.repeats)]
    print(json.dumps({name: [round(run[name], 2) for run in runs] for name in runs[0]}, indent=2))
    share = statistics.median(run["rest"] / run["attacks"] for run in runs)
    with_workers = statistics.median((run["rest"] + run["workers"]) / run["attacks"] for run in runs)
    print(f"beside attacks and imports: {share:.1%} of the attacks; with what workers add: {with_workers:.1%}")


def measure(options: list[str]) -> dict[str, float]:
    """Return CPU seconds of the parts of one audit."""
    with tempfile.TemporaryDirectory() as folder:
        alone = ["--workers", "1", "--out", os.path.join(folder, "alone")]
        printed = run([sys.executable, "-c", ALONE, "audit", *options, *alone])[0]
        parts = json.loads(printed.splitlines()[-1])
        crew = run([sys.executable, "-m", "seepage", "audit", *options, "--out", os.path.join(folder, "crew")])[1]
    rest = parts["all"] - parts["attacks"] - parts["imports"]
    return {**parts, "rest": rest, "workers": crew - parts["all"]}


def run(command: list[str]) -> tuple[str, float]:
    """Run a command; return what it printed and the CPU seconds of all its processes."""
    before = os.times()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    after = os.times()
    return done.stdout, sum(after[2:4]) - sum(before[2:4])


if __name__ == "__main__":
    main()
