"""Spans of time as people write them."""

from __future__ import annotations

import pandas as pd

from seepage.errors import BadInputError


def seconds(text: str) -> float:
    """Return a span of time such as ``90s``, ``30m`` or ``1h30m`` in seconds.

    Raises:
        BadInputError: it is no positive span.

    Example:
        >>> seconds("30m"), seconds("1h30m")
        (1800.0, 5400.0)
    """
    try:
        found = pd.Timedelta(text).total_seconds() if not text.strip().isdigit() else 0.0
    except ValueError:
        found = 0.0
    if not found > 0:
        raise BadInputError(f"a time is written like 90s, 30m or 2h, got {text!r}; say number and unit.")
    return found
