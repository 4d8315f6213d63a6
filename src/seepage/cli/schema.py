"""``seepage schema``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from seepage.audit import write_whole
from seepage.cli.app import app
from seepage.errors import BadInputError, unknown_name
from seepage.tabular.infer import infer_schema


@app.command()
def schema(
    file: Annotated[Path, typer.Argument(help="The table: .csv, .csv.gz or .parquet.")],
    target: Annotated[str, typer.Option(help="The column that the model learns.")],
    out: Annotated[Path | None, typer.Option(help="Write the YAML there instead of printing it.")] = None,
    sensitive: Annotated[list[str] | None, typer.Option(help="Column that reports single out. Repeatable.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out. Repeatable.")] = None,
    separator: Annotated[str, typer.Option(help="Between the cells of a CSV file.")] = ",",
    override: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=KIND",
            help="discrete or continuous, or fields in YAML: 'age={low: 0, high: 110}'. Repeatable.",
        ),
    ] = None,
) -> None:
    """Draft the schema of a table: which columns are discrete, their categories, bounds and tolerances.

    Read it before you audit: bounds are those of the rows at hand, and a number with few values is taken for
    categories.

    [bold]Example[/bold]

        seepage schema patients.csv --target readmitted --override zip=discrete --out patients.yaml

        seepage audit --data patients.csv --schema patients.yaml
    """
    found = infer_schema(
        file,
        target,
        sensitive=sensitive or (),
        drop=drop or (),
        overrides=dict(map(_override, override or [])),
        separator=separator,
    )
    if out is None:
        print(found.to_yaml(), end="")
    else:
        # A schema holds cells of the table: every category, and the extremes of every number.
        write_whole(out, found.to_yaml(), private=True)
        print(f"{len(found.columns)} columns and the target {target!r} written to {out}")


def _override(text: str) -> tuple[str, dict[str, Any]]:
    column, equals, said = text.partition("=")
    try:
        fields = yaml.safe_load(said)
    except yaml.YAMLError:
        fields = None
    if isinstance(fields, str):
        if fields not in ("discrete", "continuous"):
            raise unknown_name(f"kind of column {column!r}:", fields, ("discrete", "continuous"))
        fields = {"kind": fields}
    if not equals or not isinstance(fields, dict):
        raise BadInputError(
            f"--override takes COLUMN=discrete, COLUMN=continuous or COLUMN={{field: value, ...}}, got {text!r}."
        )
    return column, fields
