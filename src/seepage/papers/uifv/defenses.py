"""Defenses that UIFV compares with, of which the abstracts alone were available: PA-iMFL and VFLDefender."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from seepage.defenses.returned import Returned, ReturnedDefense, Targets
from seepage.errors import BadInputError, positive
from seepage.registry import Traits, defenses

_OURS = Traits(mark="our reading of its abstract")


@defenses.register("pa_imfl", "vertical", traits=_OURS)
@dataclass(frozen=True)
class PaImfl(ReturnedDefense):
    """PA-iMFL in our interpretation: Laplace noise on some coordinates, of which only the signs are sent.

    Source: Wang et al., PA-iMFL (arXiv 2309.13864), of which only the abstract was available. It says: local
    differential privacy, a subsample that amplifies it, and gradients reset to their signs, for horizontal learning in
    layers. Here each record's gradient is scaled down to an L1 norm of ``clip``, gets Laplace noise of scale ``clip /
    epsilon``, keeps each coordinate with probability ``kept``, and goes back as signs times the mean magnitude of the
    kept coordinates.

    Attributes:
        epsilon: epsilon of the noise on one message; after the subsample it is ``ln(1 + kept (e^epsilon - 1))``.
        kept: probability that a coordinate is kept.
        clip: bound on the L1 norm.

    Raises:
        BadInputError: an argument is not a positive number, or the probability is above 1.

    Example:
        >>> sent = PaImfl(kept=1)(torch.tensor([[[0.3, -0.1]]]), torch.Generator().manual_seed(0))
        >>> bool(sent[0, 0, 0].abs() == sent[0, 0, 1].abs())
        True
    """

    words: ClassVar[str] = "signs of noisy gradients"
    epsilon: float | int = 1.0
    kept: float | int = 0.5
    clip: float | int = 1.0

    def __post_init__(self) -> None:
        for name in ("epsilon", "kept", "clip"):
            positive(name, getattr(self, name))
        if self.kept > 1:
            raise BadInputError(f"the chance of a coordinate to be kept is at most 1, got kept={self.kept!r}.")

    def __call__(self, gradients: Returned, generator: torch.Generator, labels: Targets | None = None) -> Returned:
        """Return the gradients to send back, from those of each record's own loss; ``labels`` are not used."""
        size = gradients.abs().sum(-1, keepdim=True)
        bounded = gradients * (self.clip / size.clamp(min=float(self.clip)))
        drawn = torch.rand((2, *gradients.shape), generator=generator, dtype=gradients.dtype).to(gradients.device)
        # The inverse of the Laplace distribution function; 0 and 1 themselves would be infinite.
        centred = (drawn[0] - 0.5).clamp(-0.4999999, 0.4999999)
        laplace = -centred.sign() * torch.log1p(-2 * centred.abs()) * (self.clip / self.epsilon)
        mask = (drawn[1] < self.kept).to(gradients)
        noisy = (bounded + laplace) * mask
        magnitude = noisy.abs().sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
        return noisy.sign() * magnitude


@defenses.register("vfldefender", "vertical", traits=_OURS)
@dataclass(frozen=True)
class VflDefender(ReturnedDefense):
    """VFLDefender in our interpretation: a random orthogonal vector is added to each record's gradient.

    Source: Zhu et al., VFLDefender (IEEE TIFS 2024), of which only the abstract was available. It obscures the
    correlation between changes of bottom models and labels or features. Here the gradient keeps its component along
    itself, so that training follows it on average, and gets a component of ``ratio`` times its norm in a random
    orthogonal direction.

    Attributes:
        ratio: norm of the added vector, in units of the gradient's.

    Raises:
        BadInputError: the ratio is not a positive number.

    Example:
        >>> gradient = torch.tensor([[[3.0, 4.0, 0.0]]])
        >>> added = VflDefender(1.0)(gradient, torch.Generator().manual_seed(0)) - gradient
        >>> round(float(added.norm()), 4), abs(round(float((added * gradient).sum()), 4))
        (5.0, 0.0)
    """

    words: ClassVar[str] = "gradients turned at random"
    ratio: float | int = 1.0

    def __post_init__(self) -> None:
        positive("ratio", self.ratio)

    def __call__(self, gradients: Returned, generator: torch.Generator, labels: Targets | None = None) -> Returned:
        """Return the gradients to send back, from those of each record's own loss; ``labels`` are not used."""
        tiny = torch.finfo(gradients.dtype).tiny
        norms = torch.linalg.vector_norm(gradients, dim=-1, keepdim=True)
        along = gradients / norms.clamp(min=tiny)
        drawn = torch.randn(gradients.shape, generator=generator, dtype=gradients.dtype).to(gradients.device)
        across = drawn - (drawn * along).sum(-1, keepdim=True) * along
        across = across / torch.linalg.vector_norm(across, dim=-1, keepdim=True).clamp(min=tiny)
        return gradients + self.ratio * norms * across
