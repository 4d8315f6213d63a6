"""Draws of federated trees that are hard for certificates, and how many certified rows the truth contradicts.

    python benchmarks/falsify_trees.py draws.jsonl --minutes 60 --csv benchmarks/results/falsify_trees.csv

Each draw is a federation whose form, table and recipe follow from its number alone. Its figures are added to the file
as one line of JSON, so that a later call goes on where the last one ended. A certified row is true if all its certified
cells are those of a row of the client, with at most one certified row for each row: the best assignment decides.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from csv_lines import signed
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching
from scipy.stats import beta

from seepage.attacks.trees.anchor import Anchor
from seepage.protocols.trees import Boosting, encoded, forest_of, histograms, objective_of, train_together
from seepage.tabular.schema import Column, Continuous, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from seepage.wire.trees import HistogramsView, TreesKnowledge

FORMS = (
    "plain",
    "coarse bins",
    "lambda 0",
    "duplicated rows, lambda 0",
    "duplicated rows, lambda 1",
    "large eta",
    "near-equal gradients",
    "missing values",
    "three classes",
    "regression",
    "few rounds",
)
FIELDS = ("form", "draws", "rows", "certified", "cells", "false", "upper")
SIGNED = (*FIELDS, "commit", "kernel")


@dataclass(frozen=True)
class Draw:
    """A client's message, what is known of it, and its true records.

    Attributes:
        form: what is hard about it.
        view: what the attacker receives.
        knowledge: what it knows.
        true: cells of the client's records (record, column).
    """

    form: str
    view: HistogramsView
    knowledge: TreesKnowledge
    true: torch.Tensor


def drawn(number: int) -> Draw:
    """Return the draw with a number."""
    rng = np.random.default_rng([38, number])
    form = FORMS[number % len(FORMS)]
    # Most clients are small: that is where nearly everything is certified.
    rows = int(np.exp(rng.uniform(np.log(10), np.log(400 if rng.random() < 0.05 else 60))))
    clients = int(rng.integers(2, 11))
    table = _table(form, rows, clients, rng)
    objective, classes = objective_of(table.schema)
    loose = "lambda 0" in form or rng.random() < 0.3
    recipe = Boosting(
        objective,
        classes,
        rounds=int(rng.integers(1, 4)) if form == "few rounds" else int(rng.integers(4, 31)),
        depth=int(rng.integers(2, 9)),
        learning_rate={"large eta": float(rng.choice([1, 3, 10])), "near-equal gradients": 10.0 ** -rng.integers(3, 7)}
        .get(form, float(rng.choice([0.1, 0.3]))),
        regularisation=1.0 if "lambda 1" in form else 0.0 if loose else float(rng.choice([0.5, 1.0, 3.0])),
        min_child_weight=1e-6 if loose else float(rng.choice([0.1, 1.0])),
        max_bin=int(rng.choice([3, 8, 16])) if form == "coarse bins" else int(rng.choice([16, 64, 256])),
    )  # fmt: skip
    cells = encoded(table.schema, Statistics.of(table), table.cells)
    labels = table.labels.numpy()
    places = [slice(k * rows, (k + 1) * rows) for k in range(clients)]
    booster, cuts = train_together([cells[p] for p in places], [labels[p] for p in places], recipe)
    message = histograms(forest_of(booster), cuts, cells[:rows], labels[:rows], recipe.depth)
    knowledge = TreesKnowledge(
        table.schema,
        Statistics.of(table),
        rows,
        regularisation=recipe.regularisation,
        learning_rate=recipe.learning_rate,
        max_bin=recipe.max_bin,
    )
    return Draw(form, HistogramsView((message,)), knowledge, table.cells[:rows])


def _table(form: str, rows: int, clients: int, rng: np.random.Generator) -> Table:
    """Return rows of all clients, of which the target follows some columns."""
    count = rows * clients
    # Of duplicated tables a few rows are drawn again and again.
    kinds = max(4, int(count * rng.choice([0.05, 0.2, 0.5]))) if "duplicated" in form else count
    frame, columns = pd.DataFrame(index=range(kinds)), list[Column]()
    score = rng.normal(0, 0.5, kinds)
    for i in range(int(rng.integers(1, 4))):
        most = int(rng.choice([10, 100, 10_000]))
        frame[f"n{i}"] = rng.integers(0, most, kinds)
        score += rng.normal() * frame[f"n{i}"] / most
        if form == "missing values":
            frame.loc[rng.random(kinds) < 0.3, f"n{i}"] = 0
        tolerance = float(rng.choice([0.01, 0.1])) * most
        columns.append(Continuous(name=f"n{i}", low=0, high=most - 1, tolerance=tolerance, integer=True))
    for i in range(int(rng.integers(1, 5))):
        names = [*"abcdefgh"[: int(rng.integers(2, 9))], *(["(missing)"] if form == "missing values" else [])]
        codes = rng.choice(len(names), kinds, p=rng.dirichlet(np.ones(len(names))))
        frame[f"c{i}"] = np.array(names)[codes]
        score += rng.normal() * (codes == 0)
        columns.append(Discrete(name=f"c{i}", categories=tuple(names)))
    classes = {"three classes": 3, "regression": 1}.get(form, 2)
    target: Column = Continuous(name="y", low=-1e3, high=1e3, tolerance=0.1)
    frame["y"] = score.round(3)
    if classes > 1:
        target = Discrete(name="y", categories=tuple(range(classes)))
        frame["y"] = np.searchsorted(np.quantile(score, np.arange(1, classes) / classes), score)
    places = rng.permutation(kinds) if kinds == count else rng.integers(0, kinds, count)
    return Table(Schema(columns=tuple(columns), target=target), frame.iloc[places].reset_index(drop=True))


def judged(draw: Draw) -> dict[str, object]:
    """Return the figures of a draw: rows, certified rows and cells, and rows that the truth contradicts."""
    guess = Anchor()(draw.view, draw.knowledge, [0])
    certified = guess.certified
    assert certified is not None
    proved = certified[0].any(1)
    return {
        "form": draw.form,
        "rows": len(draw.true),
        "certified": int(proved.sum()),
        "cells": int(certified.sum()),
        "false": false_rows(draw.knowledge.schema, guess.cells[0][proved], certified[0][proved], draw.true),
    }


def false_rows(schema: Schema, cells: torch.Tensor, certified: torch.Tensor, true: torch.Tensor) -> int:
    """Return how many certified rows no assignment to true rows makes right.

    Args:
        schema: columns and tolerances.
        cells: guessed cells (row, column).
        certified: which of them are certified.
        true: true cells (record, column).
    """
    fits = torch.ones(len(cells), len(true), dtype=torch.bool)
    for c, column in enumerate(schema.columns):
        tolerance = 0.5 if isinstance(column, Discrete) else column.tolerance + 1e-6
        near = (cells[:, c, None] - true[None, :, c]).abs() <= tolerance
        fits &= near | ~certified[:, c, None]
    matched = maximum_bipartite_matching(csr_array(fits.numpy()), perm_type="column")
    return int((matched < 0).sum())


def summary(lines: Iterable[Mapping[str, object]]) -> list[dict[str, object]]:
    """Return figures by form and in all, with the 95% upper bound of the share of false rows."""
    by_form: dict[str, list[Mapping[str, object]]] = defaultdict(list)
    for line in lines:
        by_form[str(line["form"])].append(line)
        by_form["all"].append(line)
    found = []
    for form in (*FORMS, "all"):
        here = by_form[form]
        sums = {name: sum(int(str(line[name])) for line in here) for name in ("rows", "certified", "cells", "false")}
        wrong, certified = sums["false"], sums["certified"]
        upper = float(beta.ppf(0.95, wrong + 1, certified - wrong)) if certified > wrong else 1.0
        found.append({"form": form, "draws": len(here), **sums, "upper": f"{upper:.2g}"})
    return found


def main() -> None:
    """Draw and judge until the time is over, then print all figures of the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("draws", type=Path, help="file with a line for each draw")
    parser.add_argument("--first", type=int, default=0, help="number of the file's first draw")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--csv", type=Path, help="file for the figures by form")
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes
    path: Path = arguments.draws
    number = arguments.first + (len(path.read_text().splitlines()) if path.exists() else 0)
    while time.monotonic() < end:
        begun = time.monotonic()
        line = {"draw": number, **judged(drawn(number)), "seconds": round(time.monotonic() - begun, 2)}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if line["false"]:
            print(f"FALSE: {line}", flush=True)
        number += 1
    figures = summary(json.loads(text) for text in path.read_text().splitlines())
    for line in figures:
        print("  ".join(f"{name} {value}" for name, value in line.items()))
    if arguments.csv:
        with arguments.csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, SIGNED, lineterminator="\n")
            writer.writeheader()
            writer.writerows(signed(line, SIGNED) for line in figures)


if __name__ == "__main__":
    main()
