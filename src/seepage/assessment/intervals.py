"""Estimates with intervals and counts: victims are the independent units, so that intervals are over them.

Victims whose value is NaN (not applicable, not computed) are left out, which ``n`` shows. Figures within known bounds
have the betting intervals of ``assessment.decision``, which hold for any distribution of them. Others have Student's t.

A figure x within [l, h] becomes the share ``y = (x - l) / (h - l)``. The least mean that y is shown to be above, at
half of the error, is the lower end; the least mean of ``1 - y`` gives the upper one. Each is wrong with half of the
error at most, so that both hold with the level. An end beyond the mean that was seen moves to it, which only makes an
interval wider. That a rate of hits in counts, mean(H) / mean(C), is above r is a mean above 1 of ``H / r + (1 - C)``,
with H and C as shares of the largest possible count. These are payoffs of values H with a rest ``1 - C``, so that no
distribution of a ratio is needed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor

from seepage.assessment.decision import least_mean, least_mean_of_all
from seepage.errors import BadInputError

PerVictim = Float[Tensor, " victim"]
Range = tuple[float, float]
# Distinct values and how many victims have each; or values in their order, and the number of all victims.
Sample = tuple[tuple[float, ...], tuple[int, ...] | int]
# Variance of Fisher's z of a Kendall correlation is this over n - 4 (Fieller, Hartley and Pearson, 1957).
_FIELLER = 0.437
UNITS_FOR_VERDICT = 5
"""Fewest units over which a figure bears a verdict."""
# Share of the range by which rounding may take a figure beyond its bounds.
_ROUNDING = 1e-6
# Values of which the betting bounds are found together; each takes half a kilobyte.
_VALUES_AT_ONCE = 20_000


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


def interval(values: PerVictim, level: float = 0.95, bounds: Range | None = None) -> Estimate:
    """Return the mean over victims with its interval; NaN values are left out.

    Within finite ``bounds`` each end is the betting bound of ``decision`` at half of the error. It holds for
    independent victims of any distribution, and has a width even where all victims are alike. Without such bounds, or
    where a value lies beyond them, it is Student's t interval (clipped to a bound), and none where all are alike.

    Example:
        >>> found = interval(torch.ones(20), bounds=(0.0, 1.0))
        >>> found.mean, round(found.low, 3), found.high
        (1.0, 0.814, 1.0)
    """
    return intervals([(values, bounds)], level)[0]


def intervals(
    samples: Sequence[tuple[PerVictim, Range | None]], level: float = 0.95, totals: Sequence[int | None] = ()
) -> list[Estimate]:
    """Return ``interval`` of many figures, each with its bounds; together they take a fraction of the time.

    ``totals`` has for each figure the number of all victims if these were drawn from them without replacement, in their
    order; its mean is then that of all. None for independent victims.
    """
    _check_level(level)
    figures = [(values[~values.isnan()].double().cpu(), bounds) for values, bounds in samples]
    scaled = [
        _scaled(valid, bounds, None if total is None or len(valid) < len(values) else total)
        for (valid, bounds), (values, _), total in zip(figures, samples, totals or [None] * len(samples), strict=True)
    ]
    shares = betting({share for share in scaled if share is not None}, (1 - level) / 2)
    return [
        _estimate(valid, bounds, None if share is None else shares[share], level)
        for (valid, bounds), share in zip(figures, scaled, strict=True)
    ]


def _estimate(valid: PerVictim, bounds: Range | None, shares: Range | None, level: float) -> Estimate:
    """Return the estimate of one figure, whose betting bounds are ``shares`` of its range."""
    n = len(valid)
    if n < 2:
        return Estimate(float(valid[0]) if n else None, None, None, n)
    alike = bool((valid == valid[0]).all())
    # Summing and dividing again may miss the common value by a last digit.
    mean, std = (float(valid[0]), 0.0) if alike else (float(valid.mean()), float(valid.std()))
    low, high = bounds or (-math.inf, math.inf)
    if shares is not None:
        ends = low + shares[0] * (high - low), low + shares[1] * (high - low)
        return Estimate(mean, min(mean, ends[0]), max(mean, ends[1]), n, std)
    ends = student(mean, std, n, level)
    if ends is None or alike:
        return Estimate(mean, None, None, n, std)
    return Estimate(mean, max(float(low), ends[0]), min(float(high), ends[1]), n, std)


def _scaled(valid: PerVictim, bounds: Range | None, total: int | None) -> Sample | None:
    """Return the values as shares of their range, see ``sample_of``; None for one, or where there is no such range."""
    if len(valid) < 2 or bounds is None or not math.isfinite(bounds[1] - bounds[0]):
        return None
    shares = (valid - bounds[0]) / (bounds[1] - bounds[0])
    if bool(((shares < -_ROUNDING) | (shares > 1 + _ROUNDING)).any()):
        return None
    return sample_of(shares.clamp(0, 1), total)


def sample_of(values: PerVictim, total: int | None = None) -> Sample:
    """Return the distinct values in [0, 1], sorted, and how many victims have each.

    Of victims that were drawn without replacement from ``total`` these are the values in their order, and the total.
    """
    if total is not None:
        return tuple(values.detach().double().cpu().tolist()), total
    distinct, counts = torch.unique(values.detach().double().cpu(), return_counts=True)
    return tuple(distinct.tolist()), tuple(counts.tolist())


def betting(samples: Collection[Sample], alpha: float) -> dict[Sample, Range]:
    """Return both betting bounds of the mean of each sample in [0, 1], each at ``alpha``; together they are fast."""
    by_size: dict[tuple[int, int | None], list[Sample]] = {}
    for sample in samples:
        total = sample[1] if isinstance(sample[1], int) else None
        by_size.setdefault((len(sample[0]), total), []).append(sample)
    bounds = {}
    for (n, total), alike in by_size.items():
        together = max(1, _VALUES_AT_ONCE // n)
        for part in (alike[i : i + together] for i in range(0, len(alike), together)):
            values = np.array([sample[0] for sample in part], dtype=float).T
            if total is None:
                counts = np.array([sample[1] for sample in part], dtype=float).T
                low, short = (least_mean(side, alpha=alpha, counts=counts) for side in (values, 1 - values))
            else:
                low, short = (least_mean_of_all(side, total, alpha=alpha) for side in (values, 1 - values))
            bounds |= dict(zip(part, zip(low.tolist(), (1 - short).tolist(), strict=True), strict=True))
    return bounds


@cache
def _quantile(probability: float, freedom: int) -> float:
    # A wide table asks for the same few quantiles tens of thousands of times.
    return float(stats.t.ppf(probability, freedom))


def student(mean: float | None, std: float | None, n: int, level: float = 0.95) -> Range | None:
    """Return Student's t interval of a mean; None for fewer than two victims. Where all are alike it is a point.

    It holds where victims vary as a normal distribution does. That is the form of printed tables, and of verdicts.
    """
    if mean is None or std is None or n < 2:
        return None
    half = _quantile((1 + level) / 2, n - 1) * std / math.sqrt(n)
    return mean - half, mean + half


def over_trainings(values: PerVictim, rows: int, level: float = 0.95) -> Estimate:
    """Return the mean over trainings of a share of test rows, with an interval over both.

    The variance of the mean is ``s^2 / T + p (1 - p) / M``: ``s`` the deviation over ``T`` trainings, ``p`` the share,
    and ``M`` the number of test rows. ``p (1 - p)`` is an upper bound of the variance over rows of a row's mean over
    trainings, which it reaches where all trainings are right about the same rows. The interval is Student's with
    Satterthwaite's degrees of freedom; there is none for a single training.

    Args:
        values: one share a training; NaN values are left out.
        rows: number of test rows.

    Example:
        >>> found = over_trainings(torch.tensor([0.83, 0.84, 0.85, 0.84, 0.83]), 15_060)
        >>> round(found.mean, 3), round(found.low, 3), round(found.high, 3)
        (0.838, 0.827, 0.849)
    """
    _check_level(level)
    valid = values[~values.isnan()].double().cpu()
    n = len(valid)
    if n < 2 or rows < 2:
        return Estimate(float(valid.mean()) if n else None, None, None, n)
    mean, std = float(valid.mean()), float(valid.std())
    by_training, by_row = std**2 / n, mean * (1 - mean) / rows
    variance = by_training + by_row
    if variance == 0:
        return Estimate(mean, mean, mean, n, std)
    freedom = variance**2 / (by_training**2 / (n - 1) + by_row**2 / (rows - 1))
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * math.sqrt(variance)
    return Estimate(mean, max(0.0, mean - half), min(1.0, mean + half), n, std)


def with_student(estimate: Estimate, bounds: Range = (-math.inf, math.inf)) -> Estimate:
    """Return an estimate with Student's t interval, cut off at bounds; unchanged where there is none."""
    ends = student(estimate.mean, estimate.std, estimate.n)
    if ends is None:
        return estimate
    return replace(estimate, low=max(bounds[0], ends[0]), high=min(bounds[1], ends[1]))


def paired(values: PerVictim, baseline_values: Float[Tensor, " other"], bounds: Range | None = None) -> Estimate:
    """Return the mean of ``values - baseline_values`` over victims with its interval; NaN values are left out.

    ``bounds`` are those of the values on both sides.
    """
    if len(values) != len(baseline_values):
        raise BadInputError(
            f"a paired difference needs the same victims on both sides, got {len(values)} and "
            f"{len(baseline_values)}; assess attack and baseline on the same transcript."
        )
    between = None if bounds is None else (bounds[0] - bounds[1], bounds[1] - bounds[0])
    return interval(values.double().cpu() - baseline_values.double().cpu(), bounds=between)


def ratio(hits: PerVictim, counts: PerVictim, most: float | int, level: float = 0.95) -> Estimate:
    """Return the pooled rate ``sum(hits) / sum(counts)`` with an interval over victims, not cells.

    The cells of a victim are not independent of each other. The interval is the betting interval of the ratio of two
    means: that the rate is ``r`` is the same as a mean of 0 of ``hits - r * counts``, which lies within known bounds.

    Args:
        hits: number of hits of each victim, at most its count.
        counts: number of counted cells of each victim.
        most: largest count that a victim can have at all, never the largest one seen.
    """
    _check_level(level)
    hit, count = hits.double().cpu(), counts.double().cpu()
    if bool((count > most).any()):
        raise BadInputError(f"a victim has at most {most:g} cells, got {float(count.max()):g}.")
    total, n = float(count.sum()), int((count > 0).sum())
    if n == 0:
        return Estimate(None, None, None, 0)
    rate = float(hit.sum()) / total
    if n == 1:
        return Estimate(rate, None, None, 1)
    # Scaled by the mean count, residuals are in the unit of the rate.
    std = math.sqrt(float(((hit - rate * count)[count > 0] / (total / n)).square().sum()) / (n - 1))
    sides = torch.stack([hit, count - hit], dim=1).numpy() / most
    rest = 1 - torch.stack([count, count], dim=1).numpy() / most
    low, short = least_mean(sides, rest, alpha=(1 - level) / 2)
    return Estimate(rate, min(rate, float(low)), max(rate, 1 - float(short)), n, std)


def difference(first: Estimate, second: Estimate) -> Estimate:
    """Return the difference ``second - first`` of two figures over different victims, with an interval from theirs.

    The distances from the figures to their ends are added in squares (Zou and Donner, "Construction of confidence
    intervals about effect measures", 2008), so that it holds for whatever theirs hold. On the same victims use
    ``paired``: this interval ignores that a victim is easy or hard for both. ``n`` is the smaller count.
    """
    n = min(first.n, second.n)
    if first.mean is None or second.mean is None:
        return Estimate(None, None, None, n)
    mean = second.mean - first.mean
    if first.low is None or first.high is None or second.low is None or second.high is None:
        return Estimate(mean, None, None, n)
    below = math.hypot(second.mean - second.low, first.high - first.mean)
    return Estimate(mean, mean - below, mean + math.hypot(second.high - second.mean, first.mean - first.low), n)


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
