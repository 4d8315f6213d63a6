"""Rows of results for tests that make up their figures, and figures out of rows."""

from __future__ import annotations

from typing import Any

from seepage.assessment.row import ResultRow


def row(**fields: Any) -> ResultRow:
    """Return an attack's accuracy over all cells at batch size 8, with the given fields."""
    usual = {"dataset": "german", "protocol": "fedsgd", "model": "nn3", "batch_size": 8, "attack": "tableak"}
    return ResultRow(**{**usual, "metric": "accuracy", **fields})


def number(value: float | None) -> float:
    """Return a figure that is not missing."""
    assert value is not None
    return value
