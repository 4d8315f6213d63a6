"""Twelve odd tables through the commands of all settings, with nothing named but table, target and sensitive column.

    python benchmarks/first_try.py                      # writes benchmarks/results/first_try.csv
    python benchmarks/first_try.py --table short --command split --out first_try.csv --printed printed

Each command has a time budget of 60 seconds. The figures are its seconds, those of the processor, its exit status and
the last line that it printed, which is a verdict or says why there is none. Lines that the file has already stay, and
are measured again where they are asked for by --table or --command. --printed keeps all that the commands print.
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
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from csv_lines import signed

COMMANDS = ("audit", "split", "vertical", "pooled", "trees", "statistics")
BUDGET = "60s"
# A command that ignores its budget is ended.
_LIMIT = 600


@dataclass(frozen=True)
class Shape:
    """How a table is drawn.

    Attributes:
        rows: number of rows.
        numbers, categories: number of columns of each kind.
        rare: share of the rarer class.
        values: number of categories of a column.
        constant: whether one further column has a single value.
    """

    rows: int
    numbers: int
    categories: int
    rare: float = 0.4
    values: int = 4
    constant: bool = False


TABLES = {
    "short": Shape(60, 2, 2),
    "small": Shape(600, 2, 3),
    "three columns": Shape(1_000, 1, 2),
    "rare class": Shape(2_000, 3, 3, rare=0.02),
    "categories alone": Shape(3_000, 0, 8),
    "numbers alone": Shape(3_000, 8, 0),
    "many values": Shape(4_000, 2, 3, values=60),
    "two values": Shape(5_000, 0, 12, values=2),
    "constant column": Shape(2_000, 3, 3, constant=True),
    "wide": Shape(1_500, 150, 150),
    "long": Shape(100_000, 4, 4),
    "long and rare": Shape(50_000, 6, 6, rare=0.01),
}


def drawn(shape: Shape, seed: int = 0) -> pd.DataFrame:
    """Return a table whose target ``class`` follows its first columns."""
    draw = np.random.default_rng(seed)
    columns: dict[str, np.ndarray] = {}
    score = draw.normal(0, 1, shape.rows)
    for i in range(shape.numbers):
        columns[f"number_{i}"] = np.round(draw.normal(50, 10, shape.rows), 1)
        score += (columns[f"number_{i}"] - 50) / 10 if i < 2 else 0.0
    for i in range(shape.categories):
        codes = np.minimum(draw.geometric(2 / (shape.values + 1), shape.rows) - 1, shape.values - 1)
        columns[f"category_{i}"] = np.array([f"v{value}" for value in range(shape.values)])[codes]
        score += codes / shape.values if i < 2 else 0.0
    if shape.constant:
        columns["constant"] = np.full(shape.rows, "same")
    columns["class"] = np.where(score > np.quantile(score, 1 - shape.rare), "yes", "no")
    return pd.DataFrame(columns)


def tried(
    command: str, table: Path, sensitive: str, out: Path, budget: str = BUDGET, printed: Path | None = None
) -> dict[str, object]:
    """Return what became of one command: status, seconds and the last line that it printed.

    Args:
        command: name of the command.
        table: file of the table.
        sensitive: sensitive column of the pooled setting.
        out: run folder.
        budget: time budget.
        printed: file for all that the command prints; None for none.
    """
    arguments = [sys.executable, "-m", "seepage", command, "--data", str(table), "--target", "class"]
    arguments += ["--sensitive", sensitive] if command == "pooled" else []
    arguments += ["--time-budget", budget, "--workers", "1", "--out", str(out)]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    try:
        done = subprocess.run(
            arguments,
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        )
        status, said = str(done.returncode), done.stdout if done.returncode in (0, 3) else done.stderr
        if printed is not None:
            printed.parent.mkdir(parents=True, exist_ok=True)
            printed.write_text(f"{done.stderr}\n{done.stdout}", encoding="utf-8")
    except subprocess.TimeoutExpired:
        status, said = "ended", ""
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "command": command,
        "exit": status,
        "seconds": round(time.monotonic() - begun),
        "processor": round(processor),
        "said": _verdict(said),
    }


def _verdict(said: str) -> str:
    """Return the verdict and its first sentence, which follow the title; the last line where there is none."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    titles = [i for i, line in enumerate(lines) if line.startswith("Audit of ")]
    verdicts = [i for i, line in enumerate(lines) if titles and i > titles[-1] and line.isupper()]
    if not verdicts:
        return (lines or [""])[-1]
    # Sentences are broken at the width of the screen.
    sentences = re.split(r"(?<=[.;]) ", " ".join(lines[verdicts[0] + 1 :]))
    return f"{lines[verdicts[0]]}: {sentences[0]}"


def main(show: Callable[[str], None] = print) -> None:
    """Try all commands on all tables and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=TABLES, action="append", help="only these")
    parser.add_argument("--command", choices=COMMANDS, action="append", help="only these")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "first_try.csv")
    parser.add_argument("--printed", type=Path, help="folder for all that the commands print")
    asked = parser.parse_args()
    again = asked.table is not None or asked.command is not None
    lines: dict[tuple[str, str], dict[str, object]] = {}
    if asked.out.exists():
        with asked.out.open(newline="", encoding="utf-8") as file:
            lines = {(line["table"], line["command"]): dict(line) for line in csv.DictReader(file)}
    for name in asked.table or TABLES:
        frame = drawn(TABLES[name])
        for command in asked.command or COMMANDS:
            if (name, command) in lines and not again:
                continue
            file_name = name.replace(" ", "_")
            with tempfile.TemporaryDirectory() as place:
                path = Path(place) / f"{file_name}.csv"
                frame.to_csv(path, index=False)
                printed = None if asked.printed is None else asked.printed / f"{file_name}-{command}.txt"
                found = tried(command, path, str(frame.columns[-2]), Path(place) / "out", printed=printed)
            lines[name, command] = signed({"table": name, **found})
            show(str(lines[name, command]))
            # Written each time: the next start continues here.
            ordered = [lines[key] for table in TABLES for c in COMMANDS if (key := (table, c)) in lines]
            with asked.out.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(ordered[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(ordered)


if __name__ == "__main__":
    main()
