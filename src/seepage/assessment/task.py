"""Figures of the task that a model was trained for, each beside the best answer that is always the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Shaped
from torch import Tensor

from seepage.assessment.measurement import Measurement, gained

# What a constant answer gets, beside the figure of the model; rows name it as their baseline.
CONSTANT = "constant_"
# Number of records behind a figure of the model, which its interval is over, too.
ROWS = "rows_of_"
_AUC_OF_CONSTANT = 0.5


def is_error(metric: str) -> bool:
    """Return whether a metric of the task is an error, lower for a better model, and no rate."""
    return metric.endswith("rmse")


def is_beside(metric: str) -> bool:
    """Return whether a metric only serves to read another one: that of a constant answer, or a number of records."""
    return metric.startswith((CONSTANT, ROWS))


def rows_behind(figure: Measurement, beside: Sequence[Measurement]) -> int | None:
    """Return the number of records that a share of the task is over in each training; None where that is not known."""
    if figure.column is not None or figure.bounds != (0.0, 1.0):
        return None
    rows = [other.mean for other in beside if other.metric == ROWS + figure.metric]
    return None if not rows or rows[0] is None else round(rows[0])


def of_task(
    metric: str,
    value: float | Float[Tensor, ""] | None,
    labels: Shaped[Tensor | np.ndarray, " record"],
    tolerance: float = 0.0,
) -> list[Measurement]:
    """Return a figure of a model on records with some labels, that of the best constant answer, and their number.

    The constant answer knows how often each label is among these records, so that it is the best there is. Of no
    records there is neither.

    Args:
        metric: ``task_accuracy``, the share of labels that are met, up to ``tolerance``; ``task_rmse``, the root of the
            mean squared error, in the label's unit; or ``auc``.

    Example:
        >>> [(figure.metric, figure.mean) for figure in of_task("task_accuracy", 0.5, np.array([1, 1, 1, 0]))]
        [('task_accuracy', 0.5), ('constant_task_accuracy', 0.75), ('rows_of_task_accuracy', 4.0)]
    """
    values = np.sort(np.asarray(labels, dtype=float))
    constant = None
    if metric == "auc":
        constant = _AUC_OF_CONSTANT
    elif not len(values):
        value = None
    elif is_error(metric):
        constant = float(values.std())
    else:
        met = np.searchsorted(values, values + 2 * tolerance, side="right") - np.arange(len(values))
        constant = float(met.max() / len(values))
    figures = [Measurement.of_unit(metric, None, value), Measurement.of_unit(f"{CONSTANT}{metric}", None, constant)]
    if metric != "task_accuracy":
        return figures
    rows = Measurement.of_unit(f"{ROWS}{metric}", None, float(len(values)) if len(values) else None)
    return [*figures, replace(rows, bounds=(0.0, float("inf")))]


def over_constant(
    figure: Measurement, constants: Sequence[Measurement]
) -> tuple[str, float | None, Measurement] | None:
    """Return the name and mean of the constant answer, and by how much each unit is better; None where there is none.

    ``constants`` are what constant answers get on the same units.
    """
    beside = [replace(other, metric=figure.metric) for other in constants if other.metric == CONSTANT + figure.metric]
    if not beside or figure.column is not None:
        return None
    return gained(replace(figure, higher_leaks=not is_error(figure.metric)), {"constant": beside})
