"""Bounds on the mean of bounded figures that hold at any number of units, looked at as often as one likes.

A bettor who starts with 1 bets on every unit that the mean is below a limit. Where it is not below, the wealth is a
non-negative martingale or falls on average, and reaches ``1 / alpha`` with probability ``alpha`` at most (Ville's
inequality), whatever the distribution is and whenever one stops. The bets are a fixed mixture of constant ones
(Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", 2023; mixed as in Cover's
universal portfolio). For independent units that are not alike everything holds for the average of their means.

That the mean of lifts Y up to u is at least L is the same as a mean of at most 1 of the payoffs

    X = (u - Y) / (u - L) >= 0.

A bettor who puts the share b of his wealth on each of them has, and the mixture with weights w has,

    W_b = prod_t (1 + b (X_t - 1)),   W = sum_b w_b W_b,   with  0 <= b <= 1  and  sum_b w_b = 1.

No factor is below 0. Where the mean is not below L, none has a mean above 1, and W is a non-negative supermartingale
that starts at 1. It shows that the mean is below L once ``log W >= log(1 / alpha)``. A mean of two such wealths is one
again, which is how bets on two figures are combined. Bets that the mean is above a limit take the payoffs
``(Y - l) / (L - l)`` from the least value l up.

**Bounds.** For values x >= 0, and a number ``exp(-s)`` that their mean is tested to be above, X is ``x exp(s)``. Then
``log(1 - b + b x exp(s))`` rises with s and is convex in it, as the logarithm of a sum of exponentials. So is the sum
over the units, and so is log W, a logarithm of a sum of exponentials of convex functions. Newton's method from a point
right of the root therefore stays right of it, where the number is shown. One such point is that of a single bet,
of whose factors only ``b x exp(s)`` counts where x > 0, and 1 - b elsewhere:

    s = (log(1 / alpha) - log w_b - sum log x - ones log b - zeros log(1 - b)) / ones.
"""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from seepage.errors import BadInputError

ALPHA = 0.025
"""Probability of a false pass that the gate allows, and the tail of its one-sided bounds."""

WHOLE = 0.9
"""Share of the gap between the best baseline and certainty from which on nearly everything is read."""

# Shares of the wealth that are bet: a grid that is denser at both ends, and everything, which needs the fewest units
# where all lifts are 0. A mixture's weights sum to 1.
_BETS = np.append(np.sin(np.pi * (np.arange(60) + 0.5) / 120) ** 2, 1.0)
_LOG_WEIGHTS = np.log(np.append(np.full(60, 1 / 120), 1 / 2))
# Numbers this small are 0, and steps this small the last.
_TINY, _CLOSE, _LITTLE = 1e-12, 1e-13, 1e-11
# Payoffs above this count as this, which shows less.
_LARGEST = 1e12
# Newton's method takes about six steps.
_STEPS = 100
# Halvings of an interval of limits: to a millionth.
_HALVINGS = 21


def evidence_below(
    lifts: ArrayLike, limit: float, *, lower: float = -1.0, upper: float = 1.0, further: int = 0, least: float = 0.0
) -> float:
    """Return the log wealth of the bet that the mean lift is below a limit; ``log(1 / alpha)`` or more shows it.

    The order of lifts changes no bit.

    Args:
        lower, upper: smallest and largest lift that are possible, never those seen.
        further: number of units that are added, as low as any seen or as ``least``.
    """
    _check_limit(limit, lower, upper)
    values = _checked(lifts, lower, upper)
    payoff = (upper - values.min(initial=least)) / (upper - limit)
    return _log_wealth((upper - values) / (upper - limit), _growth_of(payoff, further))


def shown_below(lifts: ArrayLike, limit: float, *, alpha: float = ALPHA, upper: float = 1.0) -> bool:
    """Return whether the lifts show that their mean is below a limit; ``alpha`` is over all looks together."""
    return evidence_below(lifts, limit, upper=upper) >= _threshold(alpha)


def shown_unclosed(scores: ArrayLike, baselines: ArrayLike, share: float, *, alpha: float = ALPHA) -> bool:
    """Return whether scores show that less than a share of the gap between baseline and certainty is closed.

    That the share is closed is the same as a mean of at most 1 of ``baseline + (1 - score) / (1 - share)``, so that no
    ratio of means is needed.

    Example:
        >>> shown_unclosed([0.8] * 40, [0.8] * 40, 0.9), shown_unclosed([1.0] * 40, [0.8] * 40, 0.9)
        (True, False)
    """
    _check_limit(share, 0.0, 1.0)
    payoffs = _checked(baselines, 0.0, 1.0) + (1 - _checked(scores, 0.0, 1.0)) / (1 - share)
    return _log_wealth(payoffs) >= _threshold(alpha)


def upper_bound(lifts: ArrayLike, *, alpha: float = ALPHA, upper: float = 1.0) -> float:
    """Return the least limit that the mean lift is shown to be below; ``upper`` without units."""
    gaps = upper - _checked(lifts, -1.0, upper)
    return float(upper - least_mean(gaps[:, None], alpha=alpha)[0])


def least_mean(
    values: NDArray[np.float64],
    rest: NDArray[np.float64] | None = None,
    *,
    alpha: float = ALPHA,
    counts: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return for each column of (unit, column) the largest number that the mean of its values is shown to be above.

    Values are at least 0. With ``rest``, in [0, 1], the number is that of values against ``1 - rest``: the least ratio
    of their means. 0 where all values are 0. ``counts`` says how many units have each value; one each if None.

    The log wealth of the bet against the number ``exp(-s)`` rises with ``s`` and is convex in it, so that Newton's
    method comes down to its root from above, where the number is shown.

    Example:
        >>> least_mean(np.ones((20, 1))).round(3)
        array([0.814])
    """
    threshold = _threshold(alpha)
    # Smaller values count as 0, which shows less.
    gains = np.where(values > _TINY, values, 0.0)
    rests = np.zeros_like(gains) if rest is None else rest
    times = np.ones_like(gains) if counts is None else counts
    # Sorted, so that the order of the units does not change a bit of a sum.
    order = np.lexsort((rests, gains), axis=0)
    gains, rests, times = (np.take_along_axis(array, order, 0) for array in (gains, rests, times))
    positive, bounds = gains > 0, np.zeros(gains.shape[1])
    columns = np.flatnonzero(positive.any(0))
    gains, rests, times = (array[:, columns] for array in (gains, rests, times))
    positive = gains > 0
    # What the best single bet shows by itself; where few values are above 0, that is a small one.
    ones, zeros = (times * positive).sum(0), (times * (gains <= 0)).sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):  # a bet of everything that loses everything: -inf
        lost = np.where(zeros > 0, zeros * np.log1p(-_BETS)[:, None], 0.0)
    alone = (times * np.log(np.where(positive, gains, 1.0))).sum(0) + ones * np.log(_BETS)[:, None] + lost
    # The start right of the root, by the best of the single bets.
    exponents = ((threshold - _LOG_WEIGHTS[:, None] - alone) / ones).min(0)
    bets = _BETS[:, None, None]
    for _ in range(_STEPS):
        grown = np.exp(exponents) * gains
        factors = 1 + bets * (rests + grown - 1)
        with np.errstate(divide="ignore"):  # a bet of everything that loses everything: -inf
            wealths = (times * np.log(factors)).sum(1)
        logs = mixture(wealths)
        # Of such a bet nothing is left, and nothing grows.
        slopes = (times * bets * grown / np.maximum(factors, _TINY)).sum(1)
        step = (logs - threshold) / (np.exp(_LOG_WEIGHTS[:, None] + wealths - logs) * slopes).sum(0)
        exponents -= np.maximum(step, 0.0)
        if (step < _CLOSE).all():
            break
    # A little less, so that rounding never claims more than is shown.
    bounds[columns] = np.exp(-exponents - _LITTLE)
    return bounds


def evidence_beside(
    lifts: ArrayLike, scores: ArrayLike, least_baseline: float, limit: float, *, further: int = 0
) -> float:
    """Return the log of the mean of two wealths that bet on a mean lift below a limit, of which each may be the larger.

    One bets on the lifts, the other on the scores of the attack, whose mean is below the limit plus a lower bound of
    the baseline's mean. ``further`` units are added that are as low as any seen.
    """
    by_lifts = evidence_below(lifts, limit, further=further)
    if limit + least_baseline >= 1:
        # No score is above such a limit, which bets on scores cannot say.
        return by_lifts - math.log(2)
    on_scores = {"lower": 0.0, "further": further, "least": least_baseline}
    return _mean_wealth(by_lifts, evidence_below(scores, limit + least_baseline, **on_scores))


def upper_bound_beside(lifts: ArrayLike, scores: ArrayLike, least_baseline: float, *, alpha: float = ALPHA) -> float:
    """Return the least limit that ``evidence_beside`` shows the mean lift to be below; 1 where there is none."""
    values, threshold = _checked(lifts, -1.0, 1.0), _threshold(alpha)
    shown, open_below = 1.0, float(values.mean()) if len(values) else -1.0
    if open_below >= 1:
        return 1.0
    for _ in range(_HALVINGS):
        middle = (shown + open_below) / 2
        if evidence_beside(values, scores, least_baseline, middle) >= threshold:
            shown = middle
        else:
            open_below = middle
    return shown


def _growth_of(payoff: float, units: int) -> float | NDArray[np.float64]:
    return units * log_growth(np.array([payoff])) if units > 0 else 0.0


def evidence_above(lifts: ArrayLike, limit: float, *, lower: float = -1.0, further: int = 0) -> float:
    """Return the log wealth of the bet that the mean lift is above a limit; ``further`` units are as high as any."""
    _check_limit(limit, lower, 1.0)
    payoffs = (_checked(lifts, lower, 1.0) - lower) / (limit - lower)
    return _log_wealth(payoffs, _growth_of(float(payoffs.max(initial=0.0)), further))


def evidence_above_beside(
    lifts: ArrayLike, scores: ArrayLike, most_baseline: float, limit: float, *, further: int = 0
) -> float:
    """Return what ``evidence_beside`` returns for a mean lift above a limit, with an upper bound of the baseline."""
    by_lifts = evidence_above(lifts, limit, further=further)
    if limit + most_baseline >= 1:
        return by_lifts - math.log(2)
    return _mean_wealth(by_lifts, evidence_above(scores, limit + most_baseline, lower=0.0, further=further))


def _mean_wealth(first: float, second: float) -> float:
    return float(np.logaddexp(first, second)) - math.log(2)


def shown_above(lifts: ArrayLike, limit: float, *, alpha: float = ALPHA, attacks: int = 1) -> bool:
    """Return whether the mean lift is shown to be above a limit, as one of a number of ``attacks`` tested so."""
    if attacks < 1:
        raise BadInputError(f"attacks is the number of figures tested, at least 1, got {attacks!r}.")
    return evidence_above(lifts, limit) >= _threshold(alpha) + math.log(attacks)


def can_still_pass(lifts: ArrayLike, limit: float, budget: int, *, alpha: float = ALPHA) -> bool:
    """Return whether a limit can be passed within a budget of units, if all further lifts are as low as any seen."""
    return evidence_below(lifts, limit, further=budget - len(np.atleast_1d(lifts))) >= _threshold(alpha)


def least_units(limit: float, *, alpha: float = ALPHA, upper: float = 1.0) -> int:
    """Return the least number of units that pass a limit: so many are needed where every lift is 0.

    Args:
        limit: limit of the mean lift, in (0, upper).
        upper: largest lift that is possible at all.

    Raises:
        BadInputError: the limit or ``alpha`` is out of range or NaN.

    Example:
        >>> [least_units(limit) for limit in (0.2, 0.1, 0.05)]
        [19, 40, 81]
    """
    _check_limit(limit, 0.0, upper)
    factors, threshold = log_growth(np.array([upper / (upper - limit)])), _threshold(alpha)
    # Half of the wealth is bet as a whole on every unit; it alone is enough after so many.
    most = math.ceil((threshold + math.log(2)) / float(factors[-1, 0])) + 1
    return 1 + bisect_left(range(1, most), True, key=lambda n: bool(mixture(n * factors)[0] >= threshold))


def more_units(lifts: ArrayLike, limit: float, *, alpha: float = ALPHA, most: int = 100_000) -> int | None:
    """Return about how many more units show that the mean is below a limit, if they repeat the seen ones in order.

    0 where it is shown; None without units, where their mean is not below the limit, and beyond ``most``.
    """
    if shown_below(lifts, limit, alpha=alpha):
        return 0
    values = _checked(lifts, -1.0, 1.0)
    if not len(values) or np.sort(values).mean() >= limit:
        return None
    so_far = np.cumsum(log_growth((1 - values) / (1 - limit)), axis=1)
    cycle, threshold = so_far[:, -1:], _threshold(alpha)

    def crosses(cycles: int) -> NDArray[np.bool_]:
        return mixture((1 + cycles) * cycle + so_far) >= threshold

    # At a fixed place of a cycle the log wealth is convex in the number of cycles, so it crosses from below only once.
    cycles = bisect_left(range(most // len(values) + 1), True, key=lambda number: bool(crosses(number).any()))
    units = cycles * len(values) + int(crosses(cycles).argmax()) + 1
    return units if units <= most and crosses(cycles).any() else None


def least_share(count: int, n: int, level: float = 0.975) -> float:
    """Return the lower Clopper-Pearson bound of a share, for a number of units fixed before; 0 without units."""
    return 1 - share_bound(n - count, n, level)


def share_bound(count: int, n: int, level: float = 0.975) -> float:
    """Return the upper Clopper-Pearson bound of a share, for a number of units fixed before; 1 without units."""
    if not 0 <= count <= n:
        raise BadInputError(f"count is a number of units from 0 to n={n!r}, got {count!r}.")
    if not 0 < level < 1:
        raise BadInputError(f"the confidence level must lie between 0 and 1, got {level!r}; use 0.975 for 97.5%.")
    if n == 0:
        return 1.0
    return float(stats.binomtest(count, n, alternative="less").proportion_ci(level).high)


def least_mean_of_all(values: NDArray[np.float64], total: int, *, alpha: float = ALPHA) -> NDArray[np.float64]:
    """Return for each column the largest number that the mean of all ``total`` units is shown to be above.

    Columns of (unit, column) hold the values in [0, 1] of units drawn without replacement, in the order in which they
    were drawn. If the mean of all is ``m``, that of the units which were not drawn before the ``t``-th one is ``(total
    m - sum of those before) / (total - t + 1)``, which each bet is against (Waudby-Smith and Ramdas, "Confidence
    sequences for sampling without replacement", 2020, proposition 1). Once all are drawn their mean is known.

    Example:
        >>> half = np.tile([0.0, 1.0], 40)[:, None]
        >>> least_mean_of_all(half, 125).round(2), least_mean_of_all(half, 80).round(2)
        (array([0.38]), array([0.5]))
    """
    threshold, bets = _threshold(alpha), _BETS[:, None, None]
    before = np.cumsum(values, axis=0) - values
    left = total - np.arange(len(values))[:, None]
    # What was drawn is part of the mean, and the mean of what was drawn is never shown to be too small.
    low, high = values.sum(0) / total, values.mean(0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        rest = np.maximum(total * middle - before, 0.0) / left
        payoffs = np.divide(values, rest, out=np.full_like(values, np.inf), where=rest > _TINY)
        payoffs[(values <= _TINY) & (rest <= _TINY)] = 1.0
        with np.errstate(divide="ignore"):  # a bet of everything that loses everything: -inf
            wealths = np.log1p(bets * (np.minimum(payoffs, _LARGEST) - 1)).sum(1)
        shown = mixture(wealths) >= threshold
        low, high = np.where(shown, middle, low), np.where(shown, high, middle)
    return low


def log_growth(payoffs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log growth (bets, payoffs) of each bet by payoffs whose mean is at most 1 under the hypothesis."""
    with np.errstate(divide="ignore"):  # a bet of everything that loses everything: -inf
        return np.log1p(_BETS[:, None] * (payoffs - 1))


def mixture(log_wealths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log wealth of the mixture of all bets, one figure a column of (bets, columns)."""
    return np.logaddexp.reduce(_LOG_WEIGHTS[:, None] + log_wealths, axis=0)


def _log_wealth(payoffs: NDArray[np.float64], further: float | NDArray[np.float64] = 0.0) -> float:
    """Return the log wealth after some payoffs, to which further log growth of each bet is added."""
    # Sorted, so that the order of the units does not change a bit of the sum.
    return float(mixture(log_growth(np.sort(payoffs)).sum(1, keepdims=True) + further)[0])


def _checked(values: ArrayLike, lower: float, upper: float) -> NDArray[np.float64]:
    figures = np.asarray(values, dtype=np.float64)
    if figures.ndim != 1:
        raise BadInputError(f"one figure a unit is expected, in a list, got an array of shape {figures.shape}.")
    wrong = figures[~((figures >= lower) & (figures <= upper))]
    if len(wrong):
        raise BadInputError(
            f"figures of units lie in [{lower:g}, {upper:g}], got {wrong[0]:g} ({len(wrong)} of {len(figures)} are not)"
            "; leave out units without a figure."
        )
    return figures


def _check_limit(limit: float, lower: float, upper: float) -> None:
    if not lower < limit < upper:
        raise BadInputError(f"the limit lies between {lower:g} and {upper:g}, got {limit!r}.")


def _threshold(alpha: float) -> float:
    if not 0 < alpha < 1:
        raise BadInputError(f"the probability of a false answer lies between 0 and 1, got {alpha!r}; use {ALPHA}.")
    return math.log(1 / alpha)
