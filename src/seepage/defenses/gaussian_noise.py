"""Normal noise on every entry (TabLeak section 5.4: scales 0.001, 0.01 and 0.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from seepage.defenses.defense import Update, check_seeds, flat, unflat, with_noise
from seepage.errors import positive
from seepage.registry import ActsOn, defenses
from seepage.wire.horizontal import KnownDefense


@defenses.register("gaussian_noise", "horizontal")
@dataclass(frozen=True)
class GaussianNoise:
    """Independent normal noise on every entry of the update.

    Source: as measured by Vero et al., TabLeak (ICML 2023), section 5.4.

    The update is not clipped first, so that this alone gives no differential privacy: the effect of the noise depends
    on the size of the update.

    Attributes:
        scale: standard deviation of the noise, in units of the update's entries.

    Raises:
        BadInputError: the scale is not a positive number.

    Example:
        >>> import torch
        >>> sent = GaussianNoise(scale=0.1)({"bias": torch.zeros(2, 10_000)}, seeds=[1, 2])
        >>> [round(float(row.std()), 2) for row in sent["bias"]]
        [0.1, 0.1]
    """

    words: ClassVar[str] = "noise of standard deviation {scale} on every number sent"
    acts_on: ClassVar[ActsOn] = "update"

    scale: float | int

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", positive("scale", self.scale))

    def __call__(self, update: Update, seeds: Sequence[int]) -> Update:
        """Return the updates with noise, which depends on the victim's seed alone, not on the device."""
        check_seeds(update, seeds)
        return unflat(with_noise(flat(update), seeds, self.scale), update)

    def describe(self) -> KnownDefense:
        """Return the mechanism and its scale."""
        return KnownDefense("gaussian_noise", {"scale": self.scale}, noise=self.scale)
