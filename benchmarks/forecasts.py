"""How long twenty audits take beside the forecast that they print first: all settings, four tables each.

    python benchmarks/forecasts.py                      # writes benchmarks/results/forecasts.csv
    python benchmarks/forecasts.py --command split --table small

Each audit runs as a process of its own, with its defaults and one worker, and ends where it likes. A line has the
forecast, the seconds of the processor from start to end, start-up and report included, and their ratio. Lines that the
file has already stay, and are measured again where they are asked for by --table or --command.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from csv_lines import signed
from first_try import TABLES, drawn

COMMANDS = ("audit", "split", "vertical", "pooled", "trees")
NAMES = ("small", "rare class", "two values", "german")
_SECONDS = {"s": 1, "min": 60, "h": 3600}
# An audit that takes longer is ended.
_LIMIT = 1800


def measured(command: str, name: str, folder: Path) -> dict[str, object]:
    """Return the forecast of an audit, and how long it took."""
    options = ["--dataset", name]
    sensitive = "age"
    if name in TABLES:
        table = folder / f"{name.replace(' ', '_')}.csv"
        frame = drawn(TABLES[name])
        frame.to_csv(table, index=False)
        options, sensitive = ["--data", str(table), "--target", "class"], str(frame.columns[-2])
    elif command == "pooled":
        sensitive = "housing"
    options += ["--sensitive", sensitive] if command == "pooled" else []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "seepage", command, *options, "--workers", "1", "--out", str(folder / "out")],
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = re.search(r"jobs?, about (?:(\d+) h )?(\d+) (s|min)", done.stderr + done.stdout)
    forecast = None if found is None else 3600 * int(found[1] or 0) + int(found[2]) * _SECONDS[found[3]]
    ratio = None if not forecast else round(seconds / forecast, 2)
    line = {"command": command, "table": name, "exit": done.returncode, "forecast": forecast}
    return {**line, "processor": round(seconds, 1), "ratio": ratio}


def main() -> None:
    """Measure what the file does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", choices=COMMANDS, action="append", help="only these")
    parser.add_argument("--table", choices=NAMES, action="append", help="only these")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "forecasts.csv")
    asked = parser.parse_args()
    lines: dict[tuple[str, str], dict[str, object]] = {}
    if asked.out.exists():
        with asked.out.open(newline="", encoding="utf-8") as file:
            lines = {(line["command"], line["table"]): dict(line) for line in csv.DictReader(file)}
    again = asked.command is not None or asked.table is not None
    for command in asked.command or COMMANDS:
        for name in asked.table or NAMES:
            if (command, name) in lines and not again:
                continue
            with tempfile.TemporaryDirectory() as place:
                lines[command, name] = signed(measured(command, name, Path(place)))
            print(lines[command, name], flush=True)
            with asked.out.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(lines[command, name]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(lines[key] for c in COMMANDS for n in NAMES if (key := (c, n)) in lines)


if __name__ == "__main__":
    main()
