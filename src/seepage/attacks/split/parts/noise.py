"""The noisy likelihood: a message is a record's gradient, clipped to a bound, plus normal noise of a known size.

A client sends ``g = clip(s(f(x), y) J(x)) + noise_multiplier bound n`` with n standard normal in each of d numbers, so
that up to a constant a record

    log p(g | x, y)  =  -|g - clip(s J)|^2 / (2 v) - d / 2 log v,   v = (noise_multiplier bound)^2 + rounding^2.

The bound is one for all records, or half of the norm of a record's own gradient: then v depends on (x, y), too. Where
nothing is clipped, v is the rounding alone, and chances are those of the sharp likelihood.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.attacks.split.parts.messages import bound_of, candidate_gradients, factors, message_of, spread
from seepage.attacks.split.parts.prior import CellPrior, LabelPrior
from seepage.attacks.split.parts.responder import Responder
from seepage.attacks.split.parts.space import Space
from seepage.wire.split import CutKnowledge, CutView, KnownCut

Answer = Callable[[], tuple[Tensor, Tensor]]
"""Computes logits and derivatives of records under combinations, where a likelihood asks for them."""


@dataclass(frozen=True)
class RoundWithPriors:
    """Messages of one round, with what a likelihood may be fitted on beside them."""

    view: CutView
    respond: Responder
    space: Space
    knowledge: CutKnowledge
    cells: CellPrior
    labels: LabelPrior
    seed: int


class Noise(ABC):
    """What one round's messages say of combinations and labels that are listed."""

    @classmethod
    @abstractmethod
    def fit(cls, messages: RoundWithPriors) -> Noise:
        """Return the likelihood, with what of it is fitted on the messages."""

    @abstractmethod
    def log_density(
        self, answer: Answer, records: Int[Tensor, " record"], places: Int[Tensor, " place"]
    ) -> Float[Tensor, "record place label"]:
        """Return the log-density of some records' messages under combinations, up to a constant a record."""


@dataclass(frozen=True)
class NormalNoise(Noise):
    """Clipping and normal noise, or rounding alone."""

    view: CutView
    defense: KnownCut

    @classmethod
    def fit(cls, messages: RoundWithPriors) -> NormalNoise:
        """Return the likelihood; all of it is known."""
        return cls(messages.view, messages.knowledge.defense)

    def log_density(self, answer: Answer, records: Tensor, places: Tensor) -> Float[Tensor, "record place label"]:
        """Return the log-density; where each record has a factor of its own, at the factor that fits best."""
        view, defense, received = self.view, self.defense, self.view.own_gradient[records]
        candidates = candidate_gradients(view.model, *answer())
        if view.model.form.scale_of == "record":
            candidates = candidates * factors(candidates, received[:, None, None])[..., None]
        sent = message_of(defense, view.clip)
        means = candidates if sent is None else sent(candidates)
        squared = (means - received[:, None, None]).square().sum(-1).double()
        deviation = torch.zeros_like(squared[:, :1, :1], dtype=received.dtype)
        if defense.own_norm:
            deviation = defense.noise_multiplier * torch.linalg.vector_norm(means, dim=-1)
        elif defense.clips:
            deviation = deviation + defense.noise_multiplier * bound_of(defense, view.clip)
        variance = deviation.square().double() + spread(view)[records].square().double()[:, None, None]
        return (-squared / (2 * variance) - candidates.shape[-1] / 2 * variance.log()).cpu()
