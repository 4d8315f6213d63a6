"""Integer programs: the cheapest whole numbers n within limits, as near to some sums as these let them be.

    least  c n + sum |B n - t|   with  l <= A n <= h  and  0 <= n <= u whole.

A distance d stands for each entry of |B n - t|, by B n - d <= t and B n + d >= t.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, csr_array, hstack

Vector = Float[np.ndarray, " _"]
Limits = tuple[Any, Vector | float, Vector | float]


def cheapest(
    cost: Float[np.ndarray, " unknown"],
    upper: Float[np.ndarray, " unknown"],
    limits: Sequence[Limits],
    sums: Sequence[tuple[Any, Vector]] = (),
    options: Mapping[str, float] | None = None,
) -> Float[np.ndarray, " unknown"] | None:
    """Return whole numbers, the best ones that were found; None where there are none, or none were found in time.

    Args:
        cost: c, of each number.
        upper: u, the most that each number may be.
        limits: A, dense or sparse, with l and h.
        sums: B, dense or sparse, with t.
        options: those of ``scipy.optimize.milp``: limits of time or nodes, and the gap at which it stops.
    """
    count, distances = len(cost), sum(len(target) for _, target in sums)

    def between(matrix: Any, distance: Any, low: Vector | float, high: Vector | float) -> LinearConstraint:
        return LinearConstraint(hstack([csr_array(matrix), distance], format="csr"), low, high)  # pyright: ignore

    constraints = [
        between(matrix, csr_array((matrix.shape[0], distances)), low, high)
        if distances
        else LinearConstraint(matrix, low, high)  # pyright: ignore
        for matrix, low, high in limits
        if matrix.shape[0]
    ]
    first = 0
    for matrix, target in sums:
        equations = np.arange(len(target))
        distance = coo_array(
            (np.ones(len(equations)), (equations, first + equations)), shape=(len(equations), distances)
        )
        constraints += [between(matrix, -distance, -np.inf, target), between(matrix, distance, target, np.inf)]
        first += len(target)
    solved = milp(
        np.concatenate([cost, np.ones(distances)]),
        integrality=np.concatenate([np.ones(count), np.zeros(distances)]),
        bounds=Bounds(0, np.concatenate([upper, np.full(distances, np.inf)])),  # pyright: ignore
        constraints=constraints,
        options=dict(options or {}),
    )
    return None if solved.x is None else np.rint(solved.x[:count])
