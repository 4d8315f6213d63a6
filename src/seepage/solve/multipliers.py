"""Combinations of equations that prove whole numbers: multipliers y, and cases where one combination does not do.

For any y the equations give (y A) n = y b, give or take |y| s. Where y A is 1 at one unknown and 0 at all others, that
unknown is y b. Where y A is 0 on the unknowns that occur and above 0 on all others, and y b is 0, no others occur,
since none is below 0. Else the dual of a linear program that makes one unknown least is the y that bounds it best.
What no single y proves may hold in cases: below and above a number of records, each with a y of its own.

Nothing here has to be right: whoever checks a proof computes what y says by himself, and a wrong y says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.linalg import lstsq
from scipy.optimize import linprog

from seepage import kernel
from seepage.solve.directions import TOGETHER, Matrix, OrthogonalEquations, Vector

_SINGLE_PROGRAMS = 60
# Directions that a proof uses stand this many roundings above nothing; the fewer do so, the better it bounds.
_LEVELS = (1e5, 1e3)
_PROJECTIONS, _ABOVE, _PRICINGS = 400, 0.3, 8
# Most branches of one linear program.
_BRANCHES = 40


def _least_squares(matrix: Matrix, side: Vector, ratio: float) -> Vector:
    """Return the least squares of smallest norm, directions below a ratio of the largest left out."""
    solved: Any = lstsq(matrix, side, lapack_driver="gelsy", check_finite=False, cond=ratio)
    return np.asarray(solved[0])


def multipliers_for(
    directions: OrthogonalEquations, counts: Vector, until: Callable[[], bool]
) -> tuple[np.ndarray, bool]:
    """Return combinations of the equations by which the kernel can prove numbers, and whether these show all of them.

    Where the equations have full rank over the patterns they are solved. Else one combination that is 0 on the patterns
    that occur, and above 0 on all others, shows that the others do not occur, and the equations are solved on those
    that do. Where there is no such combination, linear programs bound single patterns.
    """
    upper = directions.system.high
    rows, combined, strong = directions.rows, directions.combined, np.ones(len(directions.rows), dtype=bool)
    inverse = np.zeros((0, len(rows)))
    for least in _LEVELS:
        strong = directions.weight > least
        rows, combined = directions.rows[strong], directions.combined[strong]
        inverse, solved_all = _inverse(rows, upper > 0)
        if solved_all:
            return inverse @ combined, True
        excluding = _excludes(rows, counts > 0, upper)
        if excluding is not None:
            inside, _ = _inverse(rows, counts > 0)
            return np.concatenate([excluding[None], inside]) @ combined, True
    return np.concatenate([inverse @ combined, _single_programs(directions, strong, counts, until)]), False


def _excludes(rows: Matrix, there: np.ndarray, upper: Vector) -> Vector | None:
    """Return a combination of directions that is 0 where records are and above 0 on all other patterns.

    Of many patterns, those that the last combination excludes least are priced first, and the combination is sought on
    them.
    """
    others = ~there & (upper > 0)
    basis, sizes, _ = np.linalg.svd(rows[:, there], full_matrices=True)
    free = basis[:, int((sizes > 1e-9).sum()) :]
    if not free.shape[1] or not others.any():
        return None
    reached = rows[:, others].T @ free
    hard = np.arange(len(reached))
    if len(reached) > TOGETHER:
        hard = np.argsort(reached @ reached.mean(0))[:TOGETHER]
    for _ in range(_PRICINGS):
        y = _positive_combination(reached[hard])
        value = None if y is None else reached @ y
        if y is None or value is None or float(value.min()) > _ABOVE / 2:
            return None if y is None or value is None else free @ y / float(value.min())
        hard = np.union1d(hard, np.argsort(value)[: TOGETHER // 2])
    return None


def _positive_combination(reached: Float[np.ndarray, "pattern direction"]) -> Vector | None:
    """Return a combination that is about 1 or more on all patterns; None where none is found.

    Found by projections in turn: on what combinations reach, and on what is at least 1.
    """
    space, triangle = np.linalg.qr(reached)
    wanted = np.ones(len(reached))
    for _ in range(_PROJECTIONS):
        value = space @ (space.T @ wanted)
        if float(value.min()) > _ABOVE:
            y = _least_squares(triangle, space.T @ wanted, 1e-9)
            return y if float((reached @ y).min()) > _ABOVE / 2 else None
        # Beyond the nearest point, so that few steps suffice.
        wanted = value + 1.8 * np.maximum(1 - value, 0)
    return None


def _inverse(rows: Matrix, chosen: np.ndarray) -> tuple[np.ndarray, bool]:
    """Return combinations that give the number of each of some patterns alone, and whether those of all are told."""
    part = rows[:, chosen]
    if part.shape[1] > TOGETHER:
        return np.zeros((0, len(rows))), False
    inverse = np.linalg.pinv(part, rcond=1e-9)
    alone = np.abs(inverse @ part - np.eye(part.shape[1])).max(1, initial=0.0) < 1e-6
    return inverse[alone], bool(alone.all())


def _single_programs(
    directions: OrthogonalEquations, strong: np.ndarray, counts: Vector, until: Callable[[], bool]
) -> np.ndarray:
    """Return combinations that bound single patterns from below, from the duals of linear programs."""
    bounding = [np.zeros((0, len(directions.system.values)))]
    upper, which = directions.system.high, np.flatnonzero(counts > 0)
    which = which[np.argsort(-counts[which])][: _SINGLE_PROGRAMS if len(upper) <= TOGETHER else 0]
    open_patterns = upper > 0
    within, most = directions.bounds
    # Directions that are left out have duals of 0.
    rows, sides = directions.rows * strong[:, None], directions.sides * strong
    for p in which:
        if until():
            break
        cost = np.zeros(int(open_patterns.sum()))
        cost[int(open_patterns[:p].sum())] = 1.0
        solved = linprog(
            cost, A_ub=within[:, open_patterns], b_ub=most, A_eq=rows[:, open_patterns], b_eq=sides,
            bounds=(0, None), method="highs", options={"time_limit": 1.0},
        )  # fmt: skip
        if solved.status == 0:
            bounding.append(directions.multipliers(solved))
    return np.concatenate(bounding)


def branched(
    directions: OrthogonalEquations, counts: Vector, low: Vector, high: Vector, until: Callable[[], bool]
) -> tuple[kernel.Split, ...]:
    """Return splits that prove numbers between their bounds, by integer programming: branches on linear programs.

    That a pattern has more records than it was found to have, or fewer, is refuted in every branch. Where a branch has
    other whole numbers with the sums, these show that the patterns they differ in cannot be proved.
    """
    splits, low, high = [], low.copy(), high.copy()
    others = np.zeros((0, len(counts)))
    nothing = torch.zeros((0, len(directions.system.values)), dtype=torch.float64)
    for p in np.flatnonzero(low < high):
        for more in (True, False):
            least, most = low.copy(), high.copy()
            if more:
                least[p] = counts[p] + 1
            else:
                most[p] = counts[p] - 1
            shown = ((others[:, p] >= least[p]) & (others[:, p] <= most[p])).any()
            if least[p] > most[p] or shown or until():
                continue
            refuted, other = _refuted(directions, least, most, [_BRANCHES], until)
            others = others if other is None else np.concatenate([others, other[None]])
            if refuted is None:
                continue
            if more:
                splits.append(kernel.Split(int(p), counts[p], nothing, refuted))
                high[p] = counts[p]
            else:
                splits.append(kernel.Split(int(p), counts[p] - 1, refuted, nothing))
                low[p] = counts[p]
    return tuple(splits)


def _refuted(
    directions: OrthogonalEquations, low: Vector, high: Vector, left: list[int], until: Callable[[], bool]
) -> tuple[kernel.Split | torch.Tensor | None, Vector | None]:
    """Return what proves that no whole numbers between bounds have the sums, or such numbers; None for neither.

    A linear program finds the least total error; its dual is the proof where that is above 0.
    """
    left[0] -= 1
    if left[0] < 0 or until():
        return None, None
    count, width = len(low), len(directions.system.values) ** 0.5 / directions.weight
    eye = np.eye(len(directions.rows))
    off = np.stack([-width, width], axis=1)
    within, most = directions.bounds
    zero = np.zeros((len(within), len(eye)))
    over = -np.ones((len(within), 1))
    free = np.tile([0.0, np.inf], (2 * len(eye) + 1, 1))
    column = np.zeros((len(eye), 1))
    solved = linprog(
        np.concatenate([np.zeros(count + len(eye)), np.ones(2 * len(eye) + 1)]),
        A_ub=np.concatenate([within, zero, zero, zero, over], axis=1), b_ub=most,
        A_eq=np.concatenate([directions.rows, eye, eye, -eye, column], axis=1), b_eq=directions.sides,
        bounds=np.concatenate([np.stack([low, high], axis=1), off, free]), method="highs",
    )  # fmt: skip
    if solved.status != 0:
        return None, None
    if solved.fun > 1e-6:
        return torch.from_numpy(directions.multipliers(solved)), None
    number = solved.x[:count]
    apart = np.abs(number - np.rint(number))
    if apart.max() < 1e-6:
        whole_numbers = np.rint(number)
        return None, whole_numbers if directions.system.fits(whole_numbers) else None
    split = int(apart.argmax())
    below, above = high.copy(), low.copy()
    below[split], above[split] = np.floor(number[split]), np.ceil(number[split])
    first, other = _refuted(directions, low, below, left, until)
    if first is None:
        return None, other
    second, other = _refuted(directions, above, high, left, until)
    return (None if second is None else kernel.Split(split, float(below[split]), first, second)), other
