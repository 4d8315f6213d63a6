"""What starting the program costs: processor time of commands that compute nothing, beside ``import typer``.

    python benchmarks/start.py                # 10 starts of each command
    python benchmarks/start.py --repeats 3

Each command runs in a process of its own. Processor time (user and system) is taken, which other programs on the
machine disturb less than wall time. The limit is 0.6 seconds, or twice ``import typer`` where that is more; the
program ends with status 1 where a median exceeds it. Writes benchmarks/results/start.csv.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import subprocess
import sys
from pathlib import Path

from csv_lines import signed

FILE = Path(__file__).parent / "results" / "start.csv"
REFERENCE = "python -c 'import typer'"
LIMIT_SECONDS = 0.6
COMMANDS = {
    REFERENCE: [sys.executable, "-c", "import typer"],
    "python -c 'import seepage'": [sys.executable, "-c", "import seepage"],
    **{
        f"seepage {arguments}": [sys.executable, "-m", "seepage", *arguments.split()]
        for arguments in (
            "--version",
            "--help",
            "checks",
            "attacks",
            "defenses",
            "models",
            "datasets",
            "adit",
            "audit --batchsize 8",
            "audit --attack tabelak",
            "split adit",
            "split --attack exatc",
            "vertical adit",
            "vertical --attack uivf",
            "pooled adit",
            "pooled --attack mtea",
        )
    },
}


def processor_seconds(command: list[str]) -> float:
    """Return the user and system time that a command takes."""
    before = os.times()
    subprocess.run(command, capture_output=True, check=False)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10, help="starts of each command")
    repeats = parser.parse_args().repeats
    # In turns, so that a slow minute of the machine meets all of them; the first round fills caches of files.
    rounds = [{name: processor_seconds(command) for name, command in COMMANDS.items()} for _ in range(repeats + 1)][1:]
    medians = {name: statistics.median(found[name] for found in rounds) for name in COMMANDS}
    limit = max(LIMIT_SECONDS, 2 * medians[REFERENCE])
    with FILE.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(
            ["command", "starts", "median_seconds", "least_seconds", "most_seconds", "limit_seconds", "commit"]
        )
        for name, median in medians.items():
            times = [found[name] for found in rounds]
            figures = [f"{t:.2f}" for t in (median, min(times), max(times), limit)]
            lines.writerow([name, repeats, *figures, signed({})["commit"]])
            print(f"{name:32} {median:5.2f} s ({min(times):.2f} to {max(times):.2f})")
    slow = [name for name, median in medians.items() if median > limit]
    print(f"limit {limit:.2f} s: {', '.join(slow) + ' exceed it' if slow else 'all stay below it'}")
    sys.exit(bool(slow))


if __name__ == "__main__":
    main()
