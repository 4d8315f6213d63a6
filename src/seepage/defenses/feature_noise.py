"""Normal noise on the features that passive parties of vertical learning send."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.defenses.cut_noise import clipped
from seepage.errors import BadInputError


@dataclass(frozen=True)
class FeatureNoise:
    """Each feature gets normal noise in units of that feature's own standard deviation over records.

    UIFV (Yang et al., arXiv 2406.12588, tables 8 to 11) adds noise "to the output" at ratios whose unit is not stated;
    this is our reading. The unit is measured on the data, so that nothing is guaranteed.

    Attributes:
        ratio: standard deviation of the noise, in units of the feature's.

    Raises:
        BadInputError: the ratio is not a positive number.

    Example:
        >>> noise, spread = FeatureNoise(0.5), torch.full((1, 1, 3), 2.0)
        >>> sent = noise(torch.zeros(1, 5000, 3), spread, torch.Generator().manual_seed(0))
        >>> round(float(sent.std()), 1)
        1.0
    """

    ratio: float | int

    def __post_init__(self) -> None:
        _check("ratio", self.ratio)

    def __call__(
        self,
        features: Float[Tensor, "training record feature"],
        spread: Float[Tensor, "training 1 feature"],
        generator: torch.Generator,
    ) -> Float[Tensor, "training record feature"]:
        """Return what is sent.

        Args:
            features: as computed.
            spread: standard deviation of each feature.
            generator: of the noise.
        """
        noise = torch.randn(features.shape, generator=generator, dtype=features.dtype).to(features.device)
        return features + self.ratio * spread * noise


@dataclass(frozen=True)
class ReturnedNoise:
    """Each record's gradient that goes back to a passive party is clipped and gets normal noise.

    UIFV's "differential privacy" at ratios whose unit is not stated; our reading: the norm of the gradient of a
    record's own loss is bounded by ``clip``, and the noise has a standard deviation of ``ratio`` bounds on each entry.

    Attributes:
        ratio: standard deviation of the noise, in units of the bound.
        clip: bound on the norm.

    Raises:
        BadInputError: an argument is not a positive number.

    Example:
        >>> sent = ReturnedNoise(1e-9)(torch.tensor([[[3.0, 4.0]]]), torch.Generator().manual_seed(0))
        >>> [round(x, 1) for x in sent[0, 0].tolist()]
        [0.6, 0.8]
    """

    ratio: float | int
    clip: float | int = 1.0

    def __post_init__(self) -> None:
        _check("ratio", self.ratio)
        _check("clip", self.clip)

    def __call__(
        self, gradients: Float[Tensor, "training record feature"], generator: torch.Generator
    ) -> Float[Tensor, "training record feature"]:
        """Return what is sent back of the gradients of each record's own loss."""
        noise = torch.randn(gradients.shape, generator=generator, dtype=gradients.dtype).to(gradients.device)
        return clipped(gradients, float(self.clip)) + self.ratio * self.clip * noise


def _check(name: str, value: float) -> None:
    if isinstance(value, bool) or not 0 < value < math.inf:
        raise BadInputError(f"{name} of a defense is a positive number, got {name}={value!r}.")
