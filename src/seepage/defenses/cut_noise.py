"""Clipping and normal noise on the gradients that clients of split learning send back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.defenses.accounting import gaussian_epsilon
from seepage.errors import BadInputError, check_choice, check_count, non_negative, positive
from seepage.registry import ActsOn, defenses

Rule = Literal["quantile", "own"]


@defenses.register("cut_noise", "split")
@dataclass(frozen=True)
class CutNoise:
    """Each record's gradient at the cut is clipped and gets normal noise.

    Source: Qiu et al., EXACT (2024).

    The paper clips to "half the gradient norm", after Andrew et al. (2021), which can be read in two ways, and both
    are here. ``quantile``: one bound for all records, which follows a quantile of their norms from batch to batch
    (Andrew et al., section 2: ``C <- C exp(-rate (share of norms below C - quantile))``; without noise on the share).
    ``own``: half of each record's own norm, by which noise depends on the data and nothing is guaranteed.

    Attributes:
        noise_multiplier: noise standard deviation / clipping bound.
        rule: rule that sets the bound.
        quantile: quantile of the norms that the bound follows, with ``quantile``.
        rate: rate at which the bound follows the quantile, with ``quantile``.
        start: bound of the first batch, with ``quantile``; cross-entropy at a fresh network's cut has norms of this
            size or below.

    Raises:
        BadInputError: an argument is out of range.

    Example:
        >>> sent = CutNoise(0.01)(torch.ones(2, 4), bound=1.0, generator=torch.Generator().manual_seed(0))
        >>> [round(float(row.norm()), 1) for row in sent]
        [1.0, 1.0]
    """

    words: ClassVar[str] = "clipped gradients with noise of {noise_multiplier} clipping bounds"
    acts_on: ClassVar[ActsOn] = "gradients that go back"

    noise_multiplier: float | int
    rule: Rule = "quantile"
    quantile: float | int = 0.5
    rate: float | int = 0.2
    start: float | int = 0.5

    def __post_init__(self) -> None:
        check_choice("rule for the bound:", self.rule, Rule)
        for name in ("noise_multiplier", "rate"):
            non_negative(name, getattr(self, name))
        positive("start", self.start)
        if not isinstance(self.quantile, int | float) or not 0 < self.quantile < 1:
            raise BadInputError(f"a quantile lies between 0 and 1, got quantile={self.quantile!r}.")

    def __call__(
        self, gradients: Float[Tensor, "record cut"], bound: float, generator: torch.Generator
    ) -> Float[Tensor, "record cut"]:
        """Return the clipped and noisy gradients."""
        norms = torch.linalg.vector_norm(gradients, dim=1, keepdim=True)
        bounds = norms / 2 if self.rule == "own" else torch.full_like(norms, bound)
        noise = torch.randn(gradients.shape, generator=generator, dtype=gradients.dtype).to(gradients.device)
        return clipped(gradients, bounds) + self.noise_multiplier * bounds * noise

    def follow(self, bound: float, gradients: Float[Tensor, "record cut"]) -> float:
        """Return the bound of the next batch."""
        if self.rule == "own":
            return bound
        below = float((torch.linalg.vector_norm(gradients, dim=1) <= bound).double().mean())
        return bound * math.exp(-self.rate * (below - self.quantile))

    def epsilon(self, exchanges: int, delta: float | int) -> float | None:
        """Return the guarantee for the record of a row over a number of exchanges; None where there is none.

        No other record hides a message, and no sampling amplifies. Two rows' messages differ by at most twice the
        bound, and exchanges compose to one Gaussian mechanism (Dong, Roth and Su 2022, corollary 2: epsilon and delta
        of mu-GDP). That the bound itself follows the data, without noise on the share, is not accounted for.
        """
        check_count("exchanges", exchanges)
        if not 0 < delta < 1:
            raise BadInputError(f"delta lies between 0 and 1, got delta={delta}.")
        if self.rule == "own" or self.noise_multiplier == 0:
            return None
        return gaussian_epsilon(2 * math.sqrt(exchanges) / self.noise_multiplier, delta)


def clipped(
    gradients: Float[Tensor, "*some cut"], bounds: Float[Tensor, "*#some 1"] | float
) -> Float[Tensor, "*some cut"]:
    """Return vectors scaled down to their bound where they are longer."""
    norms = torch.linalg.vector_norm(gradients, dim=-1, keepdim=True)
    return gradients * (bounds / norms.clamp(min=torch.finfo(gradients.dtype).tiny)).clamp(max=1.0)
