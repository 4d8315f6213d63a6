"""Defenses of a model's answers: rounding, or the likeliest class alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from seepage.errors import BadInputError


@dataclass(frozen=True)
class Answers:
    """Coarser answers of a model.

    Attributes:
        digits: number of decimal places that chances are rounded to; None for all.
        label_only: whether only the likeliest class is returned, as a chance of 1.

    Raises:
        BadInputError: ``digits`` is not a whole number from 0 up.

    Example:
        >>> Answers(digits=1)(torch.tensor([[0.24, 0.76]])).tolist()
        [[0.20..., 0.80...]]
        >>> Answers(label_only=True)(torch.tensor([[0.24, 0.76]])).tolist()
        [[0.0, 1.0]]
    """

    digits: int | None = None
    label_only: bool = False

    def __post_init__(self) -> None:
        if self.digits is not None and (isinstance(self.digits, bool) or self.digits < 0):
            raise BadInputError(f"digits is a whole number from 0 up, got digits={self.digits!r}.")

    def __call__(self, answers: Float[Tensor, "*batch label"]) -> Float[Tensor, "*batch label"]:
        """Return the answers, coarsened."""
        if self.label_only:
            return functional.one_hot(answers.argmax(-1), answers.shape[-1]).to(answers.dtype)
        return answers if self.digits is None else torch.round(answers, decimals=self.digits)
