"""Whether the default attack of each knowledge reads as much as any other of the same or less knowledge.

    python benchmarks/strongest.py --table nursery --out benchmarks/results/strongest.csv

Each line is an attack, beside the best baseline and the default attack that knows as much or more; ``behind`` is how
much more it reads than that default, as a share of all cells. In ``vertical`` learning: the passive party's columns by
all registered attacks on features that need no bottom model or gradients. In ``columns``, split learning whose server
holds some columns: the client's cells and the labels. The table ``nursery`` is made here: all combinations of eight
columns, as in the data set of that name, with a label of a rule of our own. What is in the file already is not measured
again.
"""

from __future__ import annotations

import argparse
import itertools
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from csv_lines import add_lines, read_lines
from torch import Tensor

from seepage import datasets, registry
from seepage.assessment.intervals import paired
from seepage.datasets.dataset import Dataset, split
from seepage.results.rows import rows_of
from seepage.run.runner import Run, run_audits
from seepage.run.store import Store
from seepage.settings.part import entry_of, read_part
from seepage.settings.split.audit import SplitAudit
from seepage.settings.split.spec import SplitSpec
from seepage.settings.vertical.audit import VerticalAudit
from seepage.settings.vertical.spec import VerticalSpec
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.table import Table

DEFENSES = {
    "vertical": (
        "nopeek:{weight: 1.0}",
        "nopeek:{weight: 5.0}",
        "none",
        "feature_noise:{scale: 1.0}",
        "mid:{weight: 0.01}",
        "mid:{weight: 0.1}",
        "bottleneck:{width: 2}",
    ),
    "columns": (
        "none",
        "cut_noise:{noise_multiplier: 1.0}",
        "weight_noise:{noise_multiplier: 1.0}",
        "marvell:{kl: 0.5}",
        "label_flip:{probability: 0.1}",
        "max_norm",
    ),
}
# Defaults of the audit, each with the attacks that know as much or less.
RIVALS = {
    "vertical": {
        "informed_qa": ("uifv_qa", "uifv_iqa", "student_dpa", "uifv_dpa"),
        "student_dpa": ("uifv_dpa",),
        "informed_sa": ("ridge_sa", "uifv_sa"),
    },
    "columns": {"posterior": ("exact", "label_norm")},
}
# What an audit adds where the server's copy of the client's weights is off.
ABOUT = {"name": "posterior", "options": {"weights": "about"}, "label": "posterior_about"}
# A published network of fixed epochs stops here when it has converged.
CONVERGE = ("uifv_qa", "uifv_iqa", "uifv_dpa", "uifv_sa")
# Draws of the noise of a record that the attacker averages.
EXPOSURES = {"mid": 20, "feature_noise": 20}
NURSERY = {"parents": 3, "nursery": 5, "form": 4, "children": 4, "housing": 3, "finance": 2, "social": 3, "health": 3}
FIELDS = (
    *("setting", "table", "defense", "attack", "secret", "knowledge", "default", "pairs", "n", "records"),
    *("accuracy", "accuracy_low", "accuracy_high", "baseline_accuracy", "baseline_name"),
    *("behind", "behind_low", "behind_high", "machine", "commit"),
)


def main() -> None:
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", choices=tuple(DEFENSES), default="vertical")
    parser.add_argument("--table", choices=("nursery", "german", "adult"), required=True)
    parser.add_argument("--defense", action="append", help="Defense; all if left out.")
    parser.add_argument("--trainings", type=int, default=3)
    parser.add_argument("--records", type=int, default=300, help="Largest number of attacked records.")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    setting, table = arguments.setting, arguments.table
    data = nursery() if table == "nursery" else datasets.load(table)
    for defense in arguments.defense or DEFENSES[setting]:
        done = {(line["setting"], line["table"], line["defense"]) for line in read_lines(arguments.out)}
        if (setting, table, defense) not in done:
            audit = audit_of(setting, data, read_part(defense), arguments.trainings, arguments.records)
            begin = {"setting": setting, "table": table, "defense": defense}
            add_lines(arguments.out, FIELDS, ({**begin, **line} for line in measured(setting, audit)))


Audit = VerticalAudit | SplitAudit


def audit_of(setting: str, data: Dataset, defense: Mapping[str, object], trainings: int, records: int) -> Audit:
    """Return the audit of a defense."""
    shared = {
        "defenses": (defense,),
        "attacks": [
            ABOUT
            if name == ABOUT["label"]
            else {"name": name, "options": {"converge": True} if name in CONVERGE else {}}
            for name in dict.fromkeys(name for both in rivals(setting, defense).items() for name in (both[0], *both[1]))
        ],
        "attacked_records": records,
        "repetitions": trainings,
        "control": False,
        "workers": 1,
    }
    if setting == "columns":
        return SplitAudit(SplitSpec.of(**shared), data)
    named = {
        "passive": ["age", "education", "occupation", "sex", "race"],
        "bottom": (64,),
        "features": 16,
        "top": (32,),
        "epochs": 10,
    }
    exposures = EXPOSURES.get(str(defense["name"]), 1)
    return VerticalAudit(
        VerticalSpec.of(**shared, **(named if data.name == "adult" else {}), exposures=exposures), data
    )


def rivals(setting: str, defense: Mapping[str, object]) -> Mapping[str, Sequence[str]]:
    """Return the attacks that each default attack is held against."""
    if defense["name"] == "weight_noise":
        return {ABOUT["label"]: ("posterior", "exact", "label_norm")}
    return RIVALS[setting]


def measured(setting: str, audit: Audit) -> Iterator[dict[str, object]]:
    """Yield a line an attack and what it reads: cells or labels."""
    with Store(None) as store:
        [runs] = run_audits([audit], store)
    rows = {(row.attack, row.column): row for row in rows_of(audit, runs) if row.metric == "accuracy"}
    by_attack = {run.label: run for run in runs}
    defense = {"name": audit.spec.defenses[0].name}
    for default, others in rivals(setting, defense).items():
        for name, secret in itertools.product((default, *others), (None, audit.data.schema.target.name)):
            if (name, secret) not in rows or (default, secret) not in rows:
                continue
            row, run = rows[name, secret], by_attack[name]
            apart = paired(values(run, secret), values(by_attack[default], secret))
            needs = entry_of(registry.attacks.of(audit.setting), run.part.part).needs
            yield {
                "attack": name,
                "secret": "cells" if secret is None else "label",
                "knowledge": " and ".join(needs),
                "default": default,
                "pairs": pairs(audit, needs),
                "n": row.n,
                "records": attacked(audit),
                "accuracy": f"{row.mean:.4f}",
                "accuracy_low": f"{row.low:.4f}",
                "accuracy_high": f"{row.high:.4f}",
                "baseline_accuracy": f"{row.baseline:.4f}",
                "baseline_name": row.baseline_name,
                "behind": "" if name == default else f"{apart.mean:.4f}",
                "behind_low": "" if name == default or apart.low is None else f"{apart.low:.4f}",
                "behind_high": "" if name == default or apart.high is None else f"{apart.high:.4f}",
                "machine": f"{platform.system()} {platform.machine()}, CPU",
            }


def values(run: Run, column: str | None) -> Tensor:
    """Return the accuracy of a column, or over all cells, of each training."""
    [found] = [figure for figure in run.measured if (figure.metric, figure.column) == ("accuracy", column)]
    return found.values


def pairs(audit: Audit, needs: Sequence[str]) -> int:
    """Return the number of leaked records or answered queries."""
    if isinstance(audit, VerticalAudit):
        return audit.spec.leaked if "leaked" in needs else audit.sizes.queries if "queries" in needs else 0
    return 0


def attacked(audit: Audit) -> int:
    """Return the number of attacked records of a training."""
    if isinstance(audit, VerticalAudit):
        return audit.sizes.attacked
    held_out = len(split(audit.data.all, audit.spec.test_share, 0)[1])
    return min(held_out, audit.spec.attacked_records or held_out)


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
