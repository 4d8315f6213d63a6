"""Agreement of one of our figures with a printed one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from scipy import stats

from seepage.assessment import Estimate

# Margins of agreement, in rates. The finer one serves where both deviations are small enough for it.
MARGIN, FINE_MARGIN = 0.05, 0.02
# One-sided level of each test, and the power that the finer margin asks for where both means are alike.
LEVEL, POWER = 0.05, 0.8

Agreement = Literal["agrees", "differs", "too few to tell"]


@dataclass(frozen=True)
class PublishedFigure:
    """One figure that a paper prints, a rate; ``std`` is the population deviation, None where it prints none."""

    mean: float
    std: float | None


@dataclass(frozen=True)
class Difference:
    """Our mean less the printed one, with its 95% interval (Welch); None where one of them has no deviation."""

    mean: float
    low: float | None
    high: float | None


def welch(ours: Estimate, published: PublishedFigure, published_n: int) -> Difference | None:
    """Return our mean less the printed one, with Welch's t interval (unequal variances, unequal numbers of units).

    Published standard deviations are population ones and are corrected to unbiased ones.
    """
    if ours.mean is None:
        return None
    mean = ours.mean - published.mean
    std = _deviation(ours)
    if published.std is None or std is None:
        return Difference(mean, None, None)
    our_variance, other = std**2 / ours.n, published.std**2 / (published_n - 1)
    if our_variance + other == 0:
        return Difference(mean, mean, mean)
    freedom = (our_variance + other) ** 2 / (our_variance**2 / (ours.n - 1) + other**2 / (published_n - 1))
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(our_variance + other)
    return Difference(mean, mean - half, mean + half)


def margin_of(ours: Estimate, published: PublishedFigure, published_n: int) -> float | None:
    """Return the margin within which a rate counts as the printed one; None where one of them has no deviation.

    It depends on deviations and numbers of units alone, never on the difference: the finer margin is taken where two
    like means would be found to agree within it with a power of 0.8.
    """
    std = _deviation(ours)
    if published.std is None or std is None:
        return None
    variance = std**2 / ours.n + published.std**2 / (published_n - 1)
    needed = float(stats.norm.ppf(1 - LEVEL) + stats.norm.ppf((1 + POWER) / 2))
    return FINE_MARGIN if variance <= (FINE_MARGIN / needed) ** 2 else MARGIN


def agreement_of(ours: Estimate, published: PublishedFigure, published_n: int) -> Agreement:
    """Return whether our mean agrees with the printed one.

    With the difference d, its standard error se, the 95% quantile q of Welch's t and the margin D: ``agrees`` where
    ``|d| + q se < D``, ``differs`` where ``|d| - q se > D``, ``too few to tell`` otherwise, and always where the print
    does not say what its deviation is of.
    """
    std, margin = _deviation(ours), margin_of(ours, published, published_n)
    if margin is None or std is None or ours.mean is None or published.std is None:
        return "too few to tell"
    if std == published.std == 0:
        # Without any deviation the t statistic is not defined, and the difference is exact.
        return "agrees" if abs(ours.mean - published.mean) < margin else "differs"
    unbiased = published.std * math.sqrt(published_n / (published_n - 1))
    # p-values of 'not above the lower limit' and 'not below the upper limit'.
    low, high = (
        float(
            stats.ttest_ind_from_stats(
                ours.mean, std, ours.n, limit, unbiased, published_n, equal_var=False, alternative=side
            ).pvalue
        )
        for limit, side in ((published.mean - margin, "greater"), (published.mean + margin, "less"))
    )
    if max(low, high) < LEVEL:
        return "agrees"
    return "differs" if max(low, high) > 1 - LEVEL else "too few to tell"


def _deviation(ours: Estimate) -> float | None:
    """Return the standard deviation of an estimate, from its interval where it is not given."""
    if ours.n < 2 or ours.std is not None:
        return ours.std if ours.n >= 2 else None
    if ours.low is None or ours.high is None:
        return None
    return (ours.high - ours.low) / 2 / float(stats.t.ppf(0.975, ours.n - 1)) * math.sqrt(ours.n)
