"""What the sums of federated regressions tell of a site's records, by table, rows, columns, project and defense.

    python benchmarks/federated_statistics.py --out benchmarks/results/statistics.csv
    python benchmarks/federated_statistics.py --survival --out benchmarks/results/statistics_survival.csv
    python benchmarks/federated_statistics.py --defenses --out benchmarks/results/statistics_defenses.csv
    python benchmarks/federated_statistics.py --labels --out benchmarks/results/statistics_labels.csv

Each line is a table, a project, a number of rows of a site, a set of columns and a defense. A line that is in the file
already is not measured again.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from csv_lines import add_lines, read_lines
from scipy.optimize import Bounds, LinearConstraint, milp

from seepage.assessment.intervals import interval
from seepage.assessment.statistics import measure_tables
from seepage.attacks.statistics.counts import Counts
from seepage.attacks.statistics.risk_sets import RiskSets, leavers
from seepage.baselines.statistics import LikeliestTable
from seepage.datasets import Dataset, load, read_table
from seepage.errors import BadInputError
from seepage.settings.part import Part
from seepage.settings.statistics.audit import StatisticsAudit, knowledge_of
from seepage.settings.statistics.spec import StatisticsSpec
from seepage.wire.secret import RecordsSecret
from seepage.wire.statistics import NewtonMessage, NewtonView, RiskSetMessage, RiskSetView, rows_of

FIELDS = (
    "table", "project", "rows", "columns", "defense", "sites", "patterns", "rank", "occupied", "full_rank",
    "whole_full_rank", "whole", "records", "likeliest", "with_label", "likeliest_with_label", "certified",
    "singled_out", "false", "auc", "coefficient_error", "epsilon", "seconds", "commit", "kernel",
)  # fmt: skip
KEY = FIELDS[:5]


def clinic(rows: int = 20_000) -> Dataset:
    """Return a table of patients of a clinic, drawn: wards, ages and treatments that depend on each other."""
    rng = np.random.default_rng(11)
    age = rng.integers(18, 95, rows)
    ward = np.where(age > 70, rng.choice(["geriatrics", "surgery", "internal"], rows, p=[0.5, 0.2, 0.3]),
                    rng.choice(["surgery", "internal", "emergency"], rows, p=[0.4, 0.35, 0.25]))  # fmt: skip
    sex, smoker = rng.choice(["f", "m"], rows), rng.choice(["never", "former", "current"], rows, p=[0.5, 0.3, 0.2])
    stage = rng.choice(["1", "2", "3", "4"], rows, p=[0.45, 0.3, 0.17, 0.08])
    drug = np.where(stage > "2", rng.choice(["a", "b", "c"], rows, p=[0.2, 0.3, 0.5]), rng.choice(["a", "b"], rows))
    risk = -3 + 0.03 * (age - 50) + 0.5 * (stage.astype(int) - 1) + 0.6 * (smoker == "current") - 0.4 * (drug == "c")
    died = np.where(rng.uniform(size=rows) < 1 / (1 + np.exp(-risk)), "yes", "no")
    columns = {"age": age.astype(float), "ward": ward, "sex": sex, "smoker": smoker, "stage": [f"s{s}" for s in stage]}
    return read_table(pd.DataFrame({**columns, "drug": drug, "died": died}), target="died", name="clinic")


def registry(rows: int = 20_000) -> Dataset:
    """Return a table of a registry, drawn: many yes-or-no columns, most of them rare."""
    rng = np.random.default_rng(12)
    region = rng.choice([f"r{k}" for k in range(6)], rows, p=[0.3, 0.25, 0.18, 0.12, 0.1, 0.05])
    burden = rng.normal(size=rows)
    marks = {f"icd_{k}": burden + rng.normal(size=rows) > 0.3 + 0.25 * k for k in range(7)}
    risk = -1.5 + 0.5 * np.sum(list(marks.values()), axis=0)
    again = rng.uniform(size=rows) < 1 / (1 + np.exp(-risk))
    texts = {name: np.where(mark, "yes", "no") for name, mark in marks.items()}
    frame = pd.DataFrame({"region": region, **texts, "again": np.where(again, "yes", "no")})
    return read_table(frame, target="again", name="registry")


ADULT = ("sex", "relationship", "marital-status", "race", "workclass")
GERMAN = ("checking_account", "savings", "employment", "housing", "job", "telephone")
CREDIT = ("SEX", "EDUCATION", "MARRIAGE", "AGE", "PAY_0")
OWN = {"clinic": clinic, "registry": registry}
# Names that stand for sets of columns in the file; of the tables of our own all columns are taken.
SETS: dict[str, tuple[str, ...]] = {
    "adult": ADULT,
    "german": GERMAN,
    "credit": CREDIT,
    "clinic": ("age", "ward", "sex", "smoker", "stage", "drug"),
    "registry": ("region", *(f"icd_{k}" for k in range(7))),
}
MORE = {"adult": (*ADULT, "occupation"), "german": (*GERMAN, "property", "purpose")}


@dataclass(frozen=True)
class Line:
    """One configuration.

    Attributes:
        table, project, rows: as in the file.
        columns: ``few`` or ``more`` columns of the table.
        defense: label in the file.
        mechanism, options: registered name and options of a defense.
        fields: fields of the spec.
        sites: number of attacked sites, each in a federation of its own.
    """

    table: str
    project: str
    rows: int
    columns: str = "few"
    defense: str = "none"
    mechanism: str = "none"
    options: tuple[tuple[str, float], ...] = ()
    fields: tuple[tuple[str, object], ...] = ()
    sites: int = 5

    @property
    def key(self) -> tuple[str, ...]:
        """What tells the line from others."""
        return (self.table, self.project, str(self.rows), self.columns, self.defense)


SIZES = {
    "german": (50, 100, 200, 300),
    **dict.fromkeys(("adult", "credit", "clinic", "registry"), (50, 200, 1_000, 5_000)),
}
LINES = [
    Line(table, "datashield", rows, sites=3 if rows > 1_000 else 5) for table, sizes in SIZES.items() for rows in sizes
]
LINES += [Line(table, "vantage6", 300) for table in ("german", "adult", "credit", "clinic", "registry")]
_CHANGES: list[tuple[str, str, tuple[tuple[str, float], ...], tuple[tuple[str, object], ...]]] = [
    ("none", "none", (), ()),
    *((f"iterations: {t}", "none", (), (("iterations", t),)) for t in (1, 2, 3, 4)),
    *((f"digits: {d}", "rounded_sums", (("digits", d),), ()) for d in (4, 3, 2, 1, 0)),
    *((f"noise: {m:g}", "sum_noise", (("multiplier", m),), ()) for m in (0.01, 0.1, 1, 10)),
    *((f"sum of {k} sites", "none", (), (("sites", 5), ("summed", k))) for k in (2, 5)),
    *((f"levels of {k} rows", "none", (), (("minimum_level", k),)) for k in (10, 30)),
]
_CHANGES.append(("one shot", "one_shot", (), ()))
DEFENSES = [
    Line(table, "datashield", 200, defense=label, mechanism=name, options=options, fields=fields, sites=3)
    for table in ("adult", "clinic")
    for label, name, options, fields in _CHANGES
]
OF_DEFENSES = (*KEY, "sites", "whole", "records", "likeliest", "with_label", "certified", "singled_out", "false", "auc",
               "coefficient_error", "standard_error_ratio", "epsilon", "seconds", "commit", "kernel")  # fmt: skip
LINES += [Line("adult", "datashield", 300, "more"), Line("german", "datashield", 200, "more", sites=1)]

OF_LABELS = ("table", "project", "rows", "columns", "sites", "coefficients", "occupied", "settled", "determined", "low",
             "high", "timed_out", "with_label", "usual", "seconds", "commit")  # fmt: skip
# Sites of which labels are measured.
_SITES = 10
LABELS = [line for line in LINES if line.table in ("german", "adult") and line.columns == "few" and line.rows <= 1_000]

OF_SURVIVAL = (
    "table", "rows", "defense", "sites", "left_alone", "read_of_these", "told_apart", "records", "likeliest",
    "certified", "false", "hazard_ratio_error", "coefficient_error", "seconds", "commit", "kernel",
)  # fmt: skip
SURVIVAL: list[tuple[str, int, str, tuple[dict, ...]]] = [
    *((table, rows, "none", ()) for table in ("clinic", "adult") for rows in (100, 300, 1_000)),
    *(
        ("clinic", 300, label, (defense,))
        for label, defense in {
            "times: 30": {"name": "coarser_times", "width": 30},
            "times: 180": {"name": "coarser_times", "width": 180},
            "jumps: 5": {"name": "jump_guard"},
            "jumps: 20": {"name": "jump_guard", "records": 20},
            "digits: 3": {"name": "rounded_sums", "digits": 3},
            "digits: 1": {"name": "rounded_sums", "digits": 1},
        }.items()
    ),
    ("clinic", 300, "one iteration", ({"name": "none"},)),
]


def main() -> None:
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--survival", action="store_true", help="survival models instead of the lines")
    parser.add_argument("--defenses", action="store_true", help="defenses with their cost instead of the lines")
    parser.add_argument("--labels", action="store_true", help="what the equations of outcomes determine, instead")
    arguments = parser.parse_args()
    if arguments.labels:
        for line in LABELS:
            if line.key[:3] not in {tuple(one[name] for name in KEY[:3]) for one in read_lines(arguments.out)}:
                add_lines(arguments.out, OF_LABELS, [of_labels(line)])
        return
    if arguments.survival:
        for table, rows, label, defenses in SURVIVAL:
            done = {tuple(one[name] for name in OF_SURVIVAL[:3]) for one in read_lines(arguments.out)}
            if (table, str(rows), label) not in done:
                add_lines(arguments.out, OF_SURVIVAL, [of_survival(table, rows, label, defenses)])
        return
    fields = OF_DEFENSES if arguments.defenses else FIELDS
    for line in DEFENSES if arguments.defenses else LINES:
        done = {tuple(one[name] for name in KEY) for one in read_lines(arguments.out)}
        if line.key not in done:
            figures = measured(line)
            add_lines(arguments.out, fields, [{name: figures[name] for name in fields if name in figures}])


def of_labels(line: Line) -> dict[str, object]:
    """Return what the sums determine of the labels where the number of records of each pattern is known.

    With a canonical link outcomes are in X^T y alone. The number of a pattern's records with the second outcome lies
    between its least and its greatest value over all whole numbers that have these sums, by integer programming.
    A record is determined with its label where all of them have it; the attack fills in the others.
    """
    audit = _audit(line)
    [configuration] = audit.configurations
    units = []
    for unit in range(_SITES):
        [federation] = audit.expose(configuration, range(unit, unit + 1)).federations
        assert isinstance(federation.message, NewtonMessage)
        view, known = NewtonView((federation.message,)), knowledge_of(audit, configuration)
        secret = RecordsSecret(federation.cells[None], federation.labels[None])
        figures = {m.metric: float(m.values[0]) for m in measure_tables(secret, Counts()(view, known, [unit]))}
        begun = time.process_time()
        bounded = _label_bounds(federation.cells.numpy(), federation.labels.numpy(), federation.message.levels)
        share = float(federation.labels.mean())
        units.append({**figures, **bounded, "usual": max(share, 1 - share), "seconds": time.process_time() - begun})

    def mean(name: str, digits: int = 4) -> str:
        return f"{np.mean([unit[name] for unit in units]):.{digits}f}"

    determined = interval(torch.tensor([unit["determined"] for unit in units]).double(), bounds=(0.0, 1.0))
    return {
        **dict(zip(KEY[:4], line.key[:4], strict=True)),
        "sites": len(units),
        **{name: mean(name, 0) for name in ("coefficients", "occupied")},
        **{name: mean(name) for name in ("settled", "determined", "with_label", "usual")},
        "low": f"{determined.low:.4f}",
        "high": f"{determined.high:.4f}",
        "timed_out": sum(int(unit["timed_out"]) for unit in units),
        "seconds": mean("seconds", 1),
    }


def _label_bounds(cells: np.ndarray, labels: np.ndarray, levels: tuple[tuple[int, ...], ...]) -> dict[str, float]:
    """Return the share of records, and of labels' patterns, that all whole numbers with the sums X^T y agree on."""
    patterns, place = np.unique(cells.astype(int), axis=0, return_inverse=True)
    number, second = np.bincount(place).astype(float), np.bincount(place, labels)
    rows = rows_of(patterns, levels)
    side: Any = rows.T @ second
    sums = LinearConstraint(rows.T, side, side)
    least, most, timed_out = np.zeros(len(number)), number.copy(), 0
    fitting = [second]
    for p in range(len(number)):
        for sign in (1, -1):
            seen = {float(one[p]) for one in fitting}
            if (0.0 if sign == 1 else number[p]) in seen:
                continue
            cost = np.zeros(len(number))
            cost[p] = sign
            solved = milp(cost, constraints=sums, integrality=np.ones(len(number)), bounds=Bounds(0, number),  # pyright: ignore[reportArgumentType]
                          options={"time_limit": 10.0})  # fmt: skip
            timed_out += solved.status != 0
            if solved.x is not None:
                fitting.append(np.rint(solved.x))
            bound = sign * (solved.mip_dual_bound if solved.mip_dual_bound is not None else -np.inf)
            if sign == 1:
                least[p] = max(0.0, np.ceil(bound - 1e-6))
            else:
                most[p] = min(number[p], np.floor(bound + 1e-6))
    assert (least <= second).all()
    assert (second <= most).all()
    return {
        "coefficients": rows.shape[1],
        "occupied": len(number),
        "settled": float((least == most).mean()),
        "determined": float((least + number - most).sum() / number.sum()),
        "timed_out": timed_out,
    }


def _audit(line: Line) -> StatisticsAudit:
    """Return the audit of a line."""
    data = OWN[line.table]() if line.table in OWN else load(line.table)
    columns = (SETS if line.columns == "few" else MORE)[line.table]
    defenses = (
        Part(name=line.mechanism, options=dict(line.options), label=None if line.defense == "none" else line.defense),
    )
    fields = {"project": line.project, "rows": line.rows, "columns": columns, "defenses": defenses, **dict(line.fields)}
    if line.project == "vantage6":
        # More columns than a tenth of the rows: the guard is what the deployment set it to.
        fields["parameter_ratio"] = 0.1 if line.rows >= 300 else 0.33
    if line.rows == 50:
        fields["parameter_ratio"] = 1.0
    return StatisticsAudit(StatisticsSpec.of(**fields), data)


def measured(line: Line) -> dict[str, object]:
    """Return the figures of a line; a guard that refuses leaves a site out."""
    audit = _audit(line)
    [configuration] = audit.configurations
    units = []
    for unit in range(line.sites):
        try:
            exposure = audit.expose(configuration, range(unit, unit + 1))
        except BadInputError:
            # No model can be fitted to sums that are changed as much.
            continue
        [federation] = exposure.federations
        view, known = NewtonView((federation.message,)), knowledge_of(audit, configuration)
        begun = time.process_time()
        guess = Counts()(view, known, [unit])
        seconds = time.process_time() - begun
        secret = RecordsSecret(federation.cells[None], federation.labels[None])
        figures = {m.metric: float(m.values[0]) for m in measure_tables(secret, guess)}
        base = {m.metric: float(m.values[0]) for m in measure_tables(secret, LikeliestTable()(view, known, [unit]))}
        about = {m.metric: float(m.values[0]) for m in federation.figures}
        units.append({**figures, "seconds": seconds, "base": base, "about": about, **_proofs(guess, federation)})
    return {**dict(zip(KEY, line.key, strict=True)), **(_means(units) if units else {"sites": 0})}


def of_survival(table: str, rows: int, label: str, defenses: tuple[dict, ...]) -> dict[str, object]:
    """Return the figures of a survival model with drawn times, means over five sites."""
    fields = {
        "protocol": "cox",
        "rows": rows,
        "columns": SETS[table],
        "parameter_ratio": 1.0,
        "defenses": defenses or ["none"],
    }
    fields["iterations"] = 1 if label == "one iteration" else 25
    audit = StatisticsAudit(StatisticsSpec.of(**fields), OWN[table]() if table in OWN else load(table))
    [configuration] = audit.configurations
    units = []
    for unit in range(5):
        exposure = audit.expose(configuration, range(unit, unit + 1))
        [federation] = exposure.federations
        assert isinstance(federation.message, RiskSetMessage)
        view, known = RiskSetView((federation.message,)), knowledge_of(audit, configuration)
        begun = time.process_time()
        guess = RiskSets()(view, known, [unit])
        seconds = time.process_time() - begun
        secret = RecordsSecret(federation.cells[None], federation.labels[None])
        base = LikeliestTable()(view, known, [unit])
        figures, of_base, about = (
            {m.metric: float(m.values[0]) for m in part}
            for part in (measure_tables(secret, guess), measure_tables(secret, base), federation.figures)
        )
        alone = [sums for sums, number, _, _ in leavers(federation.message) if number == 1]
        there = {tuple(cell) for cell in federation.cells.tolist()}
        # A difference of one record has its design row in the first line, which names its levels.
        read = sum(_record(sums[0][0], federation.message) in there for sums in alone)
        units.append(
            {
                **figures,
                **about,
                **_proofs(guess, federation),
                "base": of_base["whole_records"],
                "seconds": seconds,
                "alone": len(alone) / rows,
                "read": read / max(len(alone), 1),
            }
        )

    def mean(name: str, digits: int = 4) -> str:
        return f"{np.mean([unit[name] for unit in units]):.{digits}f}"

    return {
        **dict(zip(OF_SURVIVAL[:3], (table, rows, label), strict=True)),
        "sites": len(units),
        "left_alone": mean("alone"),
        "read_of_these": mean("read") if any(unit["alone"] for unit in units) else "",
        "told_apart": f"{np.mean([unit['told_apart'] for unit in units]) / rows:.4f}",
        "records": mean("whole_records"),
        "likeliest": mean("base"),
        "certified": mean("certified"),
        "false": sum(int(unit["false"]) for unit in units),
        "hazard_ratio_error": mean("hazard_ratio_error", 3),
        "coefficient_error": mean("coefficient_error", 3),
        "seconds": mean("seconds", 1),
    }


def _record(row: np.ndarray, message: RiskSetMessage) -> tuple[float, ...]:
    codes, begin = [], 1
    for levels in message.levels:
        entries = np.rint(row[begin : begin + len(levels) - 1])
        codes.append(float(levels[1 + int(entries.argmax())] if entries.any() else levels[0]))
        begin += len(levels) - 1
    return tuple(codes)


def _proofs(guess: object, federation: object) -> dict[str, float]:
    proof = guess.proofs[0].cells.all(1)  # pyright: ignore[reportAttributeAccessIssue]
    cells = guess.cells[0][proof]  # pyright: ignore[reportAttributeAccessIssue]
    own: dict[tuple[float, ...], int] = {}
    for row in federation.cells.tolist():  # pyright: ignore[reportAttributeAccessIssue]
        own[tuple(row)] = own.get(tuple(row), 0) + 1
    wrong = 0
    for row in map(tuple, cells.tolist()):
        own[row] = own.get(row, 0) - 1
        wrong += own[row] < 0
    return {"certified": float(proof.double().mean()), "false": float(wrong)}


def _means(units: list[dict]) -> dict[str, object]:
    def mean(*path: str, digits: int = 4) -> object:
        values = []
        for unit in units:
            value = unit
            for name in path:
                value = value.get(name, float("nan"))
            values.append(value)
        return "" if np.isnan(values).all() else f"{np.nanmean(values):.{digits}f}"

    full = [u["whole_table"] for u in units if u.get("rank", -1) == u.get("patterns", -2)]
    return {
        "sites": len(units),
        "patterns": mean("patterns", digits=0),
        "rank": mean("rank", digits=0),
        "occupied": mean("occupied", digits=0),
        "full_rank": len(full),
        "whole_full_rank": sum(map(int, full)),
        "whole": sum(int(u["whole_table"]) for u in units),
        "records": mean("whole_records"),
        "likeliest": mean("base", "whole_records"),
        "with_label": mean("with_label"),
        "likeliest_with_label": mean("base", "with_label"),
        "certified": mean("certified"),
        "singled_out": mean("proved_alone"),
        "false": sum(int(u["false"]) for u in units),
        "auc": mean("about", "auc"),
        "coefficient_error": mean("about", "coefficient_error", digits=3),
        "standard_error_ratio": mean("about", "standard_error_ratio", digits=3),
        "epsilon": mean("about", "epsilon", digits=2),
        "seconds": mean("seconds", digits=1),
    }


if __name__ == "__main__":
    main()
