"""The distance within which a number counts as read, in words."""

from __future__ import annotations

from collections.abc import Sequence

from seepage.tabular.formats import DAYS
from seepage.tabular.schema import Column, Continuous, Schema
from seepage.text import clean


def tolerances(schema: Schema, most: int = 12, attacked: Sequence[str] = ()) -> str:
    """Return a sentence with the distance within which a number counts as read, by column; empty without numbers.

    ``attacked`` names the columns that are attacked; all if empty.
    """
    numbers = [
        f"{clean(column.name, 32)} {tolerance(column)}"
        for column in schema.columns
        if isinstance(column, Continuous) and (not attacked or column.name in attacked)
    ]
    if not numbers:
        return ""
    more = f" and {len(numbers) - most} more columns, see the report" if len(numbers) > most else ""
    return f"A number counts as read within its tolerance: {', '.join(numbers[:most])}{more}."


def tolerance(column: Column) -> str:
    """Return the distance within which a cell counts as read; a category has to be the very one."""
    if not isinstance(column, Continuous):
        return "exact"
    # The distance between two dates is one of days.
    unit = "days" if column.unit == DAYS else (column.unit or "").partition(",")[0]
    return f"±{column.tolerance:.3g} {clean(unit, 24)}".strip()
