"""Randomised response on labels: label differential privacy (Ghazi et al. 2021, after Warner 1965)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.errors import BadInputError
from seepage.registry import ActsOn, defenses


@defenses.register("label_flip", "split")
@defenses.register("label_flip", "vertical")
@dataclass(frozen=True)
class LabelFlip:
    """Each record's label is exchanged for another one with some probability: once, for all its exchanges.

    Source: Ghazi et al. (2021), after Warner (1965).

    Attributes:
        probability: probability of another label, drawn evenly; at most (k - 1) / k with k classes.

    Raises:
        BadInputError: the probability is not in (0, 1).

    Example:
        >>> LabelFlip(0.1).epsilon(classes=2), LabelFlip(0.01).epsilon(classes=2)
        (2.1972245773362196, 4.59511985013459)
    """

    words: ClassVar[str] = "labels exchanged at random, with probability {probability}"
    acts_on: ClassVar[ActsOn] = "labels"

    probability: float | int

    def __post_init__(self) -> None:
        value = self.probability
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1:
            raise BadInputError(
                f"the chance of a flipped label lies between 0 and 1, got probability={self.probability!r}; "
                "0.1 is customary."
            )

    def __call__(
        self, labels: Float[Tensor, " record"], classes: int, generator: torch.Generator
    ) -> Float[Tensor, " record"]:
        """Return the labels that clients train with; refuse so many classes that these were worse than random."""
        self._check(classes)
        flipped = torch.rand(len(labels), generator=generator, dtype=torch.float64) < self.probability
        others = torch.randint(1, classes, (len(labels),), generator=generator)
        return torch.where(flipped, (labels.cpu().long() + others) % classes, labels.cpu().long()).to(labels)

    def epsilon(self, classes: int) -> float:
        """Return the epsilon of the pure differential privacy of each label; refuses what a call refuses."""
        self._check(classes)
        return math.log((1 - self.probability) * (classes - 1) / self.probability)

    def _check(self, classes: int) -> None:
        if self.probability > (classes - 1) / classes:
            raise BadInputError(
                f"labels of {classes} classes that are flipped with probability {self.probability:g} are wrong "
                f"more often than random labels; use a probability of at most {(classes - 1) / classes:g}."
            )
