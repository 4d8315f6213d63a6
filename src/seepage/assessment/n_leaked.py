"""Number of the victim's rows that an attack on a share is worth (Suri and Evans, 2022)."""

from __future__ import annotations

import math

from seepage.errors import BadInputError


def rows_worth(accuracy: float, first: float, second: float) -> float | None:
    """Return the number of rows that, seen directly, would distinguish two shares as well as an attack does.

    Whoever sees ``n`` rows drawn at one of the shares and guesses the likelier one is right with a probability of at
    most ``(1 + sqrt(1 - m^n)) / 2``, with ``m`` the larger ratio of the smaller to the greater probability of a row;
    this is its inverse (Suri and Evans, *Formalizing and Estimating Distribution Inference Risks*, 2022, theorem 4.2).
    None where an attack was never wrong, as no number of rows is enough.
    """
    if not all(0 <= number <= 1 for number in (accuracy, first, second)) or first == second:
        raise BadInputError(
            f"an accuracy and two different shares lie in [0, 1]; got accuracy={accuracy!r}, {first!r} and {second!r}."
        )
    gain = max(0.0, 2 * accuracy - 1)
    if gain == 1:
        return None
    low, high = sorted((first, second))
    ratio = max(low / high, (1 - high) / (1 - low))
    return 0.0 if gain == 0 or ratio == 0 else math.log(1 - gain**2) / math.log(ratio)
