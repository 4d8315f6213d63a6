"""A small population in which the attribute moves the label, and joint models of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from seepage.protocols.pooled import PooledLearning, alternating, parted
from seepage.shadow.pooling import MarkedRows
from seepage.shadow.stacked import Dense
from seepage.wire.pooled import PooledKnowledge
from seepage.wire.secret import PooledTranscript


@dataclass(frozen=True)
class Case:
    learning: PooledLearning
    known: PooledKnowledge
    held: MarkedRows
    seen: PooledTranscript
    truth: torch.Tensor


def population(effect: float, rows: int = 6000, seed: int = 0) -> MarkedRows:
    """Rows of three numbers whose label is 1 more often, by ``effect``, where the attribute is carried."""
    generator = torch.Generator().manual_seed(seed)
    carries = torch.rand(rows, generator=generator) < 0.5
    inputs = torch.randn(rows, 3, generator=generator)
    chance = torch.sigmoid(inputs[:, 0]) * (1 - effect) + effect * carries
    return MarkedRows(inputs, (torch.rand(rows, generator=generator) < chance).long(), carries)


def case(
    effect: float = 0.4,
    shares: tuple[float, ...] = (0.3, 0.7),
    targets: int = 20,
    own: bool = True,
    hidden: tuple[int, ...] = (),
    truth: torch.Tensor | None = None,
    rows: int = 200,
) -> Case:
    sets = parted(population(effect), 1500, 200, 40, seed=1)
    learner = Dense(2, hidden, epochs=8, batch_size=64, learning_rate=0.03)
    learning = PooledLearning(learner, rows)
    adversary = sets.adversary if own else None
    true = alternating(shares, targets) if truth is None else truth
    seen = learning.train(sets.held, adversary, true, seed=2)
    known = PooledKnowledge(learner, sets.auxiliary, sets.queries.inputs, adversary, rows, shares)
    return Case(learning, known, sets.held, seen, true)
