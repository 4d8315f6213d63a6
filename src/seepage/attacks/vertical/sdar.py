"""SDAR in vertical learning: a shadow whose features an adversary cannot tell from those that were received."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from seepage.attacks.vertical.uifv import DataPassiveAttack, ShadowInversion
from seepage.errors import BadInputError
from seepage.models.inverse import InverseLoss
from seepage.models.split import for_loss
from seepage.models.vertical import Stack, encoder_of, losses_of
from seepage.registry import Traits, attacks
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge, FeatureView

_RATE, _ADVERSARY_RATE = 1e-3, 1e-3
_ADVERSARY = (128, 128)


@attacks.register("sdar", "vertical", traits=Traits(needs=("auxiliary",), shadow=True))
@dataclass(frozen=True)
class AdversarialShadowAttack(DataPassiveAttack):
    """As ``uifv_dpa``, with a shadow whose features a discriminator takes for those that the target sent.

    Source: Zhu et al., Passive Inference Attacks on Split Learning via Adversarial Regularization (NDSS 2025), SDAR.
    The server's simulator of the client is trained by the task through the server's own part, and by a discriminator of
    features. Deviations: the shadow is trained behind the top model as it is at the end, not at each of its steps;
    features of all exchanges that were seen count as real; InverNet, without a discriminator of its own, decodes. The
    adversary has the shadow's learning rate and a larger weight than there, which reads more of tables.
    Tables alone: for images, see the paper's own code.

    Attributes:
        weight: weight of the adversary in the shadow's loss.

    Raises:
        BadInputError: an argument is out of range.
    """

    loss: InverseLoss = "fields"
    weight: float | int = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.weight, bool) or not 0 <= self.weight < math.inf:
            raise BadInputError(f"the weight of the adversary is a number from 0 up, got weight={self.weight!r}.")

    def fit_shadow(self, view: FeatureView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> ShadowInversion:
        """Return shadow and InverNet; the arguments are those of a call. Rows that are no table are refused."""
        rows = knowledge.granted_auxiliary("the attack with an adversary")
        if knowledge.layout is not None:
            raise BadInputError("sdar simulates bottom models of tables, but the rows are none; use uifv_dpa.")
        encoder = encoder_of(knowledge.schema)
        encoded = encoder.encode(rows.cells)
        received = view.received if view.earlier is None else torch.cat([view.received, view.earlier.received], dim=1)
        mean, spread = received.mean(1, keepdim=True), received.std(1, keepdim=True).clamp(min=1e-6)
        width = received.shape[-1]
        shadows = Stack((encoded.shape[-1], *self.hidden, width), seeds)
        adversary = Stack((width, *_ADVERSARY, 1), [seed + 1 for seed in seeds])
        optimiser = torch.optim.Adam(shadows.parameters(), lr=_RATE)
        against = torch.optim.Adam(adversary.parameters(), lr=_ADVERSARY_RATE)
        order = [torch.Generator().manual_seed(seed) for seed in seeds]
        start, labels = torch.arange(len(seeds))[:, None], for_loss(view.model.partition.schema.target, rows.labels)
        for _ in range(self.shadow_epochs):
            shuffled = torch.stack([torch.randperm(rows.rows, generator=rng) for rng in order])
            for batch in shuffled.split(self.batch_size, dim=1):
                mine = shadows(encoded[start, batch])
                features = [mine if feature is None else feature[start, batch] for feature in rows.features]
                losses = losses_of(view.model.head, view.model.top(torch.cat(features, dim=-1)), labels[start, batch])
                simulated = (mine - mean) / spread
                # Of trainings side by side, each has a loss of its own.
                fooled = functional.softplus(-adversary(simulated)).mean((1, 2))
                parameters = list(shadows.parameters())
                gradients = torch.autograd.grad((losses.mean(1) + self.weight * fooled).sum(), parameters)
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter.grad = gradient
                optimiser.step()
                chosen = torch.stack(
                    [torch.randint(received.shape[1], batch.shape[1:], generator=rng) for rng in order]
                )
                real = (received[start, chosen] - mean) / spread
                caught = functional.softplus(-adversary(real)) + functional.softplus(adversary(simulated.detach()))
                against.zero_grad()
                caught.mean((1, 2)).sum().backward()
                against.step()
        shadows.requires_grad_(False)
        with torch.no_grad():
            answers = shadows(encoded)
        return ShadowInversion(self.inverter(None).fit(answers, encoded, encoder, seeds), shadows)

    def __call__(self, view: FeatureView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess; ``seeds`` are those of each training's shadow, adversary and InverNet."""
        return self.fit_shadow(view, knowledge, seeds).guess(view)
