"""Noise on the weights that clients of split learning publish."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from seepage.defenses.accounting import gaussian_guarantee
from seepage.errors import BadInputError
from seepage.registry import ActsOn, defenses


@defenses.register("weight_noise", "split")
@dataclass(frozen=True)
class WeightNoise:
    """The client weights that the server gets once an epoch change by a noisy step each.

    The published weights are the earlier ones plus their change with normal noise on it. Clients go on with
    their own weights, without noise, so that what the server holds is about what answers it. The bound on a change is
    its own norm, the least that changes nothing of it. Our reading of "global differential privacy" of client models,
    which Qiu et al. (EXACT, 2024) discuss and do not measure.

    Attributes:
        noise_multiplier: noise standard deviation / bound on the norm of the change of all weights.

    Raises:
        BadInputError: the multiplier is not a positive number.

    Example:
        >>> layer = nn.Linear(3, 2)
        >>> blurred = WeightNoise(0.1)(layer, nn.Linear(3, 2), torch.Generator().manual_seed(0))
        >>> bool((blurred.weight != layer.weight).all())
        True
    """

    words: ClassVar[str] = "the client's weights with noise of {noise_multiplier} clipping bounds"
    acts_on: ClassVar[ActsOn] = "published weights"

    noise_multiplier: float | int

    def __post_init__(self) -> None:
        value = self.noise_multiplier
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise BadInputError(f"noise on weights is a positive number, got noise_multiplier={value!r}.")

    def __call__(self, now: nn.Module, before: nn.Module, generator: torch.Generator) -> nn.Module:
        """Return the client part as the server receives it, with noise on its change since it was last published."""
        published = copy.deepcopy(now)
        with torch.no_grad():
            changes = [a - b for a, b in zip(now.parameters(), before.parameters(), strict=True)]
            bound = float(torch.cat([change.flatten() for change in changes]).norm())
            for parameter in published.parameters():
                noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype).to(parameter.device)
                parameter.add_(noise, alpha=self.noise_multiplier * bound)
        return published

    def epsilon(self, publications: int, delta: float) -> float | None:
        """Return the guarantee of some publications for a client whose change is one of those summed; None for none."""
        guarantee = gaussian_guarantee(float(self.noise_multiplier), 1.0, publications, delta)
        return None if guarantee is None else guarantee.epsilon
