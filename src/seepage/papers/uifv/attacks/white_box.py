"""Attacks that know the target's bottom model, which UIFV compares with: gradient inversion (GIA), generator (GRN)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.vertical.parts.generated import relaxed
from seepage.attacks.vertical.white_box import DescentAttack, Match, frozen, predicted
from seepage.errors import check_choice
from seepage.models.vertical import Stack, encoder_of
from seepage.registry import attacks
from seepage.tabular.encoder import Encoder
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge, FeatureView


@attacks.register("gia", "vertical", needs=("bottom",))
@dataclass(frozen=True)
class GradientInversion(DescentAttack):
    """Each record's cells are optimised until the joint model's prediction for them matches the observed one.

    Source: Jiang et al. (PoPETs 2022). The attacker matches the prediction. ``match="features"`` matches the target's
    features instead, which reveal more (ours).

    Attributes:
        match: values to match: ``prediction`` or ``features``.
    """

    match: Match = "prediction"
    steps: int = 500
    learning_rate: float | int = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("what gradient inversion matches:", self.match, Match)

    def __call__(self, view: FeatureView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess; all records are optimised at once."""
        bottom = frozen(knowledge.granted_bottom("gradient inversion"))
        encoder = encoder_of(knowledge.schema)
        starts = [
            0.1 * torch.randn(view.records, encoder.width, generator=torch.Generator().manual_seed(seed))
            for seed in seeds
        ]
        free = torch.stack(starts).requires_grad_(True)
        # The top model may be unknown where it is not needed.
        wanted = view.received
        if self.match == "prediction":
            wanted = view.model.top(torch.cat(list(view.features), dim=-1)).detach()

        def loss(step: int) -> Tensor:
            sent = bottom(self.rows(encoder, free))
            if self.match == "features":
                return (sent - wanted).square().mean(-1).sum()
            # Adam's steps do not depend on the scale of the loss, so that records do not disturb each other.
            return (predicted(view, view.features, sent) - wanted).square().mean(-1).sum()

        self.descend([free], loss)
        with torch.no_grad():
            return self.guess(encoder, self.rows(encoder, free))


@attacks.register("grn", "vertical", needs=("bottom",))
@dataclass(frozen=True)
class Generator(DescentAttack):
    """A network predicts the target's cells from the attacker's own, so that the joint model predicts the same.

    Source: Luo et al. (ICDE 2021), generative regression network. Layers of 600, 200 and 100 units with ReLU, squared
    error of the predictions, and a penalty on a spread of the generated columns beyond a threshold. Layer
    normalisation is left out.

    Attributes:
        hidden: units of the generator's hidden layers.
        noise: number of random inputs besides the attacker's columns.
        spread: variance of a generated column above which it is penalised.
    """

    hidden: tuple[int, ...] = (600, 200, 100)
    noise: int = 8
    spread: float | int = 0.25

    def __call__(self, view: FeatureView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess."""
        bottom = frozen(knowledge.granted_bottom("the generator"))
        encoder = encoder_of(knowledge.schema)
        inputs_of_active = encoder_of(view.model.partition.schemas[0]).encode(view.own)
        draws = [torch.Generator().manual_seed(seed) for seed in seeds]
        random = torch.stack([torch.randn(view.records, self.noise, generator=draw) for draw in draws])
        inputs = torch.cat([inputs_of_active, random], dim=-1)
        networks = Stack((inputs.shape[-1], *self.hidden, encoder.width), seeds)
        wanted = view.model.top(torch.cat(list(view.features), dim=-1)).detach().sigmoid()
        start = torch.arange(len(seeds))[:, None]
        size = min(self.batch_size, view.records)

        def loss(step: int) -> Tensor:
            batch = torch.stack([torch.randint(view.records, (size,), generator=draw) for draw in draws])
            rows = self.bounded_rows(encoder, networks(inputs[start, batch]))
            features = [feature[start, batch] for feature in view.features]
            error = predicted(view, features, bottom(rows)).sigmoid() - wanted[start, batch]
            beyond = (rows.var(1) - self.spread).relu().sum(-1)
            return (error.square().mean((1, 2)) + beyond).sum()

        self.descend(list(networks.parameters()), loss)
        with torch.no_grad():
            return self.guess(encoder, self.bounded_rows(encoder, networks(inputs)))

    def bounded_rows(self, encoder: Encoder, outputs: Float[Tensor, "*some encoded"]) -> Float[Tensor, "*some encoded"]:
        """Return rows from the generator's outputs, bounded by a sigmoid."""
        if self.valid:
            return relaxed(encoder, outputs)
        bounded = outputs.sigmoid()
        return torch.where(encoder.is_continuous, 2 * bounded - 1, bounded)
