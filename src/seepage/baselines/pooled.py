"""Baseline of pooled learning: all possible shares are equally likely."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from seepage.registry import baselines
from seepage.wire.pooled import PooledKnowledge, PropertyGuess


@baselines.register("chance", "pooled")
@dataclass(frozen=True)
class Chance:
    """Every share that is distinguished gets the same chance.

    Example:
        >>> Chance()
        Chance()
    """

    def __call__(self, targets: int, known: PooledKnowledge) -> PropertyGuess:
        """Return the same chances for each target."""
        even = torch.full((targets, len(known.shares)), 1 / len(known.shares), dtype=torch.float64)
        return PropertyGuess(known.shares, even)
