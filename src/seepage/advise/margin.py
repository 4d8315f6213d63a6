"""How likely a further audit is to pass a limit, by the units that were seen.

Of n units with lifts Y_i, N fresh ones are predicted by the Bayesian bootstrap: shares of the n units are drawn from a
flat Dirichlet distribution, and how often each of them is met, c_i, from a multinomial one with N draws and these
shares. The audit passes where the mixture of bets of ``assessment.decision`` reaches its wealth,

    log sum_b w_b exp(sum_i c_i log(1 + b (X_i - 1)))  >=  log(1 / alpha),   X_i = (1 - Y_i) / (1 - limit).

The inner sum is one product of matrices for all bets and draws. Of figures with a share of the gap, such as a label, it
has to be shown too that less than WHOLE of the gap is closed. With scores s_i, and p_i of the best baseline, that is
``s - p < WHOLE (1 - p)``, hence ``p + (1 - s) / (1 - WHOLE) > 1``, on average. These are payoffs of a second mixture.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seepage.assessment import decision
from seepage.run.limits import Floats, Standing

# Audits that are drawn, and units at a time in sums over bets.
_DRAWS = 400
# In place of minus infinity, which times a count of 0 is no number.
_RUIN = -1e30


def chance_of_passing(
    standings: Sequence[Standing], limit: float, units: int, *, seed: int, alpha: float = decision.ALPHA
) -> float | None:
    """Return the probability that an audit of some fresh units shows every figure to be below a limit.

    The posterior predictive distribution under the Bayesian bootstrap (Rubin, "The Bayesian bootstrap", 1981): shares
    of the units seen are drawn from a flat Dirichlet distribution, the units of an audit with these shares, and the
    audit decides by the gate's own bound. All figures of an attack meet the same drawn units. Units unlike any that
    was seen have no share, so that few units seen make the answer too sure.

    Args:
        standings: figures that are limited, of all attacks, with the scores of their units.
        limit: limit of the mean lift.
        units: number of units of the audit; of the members of one training where these are judged.
        seed: seed of the draws.
        alpha: probability of a false pass of the audit.

    Returns:
        The probability; None without units.
    """
    if not standings or any(not len(standing.lifts) for standing in standings):
        return None
    generator = np.random.default_rng(seed)
    by_sample: dict[int | None, list[Standing]] = {}
    for standing in standings:
        by_sample.setdefault(standing.figure.sample, []).append(standing)
    passing = [_passes(group, limit, units, alpha, generator).mean() for group in by_sample.values()]
    # As many fresh trainings as were seen, each like one of those with other members.
    return float(np.mean(passing) ** len(passing))


def _passes(
    standings: Sequence[Standing], limit: float, units: int, alpha: float, generator: np.random.Generator
) -> np.ndarray:
    """Return for each drawn audit whether all figures pass."""
    passed = np.ones(_DRAWS, dtype=bool)
    # Attacks that were cleared earlier have seen fewer units.
    for sample_size in dict.fromkeys(len(standing.lifts) for standing in standings):
        shares = generator.dirichlet(np.ones(sample_size), size=_DRAWS)
        counts = np.stack([generator.multinomial(units, share) for share in shares]).T.astype(np.float64)
        for standing in standings:
            if len(standing.lifts) == sample_size:
                passed &= _shown((1 - standing.lifts) / (1 - limit), counts, alpha)
                if standing.closed is not None:
                    payoffs = standing.predicted + (1 - standing.scores) / (1 - decision.WHOLE)
                    passed &= _shown(payoffs, counts, alpha)
    return passed


def _shown(payoffs: Floats, counts: Floats, alpha: float) -> np.ndarray:
    """Return for each drawn audit (unit, draw) whether the bets reach what shows it."""
    growth = np.maximum(decision.log_growth(payoffs), _RUIN)
    return decision.mixture(growth @ counts) >= np.log(1 / alpha)
