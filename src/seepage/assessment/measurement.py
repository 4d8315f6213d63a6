"""A figure: one value a victim, or one pair of values a victim to correlate; and its lift over the best baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.assessment.intervals import Estimate, intervals, tau_b
from seepage.assessment.matched import Matched
from seepage.errors import BadInputError


@dataclass(frozen=True)
class Measurement:
    """A figure on its way from a setting to a row; victims or other units are aggregated by their mean.

    Attributes:
        metric: name of the figure, such as ``accuracy_discrete``.
        column: name of the column, None for all of them.
        values: one a victim, NaN where not applicable.
        higher_leaks: whether a higher value means that more leaked.
        bounds: range of the figure; infinite where it has no bound.
        clusters: values whose mean is each of ``values``, where known, such as those of the records of a training. They
            are not independent of each other, so that the interval is over ``values``.
        entropy: mean entropy of each victim, NaN where not applicable; the figure is then the correlation of ``values``
            with it across victims, which no single victim has. None for all other figures.
        total: number of all victims, if these were drawn from them without replacement, in their order; None where each
            was drawn independently of the others.

    Example:
        >>> Measurement("accuracy", None, torch.tensor([0.25, 0.75])).estimate().mean
        0.5
    """

    metric: str
    column: str | None
    values: Float[Tensor, " victim"]
    higher_leaks: bool = True
    bounds: tuple[float, float] = (0.0, 1.0)
    clusters: tuple[Float[Tensor, " _member"], ...] | None = None
    entropy: Float[Tensor, " victim"] | None = None
    total: int | None = None

    @classmethod
    def of_unit(
        cls,
        metric: str,
        column: str | None,
        value: float | Float[Tensor, ""] | None,
        members: Float[Tensor, " member"] | None = None,
    ) -> Measurement:
        """Return a rate of a single unit, NaN where it has none, and the values of ``members`` whose mean it is."""
        values = torch.tensor([float("nan") if value is None else float(value)], dtype=torch.float64)
        return cls(metric, column, values, clusters=None if members is None else (members.detach().double().cpu(),))

    @property
    def mean(self) -> float | None:
        """The mean over victims; None without a value."""
        return None if bool(self.values.isnan().all()) else float(self.values.double().nanmean())

    def estimate(self, level: float = 0.95) -> Estimate:
        """Return the mean over victims, or Kendall's tau-b across them, with its interval."""
        return estimates([self], level)[0]

    @property
    def is_rate(self) -> bool:
        """Whether each value is a rate, of which more means that more leaked."""
        return self.bounds == (0.0, 1.0) and self.higher_leaks and self.entropy is None

    def less(self, other: Measurement) -> Measurement:
        """Return the difference of each victim to ``other``, whose clusters are taken as points."""
        if len(self.values) != len(other.values):
            raise BadInputError(
                f"a paired difference needs the same victims on both sides, got {len(self.values)} and "
                f"{len(other.values)}; assess attack and baseline on the same transcript."
            )
        low, high = self.bounds
        clusters = None
        if self.clusters is not None:
            clusters = tuple(cluster - float(by) for cluster, by in zip(self.clusters, other.values, strict=True))
        return replace(
            self,
            values=self.values.double().cpu() - other.values.double().cpu(),
            bounds=(low - high, high - low),
            clusters=clusters,
        )


def estimates(figures: Sequence[Measurement], level: float = 0.95) -> list[Estimate]:
    """Return the estimates of many figures, which take a fraction of the time together."""
    rates = [figure for figure in figures if figure.entropy is None]
    totals = [figure.total for figure in rates]
    means = iter(intervals([(figure.values, figure.bounds) for figure in rates], level, totals))
    return [
        next(means) if figure.entropy is None else tau_b(figure.values, figure.entropy, level) for figure in figures
    ]


def drawn_from(figures: Sequence[Measurement], total: int | None) -> list[Measurement]:
    """Return figures of units that were drawn from ``total`` without replacement; None for independent units."""
    return [replace(figure, total=total) for figure in figures]


def joined_figures(units: Sequence[Sequence[Measurement]]) -> list[Measurement]:
    """Return the figures of units that were measured one after the other; NaN where a unit lacks a figure.

    Correlations, which no single unit has, are left out.

    Example:
        >>> read, other = Measurement.of_unit("accuracy", "age", 0.5), Measurement.of_unit("accuracy", "sex", 1.0)
        >>> [figure.values.tolist() for figure in joined_figures([[read], [read, other]])]
        [[0.5, 0.5], [nan, 1.0]]
    """
    by_name = [{(f.metric, f.column): f for f in figures if f.entropy is None} for figures in units]
    joined = []
    for name in dict.fromkeys(chain.from_iterable(by_name)):
        parts = [figures.get(name, Measurement.of_unit(*name, None)) for figures in by_name]
        clusters = [part.clusters for part in parts if part.clusters is not None]
        first = next(figures[name] for figures in by_name if name in figures)
        together = tuple(chain.from_iterable(clusters)) if len(clusters) == len(parts) else None
        joined.append(replace(first, values=torch.cat([part.values for part in parts]), clusters=together))
    return joined


# A registered metric is a class: its constructor takes the settings, a call computes the figures. Figures that do not
# apply are left out.
Metric = Callable[[Matched], Sequence[Measurement]]


@dataclass(frozen=True)
class Lift:
    """An attack's paired gain over the best baseline, positive where more leaked than it gets right, for any metric.

    ``reference`` is the baseline's mean.
    """

    baseline: str
    reference: float | None
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
        and (mean := candidate.mean) is not None
    ]
    return max(candidates, key=lambda candidate: candidate[0])[1:] if candidates else None


def gained(
    measured: Measurement, baselines: Mapping[str, Sequence[Measurement]]
) -> tuple[str, float | None, Measurement] | None:
    """Return the best baseline with its mean, and an attack's gain over it by victim; None without a baseline."""
    best = best_baseline(measured, baselines)
    if best is None:
        return None
    name, baseline = best
    return name, baseline.mean, measured.less(baseline) if measured.higher_leaks else baseline.less(measured)


def lift(measured: Measurement, baselines: Mapping[str, Sequence[Measurement]]) -> Lift | None:
    """Return an attack's gain over the best baseline on the same victims in the same order; None without a baseline.

    The baseline is chosen by its mean over these victims, which makes the gain look smaller, never larger, than
    against a baseline chosen in advance.
    """
    best = gained(measured, baselines)
    return None if best is None else Lift(*best[:2], best[2].estimate())
