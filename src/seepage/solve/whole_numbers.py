"""Unknown whole numbers n with known sums: |A n - b| <= s within l <= n <= h, narrowed from three sides.

**Bounds.** By an equation a, the part a_p n_p of one number is b less what all others add, give or take s. What they
add lies between the least and the most that their bounds allow, so that

    b - s - sum_q max(a_q l_q, a_q h_q)  <=  a_p n_p  <=  b + s - sum_q min(a_q l_q, a_q h_q),    q other than p.

Both ends are divided by a_p, rounded inwards to whole numbers, and used for the next number, until nothing moves.

**Elimination.** Any matrix X splits the numbers above their lower bounds, d = n - l, without an error into two parts:

    d = X A d + (1 - X A) d,   so that   |n - l - X (b - A l)|  <=  |X| s + |1 - X A| (h - l).

A number whose right side is below a quarter is the whole number nearest to the estimate l + X (b - A l). Which X is
taken decides how close the bound is, never whether it holds; ``Elimination`` takes an inverse by least squares.

**Search.** Where few numbers are open, all of them are listed with their sums, see ``choices``.

None of the three excludes numbers that have the sums. A number is sure where its bounds meet. Where no numbers have the
sums, such as those of a damaged message, a bound that would cross the other one stops at it, and the system says that
it is ``contradicted``: what it is narrowed to is then a guess.

Unknowns may be a vector, or a matrix of columns that the same equations hold for, each with its own sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import get_lapack_funcs

from seepage.errors import BadInputError
from seepage.solve.choices import MOST, all_choices, choices

# Share of a unit, and of the sizes that were added, that bounds may err by before they are rounded to whole numbers.
_SAME, _LOST = 1e-6, 1e-12
# Share of an equation's largest factor from which one tells of its number.
_NEXT_TO = 1e-9
# The unit roundoff of double precision, and roundings of one number's part.
_DOUBLE, _ROUNDINGS = 2.0**-53, 64
# Rounds of bounds; those of two numbers that chase each other end here.
_ROUNDS = 100
# Singular values below this share of the largest are taken as zero: far above what rounding leaves.
_LEAST_SINGULAR = 1e-5
# Equations or unknowns up to which singular values are computed. Beyond, a small penalty takes their place, as a share
# of the sum of all squares.
_DECOMPOSED, _RIDGE = 1_000, 1e-11
_SAFE = 0.25  # bound on the error of an estimate, below which rounding to a whole number is safe

Numbers = Float[np.ndarray, "unknown *column"]
Sure = Bool[np.ndarray, "unknown *column"]
Sums = Float[np.ndarray, "equation *column"]


class Solutions(NamedTuple):
    """All whole numbers that have the sums; where the search was stopped none, and ``complete`` is false."""

    numbers: Int[np.ndarray, "solution unknown"]
    complete: bool


@dataclass(frozen=True)
class WholeNumbers:
    """Whole numbers n with |A n - b| <= s and l <= n <= h.

    Attributes:
        matrix: A.
        values: b.
        slack: s, the most that each sum may be off by.
        low, high: l and h, whole numbers.
        contradicted: whether no whole numbers have the sums.

    Raises:
        BadInputError: shapes do not belong together, or something is no number.

    Example:
        >>> two = WholeNumbers(np.array([[3.0, 5.0]]), np.array([21.0]), np.zeros(1), np.zeros(2), np.full(2, 9.0))
        >>> two.solutions().numbers.tolist()
        [[2, 3], [7, 0]]
    """

    matrix: Float[np.ndarray, "equation unknown"]
    values: Sums
    slack: Float[np.ndarray, " equation"]
    low: Numbers
    high: Numbers
    contradicted: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        (equations, unknowns), columns = self.matrix.shape, self.values.shape[1:]
        if not equations:
            raise BadInputError("a system of whole numbers has no equation")
        of_unknowns = unknowns, *columns
        due = {"values": (equations, *columns), "slack": (equations,), "low": of_unknowns, "high": of_unknowns}
        for name, shape in {"matrix": (equations, unknowns), **due}.items():
            part, what = getattr(self, name), f"{name} of {equations} equations in {unknowns} whole numbers"
            if part.shape != shape:
                raise BadInputError(f"{what} has the shape {part.shape}, not {shape}")
            if not np.isfinite(part).all() or (name == "slack" and (part < 0).any()):
                raise BadInputError(f"{what} has an entry that is no finite number, or a slack below 0")

    @property
    def sure(self) -> Sure:
        """Which numbers are the same in all solutions."""
        return self.low == self.high

    def fits(self, numbers: Numbers) -> bool:
        """Return whether whole numbers within the bounds have the sums, apart from roundings of double precision."""
        if (numbers < self.low).any() or (numbers > self.high).any() or (numbers != np.rint(numbers)).any():
            return False
        slack = self.slack.reshape(-1, *[1] * (numbers.ndim - 1)) + _lost(self.matrix, np.abs(numbers))
        return bool((np.abs(self.matrix @ numbers - self.values) <= slack).all())

    def within(self, low: Numbers, high: Numbers) -> WholeNumbers:
        """Return the system with further bounds; one that would cross another stops at it."""
        low, high, crossed = _met(self.low, self.high, low, high)
        return replace(self, low=low, high=high, contradicted=self.contradicted or crossed)

    def bounded(self, totals: Float[np.ndarray, " unknown"] | None = None) -> WholeNumbers:
        """Return the system with what each equation by itself says of each number.

        Args:
            totals: sum of each unknown over all columns, where that is known.
        """
        low, high, contradicted = self.low, self.high, self.contradicted
        for _ in range(_ROUNDS):
            before = low, high
            if totals is not None:
                low, high, crossed = _narrowed(np.ones(low.shape[1]), totals, 0.0, low.T, high.T)
                low, high, contradicted = low.T, high.T, contradicted or crossed
            for row, value, slack in zip(self.matrix, self.values, self.slack, strict=True):
                low, high, crossed = _narrowed(row, np.asarray(value), float(slack), low, high)
                contradicted |= crossed
            if (low == before[0]).all() and (high == before[1]).all():
                break
        return replace(self, low=low, high=high, contradicted=contradicted)

    def eliminated(self, elimination: Elimination) -> WholeNumbers:
        """Return the system with the numbers that an inverse of its equations determines."""
        estimate = elimination.estimate(self)
        known, near = elimination.determined, np.abs(estimate - np.rint(estimate)) < _SAFE
        low, high = self.low.copy(), self.high.copy()
        for bound in (low, high):
            bound[elimination.chosen] = np.where((near.T & known).T, np.rint(estimate), bound[elimination.chosen])
        return replace(self, contradicted=self.contradicted or not near[known].all()).within(low, high)

    def searched(self, groups: Iterable[Sequence[int]], most: int = MOST) -> WholeNumbers:
        """Return the system of a matrix of unknowns with what all solutions of each group of equations leave.

        Only columns in which few numbers of a group are open are searched, those of the same numbers together. Where
        these have more than ``most`` values together, nothing changes.
        """
        low, high, contradicted = self.low.copy(), self.high.copy(), self.contradicted
        for group in groups:
            equations = np.array(group)
            matrix = self.matrix[equations]
            slack = self.slack[equations] + _lost(matrix, np.maximum(np.abs(low), np.abs(high)).max(1))
            there = np.flatnonzero(matrix.any(0))
            alike: dict[bytes, list[int]] = {}
            is_open = low[there] < high[there]
            for column in np.flatnonzero(is_open.any(0)):
                alike.setdefault(is_open[:, column].tobytes(), []).append(int(column))
            for key, columns in alike.items():
                block = np.ix_(there[np.frombuffer(key, dtype=bool)], np.array(columns))
                least, above = low[block], (high - low)[block]
                if np.prod(above.max(1) + 1) > most:
                    continue
                parts = matrix[:, block[0].ravel()].T
                options = [np.arange(n + 1)[:, None] * part for n, part in zip(above.max(1), parts, strict=True)]
                rest = self.values[equations][:, columns] - matrix @ low[:, columns]
                for i, listed in enumerate(all_choices(options, rest.T, slack)):
                    inside = listed[(listed <= above[:, i]).all(1)]
                    contradicted |= not len(inside)
                    if len(inside):
                        low[block[0].ravel(), columns[i]] = least[:, i] + inside.min(0)
                        high[block[0].ravel(), columns[i]] = least[:, i] + inside.max(0)
        return replace(self, low=low, high=high, contradicted=contradicted)

    def solutions(self, most: int = MOST) -> Solutions:
        """Return all whole numbers of a vector that have the sums; none where more than ``most`` are to be tried."""
        none = np.zeros((0, len(self.low)), dtype=np.int64)
        spans = np.maximum(self.high - self.low + 1, 0).astype(np.int64)
        if not spans.all():
            return Solutions(none, complete=True)
        options = [np.arange(span)[:, None] * part for span, part in zip(spans.tolist(), self.matrix.T, strict=True)]
        slack = self.slack + _lost(self.matrix, np.maximum(np.abs(self.low), np.abs(self.high)))
        listed = choices(options, self.values - self.matrix @ self.low, slack, most)
        if listed is None:
            return Solutions(none, complete=False)
        return Solutions(np.array(listed, dtype=np.int64).reshape(-1, len(spans)) + self.low.astype(np.int64), True)


def _lost(matrix: Float[np.ndarray, "equation unknown"], sizes: Numbers) -> Sums:
    """Return what double precision may lose of sums of numbers of these sizes."""
    return (len(sizes) + _ROUNDINGS) * _DOUBLE * (np.abs(matrix) @ sizes)


class Elimination:
    """An inverse X of the equations of some unknowns by least squares, where all others are sure.

    X = (A^T A)^+ A^T, by the smaller of the two matrices of products. Small singular values count as none, or many
    equations get a small penalty; ``ridge`` is a larger one, for sums with noise, under which nothing is sure.

    Attributes:
        determined: whether |X| s + |1 - X A| (h - l) of each unknown is below a quarter.
    """

    def __init__(self, system: WholeNumbers, chosen: Int[np.ndarray, " some"], ridge: float = 0.0) -> None:
        self.chosen, self.part = chosen, system.matrix[:, chosen]
        part = self.part
        self.wide = part.shape[0] < part.shape[1]
        self.half = _half(part @ part.T if self.wide else part.T @ part, ridge)
        self.determined = np.zeros(len(chosen), dtype=bool)
        if ridge or not len(chosen):
            return
        span = (system.high - system.low)[chosen].reshape(len(chosen), -1).max(1, initial=0.0)
        likely = np.arange(len(chosen))
        if self.wide:
            shadow = self.half.T @ part
            # What is kept of an unknown's own number. Where that is little, others cannot be told from it.
            likely = np.flatnonzero((1 - np.square(shadow).sum(0)) * span < _SAFE)
            inverse = shadow[:, likely].T @ self.half.T
        else:
            inverse = self.half @ (self.half.T @ part.T)
        left = inverse @ part
        left[np.arange(len(likely)), likely] -= 1
        self.determined[likely] = np.abs(left) @ span + np.abs(inverse) @ system.slack < _SAFE

    def estimate(self, system: WholeNumbers) -> Numbers:
        """Return the estimate l + X (b - A l) of each of these unknowns in a system with the same equations."""
        rest = system.values - system.matrix @ system.low
        if self.wide:
            return system.low[self.chosen] + self.part.T @ (self.half @ (self.half.T @ rest))
        return system.low[self.chosen] + self.half @ (self.half.T @ (self.part.T @ rest))


def _half(squares: Float[np.ndarray, "side side"], ridge: float) -> Float[np.ndarray, "side rank"]:
    """Return a matrix whose product with its own transpose is the (regularised) inverse of a matrix of products."""
    if not len(squares):
        return squares
    if not ridge and len(squares) <= _DECOMPOSED:
        values, vectors = np.linalg.eigh(squares)
        significant = values > max(float(values[-1]), 1e-300) * _LEAST_SINGULAR**2
        return np.asarray(vectors[:, significant] / np.sqrt(values[significant]))
    squares[np.diag_indices_from(squares)] += ridge or max(_RIDGE * float(squares.trace()), 1e-30)
    (invert,) = get_lapack_funcs(("trtri",), (squares,))
    inverse: np.ndarray = invert(np.linalg.cholesky(squares), lower=1)[0]
    return inverse.T


def _narrowed(
    row: Float[np.ndarray, " unknown"], value: Float[np.ndarray, " *column"], slack: float, low: Numbers, high: Numbers
) -> tuple[Numbers, Numbers, bool]:
    """Return bounds of all numbers with what one equation says of each of them, and whether any crossed."""
    # A part that is lost in the rounding of others tells nothing.
    counted = np.abs(row) > _NEXT_TO * np.abs(row).max(initial=0.0)
    factor = row.reshape(-1, *[1] * (low.ndim - 1))
    ends = factor * low, factor * high
    least, most = np.minimum(*ends), np.maximum(*ends)
    lost = slack + _LOST * (np.abs(value) + np.maximum(-least, most).sum(0))
    above, below = value + lost - (least.sum(0) - least), value - lost - (most.sum(0) - most)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        by = above / factor, below / factor
    up, down = np.maximum(*by)[counted], np.minimum(*by)[counted]
    least, most = low.copy(), high.copy()
    least[counted], most[counted], crossed = _met(
        low[counted], high[counted], np.ceil(down - _SAME), np.floor(up + _SAME)
    )
    return least, most, crossed


def _met(low: Numbers, high: Numbers, lower: Numbers, upper: Numbers) -> tuple[Numbers, Numbers, bool]:
    """Return bounds within further ones, where those stop that would cross, and whether any would."""
    least, most = np.maximum(low, lower), np.minimum(high, upper)
    stopped = np.maximum(most, low)
    return np.minimum(least, stopped), stopped, bool((least > most).any())
