"""MID: passive parties send features through a channel of learned noise that carries as little as the task needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.defenses.feature_noise import Features, Spread, with_feature_noise
from seepage.errors import positive
from seepage.registry import ActsOn, defenses


@defenses.register("mid", "vertical")
@dataclass(frozen=True)
class Mid:
    """Each feature that is sent has normal noise of a learned size, and the loss counts what the feature says.

    Source: Zou, Liu and Zhang, Mutual Information Regularization for Vertical Federated Learning (arXiv 2301.01142),
    after the variational bottleneck of Alemi et al. (ICLR 2017). A message is drawn from a normal distribution around
    the computed feature. The loss has the divergence of that distribution from the standard normal one, an upper bound
    on what a message says of the row, in nats. Deviations: the noise of a feature has one learned size for all rows,
    not one a row, and bottom models end in no further layer. It is the passive party's, against the active one. As a
    layer of the active party, against label inference, it is not included.

    Attributes:
        weight: weight of the divergence in the loss, per nat.

    Raises:
        BadInputError: the weight is not a positive number.

    Example:
        >>> Mid(0.01).information(torch.zeros(1, 4, 3), torch.ones(1, 1, 3))
        tensor(0.)
    """

    words: ClassVar[str] = "features with learned noise"
    acts_on: ClassVar[ActsOn] = "features"

    weight: float | int = 0.01

    def __post_init__(self) -> None:
        positive("weight", self.weight)

    def __call__(self, features: Features, spread: Spread, generator: torch.Generator) -> Features:
        """Return the features with noise of a standard deviation each, as it was learned."""
        return with_feature_noise(features, spread, generator)

    def information(self, features: Features, spread: Spread) -> Float[Tensor, ""]:
        """Return the term of a party in the loss of a batch, summed over trainings; it has a derivative."""
        nats = (features.square() + spread.square() - 1).sum(-1) / 2 - spread.log().sum(-1)
        return self.weight * nats.mean(1).sum()
