"""What published figures of a column's numbers say of its records: sums, sums of squares, and numbers below a value.

Means, sums, variances and quantiles are turned into bounds of sums over records, with the roundings of what is
published and of how it is computed. Where a run without the records in question is published too, the bounds are those
of the difference.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import NamedTuple

from seepage.kernel.statement import RefusedError

_UNIT = 2.0**-53
# Constants alpha = beta of rules that interpolate at n p + alpha + p (1 - 2 alpha) (Hyndman and Fan 1996).
INTERPOLATED = {"linear": 1.0, "weibull": 0.0, "hazen": 0.5, "median_unbiased": 1 / 3}
QUANTILES = (*INTERPOLATED, "inverted_cdf", "averaged_inverted_cdf")
# Share of the range of numbers that an interpolation may err by.
_BLUR = 1e-9

Range = tuple[float, float]
Triple = tuple[float, float, float]


class Summary(NamedTuple):
    """Figures of a column's numbers over a group of records; None and empty where they are not published.

    Attributes:
        column: place of the column.
        values: number that each level stands for, in the order of the levels.
        records: number of records of the group.
        mean, total: their mean and their sum.
        squares: sum of squared distances from ``centre``.
        variance, deviation: variance and its square root, by records less ``freedom``.
        quantiles: shares and the quantiles at these.
        rule: definition of quantiles, one of ``QUANTILES`` in the names of numpy.
        within: columns with the place of the level that all records of the group have.
        rounded: distance of neighbouring numbers that can be published; 0 for double precision.
    """

    column: int
    values: tuple[float, ...]
    records: int
    mean: float | None = None
    total: float | None = None
    squares: float | None = None
    variance: float | None = None
    deviation: float | None = None
    quantiles: tuple[Range, ...] = ()
    within: tuple[tuple[int, int], ...] = ()
    centre: float = 0.0
    freedom: int = 1
    rule: str = "linear"
    rounded: float = 0.0

    def describe(self) -> str:
        """Return as a sentence how the figures come about."""
        exact = "double precision" if not self.rounded else f"multiples of {self.rounded:g}, to which they were rounded"
        divided = "n" if not self.freedom else f"n - {self.freedom}"
        return f"Variances are divided by {divided}, quantiles follow the rule {self.rule!r}, figures are in {exact}."

    @property
    def totals(self) -> Range | None:
        """Bounds of the sum."""
        n, half, largest = self.records, self.rounded / 2, max(map(abs, self.values))
        lost = (n + 4) * _UNIT * n * largest
        found = []
        if self.total is not None:
            found.append((self.total - half - lost, self.total + half + lost))
        if self.mean is not None:
            found.append((n * (self.mean - half) - lost, n * (self.mean + half) + lost))
        return _common(found)

    def squares_about(self, centre: float) -> Range | None:
        """Return bounds of the sum of squared distances from a number."""
        n, half, totals, found = self.records, self.rounded / 2, self.totals, []
        largest = max(abs(v - c) for v in self.values for c in (0.0, self.centre, centre)) ** 2
        lost = 4 * (n + 16) * _UNIT * n * largest
        if self.squares is not None and (totals is not None or centre == self.centre):
            apart = self.centre - centre
            sums = (0.0, 0.0) if totals is None else (totals[0] - n * self.centre, totals[1] - n * self.centre)
            ends = [2 * apart * end + n * apart**2 for end in sums] if apart else [0.0]
            found.append((self.squares - half - lost + min(ends), self.squares + half + lost + max(ends)))
        spread = self._variances
        if spread is not None and totals is not None:
            low, high = (total / n - centre for total in totals)
            least = 0.0 if low <= 0 <= high else min(low**2, high**2)
            free = n - self.freedom
            found.append((free * spread[0] + n * least - lost, free * spread[1] + n * max(low**2, high**2) + lost))
        return _common(found)

    @property
    def _variances(self) -> Range | None:
        half, found = self.rounded / 2, []
        if self.records <= self.freedom:
            return None
        if self.variance is not None:
            found.append((self.variance - half, self.variance + half))
        if self.deviation is not None:
            # A square root loses a rounding of its own.
            low, high = max(self.deviation - half, 0.0), self.deviation + half
            found.append((low**2 * (1 - 8 * _UNIT), high**2 * (1 + 8 * _UNIT)))
        return _common(found)

    def below(self) -> tuple[list[float], list[float]]:
        """Return for each level the least and the most records of the group whose number is at most the level's."""
        least, most = [0.0] * len(self.values), [float(self.records)] * len(self.values)
        for share, value in self.quantiles:
            for order, low, high in self._orders(share, value):
                # The record of this order has a number from low to high.
                for level, number in enumerate(self.values):
                    if number >= high:
                        least[level] = max(least[level], float(order))
                    if number < low:
                        most[level] = min(most[level], order - 1.0)
        return least, most

    def _orders(self, share: float, value: float) -> list[tuple[int, float, float]]:
        """Return places in the sorted order, from 1, with bounds of the numbers there that a quantile leaves."""
        first, last, weight = _places(self.rule, self.records, share)
        grid = sorted(set(self.values))
        blur = (_BLUR + 1e-12 * self.records) * (grid[-1] - grid[0])
        off = self.rounded / 2 + blur + 16 * _UNIT * max(map(abs, (value, *grid)))
        if first == last:
            near = [number for number in grid if abs(number - value) <= off]
            pairs = [(number, number, number) for number in near]
        else:
            pairs = list(_pairs(grid, value, off, weight))
        if not pairs:
            raise RefusedError(f"no declared number has the quantile {value:g} at {share:g}")
        lower, second, upper = zip(*pairs, strict=True)
        return [(first, min(lower), max(lower)), (last, min(second), max(upper))]


def _pairs(grid: Sequence[float], value: float, off: float, weight: float | None) -> Iterator[Triple]:
    """Yield numbers with the least and the greatest other one that a quantile may lie between them.

    Without a weight it is one of the two, or lies anywhere between.
    """
    for a in grid[: bisect_right(grid, value + off)]:
        low, high = max(a, value - off), math.inf
        if weight is not None:
            # What is lost of the division is that of a small weight.
            lost = 8 * _UNIT * max(map(abs, (value, grid[0], grid[-1]))) / weight
            rest = value - (1 - weight) * a
            low, high = max(low, (rest - off) / weight - lost), (rest + off) / weight + lost
        begin, end = bisect_left(grid, low), bisect_right(grid, high)
        if begin < end:
            yield a, grid[begin], grid[end - 1]


def _common(ranges: Sequence[Range]) -> Range | None:
    """Return what several bounds leave; None without any."""
    if not ranges:
        return None
    low, high = max(low for low, _ in ranges), min(high for _, high in ranges)
    if low > high:
        raise RefusedError("published figures of one group contradict each other")
    return low, high


def _places(rule: str, records: int, share: float) -> tuple[int, int, float | None]:
    """Return the places in the sorted order that a quantile lies between, and the weight of the second.

    No weight means any. Products that double precision may round across a whole number are taken for both sides.

    Example:
        >>> _places("linear", 4, 0.5), _places("linear", 5, 0.5), _places("inverted_cdf", 10, 0.1)
        ((2, 3, 0.5), (3, 3, 0.0), (1, 2, None))
    """
    if rule not in QUANTILES or not 0 <= share <= 1 or records < 1:
        raise RefusedError(f"a quantile at {share:g} of {records} records by the rule {rule!r} is not known")
    alpha = INTERPOLATED.get(rule)
    place = records * share if alpha is None else records * share + alpha + share * (1 - 2 * alpha)
    whole, exact = round(place), (share * 1024).is_integer() and alpha != 1 / 3
    inside = lambda k: min(max(k, 1), records)  # noqa: E731
    if abs(place - whole) < 1e-13 * (1 + records):
        if alpha is not None:
            # Whichever side of the whole number it falls on, it is the same number within the blur.
            return inside(whole), inside(whole), 0.0
        if exact and rule == "averaged_inverted_cdf":
            first, last = inside(whole), inside(whole + 1)
            return first, last, 0.5 if first < last else 0.0
        second = inside(whole) if exact else inside(whole + 1)
        return inside(whole), second, 0.0 if exact else None
    floor = math.floor(place)
    if alpha is None:
        return inside(floor + 1), inside(floor + 1), 0.0
    first, last = inside(floor), inside(floor + 1)
    return first, last, place - floor if first < last else 0.0


def check_figures(summaries: Sequence[Summary]) -> None:
    """Refuse figures that all lie on a coarser decimal grid than the numbers they are of, as if they were rounded."""
    for column in {own.column for own in summaries if not own.rounded}:
        of_column = [own for own in summaries if own.column == column]
        grid = sorted(set(of_column[0].values))
        cuts = [cut for own in of_column for _, cut in own.quantiles]
        figures = [x for own in of_column for x in (own.mean, own.total, *cuts) if x is not None]
        finest = min((b - a for a, b in itertools.pairwise(grid)), default=math.inf)
        for step in (10.0**-digits for digits in range(13)):
            if figures and finest < step and _multiples(figures, step) and not _multiples(grid, step):
                raise RefusedError(
                    f"all figures are multiples of {step:g}, and numbers are not, as if they were rounded"
                )


def _multiples(numbers: Sequence[float], step: float) -> bool:
    return all(abs(x / step - round(x / step)) <= 1e-6 * (1 + abs(x / step) * 1e-9) for x in numbers)


def check_form(own: Summary, most: float) -> None:
    """Refuse figures, numbers or options that are no finite numbers below a size."""
    figures = (own.mean, own.total, own.squares, own.variance, own.deviation)
    shares, cuts = [share for share, _ in own.quantiles], [cut for _, cut in own.quantiles]
    numbers = [*own.values, *(x for x in figures if x is not None), *shares, *cuts, own.centre, own.rounded]
    if not own.values or any(not abs(float(x)) < most for x in numbers):
        raise RefusedError("a published figure is no number, or too large")
    if not all(isinstance(n, Integral) for n in (own.records, own.freedom)) or min(own.records, own.rounded) < 0:
        raise RefusedError("figures are of no number of records, or rounded to what is no number")


def sums_of(after: Summary, before: Summary | None) -> Iterator[tuple[list[float], float, float]]:
    """Yield numbers a level, with bounds of their sum over the records of a group that the first run is without.

    ``before`` is the same group of the first run; None where there was none.
    """
    nobody = after._replace(records=0, mean=None, total=0.0, squares=0.0, variance=None, deviation=None, quantiles=())
    first = before or nobody._replace(rounded=0.0)
    count = after.records - first.records
    if (first.column, first.values, first.within) != (after.column, after.values, after.within):
        raise RefusedError("figures of two runs are not of the same group and numbers")
    if count < 0 or first.records < 0 or min(after.rounded, first.rounded) < 0:
        raise RefusedError("a group of the second run has fewer records than the first, or a rounding is below 0")
    yield [1.0] * len(after.values), float(count), float(count)
    # What overflows says nothing.
    for weights, low, high in _figures_of(after, first, count):
        if all(map(math.isfinite, (low, high, *weights))):
            yield weights, low, high


def _figures_of(after: Summary, first: Summary, count: int) -> Iterator[tuple[list[float], float, float]]:
    totals, others = after.totals, first.totals
    if totals is not None and others is not None:
        yield list(after.values), totals[0] - others[1], totals[1] - others[0]
        centre = after.centre if after.squares is not None else sum(totals) / 2 / max(after.records, 1)
        squares, earlier = after.squares_about(centre), first.squares_about(centre)
        if squares is not None and earlier is not None:
            yield [(value - centre) ** 2 for value in after.values], squares[0] - earlier[1], squares[1] - earlier[0]
    bounds = {}
    (least, most), (low, high) = after.below(), first.below()
    for level, value in enumerate(after.values):
        bounds[value] = max(0.0, least[level] - high[level]), min(float(count), most[level] - low[level])
    before_it = (0.0, 0.0)
    grid = sorted(bounds)
    for value, following in zip(grid, (*grid[1:], None), strict=True):
        own, after_it = bounds[value], (float(count),) * 2 if following is None else bounds[following]
        if own[0] > own[1]:
            raise RefusedError("quantiles of two runs contradict each other")
        # What a neighbour says as well is left out.
        if own[0] > before_it[0] or own[1] < after_it[1]:
            yield [float(other <= value) for other in after.values], *own
        before_it = own


def most_of(after: Summary, before: Summary | None) -> list[float]:
    """Return the most records that each level can have in a group, by any one of its figures."""
    most = [math.inf] * len(after.values)
    count = 0.0
    for k, (weights, low, high) in enumerate(sums_of(after, before)):
        count = high if k == 0 else count
        least, largest = min(weights), max(weights)
        blur = 1e-9 * (1 + count) * max(abs(least), abs(largest))
        for level, weight in enumerate(weights):
            if weight > least:
                bound = (high + blur - count * least) / (weight - least)
                most[level] = min(most[level], bound if math.isfinite(bound) else math.inf)
            if weight < largest:
                bound = (count * largest - low + blur) / (largest - weight)
                most[level] = min(most[level], bound if math.isfinite(bound) else math.inf)
    return [max(0.0, min(own, count)) for own in most]
