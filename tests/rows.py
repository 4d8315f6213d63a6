"""Rows of results for tests that make up their figures, and figures out of rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from scipy import stats

from seepage.assessment.row import ResultRow


def row(**fields: Any) -> ResultRow:
    """Return an attack's accuracy over all cells at batch size 8, with the given fields.

    Deviations that are not given are those of which the lower ends are those of Student's t interval.
    """
    usual = {"dataset": "german", "protocol": "fedsgd", "model": "nn3", "batch_size": 8, "attack": "tableak"}
    made = ResultRow(**{**usual, "metric": "accuracy", **fields})
    std = made.std if "std" in fields else _deviation(made.mean, made.low, made.n)
    lift_std = made.lift_std if "lift_std" in fields else _deviation(made.lift, made.lift_low, made.n)
    return replace(made, std=std, lift_std=lift_std)


def _deviation(mean: float | None, low: float | None, n: int) -> float | None:
    if mean is None or low is None or n < 2:
        return None
    return (mean - low) / float(stats.t.ppf(0.975, n - 1)) * math.sqrt(n)


def number(value: float | None) -> float:
    """Return a figure that is not missing."""
    assert value is not None
    return value
