"""``seepage spec``: draft and check audit documents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as Grid
from rich.text import Text

from seepage.audit import Forecast, Subjects, forecast, read_document, starter, write_whole
from seepage.audit.checks import control_of
from seepage.cli.app import app
from seepage.cli.own import of_document
from seepage.errors import BadInputError
from seepage.report import make_console
from seepage.report.text import clean, lasting

group = typer.Typer(no_args_is_help=True, help="Draft and check audit documents in YAML.", rich_markup_mode="rich")
app.add_typer(group, name="spec")


@group.command("new")
def new(
    dataset: Annotated[str, typer.Option(help="Dataset by name; [bold]seepage datasets[/bold] lists them.")] = "adult",
    data: Annotated[
        Path | None, typer.Option(help="A table of your own (.csv, .csv.gz, .parquet) instead of a dataset.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="The column of your table that the model learns.")] = None,
    separator: Annotated[str, typer.Option(help="Between the cells of your CSV file.")] = ",",
    out: Annotated[Path, typer.Option(help="The file to write; one that is there already is left alone.")] = Path(
        "audit.yaml"
    ),
) -> None:
    """Write a first audit document, with comments that say what can be changed.

    [bold]Example[/bold]

        seepage spec new --data people.csv --target outcome --out audit.yaml
    """
    if target is not None and data is None:
        raise BadInputError("--target names a column of a table of your own; add the file: --data FILE.")
    if out.exists():
        raise BadInputError(f"{str(out)!r} is there already; choose another --out, or take it away first.")
    write_whole(out, starter(dataset, data, target, separator, out))
    print(f"Written: {clean(out, 200)}. Check it with: seepage spec check {clean(out, 200)}")


@group.command("check")
def check(
    document: Annotated[Path, typer.Argument(help="The audit document.")],
) -> None:
    """Say what a document would run, and about how long it would take on this machine.

    Every mistake is told with its line and key (exit status 2). Where there is none, each setting is tried for a
    moment, which shows that it can be run, and how fast. Nothing is kept.

    [bold]Example[/bold]

        seepage spec check audit.yaml
    """
    subjects = Subjects()
    specs = read_document(document)
    with of_document():
        audits = [(spec, subjects.of(spec)) for spec in specs]
    controls = [control_of(spec, subject) for spec, subject in audits if spec.control]
    found = forecast([*audits, *controls])
    console = make_console()
    console.print(_table(found))
    console.print(Text(_summary(document, found)))


def _table(found: Forecast) -> Grid:
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for name in ("table and model", "batch size", "defense", "attack or guess"):
        grid.add_column(name, justify="right" if name == "batch size" else "left")
    for name in ("victims", "jobs", "about"):
        grid.add_column(name, justify="right", no_wrap=True)
    for line in found.lines:
        grid.add_row(
            Text(clean(line.about, 60)),
            str(line.batch_size),
            Text(clean(line.defense, 40)),
            Text(clean(line.called, 60)),
            str(line.victims),
            str(line.jobs),
            lasting(line.seconds),
        )
    return grid


def _summary(document: Path, found: Forecast) -> str:
    attacks = sum(line.is_attack for line in found.lines)
    guesses = len(found.lines) - attacks
    hands = f"{found.workers} jobs at a time" if found.workers > 1 else "one job at a time"
    memory = "" if found.memory is None else f", and {found.memory / 1e9:.1f} GB of memory in each process"
    return (
        f"{clean(document, 100)}: {attacks} settings to attack and {guesses} to guess, positive controls included, in "
        f"{found.jobs} jobs. Estimated by trying each for a moment: about {lasting(found.seconds)} with {hands}"
        f"{memory}."
    )
