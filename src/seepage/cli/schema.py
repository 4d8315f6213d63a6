"""``seepage schema``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from seepage.cli.app import app
from seepage.cli.own import MISSING, MOST_CATEGORIES, OVERRIDE, read_override
from seepage.errors import check_choice
from seepage.files import write_whole
from seepage.report import make_console
from seepage.report.inferred import show_inferred
from seepage.tabular.infer import Missing, Policy, infer
from seepage.tabular.reading import open_table


@app.command()
def schema(
    file: Annotated[Path, typer.Argument(help="The table: .csv, .csv.gz or .parquet.")],
    target: Annotated[str, typer.Option(help="The column that the model learns.")],
    out: Annotated[Path | None, typer.Option(help="Write the YAML there instead of printing it.")] = None,
    sensitive: Annotated[list[str] | None, typer.Option(help="Column that reports single out. Repeatable.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out. Repeatable.")] = None,
    separator: Annotated[str, typer.Option(help="Between the cells of a CSV file.")] = ",",
    override: Annotated[list[str] | None, typer.Option(metavar="COLUMN=KIND", help=OVERRIDE)] = None,
    missing: Annotated[str, typer.Option(metavar="refuse|drop|category", help=MISSING)] = "refuse",
    most_categories: Annotated[
        int, typer.Option(help=MOST_CATEGORIES, min=2, show_default=False)
    ] = Policy.most_categories,
) -> None:
    """Draft the schema of a table: which columns are discrete, their categories, bounds and tolerances.

    What each column was taken for, and why, goes to the error stream. Read it before you audit: bounds are those of
    the rows at hand, and whole numbers with at most ten different values are taken for categories. Identifiers are left
    out.

    [bold]Example[/bold]

        seepage schema patients.csv --target readmitted --override zip=discrete --out patients.yaml

        seepage audit --data patients.csv --schema patients.yaml
    """
    check_choice("policy for missing cells:", missing, Missing)
    policy = Policy(
        sensitive=tuple(sensitive or ()),
        drop=tuple(drop or ()),
        overrides=dict(map(read_override, override or [])),
        missing=cast(Missing, missing),
        most_categories=most_categories,
    )
    inferred = infer(open_table(file, separator), target, policy)
    found = inferred.schema
    if out is None:
        print(found.to_yaml(), end="")
    else:
        # A schema holds cells of the table: every category, and the extremes of every number.
        write_whole(out, found.to_yaml(), private=True)
        print(f"{len(found.columns)} columns and the target {target!r} written to {out}")
    show_inferred(make_console(stderr=True), inferred)
