"""Choices of one option an item whose values add up to a known sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int

# Combinations of half of the items that are tried at most: their sums are sorted and met with those of the other half.
# As many choices are returned at most.
MOST = 2**14


def choices(
    options: Sequence[Float[np.ndarray, "_option value"]],
    target: Float[np.ndarray, " value"],
    allowed: float | Float[np.ndarray, " value"],
    most: int = MOST,
) -> list[tuple[int, ...]] | None:
    """Return every choice of one option of each item whose values add up to a target; None where there are too many.

    Args:
        options: values of each option of each item.
        target: what the values of the chosen options add up to.
        allowed: the most that each sum may be off by.
        most: largest number of combinations of half of the items, and of choices.
    """
    if not options:
        return [()] if bool((np.abs(target) <= allowed).all()) else []
    # Items with many options first, each to the half with fewer combinations.
    order = sorted(range(len(options)), key=lambda item: -len(options[item]))
    halves: tuple[list[int], list[int]] = ([], [])
    sizes = [1, 1]
    for item in order:
        half = int(sizes[1] < sizes[0])
        halves[half].append(item)
        sizes[half] *= len(options[item])
    if max(sizes) > most:
        return None
    first, second = (_sums(options, half, len(target)) for half in halves)
    solutions: list[tuple[int, ...]] = []
    for first_half, near in _matches(second, target - first, allowed):
        if len(solutions) + len(near) > most:
            return None
        for there in near.tolist():
            chosen = [0] * len(options)
            for half, index in zip(halves, (first_half, there), strict=True):
                for item in reversed(half):
                    index, chosen[item] = divmod(index, len(options[item]))
            solutions.append(tuple(chosen))
    return solutions


def all_choices(
    options: Sequence[Float[np.ndarray, "_option value"]],
    targets: Float[np.ndarray, "target value"],
    allowed: float | Float[np.ndarray, " value"],
) -> list[Int[np.ndarray, "_choice item"]]:
    """Return for each target every choice of one option of each item; all combinations are listed, so few should be."""
    sums = _sums(options, range(len(options)), targets.shape[1])
    matches = dict(_matches(sums, targets, allowed))
    sizes = [len(option) for option in options]
    none = np.zeros(0, dtype=np.int64)
    return [np.stack(np.unravel_index(matches.get(i, none), sizes), axis=-1) for i in range(len(targets))]


def _matches(
    sums: Float[np.ndarray, "combination value"],
    wanted: Float[np.ndarray, "target value"],
    allowed: float | Float[np.ndarray, " value"],
) -> Iterator[tuple[int, Int[np.ndarray, " near"]]]:
    """Return each target with the combinations whose sums are near to it, where there are some."""
    by_first = np.argsort(sums[:, 0], kind="stable")
    ordered = sums[by_first]
    slack = np.broadcast_to(allowed, wanted.shape[1:])
    low = np.searchsorted(ordered[:, 0], wanted[:, 0] - slack[0])
    high = np.searchsorted(ordered[:, 0], wanted[:, 0] + slack[0], side="right")
    for index in np.flatnonzero(high > low):
        near = (np.abs(ordered[low[index] : high[index]] - wanted[index]) <= slack).all(axis=1)
        yield int(index), by_first[low[index] : high[index]][near]


def _sums(
    options: Sequence[Float[np.ndarray, "_option value"]], items: Sequence[int], width: int
) -> Float[np.ndarray, "combination value"]:
    """Return the sum of each combination of options, the last item's option changing first."""
    sums = np.zeros((1, width))
    for item in items:
        sums = (sums[:, None] + options[item]).reshape(-1, width)
    return sums
