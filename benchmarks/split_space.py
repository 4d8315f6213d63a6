"""What a record of split learning costs to read as the space of its private cells grows, against the arithmetic limit.

    python benchmarks/split_space.py --out benchmarks/results/split_space.csv
    python benchmarks/split_space.py --search meet --rows 3000 --out benchmarks/results/split_meet.csv

Planted: columns of ten independent values that all tell of the label, of which more and more are private; two other
columns and two numbers are the server's. DeepFM with layers of 256 and 128 at the client. Up to 10^7 configurations
``exact`` goes through all of them, beyond it meets in the middle. The limit counts the multiplications of the second
and the last layer for every configuration of the private cells, at the rate that such a product reaches in the same
run.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from csv_lines import signed

from seepage.attacks.split import Exact
from seepage.attacks.split.exact import Search
from seepage.datasets.dataset import Dataset
from seepage.models.deepfm import deepfm
from seepage.protocols.split import SplitLearning
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table
from seepage.wire.split import CutKnowledge

WIDTH, COLUMNS, HIDDEN = 10, 10, (256, 128)
# Private columns, records and search.
POINTS: tuple[tuple[int, int, Search], ...] = (
    *((2, 200, "exhaustive"), (3, 50, "exhaustive"), (4, 10, "exhaustive"), (5, 4, "exhaustive")),
    *((6, 1, "exhaustive"), (7, 1, "exhaustive"), (9, 50, "meet"), (10, 50, "meet")),
)


def planted(rows: int, seed: int = 0) -> Dataset:
    """Return a table in which every column tells of the label, independently of the others."""
    generator = np.random.default_rng(seed)
    frame: dict[str, np.ndarray] = {}
    score = generator.normal(size=rows)
    widths = {**{f"p{i}": WIDTH for i in range(COLUMNS)}, "s0": 5, "s1": 5}
    for name, width in widths.items():
        frame[name] = generator.integers(0, width, rows)
        score += generator.normal(size=width)[frame[name]]
    numbers = ("n", "m")
    for name in numbers:
        frame[name] = generator.normal(size=rows)
    score += frame["n"]
    frame["t"] = (score > np.median(score)).astype(int)
    schema = Schema(
        columns=(
            *(Discrete(name=name, categories=tuple(range(width))) for name, width in widths.items()),
            *(Continuous(name=name, low=-9, high=9, tolerance=0.3) for name in numbers),
        ),
        target=Discrete(name="t", categories=(0, 1)),
    )
    return Dataset("planted", Table(schema, pd.DataFrame(frame)), None, (), "generated", "none needed")


def rate() -> float:
    """Return how many multiplications and additions a second the second layer's product reaches."""
    units, weight = torch.randn(4096, HIDDEN[0]), torch.randn(HIDDEN[0], HIDDEN[1])
    best = float("inf")
    for _ in range(20):
        begun = time.perf_counter()
        _ = units @ weight
        best = min(best, time.perf_counter() - begun)
    return 2 * units.numel() * HIDDEN[1] / best


def main() -> None:
    """Measure every point and write a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--search", choices=("exhaustive", "meet"), help="Only this search.")
    parser.add_argument("--rows", type=int, default=1_500, help="Of the table.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = planted(arguments.rows)
    protocol = SplitLearning(epochs=5, batch_size=64)
    with arguments.out.open("w", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        counted = ("records", "read", "likely", "wrong_likely", "ties")
        writer.writerow(
            [
                "columns",
                "configurations",
                "search",
                *counted,
                "seconds_a_record",
                "gflops",
                "limit_seconds",
                "times_limit",
                "commit",
            ]
        )
        for columns, records, search in POINTS:
            if arguments.search not in (None, search):
                continue
            private = [f"p{i}" for i in range(columns)]
            model = deepfm(data.schema, private, seed=0, hidden=HIDDEN)
            seen = protocol.observe(protocol.train(model, data.train, seed=0), data.train.rows(range(records)), seed=1)
            reached = rate()
            # Of this process alone, whatever else runs.
            begun = time.process_time()
            guess = Exact(search=search, most=10**8)(seen.view, CutKnowledge(data.schema, data.statistics))
            seconds = (time.process_time() - begun) / records
            right = (guess.cells == seen.cells).all(1) & (guess.labels == seen.labels)
            assert guess.likely is not None
            assert guess.ties is not None
            cells = WIDTH**columns
            limit = 2 * cells * (HIDDEN[0] * HIDDEN[1] + HIDDEN[1]) / reached
            tied = int((guess.ties > 1).sum())
            counts = [int(right.sum()), int(guess.likely.sum()), int((guess.likely & ~right).sum()), tied]
            speed = (f"{seconds:.4g}", f"{reached / 1e9:.0f}", f"{limit:.3g}", f"{seconds / limit:.3g}")
            writer.writerow([columns, 2 * cells, search, records, *counts, *speed, signed({})["commit"]])
            file.flush()


if __name__ == "__main__":
    main()
