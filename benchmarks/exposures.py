"""What split learning's server reads of records under noise of one bound as it sees them in more exchanges.

    python benchmarks/exposures.py --out benchmarks/results/exposures.csv

Each line is a table and a number of exchanges, in one training of 5 epochs: exchanges beyond the epochs come after the
training, with fresh noise each. A line that is in the file already is not measured again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from csv_lines import add_lines, read_lines

from seepage.results.rows import rows_of
from seepage.run.runner import run_audits
from seepage.run.store import Store
from seepage.settings.part import Part
from seepage.settings.split.audit import SplitAudit
from seepage.settings.split.spec import SplitSpec

PRIVATE = {
    "adult": ("sex", "race", "relationship", "marital-status"),
    "bank_full": ("marital", "education", "housing", "loan"),
    "credit": ("SEX", "EDUCATION", "MARRIAGE"),
}
EXCHANGES = (1, 5, 20, 50)
FIELDS = (
    "table",
    "exchanges",
    "epsilon",
    "records",
    "accuracy",
    "prior_accuracy",
    "label_f1",
    "prior_label_f1",
    "commit",
)


def main() -> None:
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--records", type=int, default=400)
    parser.add_argument("--tables", nargs="+", choices=list(PRIVATE), default=list(PRIVATE))
    arguments = parser.parse_args()
    for table in arguments.tables:
        for exchanges in EXCHANGES:
            done = {(line["table"], line["exchanges"]) for line in read_lines(arguments.out)}
            if (table, str(exchanges)) not in done:
                add_lines(arguments.out, FIELDS, [measured(table, exchanges, arguments.records)])


def measured(table: str, exchanges: int, records: int) -> dict[str, object]:
    """Return the line of a table and a number of exchanges."""
    spec = SplitSpec(
        dataset=table,
        private_columns=PRIVATE[table],
        exposures=exchanges,
        attacked_records=records,
        repetitions=1,
        attacks=(Part(name="posterior"),),
        baselines=(Part(name="marginals"),),
        defenses=(Part(name="cut_noise", options={"noise_multiplier": 1.0}),),
    )
    audit = SplitAudit(spec)
    with Store(None) as store:
        [runs] = run_audits([audit], store)
    of = {(row.attack, row.metric, row.column): row.mean for row in rows_of(audit, runs)}
    label = audit.about.target
    return {
        "table": table,
        "exchanges": exchanges,
        "epsilon": f"{of['training', 'epsilon', None]:.1f}",
        "records": records,
        "accuracy": f"{of['posterior', 'accuracy', None]:.4f}",
        "prior_accuracy": f"{of['prior', 'accuracy', None]:.4f}",
        "label_f1": f"{of['posterior', 'f1', label]:.4f}",
        "prior_label_f1": f"{of['prior', 'f1', label]:.4f}",
    }


if __name__ == "__main__":
    main()
