"""Scores of tables that are read from federated statistics: whole tables, records with outcomes, facts on equations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.assessment.measurement import Measurement
from seepage.wire.horizontal import RecordsGuess
from seepage.wire.secret import RecordsSecret
from seepage.wire.statistics import StatisticsGuess

# Figures that are shares; other facts are numbers.
_SHARES = ("proved_alone",)


def measure_tables(secret: RecordsSecret, guess: RecordsGuess) -> list[Measurement]:
    """Return the figures of guessed tables, one value a victim.

    ``whole_records``: the share of records that are read, each as often as it is there. ``whole_table``: 1 where all
    are, else 0. ``with_label``: the share of records that are read with their outcome. ``whole_with_label``: 1 where
    all are. Facts of the guess have their own names.
    """
    overlaps = [_overlap(t, g) for t, g in zip(secret.cells, guess.cells, strict=True)]
    figures = [_rate("whole_records", overlaps), _rate("whole_table", [float(share == 1.0) for share in overlaps])]
    if guess.labels is not None and bool(guess.labels.isfinite().any()):
        both = [
            _overlap(torch.cat([t, y[:, None]], 1), torch.cat([g, k[:, None]], 1))
            for t, y, g, k in zip(secret.cells, secret.labels, guess.cells, guess.labels, strict=True)
        ]
        figures += [_rate("with_label", both), _rate("whole_with_label", [float(share == 1.0) for share in both])]
    if isinstance(guess, StatisticsGuess) and guess.facts is not None:
        figures += _facts(guess.facts)
    return figures


def _facts(facts: Sequence[Mapping[str, float]]) -> list[Measurement]:
    names = dict.fromkeys(name for record in facts for name in record)
    figures = []
    for name in names:
        values = torch.tensor([record.get(name, float("nan")) for record in facts], dtype=torch.float64)
        bounds = (0.0, 1.0) if name in _SHARES else (0.0, float("inf"))
        figures.append(Measurement(name, None, values, True, bounds))
    return figures


def _rate(metric: str, values: Sequence[float]) -> Measurement:
    return Measurement(metric, None, torch.tensor(values, dtype=torch.float64), True, (0.0, 1.0))


def _overlap(true: Float[Tensor, "record column"], guess: Float[Tensor, "record column"]) -> float:
    """Return the share of records that are read, each as often as it is there.

    Example:
        >>> _overlap(torch.tensor([[1.0], [1.0], [2.0]]), torch.tensor([[1.0], [2.0], [2.0]]))
        0.6666666666666666
    """
    truth, read = Counter(map(tuple, true.tolist())), Counter(map(tuple, guess.tolist()))
    return sum((truth & read).values()) / max(len(true), 1)
