"""What boosted trees over columns (SecureBoost) tell the parties of each other, by table, rows, trees and defense.

    python benchmarks/vertical_boosting.py --out benchmarks/results/vertical_boosting.csv

Ten rounds of depth 5 with ten bins are the defaults of SecretFlow's SGB, which also shuffles bins. The passive party
holds half of the columns. A line that is in the file already is not measured again.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from csv_lines import add_lines, read_lines

from seepage.assessment.row import ResultRow
from seepage.datasets import Dataset
from seepage.results.rows import rows_of
from seepage.run.runner import run_audits
from seepage.run.store import Store
from seepage.settings.part import Part, named
from seepage.settings.trees.columns import ColumnsAudit
from seepage.settings.trees.spec import TreesSpec
from seepage.settings.units import with_fields
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table

KEY = ("table", "rows", "trees", "depth", "bins", "defense", "known_labels")
FIELDS = (
    *KEY,
    "n",
    *("cells", "cells_low", "cells_high", "constant", "own_columns", "whole"),
    *("label_heads", "heads_low", "heads_high", "label_clusters", "clusters_low", "clusters_high"),
    *("label_mode", "label_columns", "heads_auc", "clusters_auc", "columns_auc", "auc", "seconds", "commit"),
)


@dataclass(frozen=True)
class Line:
    """One configuration.

    Attributes:
        table, rows, trees, depth, bins, known_labels: as in the file.
        n: number of trainings.
        defense: registered name of a defense.
        options: options of the defense.
        own_columns: whether the baseline from own columns is fitted, which takes longest.
        labels: whether heads are fitted on labels.
        cells: whether cells are read.
        party: number of the passive party that is after the labels, of two with every other passive column; 0 if there
            is one.
    """

    table: str
    rows: int = 1_000
    trees: int = 10
    depth: int = 5
    bins: int = 10
    n: int = 5
    known_labels: int = 100
    defense: str = "none"
    options: tuple[tuple[str, float], ...] = ()
    own_columns: bool = False
    labels: bool = True
    cells: bool = True
    party: int = 0

    @property
    def key(self) -> tuple[str, ...]:
        """What distinguishes the line from others."""
        options = ", ".join(f"{name}: {value:g}" for name, value in self.options)
        defense = f"{self.defense} {options}".strip()
        numbers = (self.rows, self.trees, self.depth, self.bins)
        table = f"{self.table}, party {self.party} of 2" if self.party else self.table
        return (table, *map(str, numbers), defense, str(self.known_labels))


# Tables on which nothing of the attacks was chosen.
FURTHER = ("lawschool", "bank_full", "health_heritage")
LINES = [
    Line("adult", own_columns=True),
    Line("german", 800, own_columns=True),
    Line("credit", own_columns=True),
    Line("made", own_columns=True),
]
DEFENSES: list[tuple[str, tuple[tuple[str, float], ...]]] = [
    ("first_trees", (("rounds", 1),)),
    ("first_trees", (("rounds", 5),)),
    ("histogram_noise", (("deviation", 1),)),
    ("histogram_noise", (("deviation", 10),)),
    ("min_child_weight", (("weight", 20),)),
    ("max_bin", (("bins", 4),)),
    ("shuffled_bins", ()),
    ("shuffled_bins", (("renumbered", 1),)),
]
LINES += [Line("adult", defense=name, options=options) for name, options in DEFENSES]
LINES += [
    Line(table, 800, n=5, known_labels=known, labels=known > 0, cells=False)
    for known in (10, 0)
    for table in ("adult", "german", "credit", *FURTHER)
]
LINES += [
    Line(table, 800, known_labels=known, labels=known > 0, cells=False, party=party)
    for table in ("adult", "german")
    for party in (1, 2)
    for known in (100, 0)
]
LINES += [
    Line("adult", 5_000, labels=False),
    Line("adult", 5_000, trees=50, depth=6, bins=32, n=3, labels=False),
    Line("adult", 20_000, n=3, labels=False),
]


def made() -> Dataset:
    """Return a table whose passive columns follow nothing else, so that only the message can tell them."""
    rng = np.random.default_rng(0)
    rows = 4_000
    frame = pd.DataFrame(
        {
            **{f"shown_{i}": rng.normal(0, 1, rows).round(4).clip(-5, 5) for i in range(3)},
            **{f"hidden_{i}": rng.normal(0, 1, rows).round(4).clip(-5, 5) for i in range(3)},
            "shown_kind": rng.choice(list("abcdef"), rows),
            "hidden_kind": rng.choice(list("abcdef"), rows),
        }
    )
    score = frame["shown_0"] + frame["hidden_0"] + (frame["hidden_kind"] == "a") + rng.logistic(0, 0.5, rows)
    frame["label"] = (score > 0).astype(int)
    columns = [
        Discrete(name=name, categories=tuple("abcdef"))
        if name.endswith("kind")
        else Continuous(name=name, low=-5, high=5, tolerance=0.5)
        for name in frame.columns[:-1]
    ]
    schema = Schema(columns=tuple(columns), target=Discrete(name="label", categories=(0, 1)))
    return Dataset("made", Table(schema, frame), None, (), "generated", "none needed")


def main() -> None:
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    for line in LINES:
        done = {tuple(one[name] for name in KEY) for one in read_lines(arguments.out)}
        if line.key not in done:
            add_lines(arguments.out, FIELDS, [measured(line)])


def measured(line: Line) -> dict[str, object]:
    """Return the figures of a line."""
    attacks = ["bin_sums"] * line.cells + ["node_heads"] * line.labels + ["node_clusters"]
    baselines = ["constant", *["own_columns"] * line.own_columns, "label_mode", *["label_columns"] * line.labels]
    spec = TreesSpec.of(
        dataset="adult" if line.table == "made" else line.table,
        protocol="secureboost",
        rows=line.rows,
        trees=line.trees,
        depth=line.depth,
        max_bin=line.bins,
        known_labels=line.known_labels,
        repetitions=line.n,
        attacks=named(*attacks),
        baselines=named(*baselines),
        defenses=(Part(name=line.defense, options=dict(line.options)),),
        **({"passive": ("hidden_0", "hidden_1", "hidden_2", "hidden_kind")} if line.table == "made" else {}),
        workers=1,
        control=False,
    )
    if line.party:
        passive = ColumnsAudit(spec, None).partition.schemas[1].names
        spec = with_fields(spec, {"label_party": passive[line.party - 1 :: 2]})
    audit = ColumnsAudit(spec, made() if line.table == "made" else None)
    with Store(None) as store:
        [runs] = run_audits([audit], store)
    label = audit.data.schema.target.name
    rows = {(row.attack, row.metric, row.column): row for row in rows_of(audit, runs)}
    cells = rows.get(("bin_sums", "accuracy", None))
    heads, clusters = (rows.get((name, "accuracy", label)) for name in ("node_heads", "node_clusters"))

    def share(part: str, metric: str, column: str | None = None) -> str:
        return figure(rows.get((part, metric, column)), "mean")

    return {
        **dict(zip(KEY, line.key, strict=True)),
        "n": line.n,
        **{"cells": figure(cells, "mean"), "cells_low": figure(cells, "low"), "cells_high": figure(cells, "high")},
        "constant": share("constant", "accuracy"),
        "own_columns": share("own_columns", "accuracy"),
        "whole": share("bin_sums", "exact_match"),
        **{
            "label_heads": figure(heads, "mean"),
            "heads_low": figure(heads, "low"),
            "heads_high": figure(heads, "high"),
        },
        "label_clusters": figure(clusters, "mean"),
        **{"clusters_low": figure(clusters, "low"), "clusters_high": figure(clusters, "high")},
        "label_mode": share("label_mode", "accuracy", label),
        "label_columns": share("label_columns", "accuracy", label),
        "heads_auc": share("node_heads", "label_auc", label),
        "clusters_auc": share("node_clusters", "label_auc", label),
        "columns_auc": share("label_columns", "label_auc", label),
        "auc": share("training", "auc"),
        "seconds": "" if cells is None or cells.seconds_per_victim is None else f"{cells.seconds_per_victim:.4f}",
    }


def figure(row: ResultRow | None, name: str) -> str:
    """Return a figure of a row with four digits; empty where there is none."""
    value = None if row is None else getattr(row, name)
    return "" if value is None else f"{value:.4f}"


if __name__ == "__main__":
    main()
