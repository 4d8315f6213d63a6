"""Lift: every figure beside the best baseline on the same cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seepage.assessment.intervals import Estimate
from seepage.assessment.measurement import Measurement


@dataclass(frozen=True)
class Lift:
    """An attack's paired gain over the best baseline, positive where more leaked than it gets right, for any metric."""

    baseline: str
    reference: Estimate
    gain: Estimate


def best_baseline(
    measured: Measurement, baselines: Mapping[str, Sequence[Measurement]]
) -> tuple[str, Measurement] | None:
    """Return the baseline with the best mean on a metric and column, the first of equals; None for correlations."""
    if measured.entropy is not None:
        return None
    candidates = [
        (mean if measured.higher_leaks else -mean, name, candidate)
        for name, measurements in baselines.items()
        for candidate in measurements
        if (candidate.metric, candidate.column) == (measured.metric, measured.column)
        and (mean := candidate.estimate().mean) is not None
    ]
    return max(candidates, key=lambda candidate: candidate[0])[1:] if candidates else None


def lift(measured: Measurement, baselines: Mapping[str, Sequence[Measurement]]) -> Lift | None:
    """Return an attack's gain over the best baseline on the same victims in the same order; None without a baseline.

    The baseline is chosen by its mean over these victims, which makes the gain look smaller, never larger, than
    against a baseline chosen in advance.
    """
    best = best_baseline(measured, baselines)
    if best is None:
        return None
    name, baseline = best
    gained = measured.less(baseline) if measured.higher_leaks else baseline.less(measured)
    return Lift(name, baseline.estimate(), gained.estimate())
