"""What is right without any message: baselines of rows from marginals alone, and from public rows.

    python benchmarks/informed_guess.py --out benchmarks/results/informed_guess.csv --data FOLDER

A line is a table, a number of records of a batch and a number of public rows that the attacker holds, held-out ones.
Accuracy is that of audits: guessed rows are matched to the true ones at the least error. `unmatched` is that of random
rows as they come, so that `random` beside it is what matching alone is worth. All are in percent over the same victims,
with 95% intervals. `gain` is that of the best of the new baselines over the best of the others, on the same victims, by
Student's t. `seconds` are those of the fits of `stereotypes` and `chow_liu`, once for all victims. What is in
the file is not measured again. --data holds the files of datasets that are not bundled.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from csv_lines import add_lines, read_lines
from scipy import stats
from torch import nn

from seepage import baselines, datasets
from seepage.assessment import measure
from seepage.assessment.measurement import Measurement
from seepage.datasets import Dataset
from seepage.devices import threads
from seepage.models.model import Model
from seepage.seeds import stream
from seepage.tabular.align import right_cells
from seepage.wire.horizontal import GradientView, Knowledge, RecordsGuess
from seepage.wire.secret import RecordsSecret

TABLES = ("german", "adult", "lawschool")
RECORDS = (8, 32, 128)
PUBLIC = (0, 200, 2_000)
VICTIMS = 40
TODAY, NEW = ("mode", "likeliest", "random"), ("stereotypes", "chow_liu")
FIELDS = ("table", "records", "public", "victims", "unmatched", *TODAY, *NEW, "gain", "seconds", "commit", "kernel")


def main() -> None:
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=None)
    options = parser.parse_args()
    done = {(line["table"], int(line["records"]), int(line["public"])) for line in read_lines(options.out)}
    with threads(1):
        for name in TABLES:
            data = datasets.load(name, folder=options.data)
            held_out = 0 if data.test is None else len(data.test)
            for records, public in ((r, p) for r in RECORDS for p in PUBLIC if p <= held_out):
                if (name, records, public) not in done:
                    add_lines(options.out, FIELDS, [line_of(data, records, public)])


def line_of(data: Dataset, records: int, public: int) -> dict[str, object]:
    """Return the figures of all baselines on the same victims."""
    secret = RecordsSecret(*victims_of(data, records))
    rows = None if data.test is None or not public else data.test.cells[:public]
    knowledge = Knowledge(data.schema, data.statistics, records, auxiliary=rows)
    line: dict[str, object] = {"table": data.name, "records": records, "public": public, "victims": VICTIMS}
    values: dict[str, np.ndarray] = {}
    began, fitted = time.perf_counter(), 0.0
    for name, guess in guesses(knowledge):
        if name in NEW:
            fitted += time.perf_counter() - began
        measured = accuracy(data, secret, guess)
        line[name], values[name] = text_of(measured), measured.values.numpy()
        if name == "random":
            right = right_cells(data.schema, guess.cells, secret.cells).double().mean((1, 2))
            line["unmatched"] = text_of(Measurement("accuracy", None, right))
        began = time.perf_counter()
    return {**line, "gain": gain(values), "seconds": f"{fitted:.1f}"}


def gain(values: Mapping[str, np.ndarray]) -> str:
    """Return the gain of the best new baseline over the best of the others, with its interval, in points."""
    before, after = (max((values[n] for n in names if n in values), key=np.mean) for names in (TODAY, NEW))
    points = 100 * (after - before)
    half = stats.t.ppf(0.975, len(points) - 1) * points.std(ddof=1) / np.sqrt(len(points))
    return f"{points.mean():.1f} [{points.mean() - half:.1f}, {points.mean() + half:.1f}]"


def guesses(knowledge: Knowledge) -> Iterator[tuple[str, RecordsGuess]]:
    """Return each baseline's guess of all victims; a tree of columns needs public rows."""
    # Baselines read the number of victims, and nothing else.
    nothing = {"weight": torch.zeros(VICTIMS, 1, 1)}
    view = GradientView(Model(nn.Linear(1, 1, bias=False), "sigmoid", "linear"), nothing)
    seeds = [stream(0, victim, "baseline") for victim in range(VICTIMS)]
    for name in (*TODAY, *(NEW if knowledge.auxiliary is not None else NEW[:1])):
        yield name, baselines.create(name, "horizontal")(view, knowledge, seeds)


def victims_of(data: Dataset, records: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cells and labels of batches that are drawn from the clients' rows without replacement."""
    generator = torch.Generator().manual_seed(records)
    places = torch.stack([torch.randperm(len(data.train), generator=generator)[:records] for _ in range(VICTIMS)])
    return data.train.cells[places], data.train.labels[places]


def accuracy(data: Dataset, secret: RecordsSecret, guess: RecordsGuess) -> Measurement:
    """Return the share of cells that are right, of each victim."""
    scores = measure(data.schema, data.statistics, secret, guess)
    return next(score for score in scores if (score.metric, score.column) == ("accuracy", None))


def text_of(measured: Measurement) -> str:
    """Return mean and 95% interval in percent."""
    found = measured.estimate()
    assert found.mean is not None
    assert found.low is not None
    assert found.high is not None
    return f"{100 * found.mean:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


if __name__ == "__main__":
    main()
