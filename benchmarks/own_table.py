"""How long an own table takes from file to report, and how much memory at most.

    python benchmarks/own_table.py                          # 1,000,000 x 50 as CSV and as Parquet
    python benchmarks/own_table.py --columns 500 --victims 16 --restarts 2 --iterations 100    # x 500, two workers

Makes a table of random numbers, categories, dates, identifiers and gaps on disk, then runs the command line in
a process of its own: the schema is inferred, printed and used for one small audit. Seconds are wall time, and CPU
time of all its processes, which other programs on the machine disturb less. Memory is that of all its processes
together at the worst moment, pages that several of them share counted once (looked at every 0.2 s; Linux only).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet

ROWS_AT_ONCE = 50_000
KINDS = ("real", "whole", "few", "words", "places", "flag", "date", "gaps", "money", "code")


def main() -> None:
    """Measure and print one JSON object a file format."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--format", choices=["csv", "parquet"], action="append")
    parser.add_argument("--victims", type=int, default=2)
    parser.add_argument("--restarts", type=int, default=30)
    parser.add_argument("--iterations", type=int, default=1500)
    arguments = parser.parse_args()
    formats = arguments.format or (["csv", "parquet"] if arguments.columns <= 50 else ["parquet"])
    for kind in formats:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"people.{kind}"
            write(path, arguments.rows, arguments.columns)
            report = {"format": kind, "rows": arguments.rows, "columns": arguments.columns}
            report |= {"file_gib": round(path.stat().st_size / 2**30, 2), "machine": platform.machine()}
            report |= {
                "cores": os.cpu_count(),
                **audit(path, arguments.victims, arguments.restarts, arguments.iterations),
            }
        print(json.dumps(report, indent=2), flush=True)


def write(path: Path, rows: int, columns: int) -> None:
    """Write a synthetic table, a few rows at a time."""
    generator = np.random.default_rng(0)
    writer: parquet.ParquetWriter | arrow_csv.CSVWriter | None = None
    for start in range(0, rows, ROWS_AT_ONCE):
        some = batch(generator, start, min(ROWS_AT_ONCE, rows - start), columns)
        if writer is None:
            made = parquet.ParquetWriter if path.suffix == ".parquet" else arrow_csv.CSVWriter
            writer = made(path, some.schema)
        writer.write_table(some)
    if writer is not None:
        writer.close()


def batch(generator: np.random.Generator, start: int, rows: int, columns: int) -> pa.Table:
    """Return some rows: an identifier, an outcome and columns of every kind in turn."""
    made = {"id": pa.array(np.arange(start, start + rows))}
    for i in range(columns - 2):
        made[f"{KINDS[i % len(KINDS)]}_{i}"] = column(KINDS[i % len(KINDS)], generator, rows)
    made["outcome"] = words("o", generator.integers(0, 2, rows))
    return pa.table(made)


def column(kind: str, generator: np.random.Generator, rows: int) -> pa.Array:
    """Return one column of a kind."""
    if kind in ("real", "gaps"):
        values = generator.normal(50, 20, rows)
        return pa.array(values, mask=generator.random(rows) < 0.05 if kind == "gaps" else None)
    if kind == "whole":
        return pa.array(generator.integers(0, 100_000, rows))
    if kind == "few":
        return pa.array(generator.integers(0, 8, rows))
    if kind == "words":
        return words("w", generator.integers(0, 12, rows))
    if kind == "places":
        return words("place ", generator.zipf(1.5, rows) % 5_000)
    if kind == "flag":
        return pa.array(generator.random(rows) < 0.3)
    if kind == "date":
        return pa.array(generator.integers(0, 20_000, rows).astype("datetime64[D]"))
    if kind == "money":
        return pa.array(np.round(generator.lognormal(8, 1, rows), 2))
    return words("c0", generator.integers(0, 40, rows))


def words(stem: str, codes: np.ndarray) -> pa.Array:
    """Return texts of a stem and a number."""
    different, position = np.unique(codes, return_inverse=True)
    return pa.DictionaryArray.from_arrays(position, [f"{stem}{code}" for code in different]).cast(pa.string())


def audit(path: Path, victims: int, restarts: int, iterations: int) -> dict[str, object]:
    """Infer the schema of a table and audit it, in a process of its own; return seconds and memory."""
    arguments = ["audit", "--data", str(path), "--target", "outcome", "--missing", "category", "--batch-size", "8"]
    arguments += ["--attack", "tableak", "--victims", str(victims), "--out", str(path.with_suffix(".run"))]
    arguments += ["--restarts", str(restarts), "--iterations", str(iterations), "--no-control"]
    begun, before, peak = time.perf_counter(), os.times(), 0
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen([sys.executable, "-m", "seepage", *arguments], stdout=output, stderr=output)
        while process.poll() is None:
            peak = max(peak, sum(map(memory, family(process.pid))))
            time.sleep(0.2)
        if process.returncode:
            output.seek(0)
            raise SystemExit(output.read())
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {
        "seconds": round(time.perf_counter() - begun, 1),
        "cpu_seconds": round(cpu, 1),
        "peak_gib": round(peak / 2**20, 2),
    }


def family(process: int) -> list[int]:
    """Return a process and all that it has started, and those in turn."""
    with contextlib.suppress(OSError):
        children = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")]
        return [process, *(one for some in children for child in some.split() for one in family(int(child)))]
    return [process]


def memory(process: int) -> int:
    """Return the KiB that a process holds, its part of shared pages only; 0 where it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


if __name__ == "__main__":
    main()
