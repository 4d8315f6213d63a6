"""Intervals of an attack's gain over a baseline whose mean is nearly known.

A baseline needs no message, so that its mean can be bounded over many draws that no attack sees; what is left to bound
is the attack's own mean. An attack that proves what it reads has a second, narrower lower bound: with its proved cells
and a baseline's guess of all others it never does worse than that baseline. Bounds are those of
``assessment.decision``, which hold for any distribution and at any number of victims. Their error probabilities add up
to ``decision.ALPHA`` on each side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.assessment.decision import ALPHA
from seepage.assessment.intervals import Estimate, PerVictim, betting, sample_of

# Error probability of each bound of a baseline's mean; that of the attack's is what is left.
_OF_BASELINE = ALPHA / 10
OF_ATTACK = ALPHA - _OF_BASELINE
"""Error probability of each bound of an attack's mean beside a reference."""
# Share of the error probability that the bound by proofs gets; the other lower bound gets the rest.
_OF_PROOFS = 0.8

Figure = tuple[str, str | None]


@dataclass(frozen=True)
class Reference:
    """Mean of a baseline's figure with bounds that all baselines of one comparison keep together.

    Attributes:
        n: number of draws.
        std: standard deviation over draws.
    """

    mean: float
    low: float
    high: float
    n: int
    std: float = 0.0


# Reference of each figure of each baseline, by its label.
References = Mapping[str, Mapping[Figure, Reference]]


@dataclass(frozen=True)
class Proofs:
    """Share of proved cells of each victim, and a baseline's accuracy on the same victims."""

    proved: Float[Tensor, " victim"]
    baseline: Float[Tensor, " victim"]


@dataclass(frozen=True)
class ScoredGain:
    """Scores of an attack in [0, 1] beside a reference.

    Attributes:
        members: the scores that are bounded, if not these.
        total: number of all victims, if these were drawn from them without replacement, in their order.
    """

    scores: PerVictim
    reference: Reference
    members: Float[Tensor, " member"] | None = None
    proofs: Proofs | None = None
    total: int | None = None


def reference(values: PerVictim, baselines: int = 1) -> Reference | None:
    """Return the reference of a baseline's values in [0, 1]; None without one.

    Args:
        values: NaN values are left out.
        baselines: number of baselines of which the best may be chosen by these values.
    """
    valid = _valid(values)
    if not len(valid):
        return None
    sample = sample_of(valid.clamp(0, 1))
    low, high = betting({sample}, _OF_BASELINE / baselines)[sample]
    mean = float(valid.mean())
    std = float(valid.std()) if len(valid) > 1 else 0.0
    return Reference(mean, min(low, mean), max(high, mean), len(valid), std)


def best_reference(references: References, figure: Figure) -> tuple[str, Reference] | None:
    """Return the baseline with the best mean of a figure, the first of equals; None where none has it."""
    having = [(name, figures[figure]) for name, figures in references.items() if figure in figures]
    return max(having, key=lambda pair: pair[1].mean, default=None)


def gain_estimates(gains: Sequence[ScoredGain]) -> list[Estimate]:
    """Return the mean gain of each attack over its reference, with an interval; none for a single score.

    Example:
        >>> baseline = Reference(0.6, 0.58, 0.62, 1000)
        >>> [gain] = gain_estimates([ScoredGain(torch.ones(20), baseline)])
        >>> round(gain.mean, 2), round(gain.low, 2), round(gain.high, 2)
        (0.4, 0.19, 0.42)
    """
    bounded = [_valid(gain.scores if gain.members is None else gain.members) for gain in gains]
    samples = [
        sample_of(values.clamp(0, 1), gain.total if len(values) == len(gain.scores) else None)
        if len(values) > 1
        else None
        for values, gain in zip(bounded, gains, strict=True)
    ]
    ends = betting({sample for sample in samples if sample is not None}, OF_ATTACK)
    proved = [sample for sample, gain in zip(samples, gains, strict=True) if gain.proofs is not None and sample]
    beside = betting(set(proved), (1 - _OF_PROOFS) * OF_ATTACK)
    estimates = []
    for gain, sample in zip(gains, samples, strict=True):
        scores, base = _valid(gain.scores), gain.reference
        n = len(scores)
        mean = float(scores.mean()) - base.mean if n else None
        if mean is None or sample is None:
            estimates.append(Estimate(mean, None, None, n))
            continue
        low = (ends if gain.proofs is None else beside)[sample][0] - base.high
        if gain.proofs is not None:
            low = max(low, _by_proofs(gain.proofs, gain.total) * (1 - base.high))
        high = ends[sample][1] - base.low
        std = float(scores.std()) if n > 1 else None
        estimates.append(Estimate(mean, min(mean, low), max(mean, high), n, std))
    return estimates


def _by_proofs(proofs: Proofs, total: int | None) -> float:
    """Return the least mean share of a victim's gap between baseline and certainty that proofs close.

    Times the mean gap it bounds the gain, if what is proved does not depend on how much a baseline gets.
    """
    known = ~(proofs.proved.isnan() | proofs.baseline.isnan())
    baseline = proofs.baseline[known].detach().double().cpu().clamp(0, 1)
    closed = (proofs.proved[known].detach().double().cpu() - baseline).clamp_min(0)
    # Of a victim that a baseline gets whole there is nothing left to close.
    shares = torch.where(baseline < 1, closed / (1 - baseline).clamp_min(torch.finfo(torch.float64).tiny), 0.0)
    if not len(shares):
        return 0.0
    sample = sample_of(shares, total if bool(known.all()) else None)
    return betting({sample}, _OF_PROOFS * OF_ATTACK)[sample][0]


def _valid(values: Float[Tensor, " value"]) -> Float[Tensor, " valid"]:
    flat = values.detach().double().cpu()
    return flat[~flat.isnan()]


def pooled(clusters: Sequence[Float[Tensor, " _member"]]) -> Float[Tensor, " member"]:
    """Return the scores of the members of all repetitions."""
    return torch.cat([cluster.detach().double().cpu() for cluster in clusters])


def as_plain(references: References) -> list[list[object]]:
    """Return references as JSON values."""
    by_figure = ((label, *pair) for label, figures in references.items() for pair in figures.items())
    return [[label, *figure, *astuple(of_figure)] for label, figure, of_figure in by_figure]


def from_plain(values: Sequence[Sequence[Any]]) -> References:
    """Return the references of ``as_plain``."""
    references: dict[str, dict[Figure, Reference]] = {}
    for label, metric, column, *numbers in values:
        references.setdefault(label, {})[metric, column] = Reference(*numbers)
    return references
