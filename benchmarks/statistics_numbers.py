"""What a regression's sums tell of records where a column enters the model as a number, as ages do.

    python benchmarks/statistics_numbers.py --out benchmarks/results/statistics_numbers.csv

A pattern is then levels of the categories with a value of the number, of which the public table has finitely many.
Sums are linear in the numbers of records of all patterns, but no cross table tells which of them occur. Least squares
without negatives are read as they are, nothing is certified. The baseline guesses other rows of the table. A line that
is in the file already is not measured again.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path

import numpy as np
from csv_lines import add_lines, read_lines
from scipy.optimize import linear_sum_assignment, nnls

from seepage.datasets import load
from seepage.protocols.statistics import Newton, fit
from seepage.settings.statistics.design import model_levels
from seepage.wire.statistics import NewtonStep, rows_of

FIELDS = ("table", "number", "rows", "sites", "values", "patterns", "rank", "occupied", "whole", "records", "cells",
          "number_right", "other_rows", "seconds", "commit")  # fmt: skip
TABLES = {
    "adult": (("sex", "relationship", "race"), "age"),
    "german": (("housing", "job", "savings", "telephone"), "age"),
    "credit": (("SEX", "EDUCATION", "MARRIAGE"), "AGE"),
}
ROWS, SITES = (50, 100, 200), 3
# Ratio of the weakest direction that is used to the strongest, and weights beyond which directions count alike.
_WEAKEST, _MOST = 1e-10, 1e6


def main() -> None:
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    for table, rows in itertools.product(TABLES, ROWS):
        if (table, str(rows)) not in {(line["table"], line["rows"]) for line in read_lines(arguments.out)}:
            add_lines(arguments.out, FIELDS, [measured(table, rows)])


def measured(table: str, rows: int) -> dict[str, object]:
    """Return the means over some sites, each in a federation of three."""
    names, number = TABLES[table]
    data = load(table)
    places = [data.schema.names.index(name) for name in names]
    codes = np.stack([data.all.column(i).numpy() for i in places], axis=1).astype(int)
    values = data.all.column(data.schema.names.index(number)).numpy()
    labels = data.all.labels.numpy()
    schema = data.schema.model_copy(update={"columns": tuple(data.schema.columns[i] for i in places)})
    units = []
    for seed in range(SITES):
        used = np.random.default_rng(seed).permutation(len(codes))
        some, others = used[: 3 * rows], used[3 * rows : 4 * rows]
        design = model_levels(schema, codes[some], np.repeat(np.arange(3), rows), 3)
        x = _design(design.codes, design.levels, values[some], values)
        sites = [(x[k * rows : (k + 1) * rows], labels[some][k * rows : (k + 1) * rows]) for k in range(3)]
        steps = fit(Newton("binomial"), sites).steps[0]
        own = np.concatenate([design.codes[:rows], values[some][:rows, None]], axis=1)
        rest = np.concatenate([design.recoded(codes[others]), values[others][:, None]], axis=1)
        units.append(_unit(steps, design.levels, values, own, rest))
    means = {name: np.mean([unit[name] for unit in units]) for name in units[0]}
    digits = {name: f"{mean:.3f}" if name in FIELDS[9:13] else f"{mean:.0f}" for name, mean in means.items()}
    whole = sum(int(unit["whole"]) for unit in units)
    return {"table": table, "number": number, "rows": rows, "sites": SITES, **digits, "whole": whole,
            "seconds": f"{means['seconds']:.1f}"}  # fmt: skip


def _design(codes: np.ndarray, levels: tuple, values: np.ndarray, public: np.ndarray) -> np.ndarray:
    """Return design rows with the number last, centred and scaled by public moments."""
    return np.concatenate([rows_of(codes, levels), ((values - public.mean()) / public.std())[:, None]], axis=1)


def _unit(
    steps: tuple[NewtonStep, ...], levels: tuple, values: np.ndarray, own: np.ndarray, rest: np.ndarray
) -> dict[str, float]:
    begun = time.process_time()
    distinct = np.unique(values)
    patterns = np.array(list(itertools.product(*levels, distinct)))
    rows = _design(patterns[:, :-1].astype(int), levels, patterns[:, -1], values)
    matrix, side = _directions(steps, rows, len(own))
    number = nnls(matrix, side, maxiter=30 * len(rows))[0]
    whole = np.floor(number + 1e-9)
    order = np.argsort(whole - number)
    whole[order[: max(len(own) - int(whole.sum()), 0)]] += 1
    guess = np.repeat(patterns, whole.astype(int), axis=0)[: len(own)]
    right, rank = _matched(own, guess), len(matrix)
    there = {tuple(row) for row in own.tolist()}
    return {
        "values": len(distinct), "patterns": len(patterns), "rank": rank, "occupied": len(there),
        "whole": float(right.all()), "records": float(right.all(1).mean()), "cells": float(right.mean()),
        "number_right": float(right[:, -1].mean()), "other_rows": float(_matched(own, rest).mean()),
        "seconds": time.process_time() - begun,
    }  # fmt: skip


def _directions(steps: tuple[NewtonStep, ...], rows: np.ndarray, records: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the equations of all sums over patterns, in orthogonal directions."""
    over = np.triu_indices(rows.shape[1])
    matrix, values = [np.ones((1, len(rows)))], [np.array([float(records)])]
    first = None
    for step in steps:
        assert step.coefficients is not None
        assert step.score is not None
        mu = 1 / (1 + np.exp(-rows @ step.coefficients))
        matrix.append((rows[:, over[0]] * rows[:, over[1]] * (mu * (1 - mu))[:, None]).T)
        values.append(step.information[over])
        if first is None:
            first = step.score, mu
            continue
        matrix.append((rows * (first[1] - mu)[:, None]).T)
        values.append(step.score - first[0])
    whole, right = np.concatenate(matrix), np.concatenate(values)
    size = np.linalg.norm(whole, axis=1)
    some = size > 0
    left, sizes, turned = np.linalg.svd(whole[some] / size[some, None], full_matrices=False)
    strong = sizes > _WEAKEST * sizes[0]
    weight = np.minimum(sizes[strong] / sizes[0] / _WEAKEST, _MOST) / _MOST
    side = (left[:, strong].T @ (right[some] / size[some])) / sizes[strong]
    return turned[strong] * weight[:, None], side * weight


def _matched(own: np.ndarray, guess: np.ndarray) -> np.ndarray:
    """Return which cells are right, records matched so that most cells are."""
    same = own[:, None] == guess[None]
    first, second = linear_sum_assignment(same.sum(2), maximize=True)
    right = np.zeros(own.shape, dtype=bool)
    right[first] = same[first, second]
    return right


if __name__ == "__main__":
    main()
