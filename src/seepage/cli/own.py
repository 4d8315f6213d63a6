"""What the options about a table of one's own have in common."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
import yaml

from seepage.datasets import Dataset
from seepage.errors import BadInputError, unknown_name
from seepage.settings.horizontal_spec import make_spec
from seepage.settings.subject import load_rows
from seepage.tabular.infer import Policy

# Options of the commands that take a table besides ``seepage audit``.
DatasetName = Annotated[str, typer.Option(help="Name of a dataset; seepage datasets lists them.")]
DatasetOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="Argument of the dataset, such as missing=drop.")
]
OwnTable = Annotated[Path | None, typer.Option(help="A table of your own: .csv, .csv.gz or .parquet.")]
OwnTarget = Annotated[str | None, typer.Option(help="That table's column to be learnt.")]
OwnSchema = Annotated[Path | None, typer.Option(help="YAML schema of that table.")]
OwnMissing = Annotated[str | None, typer.Option(help="Missing cells of that table: refuse, drop or category.")]
OwnDrop = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN", help="Column of that table to leave out. Repeatable.")
]
DataFolder = Annotated[Path | None, typer.Option(help="Where files of datasets lie.")]

OVERRIDE = "discrete or continuous, or fields in YAML: 'age={low: 0, high: 110}'. Repeatable."
MISSING = (
    "Cells that are missing: refuse the table (default), drop the rows that have one, or take them as a category of "
    "their own and as the median of numbers."
)
OwnOverride = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN=KIND", help=f"What a column of that table is: {OVERRIDE}")
]
MOST_CATEGORIES = (
    f"How many different values a discrete column keeps; the rarest beyond are taken together as (other), which the "
    f"attacker then guesses as one. Default: {Policy.most_categories}, fewer in tables that would get too wide."
)
OwnMostCategories = Annotated[int | None, typer.Option(help=MOST_CATEGORIES)]
OwnSeparator = Annotated[
    str | None, typer.Option(metavar="CHARACTER", help="Between the cells of that table's CSV file. Default: a comma.")
]


def read_override(text: str) -> tuple[str, dict[str, Any]]:
    """Read COLUMN=KIND or COLUMN={field: value} of the command line.

    Raises:
        BadInputError: it is neither.

    Example:
        >>> read_override("age={low: 0}")
        ('age', {'low': 0})
    """
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


def read_dataset_option(text: str) -> tuple[str, Any]:
    """Read NAME=VALUE of the command line.

    Raises:
        BadInputError: it is none.

    Example:
        >>> read_dataset_option("missing=category"), read_dataset_option("test_share=0.1")
        (('missing', 'category'), ('test_share', 0.1))
    """
    name, equals, said = text.partition("=")
    if not name or not equals:
        raise BadInputError(f"--dataset-option takes NAME=VALUE, such as missing=category, got {text!r}.")
    try:
        value = yaml.safe_load(said)
    except yaml.YAMLError:
        value = said
    # Bare words and numbers are what YAML makes of them; anything richer is taken as it is written.
    return name, value if isinstance(value, bool | int | float | str) else said


# What messages about a table say of options, and how a document says it.
_KEYS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"pass separator=(.+?), on the command line --separator \1", r"say separator: \1"),
    (r"--drop \S+(?: --drop \S+)*(?=\))", lambda found: f"drop: [{', '.join(found[0].split()[1::2])}]"),
    (r"--missing (\w+)", r"missing: \1"),
    (r"--override (\S+)=(\w+)", r"overrides: {\1: \2}"),
    (r"\(--override\)", "(overrides)"),
    (r"\(--most-categories\)", "(most_categories)"),
)


@contextmanager
def of_document(is_document: bool = True) -> Iterator[None]:
    """Have messages about a table name the keys of a document, where it is one that names the table, and no options.

    Raises:
        BadInputError: whatever was raised inside, so worded.
    """
    try:
        yield
    except BadInputError as error:
        if not is_document or type(error) is not BadInputError:
            raise
        raise BadInputError(as_keys(str(error))) from error


def as_keys(message: str) -> str:
    """Return a message with the options about a table turned into the keys of a document.

    Example:
        >>> as_keys("drop them (--drop a --drop b), or add --missing category")
        'drop them (drop: [a, b]), or add missing: category'
    """
    for option, key in _KEYS:
        message = re.sub(option, key, message)
    return message


@dataclass(frozen=True)
class Own:
    """What the options about a table of one's own say, a field each; see :func:`with_own_table`."""

    data: OwnTable = None
    target: OwnTarget = None
    schema: OwnSchema = None
    missing: OwnMissing = None
    drop: OwnDrop = None
    override: OwnOverride = None
    most_categories: OwnMostCategories = None
    separator: OwnSeparator = None

    def load(self, dataset: str, data_folder: Path | None, options: Sequence[str] | None = None) -> Dataset:
        """Return the rows of the table, or of a dataset where none is named.

        Args:
            dataset: its name.
            data_folder: where files of datasets lie.
            options: arguments of the dataset, NAME=VALUE each.

        Raises:
            BadInputError: they cannot be read, or an option is wrong.
        """
        settings = {
            "dataset_options": dict(map(read_dataset_option, options or [])) or None,
            "data": self.data,
            "target": self.target,
            "schema_file": self.schema,
            "missing": self.missing,
            "data_folder": data_folder,
            "drop": list(self.drop or []) or None,
            "overrides": dict(map(read_override, self.override or [])) or None,
            "most_categories": self.most_categories,
            "separator": self.separator,
        }
        spec = make_spec(dataset=dataset, **{name: value for name, value in settings.items() if value is not None})
        return load_rows(spec)[0]


def with_own_table(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with an option for each field of :class:`Own` in the place of its parameter ``own``."""

    @functools.wraps(command)
    def taking(**values: Any) -> None:
        own = Own(**{one.name: values.pop(one.name) for one in fields(Own)})
        command(own=own, **values)

    hints = get_type_hints(Own, include_extras=True)
    options = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
        for one in fields(Own)
    ]
    given: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        given += options if parameter.name == "own" else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    # The command line is made of these two.
    taking.__signature__ = inspect.Signature(given)  # pyright: ignore[reportAttributeAccessIssue]
    taking.__annotations__ = {parameter.name: parameter.annotation for parameter in given}
    return taking
