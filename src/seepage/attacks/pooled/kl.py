"""The KL attack: the shadow models whose answers are nearest to the joint model's (Suri, Lu, Chen and Evans, 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.pooled.parts.features import LEAST
from seepage.registry import attacks
from seepage.wire.pooled import PooledKnowledge, PredictionView, PropertyGuess


@attacks.register("kl", "pooled", needs=("auxiliary", "queries"))
@dataclass(frozen=True)
class KL:
    """Pairs of shadow models of two shares vote for the share whose answers are nearer to the target's.

    Source: Suri, Lu, Chen and Evans, *Dissecting Distribution Inference* (2023). A pair votes for the second share if
    the first's mean Kullback-Leibler divergence to the target's answers is the greater. With more than two shares,
    each one's chance is its mean share of votes against all others. Deviations: chances below 1e-6 are raised to
    it, and the queries are the attacker's one set instead of one for each share.
    """

    def __call__(self, view: PredictionView, knowledge: PooledKnowledge, seeds: Sequence[int] = (0,)) -> PropertyGuess:
        """Return the share of votes for each share, for each target; ``seeds`` are not used."""
        shadows = knowledge.trained("even")
        worlds = shadows.world(knowledge.shares)
        distance = divergence(shadows.answers, view.ask(knowledge.queries))
        votes = torch.zeros(distance.shape[1], len(knowledge.shares), dtype=torch.float64)
        for first in range(len(knowledge.shares)):
            for second in range(first):
                nearer = distance[worlds == first][:, None] < distance[worlds == second][None]
                won = nearer.double().mean((0, 1))
                votes[:, first] += won
                votes[:, second] += 1 - won
        return PropertyGuess(knowledge.shares, votes / votes.sum(1, keepdim=True))


def divergence(
    models: Float[Tensor, "shadow query label"], targets: Float[Tensor, "target query label"]
) -> Float[Tensor, "shadow target"]:
    """Return the mean over queries of the divergence of each target's answers from each shadow model's."""
    p, q = (side.double().clamp(min=LEAST).flatten(1) for side in (models, targets))
    support = (models.double().flatten(1) > 0).double()
    entropy = (support * p * p.log()).sum(1)
    return (entropy[:, None] - (support * p) @ q.log().T) / models.shape[1]
