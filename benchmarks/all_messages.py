"""Published tables of defenses, read with one message of a record and with all that a deployment sends of it.

    python benchmarks/all_messages.py exact/table2 --attack posterior --out benchmarks/results/all_messages.csv
    python benchmarks/all_messages.py uifv/table10 --attack informed_qa --attack ridge_sa --only adult --out FILE

A client of split learning sends one message an epoch of each record, 5 in these tables. In vertical learning a record
is predicted 20 times here, with fresh noise each. Deployments are those of the published table, attacks the informed
ones of seepage, which know the defense. Each line is a dataset, a defense, a number of messages and an attack: accuracy
over all private cells, beside the best baseline, and of the label. A deployment that is in the file is not measured
again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from csv_lines import add_lines, read_lines

from seepage.auditing import prepare_all
from seepage.reproduce.table import load_table
from seepage.results.rows import rows_of
from seepage.run.runner import run_audits
from seepage.run.store import Store
from seepage.settings.part import NONE, Part
from seepage.settings.spec import Spec

MESSAGES = {"split": (1, 5), "vertical": (1, 20)}
KEY = ("table", "dataset", "layers", "defense", "messages")
FIELDS = (*KEY, "attack", "accuracy", "low", "high", "baseline", "label_accuracy", "label_baseline")
FIELDS += ("n", "records", "epsilon", "utility", "commit")


def main() -> None:
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", help="names of published tables, such as exact/table2")
    parser.add_argument("--attack", action="append", required=True)
    parser.add_argument("--only", action="append", help="datasets")
    parser.add_argument("--defense", action="append", help="labels of defenses in the table")
    parser.add_argument("--records", type=int, default=400)
    parser.add_argument("--trainings", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    for name in chosen.tables:
        table = load_table(name)
        for planned in table.planned():
            spec: Spec = planned.spec
            if chosen.only and spec.dataset not in chosen.only:
                continue
            for defense in spec.defenses:
                if defense.name == NONE or (chosen.defense and defense.title not in chosen.defense):
                    continue
                for messages in MESSAGES[table.setting]:
                    layers = str(planned.planned.place.get("layers", ""))
                    key = (name, str(spec.dataset), layers, defense.title, str(messages))
                    if any(tuple(line[field] for field in KEY) == key for line in read_lines(chosen.out)):
                        continue
                    asked = {
                        "exposures": messages,
                        "defenses": (defense,),
                        "attacks": tuple(Part(name=attack) for attack in chosen.attack),
                        "attacked_records": chosen.records,
                        "repetitions": chosen.trainings,
                        "control": False,
                    }
                    lines = measured(spec.model_copy(update=asked))
                    add_lines(chosen.out, FIELDS, [dict(zip(KEY, key, strict=True)) | line for line in lines])


def measured(spec: Spec) -> list[dict[str, object]]:
    """Return what each attack reads in one deployment, a line each."""
    [audit] = prepare_all([spec])
    with Store(None) as store:
        [runs] = run_audits([audit], store)
    rows = rows_of(audit, runs)
    of = {(row.attack, row.metric, row.column): row for row in rows}
    about = {row.metric: row.mean for row in rows if row.kind == "about" and row.column is None}
    lines = []
    for attack in dict.fromkeys(row.attack for row in rows if row.is_attack):
        cells, label = of.get((attack, "accuracy", None)), of.get((attack, "accuracy", audit.about.target))
        lines.append(
            {
                "attack": attack,
                "accuracy": None if cells is None else cells.mean,
                "low": None if cells is None else cells.low,
                "high": None if cells is None else cells.high,
                "baseline": None if cells is None else cells.baseline,
                "label_accuracy": None if label is None else label.mean,
                "label_baseline": None if label is None else label.baseline,
                "n": spec.repeated,
                "records": getattr(spec, spec.members),
                "epsilon": about.get("epsilon"),
                "utility": about.get("auc"),
            }
        )
    return [
        {name: round(cell, 4) if isinstance(cell, float) else cell for name, cell in line.items()} for line in lines
    ]


if __name__ == "__main__":
    main()
