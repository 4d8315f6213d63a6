"""Answers of many models as rows of numbers for a classifier of models."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

# Chances below it say no more: single precision ends near it, and rounded answers hold zeros.
LEAST = 1e-6


def raw(answers: Float[Tensor, "model query label"]) -> Float[Tensor, "model feature"]:
    """Return chances side by side, as the paper does."""
    return answers.flatten(1).double()


def logarithms(answers: Float[Tensor, "model query label"]) -> Float[Tensor, "model feature"]:
    """Return the chances' logarithms side by side: differences of small chances count as those of large ones."""
    return answers.double().clamp(min=LEAST).log().flatten(1)


@dataclass(frozen=True)
class Reduced:
    """Standardised features in the space that the shadow models span, which loses nothing of any linear rule.

    Attributes:
        mean, std: of each feature over shadow models.
        basis: of the space, orthonormal.
    """

    mean: Float[Tensor, " feature"]
    std: Float[Tensor, " feature"]
    basis: Float[Tensor, "feature kept"]

    @classmethod
    def of(cls, features: Float[Tensor, "model feature"]) -> Reduced:
        """Measure it on shadow models."""
        mean, std = features.mean(0), features.std(0)
        # A query that all models answer alike tells nothing; rounding must not make it tell something.
        std = torch.where(std > 1e-9 * (1 + mean.abs()), std, torch.full_like(std, torch.inf))
        _, values, rows = torch.linalg.svd((features - mean) / std, full_matrices=False)
        held = values > 1e-9 * values.max().clamp(min=1e-300)
        return cls(mean, std, rows[held].T)

    def __call__(self, features: Float[Tensor, "model feature"]) -> Float[Tensor, "model kept"]:
        """Return features in it."""
        return ((features - self.mean) / self.std) @ self.basis
