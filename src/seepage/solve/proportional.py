"""Proportional fitting: the table of largest entropy, beside a first one, that has given totals.

Numbers of cells are multiplied by what a total asks for over what they have of it, total by total and again. Where some
table has all totals, this converges to the one with the least sum of x log(x / first), Deming and Stephan 1940.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

_ROUNDS = 60
# Numbers up to here are none.
_NOTHING = 1e-200


def proportional(
    number: Float[np.ndarray, " pattern"],
    tables: Sequence[tuple[tuple[int, ...], np.ndarray]],
    patterns: Int[np.ndarray, "pattern column"],
) -> Float[np.ndarray, " pattern"]:
    """Return numbers of patterns that have tables, each of some columns, nearest to first numbers."""
    placed = [
        (np.ravel_multi_index(tuple(patterns[:, i] for i in columns), counted.shape), counted)
        for columns, counted in tables
    ]
    for _ in range(_ROUNDS if placed else 0):
        for place, table in placed:
            have = np.bincount(place, number, table.size)
            ratio = np.divide(table.ravel(), have, out=np.zeros(table.size), where=have > _NOTHING)
            number = number * ratio[place]
    return number
