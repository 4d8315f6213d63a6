"""``seepage correlate``: which columns betray a sensitive one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from seepage.cli.app import app
from seepage.cli.options import fields_in_options
from seepage.config.wording import as_option
from seepage.datasets.dataset import Dataset
from seepage.digests import Json
from seepage.errors import BadInputError
from seepage.files import write_whole
from seepage.report.document import MISSING, Document, Grid, Section, heads, rows_of
from seepage.report.inferred import inferred_document
from seepage.report.terminal import make_console, show
from seepage.settings.horizontal.spec import HorizontalSpec
from seepage.settings.spec import Spec
from seepage.settings.units import load_rows
from seepage.tabular.correlation import ColumnAssociation, associations
from seepage.tabular.together import Together, together
from seepage.text import clean

_MEASURES = {
    "cramers_v": "Cramér's V",
    "point_biserial": "point-biserial",
    "pearson": "Pearson",
    "anova": "eta (ANOVA)",
}
_JOINT = {"auc": "AUC", "r2": "R²"}
OF_TABLES = (
    *("dataset", "dataset_options", "data_folder", "data", "target", "schema_file", "missing", "drop", "overrides"),
    *("most_categories", "separator", "encoding", "day_first"),
)


def table_given(given: dict[str, Json], usual: str) -> tuple[Spec, Dataset]:
    """Return the table that options name, or the usual one; what was inferred of it is shown."""
    # A name is swept over elsewhere.
    names = given.pop("dataset", [usual])
    assert isinstance(names, list)
    if len(names) > 1:
        raise BadInputError(f"one table at a time, got --dataset {' --dataset '.join(map(str, names))}.")
    spec = HorizontalSpec.of(**given, **({} if "data" in given else {"dataset": names[0]}))
    loaded, inferred = load_rows(spec)
    if inferred is not None:
        show(make_console(stderr=True), inferred_document(inferred, wording=as_option))
    return spec, loaded


@app.command()
@fields_in_options(Spec, OF_TABLES)
def correlate(
    sensitive: Annotated[list[str], typer.Option(help="The column to be kept secret. Repeatable.")],
    *,
    given: dict[str, Json],
    out: Annotated[Path | None, typer.Option(help="Write the figures there as JSON.")] = None,
) -> None:
    """Show which columns of a table betray a sensitive one, before anything is trained.

    Of two columns of categories this is Cramér's V, of a column of numbers and one of two categories the point-biserial
    correlation, of more categories the correlation ratio of an analysis of variance, of two columns of numbers
    Pearson's correlation. Notable is more than 0.15, of the point-biserial 0.1, of Pearson's 0.4, as in Zhang, Tople
    and Ohrimenko (2021). A joint model can leak the distribution of a column that it is not even trained on, through
    the columns marked here or through the target.

    A last row says how well all other columns together tell of it: boosted trees, on rows that they were not fitted to,
    with a 95% interval.

    [bold]Examples[/bold]

        seepage correlate --sensitive sex --sensitive income --dataset-option missing=drop

        seepage correlate --data people.csv --target outcome --sensitive smoker
    """
    spec, loaded = table_given(given, "adult_education")
    by_sensitive = {name: associations(loaded.all, name) for name in dict.fromkeys(sensitive)}
    jointly = {name: together(loaded.all, name) for name in by_sensitive}
    target = loaded.schema.target.name
    show(make_console(), _document(loaded, by_sensitive, jointly, target))
    if out is not None:
        content = {
            name: [{**asdict(column), "notable": column.notable} for column in columns]
            + [{**asdict(joint), "column": None, "notable": joint.notable} for joint in (jointly[name],) if joint]
            for name, columns in by_sensitive.items()
        }
        write_whole(out, json.dumps(content, indent=1, ensure_ascii=False) + "\n", private=spec.data is not None)


def _document(
    loaded: Dataset,
    by_sensitive: Mapping[str, Sequence[ColumnAssociation]],
    jointly: Mapping[str, Together | None],
    target: str,
) -> Document:
    """Return the columns that betray each sensitive one, and all of them together."""
    columns = heads("column", "measure", "strength", "p", "notable", numbers=("strength", "p"))
    sections = []
    for name, associated in by_sensitive.items():
        lines = [
            (
                clean(column.column) + (" (target)" if column.column == target else ""),
                _MEASURES[column.measure],
                MISSING if column.value is None else f"{column.value:.3f}",
                MISSING if column.pvalue is None else f"{column.pvalue:.1e}",
                "yes" if column.notable else "",
            )
            for column in associated
        ]
        joint = jointly[name]
        if joint is not None:
            strength = f"{joint.value:.3f} [{joint.low:.3f}, {joint.high:.3f}]"
            measure, notable = f"held-out {_JOINT[joint.measure]}", "yes" if joint.notable else ""
            lines.append(("all others together", measure, strength, MISSING, notable))
        title = f"{clean(loaded.name)}: associated with {clean(name)}, {len(loaded.all):,} rows"
        words = _summary(name, associated, target, joint)
        sections.append(Section("", "", [Grid(title, columns, rows_of(lines), most=None), words]))
    return Document("Correlated columns", sections)


def _summary(name: str, columns: Sequence[ColumnAssociation], target: str, joint: Together | None) -> str:
    betraying = [column.column for column in columns if column.notable and column.column != target]
    learnt = any(column.notable for column in columns if column.column == target)
    others = sum(column.column != target for column in columns)
    share = f"{len(betraying)} of {others} columns" + (" and the target" if learnt else "")
    advice = (
        "models can leak its distribution even if it is left out"
        if betraying or learnt
        else "no single column betrays it, but all together do"
        if joint is not None and joint.notable
        else "no single column betrays it, and nothing shows that several together do"
    )
    return f"Notably associated with {clean(name)}: {share}; {advice}."
