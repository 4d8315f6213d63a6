"""``seepage reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as Grid
from rich.text import Text

from seepage import reproduce as published
from seepage.cli.app import app, interruptible
from seepage.errors import BadInputError, unknown_name
from seepage.report.progress import Bar
from seepage.report.terminal import make_console
from seepage.settings.studies import study_kind


@app.command()
def reproduce(
    table: Annotated[str | None, typer.Argument(help="Name of the table; --list lists them.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the tables.")] = False,
    victims: Annotated[
        int | None,
        typer.Option(
            help="Batches attacked in each cell, or repetitions (trainings) of a table that a study measures. "
            "Default: 20, or 3."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A quick look: 3 batches in each cell, or 1 repetition with few records.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; what is there is not run again. Default: runs/TABLE.")
    ] = None,
    batch_size: Annotated[list[int] | None, typer.Option(help="Only these batch sizes. Repeatable.")] = None,
    attack: Annotated[list[str] | None, typer.Option(help="Only these attacks. Repeatable.")] = None,
    part: Annotated[
        list[str] | None, typer.Option(help="Only these runs of the table: faithful, default. Repeatable.")
    ] = None,
    labels: Annotated[
        list[str] | None, typer.Option(help="Only these labels: true, ordered, restored. Repeatable.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="AXIS=VALUE", help="Only this value on an axis of the table: dataset=adult. Repeatable."),
    ] = None,
    data_folder: Annotated[
        Path | None, typer.Option(help="Where files of data sets lie. Default: what SEEPAGE_DATA names.")
    ] = None,
    compare_only: Annotated[
        bool, typer.Option("--compare-only", help="Run nothing and write nothing; compare what is there.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    workers: Annotated[
        int | None, typer.Option(help="Processes that compute at the same time. Default: one a core.")
    ] = None,
    threads: Annotated[int, typer.Option(help="CPU threads of each process.")] = 1,
) -> None:
    """Run a published table and lay our figures beside the printed ones.

    A table is run as the paper ran it (part faithful) and with the strongest settings (part default), on the same
    victims. What has been measured is kept in the run folder; a stopped run continues, and parts can be run one after
    the other.

    [bold]Examples[/bold]

        seepage reproduce --list

        seepage reproduce tableak/table17 --victims 20 --out table17

        seepage reproduce tableak/table18 --batch-size 32 --attack tableak --victims 4

        seepage reproduce tableak/table16 --quick --only dataset=adult
    """
    if list_ or table is None:
        grid = Grid(box=None, pad_edge=False, header_style="bold")
        grid.add_column("name", no_wrap=True)
        grid.add_column("what")
        grid.add_column("printed in")
        for known in (*published.study_tables().values(), *published.tables().values()):
            grid.add_row(known.name, Text(known.title), Text(known.source))
        make_console().print(grid)
        return
    folder = out or Path("runs") / table.replace("/", "-")
    if quick and victims is not None:
        raise BadInputError("--quick is a number of batches, and so is --victims; give one of the two.")
    studies, tables = published.study_tables(), published.tables()
    if table in studies:
        study_table = studies[table]
        quickly = dict(study_kind(study_table.study).spec.quick) if quick else {}
        given = {
            "repetitions": victims,
            "data_folder": None if data_folder is None else str(data_folder),
            "threads": threads,
        }
        _study(
            study_table,
            folder,
            published.Selection(attacks=attack or (), runs=part or (), only=_axes(only or [])),
            {"batch_size": batch_size, "labels": labels},
            compare_only,
            {**quickly, **{name: value for name, value in given.items() if value is not None}},
        )
        return
    if table not in tables:
        raise unknown_name("table", table, [*tables, *studies])
    chosen = tables[table]
    number = victims if victims is not None else published.QUICK if quick else 20
    selection = published.Selection(batch_size or (), attack or (), part or (), labels or (), _axes(only or []))
    errors = make_console(stderr=True)
    with Bar(errors) as bar:
        comparison = interruptible(
            lambda: published.reproduce(
                chosen,
                folder,
                number,
                selection,
                bar,
                run_missing=not compare_only,
                say=lambda what: errors.print(f"{what} ...", style="dim"),
                device=device,
                threads=threads,
                workers=workers,
                data_folder=data_folder,
            ),
            folder,
        )
    _show(comparison, folder, compare_only)


def _study(
    table: published.StudyTable,
    folder: Path,
    selection: published.Selection,
    not_here: dict[str, object],
    compare_only: bool,
    settings: dict[str, Any],
) -> None:
    """Run a table that a study measures."""
    for name, given in not_here.items():
        if given:
            raise BadInputError(
                f"{table.name!r} is of a study ({table.study}) and has no choice of {name.replace('_', ' ')}; "
                "choose with --part, --attack and --only."
            )
    with Bar(make_console(stderr=True)) as bar:
        comparison = interruptible(
            lambda: published.reproduce_study(
                table, folder, selection=selection, listener=bar, run_missing=not compare_only, **settings
            ),
            folder,
        )
    _show(comparison, folder, compare_only)


def _show(comparison: published.Comparison, folder: Path, compare_only: bool) -> None:
    console = make_console()
    published.show_comparison(console, comparison)
    # Where nothing is run, nothing is written.
    if not compare_only:
        console.print(Text(f"Comparison: {folder / 'comparison.csv'}"))


def _axes(only: list[str]) -> dict[str, list[str]]:
    chosen: dict[str, list[str]] = {}
    for one in only:
        axis, equals, value = one.partition("=")
        if not equals or not axis or not value:
            raise BadInputError(f"--only takes an axis of the table and a value, such as dataset=adult; got {one!r}.")
        chosen.setdefault(axis.strip(), []).append(value.strip())
    return chosen
