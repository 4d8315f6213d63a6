"""The statistics of a table in exact fractions, one cell at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction


def moments(cells: Sequence[float]) -> tuple[float, float]:
    """Return mean and unbiased standard deviation."""
    exact = [Fraction(cell) for cell in cells]
    mean = sum(exact, Fraction(0)) / len(exact)
    variance = sum(((cell - mean) ** 2 for cell in exact), Fraction(0)) / (len(exact) - 1)
    # The root of a ratio of big integers, to 60 bits, where float(variance) would overflow or vanish.
    shift = 2 * max(0, 64 - (variance.numerator.bit_length() - variance.denominator.bit_length()) // 2)
    root = math.isqrt(variance.numerator * 2**shift // variance.denominator)
    return float(mean), float(Fraction(root, 2 ** (shift // 2)))


def shares(cells: Sequence[float], width: int) -> list[float]:
    """Return the share of each code."""
    return [sum(cell == code for cell in cells) / len(cells) for code in range(width)]


def histogram(cells: Sequence[float], bins: int) -> dict[int, float]:
    """Return the share of each non-empty one of ``bins`` equal bins, the last one closed above."""
    low, high = Fraction(min(cells)), Fraction(max(cells))
    counts: dict[int, int] = {}
    for cell in cells:
        position = 0 if low == high else min(bins - 1, math.floor((Fraction(cell) - low) * bins / (high - low)))
        counts[position] = counts.get(position, 0) + 1
    return {position: counts[position] / len(cells) for position in sorted(counts)}
