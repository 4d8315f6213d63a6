"""Lift: every figure beside the best baseline on the same cells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seepage.assessment.intervals import Estimate
from seepage.assessment.measurement import Measurement


@dataclass(frozen=True)
class Lift:
    """An attack's gain over the best baseline.

    Attributes:
        gain: paired mean over victims of the attack's gain, positive where more leaked than the baseline gets right,
            in either direction of the metric.
    """

    baseline: str
    reference: Estimate
    gain: Estimate


def best_baseline(
    measured: Measurement, baselines: Mapping[str, Sequence[Measurement]]
) -> tuple[str, Measurement] | None:
    """Return the baseline with the best mean on the metric and column of ``measured``.

    Returns:
        Name and measurement; the first of equals; None where no baseline has such a figure
        (baselines have no uncertainty) and for correlations across victims.
    """
    if measured.entropy is not None:
        return None
    best: tuple[str, Measurement] | None = None
    best_mean = -math.inf
    for name, measurements in baselines.items():
        for candidate in measurements:
            if (candidate.metric, candidate.column) != (measured.metric, measured.column):
                continue
            mean = candidate.estimate().mean
            if mean is None:
                continue
            mean = mean if measured.higher_leaks else -mean
            if best is None or mean > best_mean:
                best, best_mean = (name, candidate), mean
    return best


def lift(measured: Measurement, baselines: Mapping[str, Sequence[Measurement]], level: float = 0.95) -> Lift | None:
    """Return an attack's gain over the best baseline on the same victims.

    The baseline is chosen by its mean over these victims, which makes the gain look smaller, never larger, than
    against a baseline chosen in advance.

    Args:
        baselines: measurements of each baseline, by name, of the same victims in the same order.

    Returns:
        Lift, or None without a baseline with such a figure.

    Raises:
        BadInputError: attack and baseline were measured on different numbers of victims.

    Example:
        >>> import torch
        >>> attack = Measurement("rmse", None, torch.tensor([0.2, 0.4]), False, (0.0, math.inf))
        >>> guessing = Measurement("rmse", None, torch.tensor([0.7, 0.9]), False, (0.0, math.inf))
        >>> gained = lift(attack, {"random": [guessing]})
        >>> gained.baseline, round(gained.gain.mean, 6)
        ('random', 0.5)
    """
    best = best_baseline(measured, baselines)
    if best is None:
        return None
    name, baseline = best
    gained = measured.less(baseline) if measured.higher_leaks else baseline.less(measured)
    return Lift(name, baseline.estimate(level), gained.estimate(level))
