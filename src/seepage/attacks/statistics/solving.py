"""Numbers of records of each pattern from a site's sums: least squares without negatives, whole numbers, bounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.linalg import lstsq
from scipy.optimize import Bounds, LinearConstraint, linprog, milp, nnls

from seepage import kernel

Matrix = Float[np.ndarray, "equation pattern"]
Vector = Float[np.ndarray, " _"]
# Patterns beyond which equations are made comparable one by one instead of all together, and nothing is proved.
_TOGETHER = 2_500
# Steps of least squares, columns that enter at a time, and records by which a solution may differ from whole numbers.
_STEPS, _ENTER, _WHOLE = 400, 12, 0.2
# Roundings beyond which a direction of the equations is worth no more, and those that it must have at least.
_MOST, _LEAST = 1e7, 30.0
_SECONDS_OF_WHOLE_NUMBERS = 3.0
_SINGLE_PROGRAMS = 60
# Rounds of proportional fitting, and of moving towards numbers that have the sums.
_FITTED, _ROUNDS = 60, 12
# Directions that a proof uses stand this many roundings above nothing; the fewer do so, the better it bounds.
_LEVELS = (1e5, 1e3)
_PROJECTIONS, _ABOVE = 400, 0.3


@dataclass(frozen=True)
class SolvedCounts:
    """Numbers of records of each pattern.

    Attributes:
        patterns: places of the levels among those that were precise, (pattern, column).
        counts: whole numbers, one a pattern.
        fits: whether they have the sums within their roundings.
        multipliers: combinations of the equations that bound the numbers, for the kernel.
        rank: number of independent equations over the patterns, as far as roundings let them tell.
        by: method that found the numbers.
    """

    patterns: Int[np.ndarray, "pattern column"]
    counts: Float[np.ndarray, " pattern"]
    fits: bool
    multipliers: Float[np.ndarray, "combination equation"]
    rank: int
    by: str

    @property
    def tried(self) -> bool:
        """Whether the numbers are worth more than those of cross tables: they fit, or are few and noisy."""
        return self.fits or len(self.counts) <= _TOGETHER


@dataclass
class System:
    """Equations in directions that are orthogonal as far as may be, each in units of what it may be off by."""

    matrix: Matrix
    values: Vector
    slack: Vector
    rows: Matrix = field(init=False)
    sides: Vector = field(init=False)
    weight: Vector = field(init=False)
    # For each direction, its combination of the equations.
    combined: Float[np.ndarray, "direction equation"] = field(init=False)

    def __post_init__(self) -> None:
        unit = np.maximum(self.slack, 1e-14 * np.maximum(np.abs(self.values), 1.0))
        scaled = self.matrix / unit[:, None]
        if self.matrix.shape[1] <= _TOGETHER:
            left, sizes, right = np.linalg.svd(scaled, full_matrices=False)
            some = sizes > _LEAST
            self.rows, self.weight = right[some], sizes[some]
            self.combined = (left[:, some] / sizes[some]).T / unit[None, :]
        else:
            sizes = np.linalg.norm(scaled, axis=1)
            some = sizes > _LEAST
            self.rows, self.weight = scaled[some] / sizes[some, None], sizes[some]
            self.combined = np.zeros((int(some.sum()), len(unit)))
            self.combined[np.arange(int(some.sum())), np.flatnonzero(some)] = 1 / (sizes * unit)[some]
        self.sides = self.combined @ self.values

    @property
    def rank(self) -> int:
        """Number of directions that stand above roundings."""
        if self.matrix.shape[1] <= _TOGETHER:
            return len(self.rows)
        sizes = np.linalg.eigvalsh(self.rows @ self.rows.T)
        return int((sizes > 1e-12 * sizes[-1]).sum())

    def fits(self, counts: Vector) -> bool:
        """Return whether numbers have the sums within what these may be off by."""
        off = np.abs(self.matrix @ counts - self.values)
        return bool((off <= self.slack + 1e-12 * np.abs(self.values)).all())


def without_negatives(system: System, upper: Vector, until: Callable[[], bool]) -> Vector:
    """Return numbers from 0 up with the least weighted squared error, by an active set that starts empty.

    Source: Lawson and Hanson 1974, algorithm 23.10; of many patterns several enter at a time, which is the generation
    of columns by their reduced costs.
    """
    weight = np.minimum(system.weight, _MOST) / _MOST
    matrix, side = system.rows * weight[:, None], system.sides * weight
    if matrix.shape[1] <= _TOGETHER:
        some = np.flatnonzero(upper > 0)
        try:
            return _spread(nnls(matrix[:, some], side)[0], some, len(upper))
        except RuntimeError:
            # It did not converge; the other one stops at numbers that have the sums.
            pass
    number = np.zeros(matrix.shape[1])
    active = np.zeros(len(number), dtype=bool)
    barred = upper <= 0
    scale = float(np.abs(matrix.T @ side).max()) or 1.0
    for _ in range(_STEPS):
        gradient = matrix.T @ (side - matrix @ number)
        gradient[active | barred] = -np.inf
        best = np.argsort(gradient)[::-1][:_ENTER]
        entering = best[gradient[best] > 1e-13 * scale]
        if not len(entering):
            break
        active[entering] = True
        number, active = _on(matrix, side, number, active)
        if until() or system.fits(np.rint(number)):
            break
    return number


def likeliest(sent: kernel.Totals, patterns: Int[np.ndarray, "pattern column"]) -> Vector:
    """Return the numbers of largest entropy that have the cross tables, by proportional fitting; alike without any."""
    number = np.full(len(patterns), sent.records / len(patterns))
    tables = kernel.cross_tables(sent)
    for _ in range(_FITTED if tables is not None else 0):
        assert tables is not None
        for i in range(len(tables)):
            for j in range(i):
                table = tables[j][i].numpy()
                place = patterns[:, j] * table.shape[1] + patterns[:, i]
                have = np.bincount(place, number, table.size)
                number = number * (table.ravel() / np.maximum(have, 1e-300))[place]
    return number


def toward(system: System, expected: Vector, upper: Vector) -> Vector:
    """Return numbers that have the sums and are near expected ones, in units of their own size."""
    number = np.maximum(expected, 1e-6) * (upper > 0)
    blur = np.diag(1 / np.minimum(system.weight, _MOST) ** 2)
    for _ in range(_ROUNDS):
        scaled = system.rows * number[None]
        gap = system.sides - system.rows @ number
        change = scaled.T @ np.linalg.solve(scaled @ system.rows.T + blur, gap)
        number = np.minimum(np.maximum(number + change, 0.1 * number), upper)
    return number


def _least_squares(matrix: Matrix, side: Vector, ratio: float) -> Vector:
    """Return the least squares of smallest norm, directions below a ratio of the largest left out."""
    solved: Any = lstsq(matrix, side, lapack_driver="gelsy", check_finite=False, cond=ratio)
    return np.asarray(solved[0])


def _spread(values: Vector, some: np.ndarray, length: int) -> Vector:
    number = np.zeros(length)
    number[some] = values
    return number


def _on(
    matrix: Matrix, side: Vector, number: Vector, active: Bool[np.ndarray, " pattern"]
) -> tuple[Vector, np.ndarray]:
    """Return the least squares on the active patterns, those that would turn negative left out one step at a time."""
    while active.any():
        some = np.flatnonzero(active)
        solution = _least_squares(matrix[:, some], side, 1e-11)
        negative = solution <= 1e-9
        if not negative.any():
            number = np.zeros_like(number)
            number[some] = solution
            return number, active
        before = number[some]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(negative, before / (before - solution), np.inf)
        step = float(np.nanmin(share))
        moved = before + min(max(step, 0.0), 1.0) * (solution - before)
        gone = negative & (moved <= 1e-9)
        if not gone.any():
            gone = negative
        number[some] = np.where(gone, 0.0, np.maximum(moved, 0.0))
        active = active.copy()
        active[some[gone]] = False
    return np.zeros_like(number), active


def whole(system: System, near: Vector, upper: Vector, total: int) -> tuple[Vector, str]:
    """Return whole numbers with the sums, near least squares, and the method that gave them."""
    rounded = np.minimum(np.rint(near), upper)
    if system.fits(rounded):
        return rounded, "least squares"
    few = np.abs(near - np.rint(near)) > _WHOLE
    candidates = np.flatnonzero((near > 1e-6) | few)
    repaired = _repaired(system, near, upper, candidates)
    if repaired is not None and system.fits(repaired):
        return repaired, "integer programming"
    return _to_total(near, upper, total), "least squares, rounded"


def _repaired(system: System, near: Vector, upper: Vector, candidates: np.ndarray) -> Vector | None:
    """Return whole numbers within roundings of the sums, from integer programming over some patterns."""
    if not len(candidates):
        return None
    order = np.argsort(system.weight)[::-1]
    width = 1e-6 + len(system.values) ** 0.5 / system.weight
    rows, sides, width = system.rows[order][:, candidates], system.sides[order], width[order]
    precise = width < 0.05
    solved = milp(
        -np.log(np.maximum(near[candidates], 1e-3)),
        constraints=LinearConstraint(rows[precise], sides[precise] - width[precise], sides[precise] + width[precise]),
        integrality=np.ones(len(candidates)),
        bounds=Bounds(np.zeros(len(candidates)), upper[candidates]),  # pyright: ignore[reportArgumentType]
        options={"time_limit": _SECONDS_OF_WHOLE_NUMBERS},
    )
    if solved.x is None:
        return None
    number = np.zeros_like(near)
    number[candidates] = np.rint(solved.x)
    return number


def _to_total(near: Vector, upper: Vector, total: int) -> Vector:
    """Return whole numbers that add up, by largest remainders.

    Example:
        >>> _to_total(np.array([1.4, 0.9, 0.7]), np.array([3.0, 3.0, 3.0]), 3).tolist()
        [1.0, 1.0, 1.0]
    """
    scaled = np.minimum(np.maximum(near, 0), upper)
    scaled = scaled * (total / max(float(scaled.sum()), 1e-300))
    floor = np.floor(scaled + 1e-9)
    short = int(total - floor.sum())
    if short > 0:
        order = np.argsort(scaled - floor)[::-1]
        for k in range(short):
            floor[order[k % len(order)]] += 1
    return floor


def multipliers_for(
    system: System, counts: Vector, upper: Vector, until: Callable[[], bool]
) -> tuple[np.ndarray, bool]:
    """Return combinations of the equations by which the kernel can prove numbers, and whether these show all of them.

    Where the equations have full rank over the patterns they are solved. Else one combination that is 0 on the patterns
    that occur, and above 0 on all others, shows that the others do not occur, and the equations are solved on those
    that do. Where there is no such combination, linear programs bound single patterns.
    """
    rows, combined, strong = system.rows, system.combined, np.ones(len(system.rows), dtype=bool)
    inverse = np.zeros((0, len(rows)))
    for least in _LEVELS:
        strong = system.weight > least
        rows, combined = system.rows[strong], system.combined[strong]
        inverse, solved_all = _inverse(rows, upper > 0)
        if solved_all:
            return inverse @ combined, True
        excluding = _excludes(rows, counts > 0, upper)
        if excluding is not None:
            inside, _ = _inverse(rows, counts > 0)
            return np.concatenate([excluding[None], inside]) @ combined, True
    bounding = np.concatenate([inverse, _single_programs(rows, system.sides[strong], counts, upper, until)]) @ combined
    return bounding, False


def _excludes(rows: Matrix, there: np.ndarray, upper: Vector) -> Vector | None:
    """Return a combination of directions that is 0 where records are and at least 1 on all other patterns.

    Found by projections in turn: on what combinations reach, and on what is at least 1.
    """
    others = ~there & (upper > 0)
    basis, sizes, _ = np.linalg.svd(rows[:, there], full_matrices=True)
    free = basis[:, int((sizes > 1e-9).sum()) :]
    if not free.shape[1] or not others.any():
        return None
    reached = rows[:, others].T @ free
    space, triangle = np.linalg.qr(reached)
    wanted = np.ones(len(reached))
    for _ in range(_PROJECTIONS):
        value = space @ (space.T @ wanted)
        if float(value.min()) > _ABOVE:
            y = _least_squares(triangle, space.T @ wanted, 1e-9)
            least = float((reached @ y).min())
            return free @ y / least if least > _ABOVE / 2 else None
        # Beyond the nearest point, so that few steps suffice.
        wanted = value + 1.8 * np.maximum(1 - value, 0)
    return None


def _inverse(rows: Matrix, some: np.ndarray) -> tuple[np.ndarray, bool]:
    """Return combinations that give the number of each of some patterns alone, and whether those of all are told."""
    part = rows[:, some]
    inverse = np.linalg.pinv(part, rcond=1e-9)
    alone = np.abs(inverse @ part - np.eye(part.shape[1])).max(1, initial=0.0) < 1e-6
    return inverse[alone], bool(alone.all())


def _single_programs(
    rows: Matrix, sides: Vector, counts: Vector, upper: Vector, until: Callable[[], bool]
) -> np.ndarray:
    """Return combinations that bound single patterns from below, from the duals of linear programs."""
    bounding = [np.zeros((0, len(rows)))]
    which = np.flatnonzero(counts > 0)
    which = which[np.argsort(-counts[which])][:_SINGLE_PROGRAMS]
    open_patterns = upper > 0
    for p in which:
        if until():
            break
        cost = np.zeros(int(open_patterns.sum()))
        cost[int(open_patterns[:p].sum())] = 1.0
        solved = linprog(
            cost, A_eq=rows[:, open_patterns], b_eq=sides, bounds=(0, None), method="highs",
            options={"time_limit": 1.0},
        )  # fmt: skip
        if solved.status == 0:
            bounding.append(solved.eqlin.marginals[None])
    return np.concatenate(bounding)


def solve(sent: kernel.Totals, seconds: float = 20.0) -> SolvedCounts:
    """Return the numbers of records of each pattern from a site's sums.

    Raises:
        kernel.RefusedError: the sums are no sums of the declared records, or there are too many patterns.
    """
    begun = time.process_time()
    patterns, most = kernel.patterns_of(sent)
    sums = kernel.equations(sent, patterns)
    upper = most.numpy()
    system = System(sums.matrix.numpy(), sums.values.numpy(), sums.slack.numpy())
    late = lambda: time.process_time() - begun > seconds  # noqa: E731
    numbers = without_negatives(system, upper, late)
    counts, by = whole(system, numbers, upper, sent.records)
    fits = system.fits(counts)
    few = len(patterns) <= _TOGETHER and sent.defense == "none"
    proofs, settled = np.zeros((0, len(sums.values))), not few
    if fits and few:
        proofs, settled = multipliers_for(system, counts, upper, late)
    if not settled:
        # Many numbers have the sums: those near the likeliest table are the better guess.
        near = toward(system, likeliest(sent, patterns.numpy()), upper)
        counts, by = _to_total(near, upper, sent.records), "near the likeliest table"
        fits = system.fits(counts)
    return SolvedCounts(patterns.numpy(), counts, fits, proofs, system.rank, by)


def proved(sent: kernel.Totals, solved: SolvedCounts) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the most records of each pattern that the kernel proves."""
    _, low, high = kernel.bounds(sent, torch.from_numpy(solved.multipliers))
    return low.numpy(), high.numpy()
