"""``seepage spec``: draft and check audit documents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from seepage.cli.app import app
from seepage.cli.own import of_document
from seepage.cli.studies import check_study_gate
from seepage.config.document import read_text_document
from seepage.config.starter import starter, study_starter
from seepage.config.study_document import StudyDocument, is_study, read_study
from seepage.config.tree import read_text
from seepage.errors import BadInputError
from seepage.files import write_whole
from seepage.report import make_console
from seepage.results.checks import control_of
from seepage.run.forecast import Forecast, forecast
from seepage.settings.studies import STUDIES
from seepage.settings.subject import Subjects
from seepage.text import clean, lasting

group = typer.Typer(no_args_is_help=True, help="Draft and check audit documents in YAML.", rich_markup_mode="rich")
app.add_typer(group, name="spec")


@group.command("new")
def new(
    dataset: Annotated[
        str | None, typer.Option(help="Dataset by name; [bold]seepage datasets[/bold] lists them. Default: adult.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="A table of your own (.csv, .csv.gz, .parquet) instead of a dataset.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="The column of your table that the model learns.")] = None,
    separator: Annotated[str, typer.Option(help="Between the cells of your CSV file.")] = ",",
    study: Annotated[
        str | None,
        typer.Option(help=f"Of another setting than horizontal learning: {', '.join(STUDIES)}."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The file to write; one that is there already is left alone.")] = Path(
        "audit.yaml"
    ),
) -> None:
    """Write a first audit document, with comments that say what can be changed.

    [bold]Examples[/bold]

        seepage spec new --data people.csv --target outcome --out audit.yaml

        seepage spec new --study split --dataset adult --out split.yaml
    """
    if target is not None and data is None:
        raise BadInputError("--target names a column of a table of your own; add the file: --data FILE.")
    if out.exists():
        raise BadInputError(f"{str(out)!r} is there already; choose another --out, or take it away first.")
    text = (
        starter(dataset or "adult", data, target, separator, out)
        if study is None
        else study_starter(study, dataset, data, target, separator, out)
    )
    write_whole(out, text)
    print(f"Written: {clean(out, 200)}. Check it with: seepage spec check {clean(out, 200)}")


@group.command("check")
def check(
    document: Annotated[Path, typer.Argument(help="The audit document.")],
) -> None:
    """Say what a document would run, and about how long it would take on this machine.

    Every mistake is told with its line and key (exit status 2). Where there is none, each setting is tried for a
    moment, which shows that it can be run, and how fast; documents of a study (split, vertical and pooled learning)
    are only read. Nothing is kept.

    [bold]Example[/bold]

        seepage spec check audit.yaml
    """
    console = make_console()
    text = read_text(document)
    if is_study(text, str(document)):
        with of_document():
            _show_study(console, document, read_study(text, str(document), document.parent))
        return
    subjects = Subjects()
    specs = read_text_document(text, str(document), document.parent)
    with of_document():
        audits = [(spec, subjects.of(spec)) for spec in specs]
    controls = [control_of(spec, subject) for spec, subject in audits if spec.control]
    found = forecast([*audits, *controls])
    console.print(_table(found))
    console.print(Text(_summary(document, found)))


def _show_study(console: Console, document: Path, made: StudyDocument) -> None:
    study = made.study
    if made.gate is not None:
        check_study_gate([study], made.gate.above, made.gate.column)
    parts = [part for part in study.parts if part.kind != "about"]
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for name in ("defense", "attacks", "guesses"):
        grid.add_column(name)
    for defense in study.defenses:
        told = (
            ", ".join(clean(part.called, 60) for part in parts if part.kind == kind) for kind in ("attack", "guess")
        )
        grid.add_row(Text(clean(defense, 40)), *map(Text, told))
    limit = made.gate
    at = "" if limit is None else f" A gate fails above a lift of {limit.above:g}{_of(limit.column)}."
    console.print(grid)
    console.print(
        Text(
            f"{clean(document, 100)}: {clean(study.dataset)}, {clean(study.protocol).replace('_', ' ')}, {study.units} "
            f"{study.unit}(s). How long that takes is not estimated; what is stopped continues with the same command."
            f"{at}"
        )
    )


def _of(column: str | None) -> str:
    return "" if column is None else f" in column {clean(column, 60)}"


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
