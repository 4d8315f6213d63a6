"""Named causes of figures that differ from the print; ``docs/discrepancies.md`` describes each."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from seepage.reproduce.table import Place, PublishedTable
from seepage.results.agreement import Direction, Judgement

# A difference beyond this has a cause in any case, also where it is not shown.
FAR = 0.2
# Reasons why a cell cannot be judged.
SOMETHING_ELSE, NO_SPAN = "of other data or another measure", "one number over all batches, without a deviation"
WIDE_PRINT, NONE_OF_OURS = "the print's own deviation is wider than the margin", "not defined for ours"


class Cause(BaseModel):
    """One cause, by its code in ``docs/discrepancies.md``, and the cells that it is named for.

    Those lie in ``tables`` ``at`` values on axes, each one or a list, on one side of the print or, if None, on both.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str
    tables: tuple[str, ...]
    at: dict[str, Any] = Field(default_factory=dict)
    direction: Direction | None = None

    def names(self, table: PublishedTable, place: Place, direction: Direction) -> bool:
        """Return whether this is the cause of a cell's difference."""
        return (
            table.name in self.tables
            and self.direction in (None, direction)
            and all(str(place.get(axis)) in _texts(values) for axis, values in self.at.items())
        )


class Causes(BaseModel):
    """All causes, with short names by code; the first that fits a cell is the cell's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    names: dict[str, str]
    cells: tuple[Cause, ...]


@cache
def causes() -> Causes:
    """Return all causes."""
    text = (resources.files("seepage.reproduce") / "causes.yaml").read_text("utf-8")
    return Causes.model_validate(yaml.safe_load(text))


def cause_of(table: PublishedTable, place: Place, difference: float, judgement: Judgement) -> str | None:
    """Return the code of the cause why ours lies beyond the print's margin, or more than 20 points off."""
    if judgement.direction is None and abs(difference) <= FAR:
        return None
    direction: Direction = "below" if difference < 0 else "above"
    return next((cause.code for cause in causes().cells if cause.names(table, place, direction)), None)


def _texts(values: object) -> set[str]:
    return {str(value) for value in (values if isinstance(values, list) else [values])}
