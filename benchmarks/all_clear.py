"""Green verdicts without evidence: twelve odd tables, and wide ones, through audits with budgets of 30 to 120 seconds.

    python benchmarks/all_clear.py                                 # continues benchmarks/results/all_clear.csv
    python benchmarks/all_clear.py --table small --budget 30 --setting split

A verdict is green where it is none, low or between the two. It has evidence where each attack of the default ran on at
least five units, closed half of the gap to certainty on the positive control, and no exact attack that is named
(`spear`, `single_activation`; horizontal learning without a defense) closes a fifth of the gap on five other victims.
This is counted from rows alone, and not by the rule that verdicts follow. A gate that passes at 0.2 counts alike.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from csv_lines import signed
from first_try import TABLES, drawn

from seepage import BadInputError
from seepage.assessment.row import ResultRow
from seepage.auditing import fitting, run_all
from seepage.config.document import read_preset, read_text_document
from seepage.report.report import Report, verdicts_of

SETTINGS = ("horizontal", "split", "vertical", "pooled", "trees")
BUDGETS = (30, 60, 120)
# Budget with which a gate is asked, and tables that the other settings are asked about.
GATED, ELSEWHERE = 60, ("small", "rare class", "categories alone")
FIELDS = ("setting", "table", "budget", "gate", "seconds", "verdicts", "green", "without_evidence", "why", "commit")
GREEN = {"little read"}


def wide(columns: int, rows: int = 200) -> pd.DataFrame:
    """Return a table of normal columns whose target ``class`` follows the first one."""
    draw = np.random.default_rng(0)
    cells = draw.normal(size=(rows, columns))
    frame = pd.DataFrame(cells, columns=[f"number_{i}" for i in range(columns)])
    return frame.assign(**{"class": np.where(cells[:, 0] + draw.normal(size=rows) > 0, "yes", "no")})


def table(name: str) -> pd.DataFrame:
    """Return a table by its name."""
    return wide(int(name.split()[0])) if name.endswith(" normal columns") else drawn(TABLES[name])


def reported(setting: str, data: Path, more: dict[str, object]) -> list[Report]:
    """Return the reports of an audit as the command line starts it, with a worker."""
    text = read_preset("decide") if setting == "horizontal" else f"setting: {setting}\n"
    sensitive = next(name for name in pd.read_csv(data, nrows=1).columns if name.startswith(("category", "class")))
    given = {"data": data, "target": "class", "workers": 1, "dataset": None, **more}
    given |= {"sensitive": (sensitive,)} if setting == "pooled" else {}
    return run_all(fitting(read_text_document(text, "all_clear", Path(), given)))


def closed(row: ResultRow) -> float:
    """Return the share of the gap between the best baseline and certainty that an attack closes."""
    return -1.0 if row.lift is None or row.baseline is None else row.lift / max(1 - row.baseline, 1e-9)


def lacking(report: Report, batch_size: object, defense: object, data: Path) -> list[str]:
    """Return what is missing behind a verdict that little leaks."""
    scores = [row for row in report.rows if row.is_attack and row.metric == "accuracy" and row.mean is not None]
    here = [row for row in scores if (row.batch_size, row.defense) == (batch_size, defense)]
    control = [row for row in report.control or () if row.is_attack and row.metric == "accuracy"]
    missing = []
    for name in report.audit.usual_attacks:
        if max((row.n for row in here if row.attack == name), default=0) < 5:
            missing.append(f"{name} not run")
        elif report.control is not None and not any(closed(row) >= 0.5 for row in control if row.attack == name):
            missing.append(f"{name}: positive control not passed")
    if report.audit.setting == "horizontal" and defense == "none" and not missing:
        for name in ("spear", "single_activation"):
            named = {"attacks": (name,), "batch_sizes": (batch_size,), "defenses": ("none",), "victims": 5, "seed": 1}
            found = reported("horizontal", data, {**named, "control": False})[0]
            missing += [
                f"{name} reads it"
                for row in found.rows
                if row.attack == name and (row.metric, row.column) == ("accuracy", None) and closed(row) >= 0.2
            ]
    return missing


def judged(setting: str, name: str, budget: int, gate: bool, folder: Path) -> dict[str, object]:
    """Return what an audit says, and which of its green verdicts have no evidence."""
    data = folder / f"{name.replace(' ', '_')}.csv"
    table(name).to_csv(data, index=False)
    case = {"setting": setting, "table": name, "budget": budget, "gate": gate}
    begun = time.process_time()
    try:
        reports = reported(setting, data, {"time_budget": budget, **({"gate": {"above": 0.2}} if gate else {})})
    except BadInputError as error:
        return {**case, "verdicts": f"refused: {str(error)[:120]}", "green": 0, "without_evidence": 0}
    seconds = round(time.process_time() - begun, 1)
    said, green, missing = [], 0, []
    for report in reports:
        passed = report.decision is not None and report.decision.outcome == "passed"
        for verdict in verdicts_of([report]):
            said.append(f"{verdict['batch_size']} {verdict['defense']}: {verdict['tier']}")
            if verdict["tier"] in GREEN or passed:
                green += 1
                missing += lacking(report, verdict["batch_size"], verdict["defense"], data)
        said += ["gate passed"] if passed else []
    why = "; ".join(dict.fromkeys(missing))
    return {
        **case, "seconds": seconds, "verdicts": " | ".join(said), "green": green, "without_evidence": len(missing),
        "why": why,
    }  # fmt: skip


def cases() -> list[tuple[str, str, int, bool]]:
    """Return all that is asked, the short budgets first."""
    names = [*TABLES, "1000 normal columns", "300 normal columns"]
    asked = [("horizontal", name, budget, False) for budget in BUDGETS for name in names]
    asked += [
        (setting, name, budget, False) for budget in BUDGETS[:2] for name in ELSEWHERE for setting in SETTINGS[1:]
    ]
    return [*asked, *(("horizontal", name, GATED, True) for name in names)]


def main() -> None:
    """Judge what the file does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "all_clear.csv")
    parser.add_argument("--table", action="append")
    parser.add_argument("--budget", type=int, action="append")
    parser.add_argument("--setting", choices=SETTINGS, action="append")
    chosen = parser.parse_args()
    there = pd.read_csv(chosen.out) if chosen.out.exists() else pd.DataFrame(columns=FIELDS)
    done = {(row.setting, row.table, int(row.budget), bool(row.gate)) for row in there.itertuples()}
    with chosen.out.open("a", newline="") as file, tempfile.TemporaryDirectory() as folder:
        lines = csv.DictWriter(file, FIELDS)
        if not done:
            lines.writeheader()
        for case in cases():
            setting, name, budget, _ = case
            wanted = (setting in (chosen.setting or SETTINGS), name in (chosen.table or [name]))
            if case in done or not all(wanted) or budget not in (chosen.budget or BUDGETS):
                continue
            lines.writerow(signed(judged(*case, Path(folder))))
            file.flush()


if __name__ == "__main__":
    main()
