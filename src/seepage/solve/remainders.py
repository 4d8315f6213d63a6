"""Whole numbers that add up to a total, by largest remainders.

Numbers x are scaled to the total, x' = x total / sum(x), and cut to whole numbers. What is missing of the total goes to
those that lost most, one each; this is the nearest table of whole numbers with this total.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

# Distance from whole numbers up to which these are taken as they are, where they have the total.
_WHOLE = 0.01


def to_total(
    near: Float[np.ndarray, " part"], total: int, upper: Float[np.ndarray, " part"] | None = None
) -> Int[np.ndarray, " part"]:
    """Return whole numbers near some, cut off at ``upper`` and scaled to a total; even ones where all are 0.

    Example:
        >>> to_total(np.array([1.4, 0.9, 0.7]), 3).tolist()
        [1, 1, 1]
    """
    scaled = np.maximum(np.nan_to_num(near), 0)
    scaled = scaled if upper is None else np.minimum(scaled, upper)
    whole = np.rint(scaled)
    if not len(near) or (whole.sum() == total and np.abs(scaled - whole).max() <= _WHOLE):
        return whole.astype(int)
    scaled = scaled * (total / max(float(scaled.sum()), 1e-300))
    floor = np.floor(scaled + 1e-9).astype(int)
    share, more = divmod(max(total - int(floor.sum()), 0), len(floor))
    floor += share
    floor[np.argsort(floor - scaled, kind="stable")[:more]] += 1
    return floor
