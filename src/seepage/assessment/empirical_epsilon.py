"""Empirical epsilon: lower bounds of an implementation's leakage from canaries.

An accountant bounds epsilon from above, if the code is right. Canaries bound it from below: records that are included
or left out by coin flips, and distinguished by the outcome. A lower bound above the accounted epsilon shows that noise
is missing, or that something is not clipped record by record.

Where the noise is not known to be normal, nothing but the definition of differential privacy may be used: a correct
Laplace mechanism, read as a Gaussian one, seems to leak more than its epsilon.

Sources: many canaries in one run, Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run" (NeurIPS
2023); canaries that are gradients, and the reading of error rates as a Gaussian mechanism, Nasr et al., "Tight Auditing
of Differentially Private Machine Learning" (USENIX Security 2023); the mechanism itself, Dong, Roth and Su, "Gaussian
Differential Privacy" (2022); what any mechanism is made of, Kairouz, Oh and Viswanath, "The Composition Theorem for
Differential Privacy" (ICML 2015).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtrc
from scipy.stats import beta, binom, norm
from torch import Tensor, nn

from seepage.defenses.accounting import gaussian_epsilon
from seepage.errors import BadInputError, check_choice, check_count
from seepage.models.model import Model
from seepage.seeds import stream

Reading = Literal["any", "gaussian"]
Floats = NDArray[np.float64]
# Ends of the rates of errors: observed ones, or the ends of their intervals against or for leakage.
End = Literal["middle", "low", "high"]
# Level of a two-sided interval, of which each one-sided bound takes half.
_LEVEL = 0.95
# Shares of the canaries that are guessed, the surest ones: few guesses are right where noise is strong.
_SHARES = (1.0, 0.3, 0.1, 0.03)
# Norm of the gradient of a canary, in units of those beside it: nothing but clipping bounds it.
_LOUD = 1_000.0
_MOST = 100.0
# Probability that coins ask for more runs of a side than there are, and of a number of runs beyond those summed over.
_SPILL, _REST = 1e-4, 1e-7

# Function that returns the gradients of a client for batches of records, as ``RecordDefense.gradient`` does.
DefendedGradient = Callable[[Model, Tensor, Tensor, Sequence[int]], dict[str, Tensor]]
# Function that trains with the marked canaries, and returns a score of each, higher where it was trained on.
Training = Callable[[NDArray[np.bool_]], ArrayLike]


@dataclass(frozen=True)
class EmpiricalEpsilon:
    """A lower bound of epsilon at a level of 97.5% from canaries, 0 where nothing is shown, and the theorem behind it.

    ``epsilon`` disregards chance; None where every canary is told apart. ``high`` ends the 95% interval, where the
    reading has an upper end: errors at one threshold bound nothing from above.
    """

    epsilon: float | None
    low: float
    high: float | None
    delta: float
    canaries: int
    bound: Reading | Literal["one run"]

    @property
    def words(self) -> str:
        """The bound and what it assumes, as a sentence."""
        delta = f" at delta {self.delta:g}" if self.delta else ""
        return (
            f"Canaries show an epsilon of at least {self.low:.3g}{delta} (n={self.canaries:,}), {ASSUMED[self.bound]}."
        )


ASSUMED: dict[str, str] = {
    "any": "whatever the mechanism is",
    "gaussian": "if its noise is normal",
    "one run": "in one training, whatever the mechanism is",
}


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

    def chance(guesses: int, right: int, epsilon: float) -> float:
        return _chance(len(members), guesses, right, epsilon, delta)

    return EmpiricalEpsilon(*_guessed(members, values, chance), None, delta, len(members), "one run")


# Function that returns an upper bound of the probability of so many guesses, so many of them right, under an epsilon.
Chance = Callable[[int, int, float], float]


def _guessed(
    members: NDArray[np.bool_], values: Floats, chance: Chance, spent: float = 0.0
) -> tuple[float | None, float]:
    """Return the epsilon that the best number of guesses seems to show, and the one that it does show.

    ``spent`` is what of the level is used elsewhere. The estimate is None where all guesses are right.
    """
    order = np.argsort(values, kind="stable")
    guesses = [max(2, 2 * round(share * len(order) / 2)) for share in _SHARES]
    tail = ((1 - _LEVEL) / 2 - spent) / len(guesses)
    bounds = list[tuple[float, float]]()
    for count in dict.fromkeys(min(guess, len(order)) for guess in guesses):
        absent, present = order[: count // 2], order[len(order) - (count - count // 2) :]
        right = int((~members[absent]).sum() + members[present].sum())
        low = _largest(lambda e, r=right, n=count: chance(n, r, e) <= tail)
        rate = right / count
        bounds.append((low, math.inf if rate == 1 else math.log(max(rate, 0.5) / (1 - rate))))
    low, estimate = max(bounds)
    return estimate if math.isfinite(estimate) else None, low


def _chance(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return an upper bound of the probability of so many right guesses in one training (Steinke et al.)."""
    rate = 1 / (1 + math.exp(-epsilon))
    whole = float(binom.sf(right - 1, guesses, rate))
    if delta == 0:
        return whole
    # Sum of the probabilities of 1, 2, ... right guesses fewer, of which the steepest chord counts.
    below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, rate))
    steepest = float((below / np.arange(1, right + 1)).max()) if right else 0.0
    return min(1.0, whole + 2 * canaries * delta * steepest)


def error_bound(
    present: ArrayLike, absent: ArrayLike, delta: float, bound: str = "any", *, seed: int = 0
) -> EmpiricalEpsilon:
    """Return the epsilon that many runs with and without one canary show.

    ``any`` uses the definition of differential privacy alone, so that no correct mechanism is accused but by chance.
    Runs are taken at random so that each has the canary by the toss of a coin. The highest scores of all are guessed to
    have it, the lowest not to, and no number of right guesses is likelier than under an epsilon that is refuted.
    ``gaussian`` reads the errors at a threshold as those of a Gaussian mechanism (Nasr et al.): half of the scores
    choose it, the other half tests it by Clopper-Pearson bounds. That is tight where the noise is normal, and wrong
    elsewhere. ``seed`` is that of the coins.
    """
    check_choice("bound", bound, Reading)
    _check_delta(delta)
    with_canary, without = (np.asarray(scores, dtype=np.float64) for scores in (present, absent))
    for scores in (with_canary, without):
        if scores.ndim != 1 or len(scores) < 20 or not np.isfinite(scores).all():
            raise BadInputError(
                f"20 finite scores are expected at least, with the canary and without; got shape {scores.shape}."
            )
    runs = len(with_canary) + len(without)
    if bound == "any":
        coins, scores = _tossed(with_canary, without, np.random.default_rng(stream(seed, 0, "coins")))
        return EmpiricalEpsilon(*_guessed(coins, scores, _apart(len(coins), delta), _SPILL), None, delta, runs, "any")
    # A threshold that lies in the middle of either half's errors.
    first, second = (with_canary[::2], without[::2]), (with_canary[1::2], without[1::2])
    places = np.quantile(np.concatenate(first), np.linspace(0.01, 0.99, 99))
    rates = _rates(*first, places, "low")
    # Epsilon rises with mu, which takes no search.
    threshold = places[[int(np.argmax(norm.isf(rates[0]) - norm.ppf(rates[1])))]]
    ends: tuple[End, End, End] = ("middle", "low", "high")
    estimate, low, high = (float(_as_gaussian(*_rates(*second, threshold, end), delta)[0]) for end in ends)
    finite, top = (value if math.isfinite(value) else None for value in (estimate, high))
    return EmpiricalEpsilon(finite, low, top, delta, runs, "gaussian")


def _tossed(present: Floats, absent: Floats, generator: np.random.Generator) -> tuple[NDArray[np.bool_], Floats]:
    """Return runs that have the canary by the toss of a coin each, in random order: as many as both sides have.

    With probability ``_SPILL`` at most one side had too few.
    """
    most = min(len(present), len(absent))
    total = bisect_right(range(2 * most + 1), _SPILL, key=lambda runs: 2 * bdtrc(most, max(runs, most), 0.5)) - 1
    count = int(np.clip(generator.binomial(total, 0.5), total - most, most))
    order = generator.permutation(total)
    scores = [generator.permutation(present)[:count], generator.permutation(absent)[: total - count]]
    return (np.arange(total) < count)[order], np.concatenate(scores)[order]


def _apart(runs: int, delta: float) -> Chance:
    """Return the bound of the probability of right guesses among independent runs of an (epsilon, delta) mechanism.

    Such a mechanism gives its input away with probability delta, and is one of randomised response elsewhere, of which
    something is made (Kairouz, Oh and Viswanath, theorem 3.2). Whichever runs are guessed by their scores, those of
    randomised response are right with its probability at most; the others, a binomial number, are taken for right.
    """
    rest = _REST if delta else 0.0
    first, last = (int(binom.ppf(share, runs, delta)) for share in (rest, 1 - rest)) if delta else (0, 0)
    free = np.arange(first, last + 1)
    weights = binom.pmf(free, runs, delta)

    def chance(guesses: int, right: int, epsilon: float) -> float:
        left = np.maximum(guesses - free, 0)
        others = bdtrc(np.minimum(right - free - 1, left), left, 1 / (1 + math.exp(-epsilon)))
        return min(1.0, float(weights @ np.where(free >= right, 1.0, others)) + 2 * rest)

    return chance


def _rates(present: Floats, absent: Floats, thresholds: Floats, end: End) -> tuple[Floats, Floats]:
    """Return rates of false positives and of false negatives at thresholds."""
    positives = len(absent) - np.searchsorted(np.sort(absent), thresholds, side="right")
    negatives = np.searchsorted(np.sort(present), thresholds, side="right")
    return _rate(positives, len(absent), end), _rate(negatives, len(present), end)


def _rate(wrong: NDArray[np.int_], n: int, end: End) -> Floats:
    tail = (1 - _LEVEL) / 4
    if end == "middle":
        return wrong / n
    if end == "low":
        return np.where(wrong == n, 1.0, beta.ppf(1 - tail, wrong + 1, np.maximum(n - wrong, 1)))
    return np.where(wrong == 0, 0.0, beta.ppf(tail, np.maximum(wrong, 1), n - wrong + 1))


def _as_gaussian(positives: Floats, negatives: Floats, delta: float) -> Floats:
    mus = (norm.isf(positives) - norm.ppf(negatives)).tolist()
    return np.array(
        [0.0 if not mu > 0 else gaussian_epsilon(mu, delta) if math.isfinite(mu) else math.inf for mu in mus]
    )


def message_epsilon(
    defended: DefendedGradient,
    clip_norm: float,
    delta: float,
    *,
    batch_size: int = 8,
    messages: int = 50_000,
    seed: int = 0,
    bound: Reading = "any",
) -> EmpiricalEpsilon:
    """Return the epsilon of one record in one message of a client, by canaries that are gradients.

    A model of one weight gives each record the gradient that its label asks for. All records but one point one way, all
    beyond the clipping bound; the canary points the other way and outweighs them all. Where each record is clipped by
    itself, it changes the sum by the bound; where the batch is clipped as a whole, by more. As many messages are sent
    without the canary as with it. ``bound`` says what is assumed of the noise, see ``error_bound``. Of ``n`` messages
    no more than about ``log(n / 2.5)`` is shown without an assumption: 9.9 of 50,000.
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
    return error_bound(scores[:messages], scores[messages:], delta, bound, seed=seed)


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
