"""Estimates with intervals and counts: victims are the independent units, so that intervals are over them.

Victims whose value is NaN (not applicable, not computed) are left out, which ``n`` shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor

from seepage.errors import BadInputError

PerVictim = Float[Tensor, " victim"]
Range = tuple[float, float]
# Variance of Fisher's z of a Kendall correlation is this over n - 4 (Fieller, Hartley and Pearson, 1957).
_FIELLER = 0.437
CLUSTERS_FOR_INTERVAL = 3
"""Fewest clusters (attack seeds, trainings with targets inside) over which there is an interval."""
CLUSTERS_FOR_VERDICT = 5
"""Fewest clusters over which an interval bears a verdict."""


@dataclass(frozen=True)
class Estimate:
    """A figure over ``n`` victims; None where there are too few for it.

    Attributes:
        mean: value of the figure (a mean over victims, or a correlation across them).
        low, high: bounds of its interval.
        std: unbiased standard deviation of the victims' values; None for figures that no single victim has.
    """

    mean: float | None
    low: float | None
    high: float | None
    n: int
    std: float | None = None

    @property
    def degenerate(self) -> bool:
        """Whether all victims agree, so that the interval is a point and claims too much certainty."""
        return self.low is not None and self.low == self.high


@cache
def _quantile(probability: float, freedom: int) -> float:
    # A wide table asks for the same few quantiles tens of thousands of times.
    return float(stats.t.ppf(probability, freedom))


def interval(values: PerVictim, level: float = 0.95, bounds: Range | None = None) -> Estimate:
    """Return the mean over victims with its Student-t interval, clipped to ``bounds``; NaN values are left out.

    Where all values are equal the interval is the point itself: it knows no variation beyond the sample's.
    """
    _check_level(level)
    valid = values[~values.isnan()].double().cpu()
    n = len(valid)
    if n == 0:
        return Estimate(None, None, None, 0)
    if n == 1:
        return Estimate(float(valid[0]), None, None, 1)
    if bool((valid == valid[0]).all()):
        # Summing and dividing again may miss the common value by a last digit.
        value = float(valid[0])
        return Estimate(value, value, value, n, 0.0)
    mean, std = float(valid.mean()), float(valid.std())
    half = _quantile((1 + level) / 2, n - 1) * std / math.sqrt(n)
    low, high = mean - half, mean + half
    if bounds is not None:
        low, high = max(low, float(bounds[0])), min(high, float(bounds[1]))
    return Estimate(mean, low, high, n, std)


def paired(values: PerVictim, baseline_values: Float[Tensor, " other"]) -> Estimate:
    """Return the mean of ``values - baseline_values`` over victims with its interval; NaN values are left out."""
    if len(values) != len(baseline_values):
        raise BadInputError(
            f"a paired difference needs the same victims on both sides, got {len(values)} and "
            f"{len(baseline_values)}; assess attack and baseline on the same transcript."
        )
    return interval(values.double().cpu() - baseline_values.double().cpu())


def ratio(hits: PerVictim, counts: PerVictim, level: float = 0.95) -> Estimate:
    """Return the pooled rate ``sum(hits) / sum(counts)`` with an interval that resamples victims, not cells.

    The cells of a victim are not independent of each other, so the interval is that of a ratio estimate:
    Student's t on the residuals ``hits - rate * counts`` (Cochran, "Sampling Techniques", 1977, section 6.4).
    """
    _check_level(level)
    counted = counts > 0
    hit, count = hits[counted].double().cpu(), counts[counted].double().cpu()
    n = len(count)
    if n == 0:
        return Estimate(None, None, None, 0)
    rate = float(hit.sum() / count.sum())
    if n == 1:
        return Estimate(rate, None, None, 1)
    # Scaled by the mean count, residuals are in the unit of the rate.
    std = math.sqrt(float(((hit - rate * count) / count.mean()).square().sum()) / (n - 1))
    half = float(stats.t.ppf((1 + level) / 2, n - 1)) * std / math.sqrt(n)
    return Estimate(rate, max(0.0, rate - half), min(1.0, rate + half), n, std)


def welch(first: Estimate, second: Estimate, level: float = 0.95) -> Estimate:
    """Return the difference ``second - first`` of two means over different victims, with Welch's t interval.

    On the same victims use ``paired``: this interval ignores that a victim is easy or hard for both, and is usually
    too wide for them. ``n`` is the smaller count.
    """
    _check_level(level)
    n = min(first.n, second.n)
    if first.mean is None or second.mean is None:
        return Estimate(None, None, None, n)
    difference = second.mean - first.mean
    if first.std is None or second.std is None or n < 2:
        return Estimate(difference, None, None, n)
    parts = [estimate.std**2 / estimate.n for estimate in (first, second) if estimate.std is not None]
    total = sum(parts)
    if total == 0:
        return Estimate(difference, difference, difference, n)
    freedom = total**2 / sum(part**2 / (estimate.n - 1) for part, estimate in zip(parts, (first, second), strict=True))
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * math.sqrt(total)
    return Estimate(difference, difference - half, difference + half, n)


def tau_b(x: PerVictim, y: PerVictim, level: float = 0.95) -> Estimate:
    """Return Kendall's tau-b across victims with an interval by Fisher's z transformation.

    The interval is ``tanh(atanh(tau) +- q sqrt(0.437 / (n - 4)))``, ``q`` the normal quantile
    (Fieller, Hartley and Pearson, "Tests for rank correlation coefficients I", 1957). It was preferred to a bootstrap
    because resampled victims tie with themselves, which distorts a rank correlation, and because it needs no seed. It
    is accurate for few ties and at least ten victims. NaN victims are left out.
    """
    _check_level(level)
    both = ~(x.isnan() | y.isnan())
    first, second = x[both].double().cpu().numpy(), y[both].double().cpu().numpy()
    n = len(first)
    if n < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return Estimate(None, None, None, n)
    tau = float(np.asarray(stats.kendalltau(first, second, variant="b"))[0])
    # SciPy's may miss 1 by a last digit; the next tau below it is further away for any feasible n.
    tau = math.copysign(1, tau) if abs(tau) > 1 - 1e-12 else tau
    if n < 5 or abs(tau) == 1:
        return Estimate(tau, None, None, n)
    half = float(stats.norm.ppf((1 + level) / 2)) * math.sqrt(_FIELLER / (n - 4))
    return Estimate(tau, math.tanh(math.atanh(tau) - half), math.tanh(math.atanh(tau) + half), n)


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise BadInputError(f"the confidence level must lie between 0 and 1, got {level!r}; use 0.95 for 95%.")


def clustered(values: Sequence[Float[Tensor, " _unit"]], level: float = 0.95, bounds: Range | None = None) -> Estimate:
    """Return the mean over clusters of their means, with Student's t interval over these means.

    Units of a cluster (target models that were attacked with the same shadow models) are not independent, so that an
    interval over units would be too narrow. With K - 1 degrees of freedom for K clusters this one holds the truth in
    95% of cases where their effects are normal, and in 88 to 91% where they are skewed. A bootstrap of clusters and
    units does so in 82 to 89% of cases for 2 to 5 clusters.
    """
    means = [float(valid.double().mean()) for value in values if len(valid := value[~value.isnan()])]
    estimate = interval(torch.tensor(means, dtype=torch.float64), level, bounds)
    return estimate if estimate.n >= CLUSTERS_FOR_INTERVAL else replace(estimate, low=None, high=None)
