"""All metrics of a guess at once, and the same over several runs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.assessment.matched import match_records
from seepage.assessment.measurement import Association, Measured, Measurement, Metric
from seepage.errors import BadInputError
from seepage.guesses import RecordsGuess
from seepage.registry import metrics as registered
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.transcript import RecordsSecret


def measure(
    schema: Schema,
    statistics: Statistics,
    secret: RecordsSecret,
    guess: RecordsGuess,
    metrics: Sequence[Metric] | None = None,
) -> list[Measured]:
    """Score a guess against the secret, for all victims at once.

    Args:
        schema: of the table.
        statistics: gives the standard deviations of continuous columns.
        secret: the true records of each victim.
        guess: the guessed records of each victim, in any order.
        metrics: what to compute; every registered metric with its defaults if None.

    Returns:
        Measurements in the order of ``metrics``. What does not apply (no such columns, no
        uncertainty) is left out, or NaN for single victims.

    Raises:
        BadInputError: victims, records or columns of secret and guess do not fit together.

    Example:
        >>> import pandas as pd
        >>> from seepage.tabular.schema import Continuous, Discrete
        >>> from seepage.tabular.table import Table
        >>> schema = Schema(
        ...     columns=(
        ...         Discrete(name="sex", categories=("Female", "Male")),
        ...         Continuous(name="age", low=0, high=99, tolerance=5),
        ...     ),
        ...     target=Discrete(name="ill", categories=("no", "yes")),
        ... )
        >>> frame = pd.DataFrame({"sex": ["Female", "Male"], "age": [30, 70], "ill": ["no", "yes"]})
        >>> table = Table(schema, frame)
        >>> secret = RecordsSecret(table.cells[None], table.labels[None])
        >>> guess = RecordsGuess(torch.tensor([[[1.0, 65.0], [1.0, 90.0]]], dtype=torch.float64))
        >>> for measured in measure(schema, Statistics.of(table), secret, guess)[:5]:
        ...     print(measured.metric, measured.column, measured.estimate().mean)
        accuracy None 0.5
        accuracy_discrete None 0.5
        accuracy_continuous None 0.5
        accuracy sex 0.5
        accuracy age 0.5
    """
    chosen = [entry.factory() for entry in registered.entries()] if metrics is None else metrics
    matched = match_records(schema, statistics, secret, guess)
    return [measured for metric in chosen for measured in metric(matched)]


def pool(runs: Sequence[Sequence[Measured]]) -> list[Measured]:
    """Put the measurements of several runs together, as if their victims had been measured at once.

    Args:
        runs: measurements of each run; victims follow each other in this order. A measurement that
            a run lacks is NaN for its victims.

    Raises:
        BadInputError: a run has no measurement, so that the number of its victims is unknown.

    Example:
        >>> one = Measurement("accuracy", None, torch.tensor([0.5]), True, (0.0, 1.0))
        >>> [pooled] = pool([[one], [one]])
        >>> pooled.values.tolist()
        [0.5, 0.5]
    """
    for i, run in enumerate(runs):
        if not run:
            raise BadInputError(f"run {i} holds no measurement, so nothing tells its victims; leave it out.")
    sizes = [_victims(run[0]) for run in runs]
    by_key = [{(measured.metric, measured.column): measured for measured in run} for run in runs]
    pooled: list[Measured] = []
    for key in dict.fromkeys(key for run in by_key for key in run):
        parts = [run.get(key) for run in by_key]
        first = next(part for part in parts if part is not None)
        if isinstance(first, Association):
            accuracy = [part.accuracy if isinstance(part, Association) else None for part in parts]
            entropy = [part.entropy if isinstance(part, Association) else None for part in parts]
            pooled.append(Association(*key, _join(accuracy, sizes), _join(entropy, sizes)))
        else:
            values = [part.values if isinstance(part, Measurement) else None for part in parts]
            pooled.append(Measurement(*key, _join(values, sizes), first.higher_leaks, first.bounds))
    return pooled


def _victims(measured: Measured) -> int:
    return len(measured.accuracy if isinstance(measured, Association) else measured.values)


def _join(parts: Sequence[Tensor | None], sizes: Sequence[int]) -> Float[Tensor, " victim"]:
    return torch.cat(
        [
            torch.full((size,), torch.nan, dtype=torch.float64) if part is None else part
            for part, size in zip(parts, sizes, strict=True)
        ]
    )
