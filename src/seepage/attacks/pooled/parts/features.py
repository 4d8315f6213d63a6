"""Features of models for a classifier of models: their answers as rows of numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

LEAST = 1e-6  # least chance: single precision ends near it, and rounded answers hold zeros
# What hardly any shadow model shows, as a weight of a rare category, counts for as many deviations at most.
_FURTHEST = 3.0


def raw(answers: Float[Tensor, "model query label"]) -> Float[Tensor, "model feature"]:
    """Return chances side by side, as in the paper."""
    return answers.flatten(1).double()


def logarithms(answers: Float[Tensor, "model query label"]) -> Float[Tensor, "model feature"]:
    """Return the chances' logarithms side by side: small chances count as much as large ones."""
    return answers.double().clamp(min=LEAST).log().flatten(1)


def ratios(answers: Float[Tensor, "model query label"]) -> Float[Tensor, "model feature"]:
    """Return the logarithms of the chances over their geometric mean: a linear model's are linear in its weights."""
    logs = answers.double().clamp(min=LEAST).log()
    return (logs - logs.mean(2, keepdim=True)).flatten(1)


def standardised(
    features: Float[Tensor, "model feature"], targets: Float[Tensor, "target feature"]
) -> tuple[Float[Tensor, "model feature"], Float[Tensor, "target feature"]]:
    """Return features of shadow models and of targets in units of the shadow models' spread, up to three of them."""
    mean, std = _spread(features)
    scaled = ((side - mean) / std for side in (features, targets))
    ours, theirs = (side.clamp(-_FURTHEST, _FURTHEST) for side in scaled)
    return ours, theirs


def _spread(
    features: Float[Tensor, "model feature"],
) -> tuple[Float[Tensor, " feature"], Float[Tensor, " feature"]]:
    """Return mean and deviation of each feature; an infinite one where all models answer alike."""
    mean, std = features.mean(0), features.std(0)
    # A query that all models answer alike has no information; rounding must not add any.
    return mean, torch.where(std > 1e-9 * (1 + mean.abs()), std, torch.full_like(std, torch.inf))


@dataclass(frozen=True)
class Reduced:
    """Standardised features in the space that the shadow models span, in which any linear rule can be expressed."""

    mean: Float[Tensor, " feature"]
    std: Float[Tensor, " feature"]
    basis: Float[Tensor, "feature reduced"]

    @classmethod
    def of(cls, features: Float[Tensor, "model feature"]) -> Reduced:
        """Compute the space from shadow models."""
        mean, std = _spread(features)
        _, values, rows = torch.linalg.svd((features - mean) / std, full_matrices=False)
        independent = values > 1e-9 * values.max().clamp(min=1e-300)
        return cls(mean, std, rows[independent].T)

    def __call__(self, features: Float[Tensor, "model feature"]) -> Float[Tensor, "model reduced"]:
        """Return features in the space."""
        return ((features - self.mean) / self.std) @ self.basis
