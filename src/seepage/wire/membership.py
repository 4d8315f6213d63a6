"""The guess of an attack on membership."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class MembershipGuess:
    """Scores of records, higher for likelier members: float64 (record), one tensor for each message or target model."""

    scores: Sequence[Tensor]
