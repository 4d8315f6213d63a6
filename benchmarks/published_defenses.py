"""What published defenses of split learning, and of labels in vertical learning, hide on Adult, and their cost.

    python benchmarks/published_defenses.py --out benchmarks/results/published_defenses.csv

Each line is a defense, an attack that knows it and what it guesses, over three trainings. Every record is attacked with
the messages of all epochs. Defenses that are in the file already are not measured again. strongest.py measures what
defenses hide of a passive party's cells.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator
from pathlib import Path

from csv_lines import add_lines, read_lines

from seepage.assessment.row import ResultRow
from seepage.results.rows import rows_of
from seepage.run.runner import run_audits
from seepage.run.store import Store
from seepage.settings.part import read_part
from seepage.settings.spec import Spec
from seepage.settings.split.audit import SplitAudit
from seepage.settings.split.spec import SplitSpec
from seepage.settings.vertical.audit import VerticalAudit
from seepage.settings.vertical.spec import VerticalSpec

SPLIT = (
    "none",
    "max_norm",
    "marvell:{kl: 0.5}",
    "marvell:{kl: 0.1}",
    "cut_noise:{noise_multiplier: 1.0}",
    "label_flip:{probability: 0.1}",
)
VERTICAL = ("none", "max_norm", "marvell:{kl: 0.5}", "pa_imfl", "vfldefender")
# Defenses that are our reading of an abstract.
READ = ("pa_imfl", "vfldefender")
FIELDS = (
    "setting",
    "defense",
    "attack",
    "secret",
    "n",
    "records",
    "messages",
    "accuracy",
    "accuracy_low",
    "accuracy_high",
    "baseline_accuracy",
    "baseline_name",
    "lift",
    "lift_low",
    "lift_high",
    "auc",
    "auc_low",
    "auc_high",
    "machine",
    "commit",
)


def main() -> None:
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--records", type=int, default=300)
    parser.add_argument("--trainings", type=int, default=3)
    arguments = parser.parse_args()
    for setting, defenses in (("split", SPLIT), ("vertical", VERTICAL)):
        for defense in defenses:
            label = f"{defense} (our reading)" if defense in READ else defense
            done = {(line["setting"], line["defense"]) for line in read_lines(arguments.out)}
            if (setting, label) not in done:
                spec = spec_of(setting, defense, arguments.records, arguments.trainings)
                add_lines(arguments.out, FIELDS, measured(spec, label, arguments.records))


def spec_of(setting: str, defense: str, records: int, trainings: int) -> Spec:
    """Return the audit of a defense."""
    part = read_part(defense)
    shared = {
        "dataset": "adult",
        "attacked_records": records,
        "repetitions": trainings,
        "defenses": (part,),
        "control": False,
        "workers": 1,
    }
    if setting == "split":
        return SplitSpec.of(
            **shared,
            private_columns=("sex", "race", "relationship", "marital-status"),
            attacks=("posterior", "label_heads"),
        )
    return VerticalSpec.of(
        **shared,
        passive=["age", "education", "occupation", "sex", "race"],
        attacks=("label_heads",),
        bottom=(64,),
        features=16,
        top=(32,),
        epochs=10,
    )


def measured(spec: Spec, defense: str, records: int) -> Iterator[dict[str, object]]:
    """Yield the lines of a defense."""
    audit = SplitAudit(spec) if isinstance(spec, SplitSpec) else VerticalAudit(spec)
    with Store(None) as store:
        [runs] = run_audits([audit], store)
    rows = rows_of(audit, runs)
    label = audit.about.target
    [cost] = [row for row in rows if (row.attack, row.metric, row.column) == ("training", "auc", None)]
    for row in rows:
        if row.is_attack and row.metric == "accuracy" and row.column in (None, label):
            yield {
                "setting": spec.setting,
                "defense": defense,
                "attack": row.attack,
                "secret": "cells" if row.column is None else "label",
                "n": row.n,
                "records": records,
                "messages": spec.epochs if row.column == label else audit.about.rounds,
                "accuracy": _number(row, "mean"),
                "accuracy_low": _number(row, "low"),
                "accuracy_high": _number(row, "high"),
                "baseline_accuracy": _number(row, "baseline"),
                **{name: _number(row, name) for name in ("lift", "lift_low", "lift_high")},
                "baseline_name": row.baseline_name,
                "auc": _number(cost, "mean"),
                "auc_low": _number(cost, "low"),
                "auc_high": _number(cost, "high"),
                "machine": f"{platform.system()} {platform.machine()}, CPU",
            }


def _number(row: ResultRow, name: str) -> str:
    value = getattr(row, name)
    return "" if value is None else f"{value:.4f}"


if __name__ == "__main__":
    main()
