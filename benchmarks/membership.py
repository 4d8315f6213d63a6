"""Membership in a whole training, with and without DP-SGD, on bundled and public tables.

    python benchmarks/membership.py --out benchmarks/results/membership.csv

One line for each table, recipe, attack and figure: mean and 95% interval over repetitions, and the same on the control,
models that were trained on none of the records. A repetition is an average over thirty models, so that intervals are
Student's t. A recipe that is done already is not measured again.
"""

from __future__ import annotations

import argparse
import csv
import platform
import time
from collections.abc import Sequence
from pathlib import Path

from csv_lines import signed

from seepage.assessment.intervals import Estimate, student
from seepage.datasets import load
from seepage.protocols.trees import Boosting
from seepage.settings.training_membership import MembershipTest, measure_training_membership
from seepage.shadow.federated import Federation
from seepage.shadow.stacked import Dense

_SITE = Dense(2, (100,), epochs=1, batch_size=32, learning_rate=0.3)
RECIPES = {
    "20 epochs": Dense(2, (100,), epochs=20, batch_size=32, weight_decay=0.0),
    "2 epochs": Dense(2, (100,), epochs=2, batch_size=32, weight_decay=0.0),
    "DP-SGD, noise 1": Dense(2, (100,), epochs=20, batch_size=32, weight_decay=0.0, clip=1.0, noise=1.0),
    "5 sites, 20 rounds": Federation(_SITE, sites=5, rounds=20),
    "50 boosted trees": Boosting("binary:logistic", 2),
}
TABLES = {"german": 300, "adult": 1_000}
FIELDS: tuple[str, ...] = ("dataset", "rows", "recipe", "attack", "sees", "metric", "mean", "low", "high")
MORE: tuple[str, ...] = (
    "control",
    "control_low",
    "control_high",
    "repetitions",
    "models",
    "processor_seconds",
    "machine",
)


def measured(dataset: str, rows: int, recipe: str, test: MembershipTest) -> list[dict[str, object]]:
    """Return the lines of one table and recipe."""
    begun = time.process_time()
    figures = measure_training_membership(load(dataset), RECIPES[recipe], test)
    seconds = round(time.process_time() - begun, 1)
    control = {(f.attack, f.sees, f.metric): f.estimate for f in figures if f.target == "control"}
    lines = []
    for figure in figures:
        if figure.target != "deployed":
            continue
        own, beside = figure.estimate, control.get((figure.attack, figure.sees, figure.metric))
        ends = [*with_student(own), *([] if beside is None else with_student(beside))]
        shown = [None if end is None else round(end, 4) for end in ends] + [None] * (6 - len(ends))
        names = (*FIELDS[6:], *MORE[:3])
        about = (dataset, rows, recipe, figure.attack, figure.sees, figure.metric)
        after = (test.repetitions, test.shadows, seconds, f"{platform.machine()}, one thread of two busy cores")
        lines.append(dict(zip((*FIELDS[:6], *names, *MORE[3:]), (*about, *shown, *after), strict=True)))
    return lines


def with_student(estimate: Estimate) -> list[float | None]:
    """Return a mean with the ends of Student's t interval, within 0 and 1."""
    ends = student(estimate.mean, estimate.std, estimate.n)
    return [estimate.mean, *([None, None] if ends is None else [max(0.0, ends[0]), min(1.0, ends[1])])]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing and write a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=tuple(TABLES), action="append", help="only these tables")
    parser.add_argument("--models", type=int, default=32)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    lines: list[dict[str, object]] = []
    if given.out.exists():
        with given.out.open(encoding="utf-8", newline="") as file:
            lines = [dict(line) for line in csv.DictReader(file)]
    done = {(line["dataset"], line["recipe"]) for line in lines}
    for dataset, rows in TABLES.items():
        for recipe in RECIPES:
            if (dataset, recipe) in done or dataset not in (given.dataset or TABLES):
                continue
            test = MembershipTest(rows, given.models, given.repetitions)
            lines += map(signed, measured(dataset, rows, recipe, test))
            print(dataset, recipe, lines[-1]["processor_seconds"], flush=True)
            with given.out.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, (*FIELDS, *MORE, "commit"), lineterminator="\n")
                writer.writeheader()
                writer.writerows(lines)


if __name__ == "__main__":
    main()
