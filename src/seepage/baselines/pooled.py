"""Baselines of pooled learning: guesses of the share without the joint model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from seepage.errors import BadInputError
from seepage.registry import baselines
from seepage.wire.pooled import PooledKnowledge, PropertyGuess


@baselines.register("chance", "pooled")
@dataclass(frozen=True)
class Chance:
    """Every share that is distinguished gets the same chance."""

    def __call__(self, targets: int, knowledge: PooledKnowledge) -> PropertyGuess:
        """Return the same chances for each target."""
        even = torch.full((targets, len(knowledge.shares)), 1 / len(knowledge.shares), dtype=torch.float64)
        return PropertyGuess(knowledge.shares, even)


@baselines.register("constant_share", "pooled")
@dataclass(frozen=True)
class ConstantShare:
    """The middle of the range that the share lies in, always, with an interval of as much of the range.

    It is the best estimate of who knows the range alone. An attack that estimates the share has to err less.

    Attributes:
        level: probability of the interval, of shares that are equally likely in the whole range.

    Raises:
        BadInputError: ``level`` is not in (0, 1).

    Example:
        >>> ConstantShare().level
        0.95
    """

    level: float = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise BadInputError(f"level lies in (0, 1), got level={self.level!r}.")

    def __call__(self, targets: int, knowledge: PooledKnowledge) -> PropertyGuess:
        """Return the same estimate and chances for each target."""
        low, high = knowledge.within
        middle, half = (low + high) / 2, self.level * (high - low) / 2
        ends = (torch.full((targets,), end, dtype=torch.float64) for end in (middle, middle - half, middle + half))
        return replace(Chance()(targets, knowledge), **dict(zip(("share", "low", "high"), ends, strict=True)))
