"""How far `ratio` is off a share on tables that it was not built on, beside a constant estimate.

    python benchmarks/pooled_share.py --out benchmarks/results/pooled_share.csv

Two parties pool their rows, and the attacker estimates the share of a column's value in the other's rows. Each line is
a column of a table: 5 attack seeds with 100 joint models each, whose shares are spread evenly from 10% to 90%. Errors
and widths are in parts of one, intervals over attack seeds. A line that is in the file already is not measured again.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from csv_lines import add_lines, read_lines

from seepage.results.rows import rows_of
from seepage.run.runner import run_audits
from seepage.run.store import Store
from seepage.settings.pooled.audit import PooledAudit
from seepage.settings.pooled.spec import PooledSpec

SIZES: dict[str, dict[str, Any]] = {
    "adult": {"rows": 1000, "auxiliary": 4000, "queries": 500},
    "german": {"rows": 60, "auxiliary": 400, "queries": 100, "batch_size": 32},
    "lawschool": {"rows": 1000, "auxiliary": 4000, "queries": 500},
    "synthetic": {"rows": 500, "auxiliary": 3000, "queries": 500},
}
# Table, sensitive column, its value, and whether models are trained on the column.
COLUMNS = (
    ("adult", "sex", "Female", False),
    ("adult", "marital-status", "Married-civ-spouse", True),
    ("adult", "workclass", "Private", False),
    ("german", "checking_account", "none", False),
    ("german", "telephone", "yes", True),
    ("lawschool", "gender", "1", False),
    ("lawschool", "race", "White", True),
    ("lawschool", "resident", "1", False),
    ("synthetic", "discrete_2", "1", False),
    ("synthetic", "discrete_4", "2", True),
    # A made-up column that nothing follows, and one that the label follows.
    ("synthetic", "A", "0.0", False),
    ("synthetic", "A", "0.5", False),
)
FIGURES = {"share_error": "error", "coverage": "held", "width": "width"}
FIELDS = ["estimate", "dataset", "sensitive", "value", "kept", "n", "models", "constant"]
FIELDS += [f"{name}{end}" for name in FIGURES.values() for end in ("", "_low", "_high")]
FIELDS += ["commit"]


def main() -> None:
    """Add one line a column to a CSV file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--estimate", default="median", help="Name of the estimate of this version of the code.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    key = ("estimate", "dataset", "sensitive", "value")
    done = {tuple(line[name] for name in key) for line in read_lines(arguments.out)}
    for dataset, sensitive, value, kept in COLUMNS:
        named = dict(zip(key, (arguments.estimate, dataset, sensitive, value), strict=True))
        if tuple(named.values()) in done:
            continue
        line = {**named, "kept": kept, **study(dataset, sensitive, value, kept, arguments.seeds, arguments.models)}
        add_lines(arguments.out, FIELDS, [line])


def study(dataset: str, sensitive: str, value: str, kept: bool, seeds: int, models: int) -> dict[str, object]:
    """Return the figures of the attack on one column of a table."""
    column: dict[str, Any] = {"sensitive": sensitive, "value": value}
    if sensitive == "A":
        column = {"synthetic": {"strength": float(value)}}
    spec = PooledSpec.of(
        dataset=dataset,
        keep=kept,
        attacks=["ratio"],
        repetitions=seeds,
        targets=models,
        shadows=100,
        **column,
        **SIZES[dataset],
    )
    audit = PooledAudit(spec)
    with Store(None) as store:
        [runs] = run_audits([audit], store)
    found = {row.metric: row for row in rows_of(audit, runs) if row.attack == "ratio" and row.column is None}
    constant = found["share_error"].baseline
    line: dict[str, object] = {"n": seeds, "models": models, "constant": "" if constant is None else f"{constant:.6g}"}
    for metric, name in FIGURES.items():
        row = found[metric]
        for end, figure in (("", row.mean), ("_low", row.low), ("_high", row.high)):
            line[f"{name}{end}"] = "" if figure is None else f"{figure:.6g}"
    return line


if __name__ == "__main__":
    main()
