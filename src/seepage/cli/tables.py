"""The tables of split, vertical and pooled learning on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from seepage.report import StudyReport, make_table
from seepage.results.rows import Row
from seepage.results.text import clean, percent
from seepage.settings.study import Study


def show_study(console: Console, report: StudyReport) -> None:
    """Print what each attack reads under each defense, beside the best guess, and what the study doubts."""
    study, rows = report.study, report.rows
    variant = "" if study.variant is None else f" ({clean(study.variant)})"
    said = (
        f"\n{clean(study.dataset)}, {clean(study.protocol).replace('_', ' ')}{variant}: {study.units} {study.unit}(s)."
    )
    console.print(Text(said, style="bold"))
    for note in study.notes:
        console.print(Text(f"{clean(note, 200)}."))
    for defense in study.defenses:
        here = [row for row in rows if row["defense"] == defense]
        about = {row["metric"]: row["mean"] for row in here if not row["is_attack"] and row["column"] is None}
        told = _about(study, about)
        grid = make_table(f"{clean(defense)}: {told}" if told else clean(defense))
        grid.add_column("read")
        attacks = list(dict.fromkeys(str(row["attack"]) for row in here if row["is_attack"]))
        for attack in attacks:
            grid.add_column(f"{attack} [95%]", justify="right")
        grid.add_column("best guess", justify="right")
        scores = [row for row in here if row["metric"] == "accuracy" and row["is_attack"]]
        for column in dict.fromkeys(row["column"] for row in scores):
            cells = {row["attack"]: row for row in scores if row["column"] == column}
            guess = next(iter(cells.values()))
            grid.add_row(
                study.headline if column is None else clean(column),
                *(_between(cells[attack]) if attack in cells else "–" for attack in attacks),
                f"{percent(guess['baseline'])} {guess['baseline_name'] or ''}",
            )
        console.print(grid)
    for alarm in report.alarms:
        console.print(Text(f"{alarm.severity}: {clean(alarm.message, 1000)} ({alarm.code})", style="yellow"))
    one = report.worst
    if one is not None and one["attack"] is not None:
        console.print(Text(f"Leakage: {one['tier']}."))
    console.print(Text("Shares of what was attacked; all other figures are in the results."))


def _about(study: Study, values: dict[str, float | None]) -> str:
    name = next((name for name in study.utility if values.get(name) is not None), None)
    parts = []
    if name is not None and (learnt := values[name]) is not None:
        parts.append(f"{'AUC' if name == 'auc' else name.replace('_', ' ')} {learnt:.3f}")
    if (label := values.get("label_epsilon")) is not None:
        parts.append(f"epsilon {label:.2f} of labels")
    if "epsilon" in values:
        epsilon = values["epsilon"]
        parts.append("no bound on epsilon" if epsilon is None else f"epsilon {epsilon:,.1f} of a record")
    return ", ".join(parts)


def _between(row: Row) -> str:
    low, high = row["low"], row["high"]
    return percent(row["mean"]) + ("" if low is None else f" [{percent(low)}, {percent(high)}]")
