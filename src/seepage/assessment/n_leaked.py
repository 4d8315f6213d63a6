"""Number of the victim's rows that an attack on a share is worth (Suri and Evans, 2022)."""

from __future__ import annotations

import math

from seepage.errors import BadInputError


def rows_worth(accuracy: float, first: float, second: float) -> float | None:
    """Return the number of rows that, seen directly, would distinguish two shares as well as an attack does.

    Whoever sees ``n`` rows drawn at one of the shares and guesses the likelier one is right with a probability of at
    most ``(1 + sqrt(1 - m^n)) / 2``, with ``m`` the larger ratio of the smaller to the greater probability of a row;
    this is its inverse (Suri and Evans, *Formalizing and Estimating Distribution Inference Risks*, 2022, theorem 4.2).

    Args:
        accuracy: accuracy of the attack, on equally many targets of each share.
        first, second: the two shares, in (0, 1) or one of them 0 or 1.

    Returns:
        The number; 0 for an attack no better than chance; None where an attack was never wrong, as no number of rows
        is enough.

    Raises:
        BadInputError: a number is not in [0, 1], or the shares are equal.

    Example:
        >>> rows_worth(0.5, 0.33, 0.67), round(rows_worth(0.84, 0.33, 0.67), 2)
        (0.0, 0.88)
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


def rows_worth_of_error(share: float, squared_error: float) -> float | None:
    """Return the number of rows whose own share would estimate a share with the same mean squared error.

    The variance of the share of ``n`` rows is ``share (1 - share) / n`` (Suri and Evans, 2022, section 4.3).

    Returns:
        The number, or None where the error is 0, as no number of rows is enough.

    Example:
        >>> rows_worth_of_error(0.5, 0.01)
        25.0
    """
    return None if squared_error == 0 else share * (1 - share) / squared_error
