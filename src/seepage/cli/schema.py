"""``seepage schema``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seepage.cli.app import app
from seepage.cli.exits import shown_path
from seepage.cli.options import fields_in_options
from seepage.config.wording import as_option
from seepage.digests import Json
from seepage.files import write_whole
from seepage.report.inferred import inferred_document
from seepage.report.terminal import make_console, show
from seepage.settings.horizontal.spec import HorizontalSpec
from seepage.settings.spec import Spec
from seepage.tabular.infer import infer
from seepage.tabular.policy import SUFFIXES
from seepage.tabular.reading import open_table

_OF_TABLES = (
    *("sensitive", "drop", "separator", "encoding", "day_first", "overrides", "missing", "most_categories"),
    "keep_dummies",
)


@app.command()
@fields_in_options(Spec, _OF_TABLES)
def schema(
    file: Annotated[Path, typer.Argument(help=f"The table: {', '.join(SUFFIXES)}.")],
    target: Annotated[str, typer.Option(help="Column that the model learns.")],
    *,
    given: dict[str, Json],
    out: Annotated[Path | None, typer.Option(help="File for the YAML, which is printed otherwise.")] = None,
) -> None:
    """Draft the schema of a table: which columns are discrete, their categories, bounds and tolerances.

    What each column was taken for, and why, goes to the error stream. Read it before you audit: bounds are those of
    the rows at hand, and whole numbers with at most ten different values are taken for categories. Identifiers are left
    out. What was guessed says so, with the option that changes it.

    [bold]Example[/bold]

        seepage schema patients.csv --target readmitted --override zip=discrete --out patients.yaml

        seepage audit --data patients.csv --schema patients.yaml
    """
    spec = HorizontalSpec.of(data=file, target=target, **given)
    inferred = infer(open_table(file, spec.separator, spec.encoding), target, spec.policy)
    inferred_schema = inferred.schema
    advice = "Write it to a file with --out, correct it and give it with --schema."
    if out is None:
        print(inferred_schema.to_yaml(), end="")
    else:
        # A schema holds cells of the table: every category. Extremes are rounded outwards.
        write_whole(out, inferred_schema.to_yaml(), private=True)
        name = inferred_schema.target.name
        print(f"{len(inferred_schema.columns)} columns and the target {name!r} written to {shown_path(out)}")
        advice = f"Correct {shown_path(out)} where it is wrong, and give it with --schema."
    document = inferred_document(inferred, all_columns=True, advice=advice, wording=as_option)
    show(make_console(stderr=True), document)
