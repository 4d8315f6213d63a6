"""What sums and tree files of federated trees tell of a client's records, by rows, rounds and defense.

    python benchmarks/trees.py --out benchmarks/results/trees.csv

Each line is a table, a protocol, a number of rows of each of 5 clients, of rounds, and a defense. A line that is in the
file already is not measured again.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from csv_lines import add_lines, read_lines

from seepage.results.rows import rows_of
from seepage.run.runner import run_audits
from seepage.run.store import Store
from seepage.settings.part import Part
from seepage.settings.trees.audit import TreesAudit
from seepage.settings.trees.spec import TreesProtocol, TreesSpec

FIELDS = (
    "table",
    "protocol",
    "rows",
    "trees",
    "defense",
    "clients",
    "attack",
    "accuracy",
    "low",
    "high",
    "random",
    "own_marginals",
    "whole",
    "certified",
    "hidden_sums",
    "leaf_counts",
    "values",
    "utility",
    "epsilon",
    "seconds",
    "commit",
    "kernel",
)
KEY = FIELDS[:5]


@dataclass(frozen=True)
class Line:
    """One configuration.

    Attributes:
        table, protocol, rows, trees: as in the file.
        clients: number of attacked clients, each in a federation of its own.
        defense: registered name; options of it.
        options: options of the defense.
        summed: number of clients whose sums are added up.
    """

    table: str
    protocol: TreesProtocol
    rows: int
    trees: int
    clients: int = 10
    defense: str = "none"
    options: tuple[tuple[str, float], ...] = ()
    summed: int = 1

    @property
    def label(self) -> str:
        """The defense in the file."""
        if self.summed > 1:
            return f"sum of {self.summed} clients"
        said = ", ".join(f"{name}: {value:g}" for name, value in self.options)
        return f"{self.defense} {said}".strip()

    @property
    def key(self) -> tuple[str, ...]:
        """What tells the line from others."""
        return (self.table, self.protocol, str(self.rows), str(self.trees), self.label)


TABLES = ("adult", "german", "credit")
SIZES = [(50, 10, 10), (50, 50, 10), (200, 10, 10), (200, 50, 10)]
LARGE = [(1_000, 10, 10), (1_000, 50, 10)]
# Table, rounds and attacked clients of 5,000 rows: most of the time goes into matching records to score them.
LARGEST = [("adult", 10, 5), ("credit", 10, 3), ("adult", 50, 2)]
LINES = [Line(table, "histogram", rows, trees, clients) for rows, trees, clients in SIZES for table in TABLES]
DEFENSES: list[tuple[str, tuple[tuple[str, float], ...]]] = [
    ("min_child_weight", (("weight", 5),)),
    ("max_bin", (("bins", 16),)),
    ("shared_cuts", (("bins", 32),)),
    ("histogram_noise", (("deviation", 0.1),)),
    ("histogram_noise", (("deviation", 1),)),
    ("histogram_noise", (("deviation", 10),)),
]
LINES += [Line("adult", "histogram", 200, 10, 5, name, options) for name, options in DEFENSES]
# No bin holds few records there.
COARSE = [("max_bin", 4), ("max_bin", 2), ("shared_cuts", 3)]
LINES += [Line("german", "histogram", 150, 50, 5, name, (("bins", bins),)) for name, bins in COARSE]
LINES += [Line("adult", "histogram", 200, 50, 5, "max_bin", (("bins", 4),))]
LINES += [Line("adult", "histogram", 200, 10, 5, summed=5)]
LINES += [Line(table, "bagging", 50, 10) for table in TABLES]
LINES += [Line("adult", "bagging", 200, 10, 5, "strip_fields")]
# German has 1,000 rows, those of five clients with 200 each.
LINES += [
    Line(table, "histogram", rows, trees, clients)
    for rows, trees, clients in LARGE
    for table in TABLES
    if table != "german"
]
LINES += [Line(table, "histogram", 5_000, trees, clients) for table, trees, clients in LARGEST]


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
    spec = TreesSpec(
        dataset=line.table,
        protocol=line.protocol,
        rows=line.rows,
        trees=line.trees,
        repetitions=line.clients,
        summed=line.summed,
        defenses=(Part(name=line.defense, options=dict(line.options)),),
        workers=1,
        control=False,
    )
    audit = TreesAudit(spec)
    with Store(None) as store:
        [runs] = run_audits([audit], store)
    rows = {(row.attack, row.metric): row for row in rows_of(audit, runs) if row.column is None}
    attack = "anchor" if line.protocol == "histogram" else "timberstrike"
    score = rows[attack, "accuracy"]

    def share(part: str, metric: str) -> str:
        row = rows.get((part, metric))
        return "" if row is None or row.mean is None else f"{row.mean:.4f}"

    assert score.mean is not None
    ends = score.mean_ends()
    return {
        **dict(zip(KEY, line.key, strict=True)),
        "clients": line.clients,
        "attack": attack,
        "accuracy": f"{score.mean:.4f}",
        "low": "" if ends is None else f"{max(0.0, ends[0]):.4f}",
        "high": "" if ends is None else f"{min(1.0, ends[1]):.4f}",
        "random": share("random", "accuracy"),
        "own_marginals": share("own_marginals", "accuracy") if line.protocol == "histogram" else "",
        "whole": share(attack, "exact_match"),
        "certified": share(attack, "certified"),
        "hidden_sums": share("hessians", "hidden_sums"),
        "leaf_counts": share("leaf_counts", "leaf_counts"),
        "values": share("thresholds", "values"),
        "utility": share("training", "auc"),
        "epsilon": share("training", "epsilon"),
        "seconds": "" if score.seconds_per_victim is None else f"{score.seconds_per_victim:.1f}",
    }


if __name__ == "__main__":
    main()
