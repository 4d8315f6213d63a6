"""What the commands of all studies have in common: options, running, printing and the gate."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.text import Text

from seepage.assessment.row import ResultRow
from seepage.cli.app import interruptible
from seepage.cli.exits import Exit
from seepage.errors import BadInputError, FieldError
from seepage.report import (
    Bar,
    StudyReport,
    check_gate,
    combined,
    gate,
    make_console,
    make_table,
    run_studies,
)
from seepage.results.rows import as_json as results_json
from seepage.settings.study import Study
from seepage.settings.study_spec import StudySpec
from seepage.text import clean, percent

_GATE = "Gate"
S = TypeVar("S", bound=StudySpec)

FailAbove = Annotated[
    float | None,
    typer.Option(
        metavar="LIFT",
        rich_help_panel=_GATE,
        help="Exit with status 1 where the lift over guessing may exceed this (0.2: 20 points), by the upper end of "
        "its interval, under any defense, or where the audit shows nothing.",
        show_default=False,
    ),
]
FailColumn = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        rich_help_panel=_GATE,
        help="Column that --fail-above looks at. Default: all of them.",
        show_default=False,
    ),
]
Out = Annotated[Path | None, typer.Option(help="Run folder; what is there is not run again.")]
Seed = Annotated[int, typer.Option(help="Every random number follows from it.")]
Threads = Annotated[int, typer.Option(help="CPU threads.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of tables.")]


class Swept:
    """Defenses that options add one after the other to none.

    Attributes:
        defenses: for the field of the spec.
        options: by patterns of the places in it, the option that each defense came from, see ``spec_of``.
    """

    def __init__(self) -> None:
        self.defenses: list[str | dict[str, Any]] = ["none"]
        self.options: dict[str, str] = {}

    def add(self, option: str, defense: dict[str, Any]) -> None:
        """Add a defense that an option asks for."""
        self.options[rf"defenses\.{len(self.defenses)}"] = option
        self.defenses.append(defense)


def run_study_command(
    studies: Sequence[tuple[StudySpec, Study]],
    out: Path | None,
    fail_above: float | None = None,
    fail_column: str | None = None,
    as_json: bool = False,
    document: str | None = None,
) -> None:
    """Run studies with a progress bar, print what they found, and decide a gate.

    Args:
        studies: specs with the studies that were made of them.
        out: the run folder; None to keep nothing.
        fail_above, fail_column, as_json: as the options of these names.
        document: text that they were started from, if any.

    Raises:
        BadInputError: the gate cannot be answered, or whatever running them raises.
        typer.Exit: with status 1 if the gate fails.
    """
    if fail_above is None and fail_column is not None:
        raise BadInputError(f"--fail-column {fail_column} names what a gate looks at; add --fail-above LIFT.")
    if fail_above is not None:
        check_study_gate([study for _, study in studies], fail_above, fail_column)
    with Bar(make_console(stderr=True)) as bar:
        reports = (
            run_studies(studies, out, bar)
            if out is None
            else interruptible(lambda: run_studies(studies, out, bar, document), out)
        )
    console = make_console()
    if as_json:
        found = [row for report in reports for row in report.rows]
        print(results_json(found))
    else:
        for report in reports:
            show_study(console, report)
        if out is not None:
            console.print(Text(f"Report: {out / 'report.html'}"))
    if fail_above is None:
        return
    decision = combined(
        [gate(report.rows, fail_above, fail_column, report.alarms, report.study.unit) for report in reports]
    )
    make_console(stderr=True).print(Text(decision.line), soft_wrap=True)
    if decision.failed:
        raise typer.Exit(Exit.GATE_FAILED)


def check_study_gate(studies: Sequence[Study], above: float, column: str | None) -> None:
    """Refuse a gate that no study could answer, before anything is trained.

    Raises:
        BadInputError: the limit is out of range, or the column is none that is attacked.
    """
    check_gate(above, column, [name for study in studies for name in study.columns])


def spec_of(kind: type[S], options: Mapping[str, str], /, **values: Any) -> S:
    """Return a spec of what options said, with errors that name options.

    Args:
        kind: of spec.
        options: by patterns of the fields that they give; other fields have options of their own names.
        values: of the fields.

    Raises:
        BadInputError: names the option and what it got.
    """
    try:
        return kind.of(**values)
    except FieldError as error:
        # Several options make up the defenses.
        is_option = error.field in kind.model_fields and error.field != "defenses"
        own = f"--{error.field.replace('_', '-')}" if is_option else error.field
        fits = (option for pattern, option in options.items() if re.fullmatch(rf"{pattern}(\.\d+)*", error.field))
        raise BadInputError(f"{next(fits, own)}: {error.said}") from error


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
        here = [row for row in rows if row.defense == defense]
        about = {row.metric: row.mean for row in here if not row.is_attack and row.column is None}
        told = _about(study, about)
        grid = make_table(f"{clean(defense)}: {told}" if told else clean(defense))
        grid.add_column("read")
        attacks = list(dict.fromkeys(str(row.attack) for row in here if row.is_attack))
        for attack in attacks:
            grid.add_column(f"{attack} [95%]", justify="right")
        grid.add_column("best guess", justify="right")
        scores = [row for row in here if row.metric == "accuracy" and row.is_attack]
        for column in dict.fromkeys(row.column for row in scores):
            cells = {row.attack: row for row in scores if row.column == column}
            guess = next(iter(cells.values()))
            grid.add_row(
                study.headline if column is None else clean(column),
                *(_between(cells[attack]) if attack in cells else "–" for attack in attacks),
                f"{percent(guess.baseline)} {guess.baseline_name or ''}",
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


def _between(row: ResultRow) -> str:
    low, high = row.low, row.high
    return percent(row.mean) + ("" if low is None else f" [{percent(low)}, {percent(high)}]")
