"""Coarser answers of a jointly trained model: rounded ones, or the likeliest class alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from seepage.errors import BadInputError
from seepage.registry import ActsOn, defenses

# Two mechanisms on the same thing cannot be combined.
_ACTS_ON: ActsOn = "answers"


@defenses.register("rounded_answers", "pooled")
@dataclass(frozen=True)
class RoundedAnswers:
    """The model's class probabilities are rounded.

    Attributes:
        digits: decimal places that are kept.

    Raises:
        BadInputError: ``digits`` is not a whole number from 0 up.

    Example:
        >>> RoundedAnswers(digits=1)(torch.tensor([[0.24, 0.76]])).tolist()
        [[0.20..., 0.80...]]
    """

    words: ClassVar[str] = "rounded answers, to {digits} digits"
    acts_on: ClassVar[ActsOn] = _ACTS_ON

    digits: int

    def __post_init__(self) -> None:
        if not isinstance(self.digits, int) or isinstance(self.digits, bool) or self.digits < 0:
            raise BadInputError(f"digits is a whole number from 0 up, got digits={self.digits!r}.")

    def __call__(self, answers: Float[Tensor, "*batch label"]) -> Float[Tensor, "*batch label"]:
        """Return the rounded probabilities."""
        return torch.round(answers, decimals=self.digits)


@defenses.register("label_only", "pooled")
@dataclass(frozen=True)
class LabelOnly:
    """The model answers with the likeliest class alone.

    Example:
        >>> LabelOnly()(torch.tensor([[0.24, 0.76]])).tolist()
        [[0.0, 1.0]]
    """

    words: ClassVar[str] = "answers without probabilities"
    acts_on: ClassVar[ActsOn] = _ACTS_ON

    def __call__(self, answers: Float[Tensor, "*batch label"]) -> Float[Tensor, "*batch label"]:
        """Return the likeliest class of each answer, with a probability of 1."""
        return functional.one_hot(answers.argmax(-1), answers.shape[-1]).to(answers.dtype)


CoarseAnswers = RoundedAnswers | LabelOnly
