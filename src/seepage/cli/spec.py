"""``seepage spec``: draft and check audit documents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seepage.audit import starter, write_whole
from seepage.cli.app import app
from seepage.errors import BadInputError
from seepage.report.text import clean

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
