"""Defenses of the gradients that go back: to passive parties of vertical learning, to the server of split learning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.defenses.cut_noise import clipped
from seepage.errors import positive
from seepage.registry import ActsOn, defenses

Returned = Float[Tensor, "batch record feature"]
Targets = Float[Tensor, "batch record"]


@dataclass(frozen=True)
class ReturnedDefense(ABC):
    """A defense of the gradients that go back to passive parties, as vertical learning takes it.

    One of your own is a frozen dataclass that extends this class; its fields are its options.
    """

    # Two mechanisms on the same thing cannot be combined.
    acts_on: ClassVar[ActsOn] = "gradients that go back"

    @abstractmethod
    def __call__(self, gradients: Returned, generator: torch.Generator, labels: Targets) -> Returned:
        """Return the gradients to send back, from those of each record's own loss, batch by batch."""


@dataclass(frozen=True)
class BatchDefense(ReturnedDefense):
    """One that looks at a batch alone, so that any party with labels can use it: split learning takes it too."""


@defenses.register("returned_noise", "vertical")
@dataclass(frozen=True)
class ReturnedNoise(ReturnedDefense):
    """Each record's gradient that goes back is clipped and gets normal noise.

    Source: Yang et al., UIFV (arXiv 2406.12588), in our reading. The unit of its ratios is not stated. Here the norm of
    the gradient of a record's own loss is bounded by ``clip``, and the noise on each entry has ``scale`` times that
    standard deviation.

    Attributes:
        scale: noise standard deviation / clipping bound.
        clip: clipping bound, on the norm of each record's gradient.

    Raises:
        BadInputError: an argument is not a positive number.

    Example:
        >>> sent = ReturnedNoise(1e-9)(torch.tensor([[[3.0, 4.0]]]), torch.Generator().manual_seed(0))
        >>> [round(x, 1) for x in sent[0, 0].tolist()]
        [0.6, 0.8]
    """

    words: ClassVar[str] = "clipped gradients with noise of standard deviation {scale}"

    scale: float | int
    clip: float | int = 1.0

    def __post_init__(self) -> None:
        positive("scale", self.scale)
        positive("clip", self.clip)

    def __call__(self, gradients: Returned, generator: torch.Generator, labels: Targets | None = None) -> Returned:
        """Return the gradients to send back, from those of each record's own loss; ``labels`` are not used."""
        noise = torch.randn(gradients.shape, generator=generator, dtype=gradients.dtype).to(gradients.device)
        return clipped(gradients, float(self.clip)) + self.scale * self.clip * noise


@defenses.register("max_norm", "split")
@defenses.register("max_norm", "vertical")
@dataclass(frozen=True)
class MaxNorm(BatchDefense):
    """Noise along each record's gradient brings all gradients of a batch to the largest norm among them, on average.

    Source: Li et al., Label Leakage and Protection in Two-Party Split Learning (ICLR 2022), section 4.1 and appendix.
    A gradient g becomes g (1 + sigma e), e standard normal, with sigma^2 = max / |g|^2 - 1, where max is
    the largest squared norm in the batch. Mean squared norms are then all alike, and short gradients often point to the
    other side. No deviation: a batch is that of the exchange, as there.

    Example:
        >>> batch = torch.tensor([[[3.0, 4.0], [0.3, 0.4]]])
        >>> sent = MaxNorm()(batch, torch.Generator().manual_seed(0))
        >>> bool((sent[0, 0] == batch[0, 0]).all()), abs(round(float(sent[0, 1, 0] * 4 - sent[0, 1, 1] * 3), 4))
        (True, 0.0)
    """

    words: ClassVar[str] = "gradients of equal length"

    def __call__(self, gradients: Returned, generator: torch.Generator, labels: Targets | None = None) -> Returned:
        """Return the gradients to send back, one batch a training; ``labels`` are not used."""
        norms = torch.linalg.vector_norm(gradients, dim=-1, keepdim=True)
        # A gradient of zero has no direction to add noise along.
        along = gradients / norms.clamp(min=torch.finfo(gradients.dtype).tiny)
        missing = (norms.amax(1, keepdim=True).square() - norms.square()).clamp(min=0).sqrt()
        drawn = torch.randn(norms.shape, generator=generator, dtype=gradients.dtype).to(gradients.device)
        return gradients + along * missing * drawn
