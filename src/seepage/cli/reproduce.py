"""``seepage reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seepage.cli.app import app, interruptible
from seepage.cli.exits import Exit, shown_path
from seepage.cli.options import Cluster, ClusterCa, ClusterCert, ClusterKey, ClusterOptions, InsecureCluster
from seepage.errors import BadInputError
from seepage.report.document import Grid, heads, rows_of
from seepage.report.progress import Bar
from seepage.report.terminal import make_console, say, show
from seepage.reproduce.page import table_document
from seepage.reproduce.reproduce import FIGURE, FILE, Selection
from seepage.reproduce.reproduce import reproduce as run_table
from seepage.reproduce.table import load_table, tables
from seepage.settings.catalogue import setting


@app.command()
def reproduce(
    table: Annotated[str | None, typer.Argument(help="Name of the table; --list lists them.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the tables.")] = False,
    repetitions: Annotated[
        int | None,
        typer.Option(
            "--victims",
            "--repetitions",
            metavar="N",
            help="Repetitions of each audit: batches attacked in each cell, trainings or attack seeds. "
            "Default: those of the table, 20 batches or 2 to 5 others.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A quick look: 3 batches a cell, or 1 or 2 repetitions with few records.")
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
    time_budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time after which no further job is begun, such as 30m or 2h.")
    ] = None,
    cluster: Cluster = None,
    cluster_ca: ClusterCa = None,
    cluster_cert: ClusterCert = None,
    cluster_key: ClusterKey = None,
    insecure_cluster: InsecureCluster = False,
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
        rows = [(published.name, published.title, published.source) for published in tables().values()]
        say(Grid("", heads("name", "what", "printed in"), rows_of(rows), most=None))
        return
    if quick and repetitions is not None:
        raise BadInputError("--quick is a number of batches, and so is --victims; give one of the two.")
    chosen = load_table(table)
    folder = out or Path("runs") / table.replace("/", "-")
    given = {"device": device, "threads": threads, "workers": workers, "data_folder": data_folder}
    given |= {"time_budget": time_budget}
    fields = {
        **(setting(chosen.setting).spec.quick if quick else {}),
        **{name: value for name, value in given.items() if value is not None},
    }
    selection = Selection(batch_size or (), attack or (), part or (), labels or (), _chosen_axes(only or []))
    errors = make_console(stderr=True)
    elsewhere = ClusterOptions(cluster, cluster_ca, cluster_cert, cluster_key, insecure_cluster)
    with elsewhere.connect() as machines, Bar(errors) as bar:
        comparison = interruptible(
            lambda: run_table(
                chosen,
                folder,
                repetitions,
                selection,
                bar,
                run_missing=not compare_only,
                say=lambda what: errors.print(f"{what} ...", style="dim"),
                machines=machines,
                **fields,
            ),
            folder,
        )
    show(make_console(), table_document(comparison))
    # Where nothing is run, nothing is written.
    if not compare_only:
        print(f"Comparison: {shown_path(folder / FILE)}")
        if (folder / FIGURE).exists():
            print(f"Figure: {shown_path(folder / FIGURE)}")
    if comparison.failed:
        raise typer.Exit(Exit.JOBS_FAILED)


def _chosen_axes(only: list[str]) -> dict[str, list[str]]:
    chosen: dict[str, list[str]] = {}
    for text in only:
        axis, equals, value = text.partition("=")
        if not equals or not axis or not value:
            raise BadInputError(f"--only takes an axis of the table and a value, such as dataset=adult; got {text!r}.")
        chosen.setdefault(axis.strip(), []).append(value.strip())
    return chosen
