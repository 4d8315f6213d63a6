"""Whole numbers nearest to their sums: least squares in orthogonal directions of the equations, then integer programs.

Sums that are off by s weigh 1 / s. With the singular values A / s = U S V^T, the directions

    V^T n = S^-1 U^T (b / s)

are orthogonal, and each is off by about 1 / S_k: its weight S_k says by how many roundings it stands above nothing.
Those that stand too little above nothing are left out; what is left has the same solutions, apart from roundings. A
combination of the directions is one of the equations, which is how bounds that are found here are handed to a proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import nnls

from seepage.solve.programs import cheapest
from seepage.solve.remainders import to_total
from seepage.solve.whole_numbers import WholeNumbers

Matrix = Float[np.ndarray, "equation unknown"]
Vector = Float[np.ndarray, " _"]
# Unknowns beyond which least squares are solved on some of them, the others priced by reduced costs.
TOGETHER = 2_500
# Rounds of pricing, unknowns of the first and those that enter in each, and distance by which a solution may differ
# from whole numbers.
_PRICED, _FIRST, _ENTER, _WHOLE = 200, 600, 200, 0.2
# Least ratio of a direction's square to the largest, where directions follow from products of the equations.
_SQUARED = 1e-12
# Roundings beyond which a direction of the equations is worth no more, and those that it must have at least.
_MOST, _LEAST = 1e7, 30.0
_SECONDS_OF_WHOLE_NUMBERS = 3.0
# Rounds of moving towards numbers that have the sums.
_ROUNDS = 12
# Slack beside the largest entry from which an equation is a bound.
_LOOSE = 0.02


@dataclass
class OrthogonalEquations:
    """Directions of the equations of a vector of whole numbers, each in units of what it may be off by."""

    system: WholeNumbers
    # Whether wide equations are bounds that nothing is gained from in least squares.
    bounded: bool = False
    rows: Matrix = field(init=False)
    sides: Vector = field(init=False)
    weight: Vector = field(init=False)
    # For each direction, its combination of the equations.
    combined: Float[np.ndarray, "direction equation"] = field(init=False)
    # Equations that are bounds, such as numbers of records below a quantile.
    loose: Int[np.ndarray, " bound"] = field(init=False)

    def __post_init__(self) -> None:
        system = self.system
        unit = np.maximum(system.slack, 1e-14 * np.maximum(np.abs(system.values), 1.0))
        largest = np.abs(system.matrix).max(1, initial=0.0)
        self.loose = np.flatnonzero((system.slack > _LOOSE * largest) & (largest > 0) & self.bounded)
        if system.matrix.shape[1] <= TOGETHER:
            strict = np.setdiff1d(np.arange(len(unit)), self.loose)
            left, sizes, right = np.linalg.svd(system.matrix[strict] / unit[strict, None], full_matrices=False)
            large = sizes > _LEAST
            self.rows, self.weight = right[large], sizes[large]
            self.combined = np.zeros((int(large.sum()), len(unit)))
            self.combined[:, strict] = (left[:, large] / sizes[large]).T / unit[None, strict]
        else:
            # Squares of the directions, which loses small ones, but takes a tenth of the time.
            sizes = np.linalg.norm(system.matrix, axis=1)
            large = sizes > _LEAST * unit
            rows = system.matrix[large] / sizes[large, None]
            squares, vectors = np.linalg.eigh(rows @ rows.T)
            above = squares > _SQUARED * squares[-1]
            turned = (vectors[:, above] / np.sqrt(squares[above])).T
            self.rows = turned @ rows
            self.combined = np.zeros((len(turned), len(unit)))
            self.combined[:, large] = turned / sizes[large]
            self.weight = 1 / (np.abs(self.combined) @ unit)
        self.sides = self.combined @ system.values

    @property
    def rank(self) -> int:
        """Number of directions that stand above roundings."""
        return len(self.rows)

    @property
    def bounds(self) -> tuple[Matrix, Vector]:
        """Rows that are at most some values: both sides of equations that are bounds."""
        rows, values, slack = (part[self.loose] for part in (self.system.matrix, self.system.values, self.system.slack))
        return np.concatenate([rows, -rows]), np.concatenate([values + slack, slack - values])

    def multipliers(self, solved: Any) -> Float[np.ndarray, "1 equation"]:
        """Return the combination of the equations that the duals of a linear program are."""
        both = np.split(solved.ineqlin.marginals, 2)
        combination = solved.eqlin.marginals @ self.combined
        combination[self.loose] += both[0] - both[1]
        return combination[None]


def without_negatives(directions: OrthogonalEquations, first: Vector, until: Callable[[], bool]) -> Vector:
    """Return numbers from 0 up with the least weighted squared error.

    Of many patterns, those that ``first`` expects most records of come first. Others are priced: the ones whose reduced
    costs are best enter, and the ones without records leave, until none would lower the error. In orthogonal directions
    few rounds suffice.

    Source: Lawson and Hanson 1974, algorithm 23.10; column generation after Gilmore and Gomory 1961.
    """
    upper, weight = directions.system.high, np.minimum(directions.weight, _MOST) / _MOST
    matrix, side = directions.rows * weight[:, None], directions.sides * weight
    number, barred = np.zeros(matrix.shape[1]), upper <= 0
    many = matrix.shape[1] > TOGETHER
    used = np.argsort(-first)[:_FIRST] if many else np.flatnonzero(~barred)
    for _ in range(_PRICED):
        try:
            number = _spread(nnls(matrix[:, used], side)[0], used, len(number))
        except RuntimeError:
            # It did not converge: on some patterns it may, else the numbers before are as near as it gets.
            if many:
                break
            many, used = True, np.argsort(-first)[:_FIRST]
            continue
        if not many or until() or directions.system.fits(np.rint(number)):
            break
        gain = matrix.T @ (side - matrix @ number)
        gain[barred] = -np.inf
        gain[used] = -np.inf
        entering = np.argsort(-gain)[:_ENTER]
        entering = entering[gain[entering] > 1e-13]
        if not len(entering):
            break
        used = np.concatenate([used[number[used] > 1e-9], entering])
    return number


def toward(directions: OrthogonalEquations, expected: Vector) -> Vector:
    """Return numbers that have the sums and are near expected ones, in units of their own size."""
    upper = directions.system.high
    number = np.maximum(expected, 1e-6) * (upper > 0)
    blur = np.diag(1 / np.minimum(directions.weight, _MOST) ** 2)
    for _ in range(_ROUNDS):
        scaled = directions.rows * number[None]
        gap = directions.sides - directions.rows @ number
        change = scaled.T @ np.linalg.solve(scaled @ directions.rows.T + blur, gap)
        number = np.minimum(np.maximum(number + change, 0.1 * number), upper)
    return number


def _spread(values: Vector, mask: np.ndarray, length: int) -> Vector:
    number = np.zeros(length)
    number[mask] = values
    return number


def whole(directions: OrthogonalEquations, near: Vector, total: int) -> tuple[Vector, str]:
    """Return whole numbers with the sums, near least squares, and the method that gave them."""
    upper = directions.system.high
    rounded = np.minimum(np.rint(near), upper)
    if directions.system.fits(rounded):
        return rounded, "least squares"
    few = np.abs(near - np.rint(near)) > _WHOLE
    tried = [np.flatnonzero((near > 1e-6) | few)]
    tried += [np.flatnonzero(upper > 0)] if len(directions.loose) and len(near) <= TOGETHER else []
    for candidates in tried:
        repaired = _repaired(directions, near, candidates)
        if repaired is not None and directions.system.fits(repaired):
            return repaired, "integer programming"
    return to_total(near, total, upper).astype(float), "least squares, rounded"


def _repaired(directions: OrthogonalEquations, near: Vector, candidates: np.ndarray) -> Vector | None:
    """Return whole numbers within roundings of the sums, from integer programming over some patterns."""
    if not len(candidates):
        return None
    order = np.argsort(directions.weight)[::-1]
    width = 1e-6 + len(directions.system.values) ** 0.5 / directions.weight
    rows, sides, width = directions.rows[order][:, candidates], directions.sides[order], width[order]
    precise = width < 0.05
    within, most = directions.bounds
    solved = cheapest(
        -np.log(np.maximum(near[candidates], 1e-3)),
        directions.system.high[candidates],
        [
            (rows[precise], sides[precise] - width[precise], sides[precise] + width[precise]),
            (within[:, candidates], -np.inf, most),
        ],
        options={"time_limit": _SECONDS_OF_WHOLE_NUMBERS},
    )
    return None if solved is None else _spread(solved, candidates, len(near))
