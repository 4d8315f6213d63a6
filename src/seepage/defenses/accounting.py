"""Accountant of differential privacy of single records: (epsilon, delta) of normal noise."""

from __future__ import annotations

import importlib
import math
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Protocol, runtime_checkable

from scipy.optimize import root_scalar
from scipy.stats import norm

from seepage.errors import BadInputError, check_count

# Renyi orders over which the bound is minimised; the large ones are for strong noise.
_ORDERS = [1 + tenth / 10 for tenth in range(1, 100)] + list(range(11, 64)) + [2**k for k in range(6, 11)]
# Noise multipliers of a guarantee: below, none is known; above, nothing is learnt.
LEAST_NOISE, MOST_NOISE = 0.05, 20.0
# A noise multiplier of a guarantee is a multiple of this, so that it can be read and typed.
_STEP = 1e-3


@dataclass(frozen=True)
class Guarantee:
    """Differential privacy of single records, where one more or one less makes neighbours.

    The noise multiplier is the noise's standard deviation / the largest change by one record in a message.
    """

    epsilon: float
    delta: float
    steps: int
    sample_rate: float
    noise_multiplier: float
    accountant: str = "Opacus RDP"
    sampling: str = "as if batches were drawn by Poisson sampling"


@runtime_checkable
class Private(Protocol):
    """A defense that guarantees differential privacy."""

    def guarantee(self, sample_rate: float, steps: int, delta: float, passes: int = 1) -> Guarantee | None:
        """Return the guarantee, None where there is none; a record is in ``passes`` gradients of its message."""
        ...


@runtime_checkable
class Planned(Protocol):
    """A defense whose noise follows from an epsilon once the training is known."""

    def for_training(self, sample_rate: float, steps: int, delta: float, passes: int = 1) -> Planned:
        """Return the defense with the noise of a training, see ``gaussian_noise``; itself where its noise is known."""
        ...


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of one Gaussian mechanism, in closed form (Dong, Roth and Su 2022, corollary 2).

    ``mu`` is the largest change by one record / noise standard deviation, ``delta`` the failure probability.

    Example:
        >>> round(gaussian_epsilon(1.0, 1e-5), 2)
        4.38
    """

    def excess(epsilon: float) -> float:
        first = float(norm.cdf(mu / 2 - epsilon / mu))
        return first - math.exp(epsilon + float(norm.logcdf(-mu / 2 - epsilon / mu))) - delta

    if excess(0.0) <= 0:
        return 0.0
    return float(root_scalar(excess, bracket=(0.0, mu * mu / 2 + mu * 40), method="brentq").root)


def gaussian_guarantee(
    noise_multiplier: float, sample_rate: float, steps: int, delta: float, passes: int = 1
) -> Guarantee | None:
    """Return the guarantee of normal noise on sums of clipped contributions, None where no bound is finite.

    Opacus' Renyi accountant (Mironov, Talwar and Zhang, 2019, for the subsampled Gaussian mechanism). A message
    of several local passes over a client's batch releases each record's contribution once a pass, which together
    are one Gaussian mechanism whose noise is smaller by the root of their number; the batch is subsampled as a
    whole, once a message.

    The theorem assumes Poisson sampling: each record enters a batch independently. Federations, and this audit, draw
    batches of a fixed size from a shuffled table. These are customarily accounted for in the same way, as here;
    for them the figure is not a proof.

    Args:
        noise_multiplier: noise multiplier (noise standard deviation / bound on a contribution).
        sample_rate: probability that a record is in the batch of a message, above 0 and at most 1.
        delta: failure probability, in (0, 1); customarily well below one over the number of records.
        passes: number of passes over the batch of each message.

    Example:
        >>> guarantee = gaussian_guarantee(noise_multiplier=1.1, sample_rate=256 / 60_000, steps=14_062, delta=1e-5)
        >>> round(guarantee.epsilon, 1)
        2.6
    """
    check_count("steps", steps)
    check_count("passes", passes)
    if not 0 < sample_rate <= 1:
        raise BadInputError(f"a sample rate lies above 0 and is at most 1, got sample_rate={sample_rate}.")
    if not 0 < delta < 1:
        raise BadInputError(f"delta lies between 0 and 1, got delta={delta}.")
    noise = noise_multiplier / math.sqrt(passes)
    # Imported late: it loads PyTorch's distributed parts, a second for every start of the program.
    accountant = importlib.import_module("opacus.accountants").RDPAccountant()
    accountant.history = [(noise, sample_rate, steps)]
    with warnings.catch_warnings():
        # It warns where the best order is the first or last one; the bound holds in any case.
        warnings.simplefilter("ignore")
        try:
            epsilon = float(accountant.get_epsilon(delta, alphas=_ORDERS))
        except ArithmeticError:
            # The square of so small a noise rounds to 0.
            return None
    # Opacus' bound may fall below 0 where the privacy loss is tiny.
    return Guarantee(max(0.0, epsilon), delta, steps, sample_rate, noise) if math.isfinite(epsilon) else None


@cache
def gaussian_noise(epsilon: float, sample_rate: float, steps: int, delta: float, passes: int = 1) -> float:
    """Return the least noise multiplier of a guarantee, a multiple of 0.001 that is rounded up.

    It is found by halving the range from 0.05 to 20, with the accountant of ``gaussian_guarantee``.

    Args:
        epsilon: epsilon of the whole training, above 0.
        sample_rate, steps, delta, passes: training and failure probability, see ``gaussian_guarantee``.

    Raises:
        BadInputError: no noise multiplier up to 20 guarantees this epsilon.

    Example:
        >>> gaussian_noise(2.6, sample_rate=256 / 60_000, steps=14_062, delta=1e-5)
        1.1
    """

    def guaranteed(noise_steps: int) -> float:
        guarantee = gaussian_guarantee(noise_steps * _STEP, sample_rate, steps, delta, passes)
        return math.inf if guarantee is None else guarantee.epsilon

    too_few, enough = round(LEAST_NOISE / _STEP) - 1, round(MOST_NOISE / _STEP)
    if (least := guaranteed(enough)) > epsilon:
        raise BadInputError(
            f"a noise multiplier of {MOST_NOISE:g} leaves an epsilon of {least:.3g} in {steps:,} steps, more than "
            f"{epsilon:g}: there are too few rows for it. Give a larger epsilon, or a noise_multiplier."
        )
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if guaranteed(middle) <= epsilon else (middle, enough)
    return round(enough * _STEP, 3)
