"""What is known of a share before any answer: nothing but which ones it may be."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from seepage.registry import baselines
from seepage.wire.pooled import PooledKnowledge, PropertyGuess


@baselines.register("chance", "pooled")
@dataclass(frozen=True)
class Chance:
    """Holds every share that is told apart for equally likely.

    Example:
        >>> Chance()
        Chance()
    """

    def __call__(self, targets: int, known: PooledKnowledge) -> PropertyGuess:
        """Return the same chances for each target."""
        even = torch.full((targets, len(known.shares)), 1 / len(known.shares), dtype=torch.float64)
        return PropertyGuess(known.shares, even)
