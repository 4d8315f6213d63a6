"""Evidence by betting in decimal arithmetic of 60 digits, one bet and one unit at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from itertools import cycle


def log_wealth(payoffs: Sequence[Decimal]) -> float:
    """Return the logarithm of the mixture's wealth; half of it is bet as a whole on every unit."""
    with localcontext(prec=60):
        total = Decimal(0)
        for g in range(60):
            bet = Decimal(math.sin(math.pi * (g + 0.5) / 120) ** 2)
            wealth = Decimal(1)
            for payoff in payoffs:
                wealth *= 1 + bet * (payoff - 1)
            total += wealth / 120
        return float((total + math.prod(payoffs, start=Decimal(1)) / 2).ln())


def evidence_below(lifts: Sequence[float], limit: float, upper: float = 1.0) -> float:
    """Return the logarithm of the evidence that the mean is below the limit."""
    with localcontext(prec=60):
        room = Decimal(upper) - Decimal(limit)
        payoffs = [(Decimal(upper) - Decimal(lift)) / room for lift in lifts]
    return log_wealth(payoffs)


def passes(lifts: Sequence[float], limit: float, alpha: float = 0.025) -> bool:
    """Return whether the evidence suffices."""
    return evidence_below(lifts, limit) >= math.log(1 / alpha)


def more_units(lifts: Sequence[float], limit: float, most: int) -> int | None:
    """Return how many more units pass, one appended after the other."""
    seen, again = list(lifts), cycle(lifts)
    for more in range(most + 1):
        if passes(seen, limit):
            return more
        seen.append(next(again))
    return None
