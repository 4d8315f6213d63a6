"""Empirical epsilon: lower bounds of an implementation's leakage from canaries.

An accountant bounds epsilon from above, if the code is right. Canaries bound it from below: records that are included
or left out by coin flips, and distinguished by the outcome. A lower bound above the accounted epsilon shows that noise
is missing, or that something is not clipped record by record.

Sources: many canaries in one run, Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run" (NeurIPS
2023); canaries that are gradients, and the reading of error rates as a Gaussian mechanism, Nasr et al., "Tight Auditing
of Differentially Private Machine Learning" (USENIX Security 2023); the mechanism itself, Dong, Roth and Su, "Gaussian
Differential Privacy" (2022).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom, norm
from torch import Tensor, nn

from seepage.defenses.accounting import gaussian_epsilon
from seepage.errors import BadInputError, check_count
from seepage.models.model import Model
from seepage.seeds import stream

Bound = Literal["one run", "Gaussian", "any mechanism"]
# Level of a two-sided interval, of which each one-sided bound takes half.
_LEVEL = 0.95
# Shares of the canaries that are guessed, the surest ones: few guesses are right where noise is strong.
_SHARES = (1.0, 0.3, 0.1, 0.03)
# Norm of the gradient of a canary, in units of those beside it: nothing but clipping bounds it.
_LOUD = 1_000.0
_MOST = 100.0

# Function that returns the gradients of a client for batches of records, as ``RecordDefense.gradient`` does.
DefendedGradient = Callable[[Model, Tensor, Tensor, Sequence[int]], dict[str, Tensor]]
# Function that trains with the marked canaries, and returns a score of each, higher where it was trained on.
Training = Callable[[NDArray[np.bool_]], ArrayLike]


@dataclass(frozen=True)
class EmpiricalEpsilon:
    """A lower bound of epsilon at a level of 97.5% from canaries, 0 where nothing is shown, and the theorem behind it.

    ``epsilon`` disregards chance; None where every canary is told apart. ``high`` ends the 95% interval, if it ends.
    """

    epsilon: float | None
    low: float
    high: float | None
    delta: float
    canaries: int
    bound: Bound


def one_run_bound(included: ArrayLike, scores: ArrayLike, delta: float) -> EmpiricalEpsilon:
    """Return the epsilon that one training with many canaries shows (Steinke et al., theorem 5.2).

    The highest scores are guessed to be included, the lowest to be left out, the others are not guessed. Several
    numbers of guesses are tried, which share the level.
    """
    members, values = np.asarray(included, dtype=bool), np.asarray(scores, dtype=np.float64)
    _check_delta(delta)
    if members.shape != values.shape or members.ndim != 1 or len(members) < 10 or not np.isfinite(values).all():
        raise BadInputError(
            f"one finite score a canary is expected, of ten canaries at least; got {members.size} canaries and scores "
            f"of shape {values.shape}."
        )
    order = np.argsort(values, kind="stable")
    guesses = [max(2, 2 * round(share * len(order) / 2)) for share in _SHARES]
    tail = (1 - _LEVEL) / 2 / len(guesses)
    low, estimate = 0.0, 0.0
    for count in dict.fromkeys(min(guess, len(order)) for guess in guesses):
        absent, present = order[: count // 2], order[len(order) - (count - count // 2) :]
        right = int((~members[absent]).sum() + members[present].sum())
        low = max(low, _largest(lambda e, r=right, n=count: _chance(len(order), n, r, e, delta) <= tail))
        rate = right / count
        estimate = max(estimate, math.inf if rate == 1 else math.log(max(rate, 0.5) / (1 - rate)))
    return EmpiricalEpsilon(estimate if math.isfinite(estimate) else None, low, None, delta, len(order), "one run")


def _chance(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return an upper bound of the probability of so many right guesses under (epsilon, delta)."""
    rate = 1 / (1 + math.exp(-epsilon))
    whole = float(binom.sf(right - 1, guesses, rate))
    if delta == 0:
        return whole
    # Sum of the probabilities of 1, 2, ... right guesses fewer, of which the steepest chord counts.
    below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, rate))
    steepest = float((below / np.arange(1, right + 1)).max()) if right else 0.0
    return min(1.0, whole + 2 * canaries * delta * steepest)


def error_bound(
    present: ArrayLike, absent: ArrayLike, delta: float, bound: Literal["Gaussian", "any mechanism"] = "Gaussian"
) -> EmpiricalEpsilon:
    """Return the epsilon that many runs with and without one canary show, by Clopper-Pearson bounds of the errors.

    Half of the scores choose a threshold, the other half tests it. ``Gaussian`` reads the error rates as those of a
    Gaussian mechanism (Nasr et al.), which is tight where the noise is normal; ``any mechanism`` uses the definition of
    differential privacy alone.
    """
    _check_delta(delta)
    with_canary, without = (np.asarray(scores, dtype=np.float64) for scores in (present, absent))
    for scores in (with_canary, without):
        if scores.ndim != 1 or len(scores) < 20 or not np.isfinite(scores).all():
            raise BadInputError(
                f"20 finite scores are expected at least, with the canary and without; got shape {scores.shape}."
            )
    read = _as_gaussian if bound == "Gaussian" else _as_any
    # Epsilon rises with mu, which takes no search.
    telling = _mu if bound == "Gaussian" else functools.partial(_as_any, delta=delta)
    # A threshold that lies in the middle of either half's errors.
    first, second = (with_canary[::2], without[::2]), (with_canary[1::2], without[1::2])
    places = np.quantile(np.concatenate(first), np.linspace(0.01, 0.99, 99))
    threshold = max(places, key=lambda place: telling(*_rates(*first, place, "low")))
    estimate, low, high = (read(*_rates(*second, threshold, end), delta) for end in ("middle", "low", "high"))
    return EmpiricalEpsilon(
        estimate if math.isfinite(estimate) else None,
        low,
        high if math.isfinite(high) else None,
        delta,
        len(with_canary) + len(without),
        bound,
    )


def _rates(
    present: NDArray[np.float64], absent: NDArray[np.float64], threshold: float, end: Literal["low", "middle", "high"]
) -> tuple[float, float]:
    """Return rates of false positives and false negatives: the observed ones, or both ends against or for leakage."""
    rates = []
    for wrong, n in ((int((absent > threshold).sum()), len(absent)), (int((present <= threshold).sum()), len(present))):
        tail = (1 - _LEVEL) / 4
        if end == "middle":
            rates.append(wrong / n)
        elif end == "low":
            rates.append(1.0 if wrong == n else float(beta.ppf(1 - tail, wrong + 1, n - wrong)))
        else:
            rates.append(0.0 if wrong == 0 else float(beta.ppf(tail, wrong, n - wrong + 1)))
    return rates[0], rates[1]


def _mu(positives: float, negatives: float) -> float:
    return float(norm.isf(positives) - norm.ppf(negatives))


def _as_gaussian(positives: float, negatives: float, delta: float) -> float:
    mu = _mu(positives, negatives)
    if not mu > 0:
        return 0.0
    return gaussian_epsilon(mu, delta) if math.isfinite(mu) else math.inf


def _as_any(positives: float, negatives: float, delta: float) -> float:
    best = 0.0
    for wrong, other in ((positives, negatives), (negatives, positives)):
        right = 1 - other - delta
        if right > 0:
            best = max(best, math.inf if wrong == 0 else math.log(right / wrong))
    return best


def message_epsilon(
    defended: DefendedGradient,
    clip_norm: float,
    delta: float,
    *,
    batch_size: int = 8,
    messages: int = 5_000,
    seed: int = 0,
) -> EmpiricalEpsilon:
    """Return the epsilon of one record in one message of a client, by canaries that are gradients.

    A model of one weight gives each record the gradient that its label asks for. All records but one point one way, all
    beyond the clipping bound; the canary points the other way and outweighs them all. Where each record is clipped by
    itself, it changes the sum by the bound; where the batch is clipped as a whole, by more. As many messages are sent
    without the canary as with it.
    """
    check_count("batch_size", batch_size)
    check_count("messages", messages)
    layer = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(layer.weight)
    model = Model(layer, head="regression", name="canary")
    labels = torch.full((2 * messages, batch_size), -10 * float(clip_norm))
    labels[:messages, 0] = 10 * float(clip_norm) * _LOUD * batch_size
    # The squared error of a label of 0 has no gradient: the record is left out.
    labels[messages:, 0] = 0.0
    seeds = np.random.default_rng(stream(seed, 0, "canary")).integers(2**62, size=2 * messages).tolist()
    sent = defended(model, torch.ones(2 * messages, batch_size, 1), labels, seeds)
    scores = -sent["weight"].flatten(1)[:, 0].double().numpy()
    return error_bound(scores[:messages], scores[messages:], delta)


def training_epsilon(train: Training, canaries: int, delta: float, seed: int = 0) -> EmpiricalEpsilon:
    """Return the epsilon that one training with many canaries shows: the hook for a user's implementation.

    Args:
        train: trains with the marked canaries among the usual rows, and returns a score of each canary, higher where it
            was trained on, such as the negative loss, or the product of its gradient with the change of the weights.
        canaries: number of canaries; each is included by a fair coin.
        delta: failure probability, in [0, 1).

    Raises:
        BadInputError: there are fewer than ten canaries, or not one finite score for each.

    Example:
        >>> noise = np.random.default_rng(1)
        >>> epsilon = training_epsilon(lambda coins: coins + noise.normal(0, 1, len(coins)), 2000, delta=1e-5)
        >>> 0.5 < epsilon.low < gaussian_epsilon(1.0, 1e-5)
        True
    """
    check_count("canaries", canaries)
    coins = np.random.default_rng(stream(seed, 0, "canaries")).random(canaries) < 0.5
    return one_run_bound(coins, train(coins), delta)


def _largest(refuted: Callable[[float], bool]) -> float:
    """Return the largest epsilon that is refuted; 0 where none is."""
    if not refuted(0.0):
        return 0.0
    if refuted(_MOST):
        return _MOST
    low, high = 0.0, _MOST
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def _check_delta(delta: float) -> None:
    if not 0 <= delta < 1:
        raise BadInputError(f"delta lies between 0 and 1, got delta={delta!r}.")
