"""``seepage spec``: draft and check audit documents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from seepage.cli.app import app
from seepage.cli.options import fields_in_options
from seepage.cli.text import told
from seepage.config.document import read_text_document
from seepage.config.starter import starter
from seepage.config.tree import read_text
from seepage.config.wording import as_key
from seepage.errors import BadInputError
from seepage.files import write_whole
from seepage.report import check_gate, make_console
from seepage.results.checks import control_of
from seepage.results.text import clean, lasting
from seepage.run.forecast import Forecast, forecast
from seepage.settings.horizontal_spec import HorizontalSpec
from seepage.settings.old import GOES
from seepage.settings.spec import Spec
from seepage.settings.specs import SPECS
from seepage.settings.studies import load_study
from seepage.settings.study import Study
from seepage.settings.subject import Subjects

group = typer.Typer(no_args_is_help=True, help="Draft and check audit documents in YAML.", rich_markup_mode="rich")
app.add_typer(group, name="spec")


_OF_TABLES = ("dataset", "data", "target", "separator")


@group.command("new")
@fields_in_options(Spec, _OF_TABLES)
def new(
    *,
    given: Any,
    setting: Annotated[str, typer.Option(metavar="|".join(SPECS), help="Setting of the audit.")] = "horizontal",
    study: Annotated[str | None, typer.Option(hidden=True)] = None,
    out: Annotated[Path, typer.Option(help="File to write; one that is there already is left alone.")] = Path(
        "audit.yaml"
    ),
) -> None:
    """Write a first audit document, with comments that say what can be changed.

    [bold]Examples[/bold]

        seepage spec new --data people.csv --target outcome --out audit.yaml

        seepage spec new --setting split --dataset adult --out split.yaml
    """
    if study is not None:
        told(f"--study is now --setting {study}; {GOES}")
        setting = study
    [dataset] = given.pop("dataset", [None])
    if "target" in given and "data" not in given:
        raise BadInputError("--target names a column of a table of your own; add the file: --data FILE.")
    if out.exists():
        raise BadInputError(f"{str(out)!r} is there already; choose another --out, or take it away first.")
    write_whole(out, starter(setting, dataset, out=out, **given))
    print(f"Written: {clean(out, 200)}. Check it with: seepage spec check {clean(out, 200)}")


@group.command("check")
def check(
    document: Annotated[Path, typer.Argument(help="Audit document.")],
) -> None:
    """Say what a document would run, and about how long it would take on this machine.

    Every mistake is named with its line and key (exit status 2). Where there is none, each configuration of horizontal
    learning is tried for a moment, which shows that it can be run, and how fast. Documents of split, vertical and
    pooled learning are only read. Nothing is kept.

    [bold]Example[/bold]

        seepage spec check audit.yaml
    """
    console = make_console()
    specs = read_text_document(read_text(document), str(document), document.parent)
    try:
        if not isinstance(specs[0], HorizontalSpec):
            for spec in specs:
                _show_study(console, document, *load_study(spec))
            return
        subjects = Subjects()
        audits = [(spec, subjects.of(spec)) for spec in cast("list[HorizontalSpec]", specs)]
    except BadInputError as error:
        raise BadInputError(error.worded(lambda remedy: as_key(remedy, type(specs[0])))) from error
    controls = [control_of(spec, subject) for spec, subject in audits if spec.control]
    found = forecast([*audits, *controls])
    console.print(_table(found))
    console.print(Text(_summary(document, found)))


def _show_study(console: Console, document: Path, spec: Spec, study: Study) -> None:
    limit = spec.gate
    if limit is not None:
        check_gate(limit.above, limit.column, study.columns)
    parts = [part for part in study.parts if part.kind != "about"]
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for name in ("defense", "attacks", "baselines"):
        grid.add_column(name)
    for defense in study.defenses:
        listed = (
            ", ".join(clean(part.called, 60) for part in parts if part.kind == kind) for kind in ("attack", "guess")
        )
        grid.add_row(Text(clean(defense, 40)), *map(Text, listed))
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
