"""``seepage split``: what the server of split learning reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from seepage.audit import Row, Store, make_spec, write_results
from seepage.audit.split_spec import CutDefense, SplitSpec
from seepage.audit.split_study import SplitOutcome, run_split, split_rows
from seepage.audit.subject import load_rows
from seepage.cli.app import app, interruptible
from seepage.errors import BadInputError
from seepage.report import make_console, make_table
from seepage.report.text import clean, percent


@app.command()
def split(
    dataset: Annotated[str, typer.Option(help="Name of a dataset; seepage datasets lists them.")] = "adult",
    data: Annotated[Path | None, typer.Option(help="A table of your own: .csv, .csv.gz or .parquet.")] = None,
    target: Annotated[str | None, typer.Option(help="That table's column to be learnt.")] = None,
    schema: Annotated[Path | None, typer.Option(help="YAML schema of that table.")] = None,
    missing: Annotated[str | None, typer.Option(help="Missing cells of that table: refuse, drop or category.")] = None,
    private: Annotated[
        list[str] | None,
        typer.Option(help="A column that the client holds. Repeatable. Default: sensitive ones with categories."),
    ] = None,
    federated: Annotated[bool, typer.Option("--federated", help="Many clients of 16 rows each.")] = False,
    flip: Annotated[
        list[float] | None, typer.Option(help="Defense: labels are flipped with this chance. Repeatable.")
    ] = None,
    noise: Annotated[
        list[float] | None,
        typer.Option(help="Defense: gradients are clipped and get noise of so many bounds. Repeatable."),
    ] = None,
    epochs: Annotated[int, typer.Option(help="Passes over the rows before the attack.")] = 5,
    trainings: Annotated[int, typer.Option(help="Independent trainings; intervals are over them.")] = 3,
    records: Annotated[int | None, typer.Option(help="Held-out records attacked. Default: all, a tenth.")] = None,
    auxiliary: Annotated[int, typer.Option(help="Rows that the attacker holds whole.")] = 2_000,
    stale: Annotated[int, typer.Option(help="Epochs by which the server's copy of the client's part is old.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Run folder; what is there is not run again.")] = None,
    data_folder: Annotated[Path | None, typer.Option(help="Where files of datasets lie.")] = None,
    seed: Annotated[int, typer.Option(help="Every random number follows from it.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
) -> None:
    """Measure what the server of split learning reads of the client's columns and labels.

    The network (DeepFM) is trained with each defense and with none; then the server compares the gradients of held-out
    records with those of all combinations of private cells and label (exact), and weighs them by what it knows of the
    defense and of people (posterior). Beside every figure stands the best guess without what came back.

    [bold]Examples[/bold]

        seepage split --private sex --private race --flip 0.1 --noise 0.01 --noise 1 --out split

        seepage split --data people.csv --target outcome --private smoker --trainings 1
    """
    settings = {"data": data, "target": target, "schema_file": schema, "missing": missing, "data_folder": data_folder}
    rows = make_spec(dataset=dataset, **{name: value for name, value in settings.items() if value is not None})
    loaded, _ = load_rows(rows)
    defenses = [CutDefense()]
    try:
        defenses += [CutDefense(label=f"label_dp_{chance:g}", flip=chance) for chance in flip or []]
        defenses += [
            CutDefense(label=f"noise_{multiplier:g}", noise_multiplier=multiplier) for multiplier in noise or []
        ]
        spec = SplitSpec(
            dataset=loaded.name,
            private=tuple(private or ()),
            protocol="federated_split" if federated else "split",
            defenses=tuple(defenses),
            epochs=epochs,
            trainings=trainings,
            records=records,
            auxiliary=auxiliary,
            stale=stale,
            seed=seed,
            threads=threads,
        )
    except ValidationError as error:
        first = error.errors()[0]
        said = str(first["msg"]).removeprefix("Value error, ").removesuffix(".")
        raise BadInputError(f"{'.'.join(map(str, first['loc']))}: {said}, got {first['input']!r}.") from error
    own = data is not None
    errors = make_console(stderr=True)

    def measure() -> SplitOutcome:
        with Store(out, private=own) as store:
            return run_split(spec, store, loaded, say=lambda what: errors.print(f"{what} ...", style="dim"))

    outcome = measure() if out is None else interruptible(measure, out)
    found = split_rows(outcome)
    if out is not None:
        write_results(out, found, private=own)
    _show(make_console(), outcome, found)


def _show(console: Console, outcome: SplitOutcome, rows: list[Row]) -> None:
    sees = "many clients of few rows each" if outcome.spec.protocol == "federated_split" else "one client"
    console.print(
        Text(
            f"\nSplit learning on {clean(outcome.dataset.name)}, {sees}: {outcome.configurations:,} configurations of "
            f"private cells and label, {outcome.spec.trainings} training(s).\n",
            style="bold",
        )
    )
    for defense in outcome.spec.defenses:
        here = [row for row in rows if row["defense"] == defense.label]
        about = {row["metric"]: row["mean"] for row in here if row["attack"] == "training"}
        grid = make_table(f"{defense.label}: {_about(about)}")
        grid.add_column("column")
        attacks = list(dict.fromkeys(str(row["attack"]) for row in here if row["is_attack"]))
        for attack in attacks:
            grid.add_column(f"{attack} [95%]", justify="right")
        grid.add_column("best guess", justify="right")
        columns = [row["column"] for row in here if row["metric"] == "accuracy" and row["attack"] == attacks[0]]
        for column in columns:
            cells = [
                row for row in here if row["metric"] == "accuracy" and row["column"] == column and row["is_attack"]
            ]
            guess = cells[0]
            grid.add_row(
                "all private cells" if column is None else clean(column),
                *(_between(row) for row in cells),
                f"{percent(guess['baseline'])} {guess['baseline_name']}",
            )
        console.print(grid)
    console.print(
        Text("Share of records whose cell is read; F1, calibration and all other figures are in the results.")
    )


def _about(values: dict[str, float | None]) -> str:
    parts = [f"AUC {values['auc']:.3f}"] if values.get("auc") is not None else []
    if (label := values.get("label_epsilon")) is not None:
        parts.append(f"epsilon {label:.2f} of labels")
    if "epsilon" in values:
        epsilon = values["epsilon"]
        parts.append("no bound on epsilon" if epsilon is None else f"epsilon {epsilon:,.1f} of a record")
    return ", ".join(parts) or f"task accuracy {percent(values['task_accuracy'])}"


def _between(row: Row) -> str:
    low, high = row["low"], row["high"]
    return percent(row["mean"]) + ("" if low is None else f" [{percent(low)}, {percent(high)}]")
