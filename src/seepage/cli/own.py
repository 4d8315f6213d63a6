"""What the options about a table of one's own have in common."""

from __future__ import annotations

from typing import Any

import yaml

from seepage.errors import BadInputError, unknown_name
from seepage.tabular.infer import Policy

OVERRIDE = "discrete or continuous, or fields in YAML: 'age={low: 0, high: 110}'. Repeatable."
MISSING = (
    "Cells that are missing: refuse the table (default), drop the rows that have one, or take them as a category of "
    "their own and as the median of numbers."
)
MOST_CATEGORIES = (
    f"Of a column; the rarest beyond are taken together as (other). Default: {Policy.most_categories}, fewer in tables "
    "that would get too wide."
)


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
