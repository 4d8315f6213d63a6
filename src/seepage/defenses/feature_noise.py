"""Normal noise on the features that passive parties of vertical learning send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.errors import positive
from seepage.registry import ActsOn, defenses

Features = Float[Tensor, "training record feature"]
Spread = Float[Tensor, "training 1 feature"]


def with_feature_noise(features: Features, deviation: Tensor, generator: torch.Generator) -> Features:
    """Return features with normal noise of a standard deviation each."""
    noise = torch.randn(features.shape, generator=generator, dtype=features.dtype).to(features.device)
    return features + deviation * noise


@defenses.register("feature_noise", "split")
@defenses.register("feature_noise", "vertical")
@dataclass(frozen=True)
class FeatureNoise:
    """Each feature that passive parties send gets normal noise.

    Source: Yang et al., UIFV (arXiv 2406.12588), tables 8 to 11. It adds noise "to the output" at ratios whose unit is
    not stated; this is our interpretation. The unit is measured on the data, so that nothing is guaranteed.

    Attributes:
        scale: noise standard deviation / standard deviation of the feature over records.

    Raises:
        BadInputError: the scale is not a positive number.

    Example:
        >>> noise, spread = FeatureNoise(0.5), torch.full((1, 1, 3), 2.0)
        >>> sent = noise(torch.zeros(1, 5000, 3), spread, torch.Generator().manual_seed(0))
        >>> round(float(sent.std()), 1)
        1.0
    """

    words: ClassVar[str] = "noise of standard deviation {scale} on every feature sent"
    acts_on: ClassVar[ActsOn] = "features"

    scale: float | int

    def __post_init__(self) -> None:
        positive("scale", self.scale)

    def __call__(self, features: Features, spread: Spread, generator: torch.Generator) -> Features:
        """Return the noisy features, by the standard deviation of each."""
        return with_feature_noise(features, self.scale * spread, generator)
