"""Optimal assignment of few values to records, where the number of records of each value is known."""

from __future__ import annotations

import itertools

import numpy as np
from jaxtyping import Float, Int

# Rounds in which prices of values are found, and how soft choices are in the first and in the last of them.
_ROUNDS = 60
_SOFTEST, _HARDEST = 0.3, 0.003
_LEAST = 1e-9  # other ways have to be better by more than this, as sums are rounded


def assigned(gains: Float[np.ndarray, "record value"], places: Int[np.ndarray, " value"]) -> Int[np.ndarray, " record"]:
    """Return the value of each record with which gains add up to the most; all places are as many as records."""
    # Places of a value are alike, so that a search over values does what one over places would. Prices of values bring
    # the best choices of all records near to the numbers of places. Where a value is still chosen too often, records
    # move along the chain of values that loses least, which keeps the rest optimal.
    gains = gains - _prices(gains, places)
    chosen = gains.argmax(1)
    surplus = np.bincount(chosen, minlength=len(places)) - places
    # The least loss of a move from one value to another, and the record that moves.
    losses = np.full((len(places), len(places)), np.inf)
    movers = np.zeros(losses.shape, dtype=np.int64)

    def look(value: int) -> None:
        holders = np.flatnonzero(chosen == value)
        losses[value] = np.inf
        if len(holders):
            differences = gains[holders, value][:, None] - gains[holders]
            least = differences.argmin(0)
            losses[value], movers[value] = differences[least, np.arange(len(places))], holders[least]

    for value in range(len(places)):
        look(value)
    while (surplus > 0).any():
        chain = _chain(losses, surplus)
        for source, to in itertools.pairwise(chain):
            chosen[movers[source, to]] = to
        surplus[chain[0]] -= 1
        surplus[chain[-1]] += 1
        for value in chain:
            look(value)
    return chosen


def _prices(gains: Float[np.ndarray, "record value"], places: Int[np.ndarray, " value"]) -> Float[np.ndarray, " value"]:
    """Return prices at which soft choices of the records are near to the numbers of places."""
    prices = np.zeros(len(places))
    for softness in np.geomspace(_SOFTEST, _HARDEST, _ROUNDS):
        shares = (gains - prices) / softness
        shares -= shares.max(1, keepdims=True)
        np.exp(shares, out=shares)
        loads = (1 / shares.sum(1)) @ shares
        prices += softness * np.log(np.maximum(loads, 1e-9) / places)
    return prices


def _chain(losses: Float[np.ndarray, "value value"], surplus: Int[np.ndarray, " value"]) -> list[int]:
    """Return the values from one that is chosen too often to one that is not, along which moves lose least."""
    total = np.where(surplus > 0, 0.0, np.inf)
    before = np.full(len(surplus), -1)
    for _ in range(len(surplus)):
        through = total[:, None] + losses
        nearest = through.argmin(0)
        least = through[nearest, np.arange(len(surplus))]
        better = least < total - _LEAST
        if not better.any():
            break
        total[better], before[better] = least[better], nearest[better]
    chain = [int(np.where(surplus < 0, total, np.inf).argmin())]
    while before[chain[-1]] >= 0:
        chain.append(int(before[chain[-1]]))
    return chain[::-1]
