"""Whether the default attack of each knowledge reads as much as any other of the same or less knowledge.

    python benchmarks/strongest.py --table nursery --out benchmarks/results/strongest.csv

Vertical learning, each defense, three trainings: the passive party's columns by all registered attacks on features that
need no bottom model or gradients. Each line is an attack, beside the best baseline and the default attack that knows as
much or more; ``behind`` is how much more it reads than that default, in points. The table ``nursery`` is made here: all
combinations of eight columns, as in the data set of that name, with a label of a rule of our own. What is in the file
already is not measured again.
"""

from __future__ import annotations

import argparse
import itertools
import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from csv_lines import add_lines, read_lines
from torch import Tensor

from seepage import datasets, registry
from seepage.assessment.intervals import paired
from seepage.datasets.dataset import Dataset
from seepage.results.rows import rows_of
from seepage.run.runner import Run, run_audits
from seepage.run.store import Store
from seepage.settings.part import entry_of, read_part
from seepage.settings.vertical.audit import VerticalAudit
from seepage.settings.vertical.spec import VerticalSpec
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.table import Table

DEFENSES = (
    "nopeek:{weight: 1.0}",
    "nopeek:{weight: 5.0}",
    "none",
    "feature_noise:{scale: 1.0}",
    "mid:{weight: 0.01}",
    "mid:{weight: 0.1}",
    "bottleneck:{width: 2}",
)
# Defaults of the audit, each with the attacks that know as much or less.
RIVALS = {
    "informed_qa": ("uifv_qa", "uifv_iqa", "student_dpa", "uifv_dpa"),
    "student_dpa": ("uifv_dpa",),
    "informed_sa": ("ridge_sa", "uifv_sa"),
}
# A published network of fixed epochs stops here when it has converged.
CONVERGE = ("uifv_qa", "uifv_iqa", "uifv_dpa", "uifv_sa")
# Draws of the noise of a record that the attacker averages.
EXPOSURES = {"mid": 20, "feature_noise": 20}
NURSERY = {"parents": 3, "nursery": 5, "form": 4, "children": 4, "housing": 3, "finance": 2, "social": 3, "health": 3}
FIELDS = (
    *("table", "defense", "attack", "knowledge", "default", "pairs", "n", "records"),
    *("accuracy", "accuracy_low", "accuracy_high", "baseline_accuracy", "baseline_name"),
    *("behind", "behind_low", "behind_high", "machine", "commit"),
)


def main() -> None:
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=("nursery", "german", "adult"), required=True)
    parser.add_argument("--defense", action="append", help="Defense; all if left out.")
    parser.add_argument("--trainings", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    for defense in arguments.defense or DEFENSES:
        done = {(line["table"], line["defense"]) for line in read_lines(arguments.out)}
        if (arguments.table, defense) not in done:
            add_lines(arguments.out, FIELDS, measured(arguments.table, defense, arguments.trainings))


def measured(table: str, defense: str, trainings: int) -> Iterator[dict[str, object]]:
    """Yield a line an attack."""
    data = nursery() if table == "nursery" else datasets.load(table)
    part = read_part(defense)
    named = {
        "passive": ["age", "education", "occupation", "sex", "race"],
        "bottom": (64,),
        "features": 16,
        "top": (32,),
        "epochs": 10,
    }
    spec = VerticalSpec.of(
        **(named if table == "adult" else {}),
        defenses=(part,),
        attacks=[
            {"name": name, "options": {"converge": True} if name in CONVERGE else {}}
            for name in dict.fromkeys(name for default, rivals in RIVALS.items() for name in (default, *rivals))
        ],
        exposures=EXPOSURES.get(part["name"], 1),
        attacked_records=300,
        repetitions=trainings,
        control=False,
        workers=1,
    )
    audit = VerticalAudit(spec, data)
    with Store(None) as store:
        [runs] = run_audits([audit], store)
    overall = {row.attack: row for row in rows_of(audit, runs) if (row.metric, row.column) == ("accuracy", None)}
    by_attack = {run.label: run for run in runs}
    for default, rivals in RIVALS.items():
        for name in (default, *rivals):
            row, run = overall[name], by_attack[name]
            apart = paired(values(run), values(by_attack[default]))
            needs = entry_of(registry.attacks.of("vertical"), run.part.part).needs
            yield {
                "table": table,
                "defense": defense,
                "attack": name,
                "knowledge": " and ".join(needs),
                "default": default,
                "pairs": spec.leaked if "leaked" in needs else audit.sizes.queries if "queries" in needs else 0,
                "n": row.n,
                "records": audit.sizes.attacked,
                "accuracy": f"{row.mean:.4f}",
                "accuracy_low": f"{row.low:.4f}",
                "accuracy_high": f"{row.high:.4f}",
                "baseline_accuracy": f"{row.baseline:.4f}",
                "baseline_name": row.baseline_name,
                "behind": "" if name == default else f"{100 * apart.mean:.1f}",
                "behind_low": "" if name == default or apart.low is None else f"{100 * apart.low:.1f}",
                "behind_high": "" if name == default or apart.high is None else f"{100 * apart.high:.1f}",
                "machine": f"{platform.system()} {platform.machine()}, CPU",
            }


def values(run: Run) -> Tensor:
    """Return the accuracy over all cells of each training."""
    [overall] = [figure for figure in run.measured if (figure.metric, figure.column) == ("accuracy", None)]
    return overall.values


def nursery() -> Dataset:
    """Return all combinations of the columns, in a random order, with a label of four classes."""
    frame = pd.DataFrame(itertools.product(*map(range, NURSERY.values())), columns=list(NURSERY))
    score = frame["parents"] + 1.2 * frame["nursery"] + 0.5 * frame["housing"] + 0.6 * (frame["health"] == 1)
    score += 0.4 * (frame["form"] + frame["children"] + frame["finance"] + frame["social"])
    frame["rank"] = np.where(frame["health"] == 2, 0, np.digitize(score, [3.8, 5.6]) + 1)
    columns = tuple(Discrete(name=name, categories=tuple(range(kinds))) for name, kinds in NURSERY.items())
    schema = Schema(columns=columns, target=Discrete(name="rank", categories=(0, 1, 2, 3)))
    shuffled = frame.sample(frac=1, random_state=0).reset_index(drop=True)
    return Dataset("nursery", Table(schema, shuffled), None, (), "all combinations of its columns", "none needed")


if __name__ == "__main__":
    main()
