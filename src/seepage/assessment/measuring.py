"""Computation of all metrics of a guess."""

from __future__ import annotations

from collections.abc import Sequence

from seepage import registry
from seepage.assessment import create
from seepage.assessment.matched import Matched, match_records
from seepage.assessment.measurement import Measurement, Metric
from seepage.errors import BadInputError
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.wire.horizontal import RecordsGuess
from seepage.wire.secret import RecordsSecret


def measure(
    schema: Schema,
    statistics: Statistics,
    secret: RecordsSecret,
    guess: RecordsGuess,
    metrics: Sequence[Metric] | None = None,
) -> list[Measurement]:
    """Score a guess against the secret, for all victims at once.

    Args:
        statistics: statistics with the standard deviations of continuous columns.
        guess: the guessed records of each victim, in any order.
        metrics: metrics to compute; every registered metric with its defaults if None.

    Returns:
        Measurements in the order of ``metrics``. Figures that do not apply (no such columns, no uncertainty) are left
        out, or NaN for single victims.

    Raises:
        BadInputError: victims, records or columns of secret and guess do not fit together.

    Example:
        >>> from seepage.datasets.planted import distinct
        >>> data = distinct(rows=8)
        >>> secret = RecordsSecret(data.train.cells[None], data.train.labels[None])
        >>> measured = measure(data.schema, data.statistics, secret, RecordsGuess(secret.cells.flip(1)))[0]
        >>> measured.metric, measured.column, measured.estimate().mean
        ('accuracy', None, 1.0)
    """
    return measure_matched(match_records(schema, statistics, secret, guess), metrics)


def measure_matched(matched: Matched, metrics: Sequence[Metric] | None = None) -> list[Measurement]:
    """Score a guess that is already matched to the truth, see ``measure``."""
    chosen = [create(name) for name in registry.metrics.names()] if metrics is None else metrics
    return [measured for metric in chosen for measured in _checked(metric, metric(matched))]


def _checked(metric: Metric, returned: object) -> list[Measurement]:
    """Return the measurements of a metric; refuse another type."""
    if not isinstance(returned, list | tuple) or not all(isinstance(item, Measurement) for item in returned):
        types = ", ".join(sorted({type(item).__name__ for item in returned})) if isinstance(returned, list) else ""
        raise BadInputError(
            f"the metric {type(metric).__name__} returned {type(returned).__name__}{f' of {types}' if types else ''}, "
            "expected a list of seepage.assessment.measurement.Measurement."
        )
    return list(returned)
