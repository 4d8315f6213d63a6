"""Whether ids of a passive party's splits are linked across nodes where all columns are mixed, as FATE mixes them.

    python benchmarks/mixed_columns.py --out benchmarks/results/mixed_columns.csv

Half of a table's columns are passive. In every node the passive party sends the sums left of each split on any column,
in an order of its own. `links` is the share of a tree's node and split that `bin_links` gives the right id, taking all
columns as one; without the sides of splits, which it does not use here. Splits of one column are nested, so that those
are taken to be of one column whose sums of second derivatives are in the same order in all nodes: `same` is the
share of pairs of one column for which that holds, `others` that of other pairs. What is in
the file is not measured again.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from csv_lines import add_lines, read_lines
from scipy.optimize import linear_sum_assignment

from seepage import datasets
from seepage.attacks.trees.bin_links import linked
from seepage.attacks.trees.bin_sums import _BinEquations
from seepage.protocols.secureboost import SecureBoost
from seepage.protocols.trees import Boosting, encoded
from seepage.tabular.statistics import Statistics
from seepage.wire.secureboost import SumsMessage

ROWS = {"adult": 1000, "german": 800}
TREES, DEPTH, BINS, TRAININGS = 10, 5, 10, 5
FIELDS = ("table", "rows", "trees", "training", "ids", "columns", "links", "same", "others", "commit")


def main() -> None:
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    done = {(line["table"], int(line["training"])) for line in read_lines(out)}
    for training in range(TRAININGS):
        for table in ROWS:
            if (table, training) not in done:
                add_lines(out, FIELDS, [measured(table, training)])


def measured(name: str, training: int) -> dict[str, object]:
    """Return the line of a training."""
    message = grown(name, training)
    columns = len(message.starts) - 1
    # The last sum of each column is that of the node, and no split.
    kept = np.setdiff1d(np.arange(int(message.starts[-1])), message.starts[1:] - 1)
    owner = np.repeat(np.arange(columns), np.diff(message.starts))[kept]
    left = []
    for tree in message.trees:
        sums = [np.cumsum(tree.sums[:, message.of(column)], axis=1) for column in range(columns)]
        left.append(np.concatenate(sums, axis=1)[:, kept])
    rng = np.random.default_rng(training)
    orders = [np.stack([rng.permutation(len(kept)) for _ in sums]) for sums in left]
    mixed = tuple(
        replace(tree, sums=np.take_along_axis(sums, order[:, :, None], axis=1), splits=())
        for tree, sums, order in zip(message.trees, left, orders, strict=True)
    )
    rows = ROWS[name]
    links = linked(SumsMessage(mixed, np.array([0, len(kept)])), lambda some: shares(some, rows))
    # One numbering: that of the last tree's root.
    apart = np.abs(left[-1][0][:, None] - links.trees[-1].sums[0]).sum(-1)
    number = linear_sum_assignment(apart)[1]
    found = np.concatenate([tree.sums[:, number] for tree in links.trees])
    right = np.abs(found - np.concatenate(left)).max(-1) < 1e-6
    weights = found[..., 1]
    ordered = (weights[:, :, None] <= weights[:, None] + 1e-9).all(0)
    pairs = np.triu(np.ones(ordered.shape, dtype=bool), 1)
    nested, same = (ordered | ordered.T)[pairs], (owner[:, None] == owner)[pairs]
    return {
        "table": name,
        "rows": rows,
        "trees": TREES,
        "training": training,
        "ids": len(kept),
        "columns": columns,
        "links": f"{right.mean():.3f}",
        "same": f"{nested[same].mean():.3f}",
        "others": f"{nested[~same].mean():.3f}",
    }


def grown(name: str, training: int) -> SumsMessage:
    """Return the sums of each bin, by node and column, of a training on rows drawn at random."""
    data = datasets.load(name)
    order = torch.randperm(len(data.all), generator=torch.Generator().manual_seed(training))
    table = data.all.rows(order[: ROWS[name]].tolist())
    recipe = Boosting("binary:logistic", 2, TREES, DEPTH, max_bin=BINS, base_score=0.5)
    rows = encoded(table.schema, Statistics.of(data.all), table.cells)
    passive = tuple(range(1, len(table.schema.columns), 2))
    return SecureBoost(recipe, passive).grow(table.schema, rows, table.labels.numpy()).decrypted


def shares(message: SumsMessage, rows: int) -> np.ndarray:
    """Return each row's chance to be left of each split, by the sums of some trees alone."""
    equations, last = _BinEquations(message, rows, 0.0), message.trees[-1]
    before = last.sums[0, :, 1] / last.gradients[:, 1].sum()
    return equations.nearest(np.tile(before, (rows, 1)), equations.sums)


if __name__ == "__main__":
    main()
