"""Choices in how the schema of a table is inferred. Nothing here imports pandas."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from seepage.errors import BadInputError, check_choice, check_count

Missing = Literal["refuse", "drop", "category"]
# Ends of the names of tables that can be read.
UTF8 = "utf-8"
# Beginning of the note on what was guessed of columns.
GUESSED = "guessed of columns:"
SUFFIXES = (".csv", ".csv.gz", ".csv.zip", ".tsv", ".tsv.gz", ".tsv.zip", ".parquet", ".feather", ".xlsx", ".xls")


def checked_encoding(name: str) -> str:
    """Return the usual name of an encoding of texts."""
    try:
        "".encode(name)
        return codecs.lookup(name).name
    except (LookupError, ValueError) as error:
        raise BadInputError(
            f"unknown encoding {name!r}; give utf-8, cp1252 (Western European, Windows), latin-1 or utf-16, for "
            "example."
        ) from error


def _read_overrides(overrides: object) -> dict[str, Mapping[str, object]]:
    """Return the fields to set by column; a text stands for a kind, as in ``{"age": "discrete"}``."""
    if not isinstance(overrides, Mapping):
        raise BadInputError(
            f"overrides is a dict of columns, such as {{'age': 'discrete'}}, got a {type(overrides).__name__}."
        )
    read = dict[str, Mapping[str, object]]()
    for name, fields in overrides.items():
        if isinstance(fields, str):
            read[name] = {"kind": fields}
        elif isinstance(fields, Mapping):
            read[name] = fields
        else:
            raise BadInputError(
                f"the override of column {name!r} is a kind ('discrete' or 'continuous') or a dict of fields, such as "
                f"{{'low': 0}}, got a {type(fields).__name__}."
            )
    return read


@dataclass(frozen=True)
class Policy:
    """Choices in the inference of a schema.

    Attributes:
        overrides: for each column, fields of ``Discrete`` or ``Continuous`` to set instead of the inferred ones. An
            overridden column is kept even if it has one value or looks like an identifier.
        sensitive: columns that a report singles out.
        drop: columns to leave out.
        missing: ``refuse`` missing cells; ``drop`` the rows that have one; or take them as a ``category`` of their own,
            in columns of numbers as the median, and drop rows without a target.
        most_categories: largest number of categories of a discrete column; the rarest beyond it are merged as
            ``(other)``.
        most_encoded: number of encoded columns of the table above which ``most_categories`` is lowered, to 20 at least.
        tolerance_factor: tolerance of a continuous column in standard deviations.
        discrete_at_most: largest number of different whole numbers that are taken as categories.
        keep_dummies: whether one-hot encoded columns stay as they are, instead of one column of categories a group.
        day_first: whether the day is before the month in columns of dates that leave it open, such as ``05/12/2020``;
            such columns are refused if None.
        beside: columns that are read as they are, beside the table: texts, or identifiers of nodes.
        only: columns that are kept beside the target; all if empty.
    """

    overrides: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    sensitive: Iterable[str] = ()
    drop: Iterable[str] = ()
    missing: Missing = "refuse"
    most_categories: int = 100
    most_encoded: int = 1000
    tolerance_factor: float = 0.319
    discrete_at_most: int = 10
    keep_dummies: bool = False
    day_first: bool | None = None
    beside: Iterable[str] = ()
    only: Iterable[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "overrides", _read_overrides(self.overrides))
        for name in ("sensitive", "drop", "beside", "only"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        check_choice("policy for missing cells:", self.missing, Missing)
        check_count("most_encoded", self.most_encoded)
        if not isinstance(self.most_categories, int) or self.most_categories < 2:
            raise BadInputError(
                f"most_categories is a whole number from 2 up (one for the rest), got {self.most_categories!r}."
            )
