"""Schema of a table: columns, domains and tolerances; public knowledge in every threat model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from yaml.emitter import ScalarAnalysis

from seepage.errors import BadInputError, unknown_name
from seepage.files import load_yaml, read_text
from seepage.text import steers

# Integers up to here survive standardisation in float64 and back (the error stays below 0.5).
LARGEST_INTEGER = 2.0**48
# Up to here differences, and moments taken on a rescaled column, stay finite in float64.
LARGEST_BOUND = 1e300


def _plain(value: object) -> object:
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, bool | int | float | str):
        raise ValueError(
            f"{value!r} is of type {type(value).__name__}, a category must be a text, a number or a boolean; "
            "turn it into text (in YAML: put it in quotes)"
        )
    return value


Category = Annotated[bool | int | float | str, BeforeValidator(_plain)]


class _Column(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    sensitive: bool = False
    unit: str | None = None


class Discrete(_Column):
    """A column with a finite list of categories.

    Attributes:
        categories: every value that may occur, in a fixed order; a cell's code is its position.
        other: the category that takes every cell which is none of them; None where such cells are refused.
        missing: the category that takes missing cells; None where they are refused.
        sensitive, unit: whether a report singles the column out, and the unit of measurement that it shows.
    """

    kind: Literal["discrete"] = "discrete"
    categories: tuple[Category, ...]
    other: Category | None = None
    missing: Category | None = None

    @property
    def width(self) -> int:
        """Number of encoded columns (one per category)."""
        return len(self.categories)

    @property
    def sorted_codes(self) -> list[int]:
        """Codes in the sorted order of their categories, as label encoders number them."""
        numbers = all(isinstance(category, int | float) for category in self.categories)
        return sorted(range(self.width), key=lambda i: self.categories[i] if numbers else str(self.categories[i]))

    @model_validator(mode="after")
    def _check(self) -> Discrete:
        if not self.categories:
            raise ValueError(f"column {self.name!r}: categories must list at least one value, got none")
        known: dict[Category, Category] = {}
        for category in self.categories:
            if isinstance(category, float) and not math.isfinite(category):
                raise ValueError(
                    f"column {self.name!r}: category {category!r} is not finite; "
                    "give missing values a category of their own, such as '?'"
                )
            if category in known:
                raise ValueError(
                    f"column {self.name!r}: categories {known[category]!r} and {category!r} are equal; list each once"
                )
            known[category] = category
        for role in ("other", "missing"):
            chosen = getattr(self, role)
            if chosen is not None and chosen not in known:
                raise ValueError(f"column {self.name!r}: {role} must be one of its categories, got {chosen!r}")
        return self


class Continuous(_Column):
    """A column of numbers within bounds.

    Attributes:
        low, high: inclusive bounds, in the column's own unit.
        tolerance: largest distance from the truth at which a guess counts as right (TabLeak Eq. 6; 0.319 standard
            deviations there).
        integer: whether only whole numbers occur.
        missing: the number that missing cells are filled with; None where they are refused.
        sensitive, unit: whether a report singles the column out, and the unit of measurement that it shows.
    """

    kind: Literal["continuous"] = "continuous"
    low: float
    high: float
    tolerance: float = Field(ge=0)
    integer: bool = False
    missing: float | None = None

    @property
    def width(self) -> int:
        """Number of encoded columns (always 1)."""
        return 1

    @model_validator(mode="after")
    def _check(self) -> Continuous:
        for bound in (self.low, self.high, self.tolerance):
            if not abs(bound) <= LARGEST_BOUND:
                raise ValueError(
                    f"column {self.name!r}: bounds and tolerance must be finite and at most {LARGEST_BOUND:g} "
                    f"in size, got {bound!r}; measure the column in a larger unit"
                )
        if self.low > self.high:
            raise ValueError(f"column {self.name!r}: low {self.low} is above high {self.high}; swap them")
        if self.integer:
            for bound in (self.low, self.high):
                if bound != round(bound) or abs(bound) > LARGEST_INTEGER:
                    raise ValueError(
                        f"column {self.name!r}: bounds of an integer column must be whole numbers "
                        f"of at most 2**48 in size, got {bound!r}; set integer: false or mend the bound"
                    )
        fill = self.missing
        if fill is not None and not (self.low <= fill <= self.high and (not self.integer or fill == round(fill))):
            raise ValueError(
                f"column {self.name!r}: missing must be a {'whole ' if self.integer else ''}number from {self.low} to "
                f"{self.high}, got {fill!r}; mend it or widen the bounds"
            )
        return self


Column = Annotated[Discrete | Continuous, Field(discriminator="kind")]


class Schema(BaseModel):
    """The columns of a table, in order, and its target: discrete for a classification, continuous for a regression."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: tuple[Column, ...]
    target: Column

    @model_validator(mode="after")
    def _check(self) -> Schema:
        if not self.columns:
            raise ValueError("a schema needs at least one column besides its target, got none")
        names = [column.name for column in self.columns] + [self.target.name]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"column names must be unique (target included), these repeat: {', '.join(repeated)}")
        return self

    @cached_property
    def width(self) -> int:
        """Number of encoded columns, ``d`` in the papers."""
        return sum(column.width for column in self.columns)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, the target excluded."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def discrete(self) -> tuple[int, ...]:
        """Positions of the discrete columns."""
        return tuple(i for i, column in enumerate(self.columns) if isinstance(column, Discrete))

    @cached_property
    def continuous(self) -> tuple[int, ...]:
        """Positions of the continuous columns."""
        return tuple(i for i, column in enumerate(self.columns) if isinstance(column, Continuous))

    @cached_property
    def blocks(self) -> tuple[slice, ...]:
        """For each column, the slice of the encoded row that it takes."""
        slices, start = [], 0
        for column in self.columns:
            slices.append(slice(start, start + column.width))
            start += column.width
        return tuple(slices)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Schema:
        """Return a copy, with other values of some fields."""
        copied = super().model_copy(update=update, deep=deep)
        # What follows from the columns is found anew.
        attributes: dict[str, object] = vars(copied)
        for name in attributes.keys() - type(self).model_fields:
            del attributes[name]
        return copied

    def column(self, name: str) -> Discrete | Continuous:
        """Return the column named ``name``, the target included."""
        for column in (*self.columns, self.target):
            if column.name == name:
                return column
        raise unknown_name("column", name, (*self.names, self.target.name))

    def to_yaml(self) -> str:
        """Return the schema as YAML text; ``from_yaml`` reads it back unchanged."""
        content = self.model_dump(mode="json")
        for column in (*content["columns"], content["target"]):
            for role in ("other", "missing"):
                if column.get(role, False) is None:
                    del column[role]
        return yaml.dump(content, Dumper=_Dumper, sort_keys=False)

    @classmethod
    def from_yaml(cls, text: str) -> Schema:
        """Read a schema from YAML text, or raise a ``BadInputError`` that names each bad key."""
        try:
            return cls.model_validate(load_yaml(text, "the schema"))
        except ValidationError as error:
            raise unusable_schema(error) from error

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema from a YAML file."""
        try:
            return cls.from_yaml(read_text(Path(path), f"the schema file {str(path)!r}"))
        except (OSError, UnicodeDecodeError) as error:
            raise BadInputError(
                f"the schema file {str(path)!r} cannot be read: {error}; give the path of a UTF-8 YAML file."
            ) from error


class _Dumper(yaml.SafeDumper):
    """Writes letters of all scripts as they are, and a text that would steer a terminal in escapes."""

    def analyze_scalar(self, scalar: str) -> ScalarAnalysis:
        # PyYAML keeps what it takes for printable, marks of writing direction among it.
        self.allow_unicode = not steers(scalar)
        return super().analyze_scalar(scalar)


def unusable_schema(error: ValidationError, what: str = "the schema") -> BadInputError:
    """Return pydantic's findings about a schema, or another part of one, as one paragraph that names each bad key."""
    problems = [
        f"{'.'.join(map(str, problem['loc'])) or 'schema'}: {problem['msg'].removeprefix('Value error, ')}"
        for problem in error.errors()
    ]
    named = list(dict.fromkeys(problems))
    more = f"; and {len(named) - 5} more" if len(named) > 5 else ""
    return BadInputError(f"{what} cannot be used: {'; '.join(named[:5])}{more}.")
