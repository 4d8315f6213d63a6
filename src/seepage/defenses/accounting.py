"""What noise guarantees: differential privacy of single records, as (epsilon, delta)."""

from __future__ import annotations

import importlib
import math
import warnings
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from seepage.errors import BadInputError, check_count

# Renyi orders that the bound is minimised over; the large ones are for much noise.
_ORDERS = [1 + tenth / 10 for tenth in range(1, 100)] + list(range(11, 64)) + [2**k for k in range(6, 11)]


@dataclass(frozen=True)
class Guarantee:
    """Differential privacy of single records, where one more or one less makes neighbours.

    Attributes:
        epsilon: the bound on the loss of privacy.
        delta: the chance with which it may be exceeded.
        steps: messages that it covers.
        sample_rate: chance of a record to be in the batch of a message.
        noise_multiplier: standard deviation of the noise in units of what one record changes in a message.
        accountant: how it was computed.
        sampling: what is assumed of the batches.
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
        """Return what it guarantees, None where that is nothing.

        Args:
            sample_rate: chance of a record to be behind a message.
            steps: number of messages.
            delta: the chance that is left to fate.
            passes: gradients behind a message that a record behind it has part in (local epochs).
        """
        ...


def gaussian_guarantee(
    noise_multiplier: float, sample_rate: float, steps: int, delta: float, passes: int = 1
) -> Guarantee | None:
    """Return what normal noise on sums of clipped contributions guarantees, None where no bound is finite.

    Opacus' Renyi accountant (Mironov, Talwar and Zhang, 2019, for the subsampled Gaussian mechanism). A message
    of several local passes over a client's batch releases each record's contribution once a pass, which together
    are one Gaussian mechanism whose noise is smaller by the root of their number; the batch is subsampled as a
    whole, once a message.

    The theorem is on batches that each record enters by a coin of its own. Batches of a fixed size from a
    shuffled table, as federations and this audit have them, are customarily accounted for in the same way, and so
    they are here; for them the figure is no proof.

    Args:
        noise_multiplier: standard deviation of the noise in units of the bound on a contribution.
        sample_rate: chance of a record to be behind a message, above 0 and at most 1.
        steps: number of messages.
        delta: in (0, 1); customarily well below one over the number of records.
        passes: over the batch behind each message.

    Raises:
        BadInputError: an argument is out of range.

    Example:
        >>> found = gaussian_guarantee(noise_multiplier=1.1, sample_rate=256 / 60_000, steps=14_062, delta=1e-5)
        >>> round(found.epsilon, 1)
        2.6
    """
    check_count("steps", steps)
    check_count("passes", passes)
    if not 0 < sample_rate <= 1:
        raise BadInputError(f"a sample rate lies above 0 and is at most 1, got sample_rate={sample_rate}.")
    if not 0 < delta < 1:
        raise BadInputError(f"delta lies between 0 and 1, got delta={delta}.")
    noise = noise_multiplier / math.sqrt(passes)
    # Imported when it is needed: with it come PyTorch's distributed parts, a second for every start of the program.
    accountant = importlib.import_module("opacus.accountants").RDPAccountant()
    accountant.history = [(noise, sample_rate, steps)]
    with warnings.catch_warnings():
        # It says where the best order is the first or last one; the bound holds all the same.
        warnings.simplefilter("ignore")
        try:
            epsilon = float(accountant.get_epsilon(delta, alphas=_ORDERS))
        except ArithmeticError:
            # Noise so small that its square is none.
            return None
    # Opacus' bound may fall below 0 where there is next to nothing to lose.
    return Guarantee(max(0.0, epsilon), delta, steps, sample_rate, noise) if math.isfinite(epsilon) else None
