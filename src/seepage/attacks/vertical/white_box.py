"""Attacks that know the target's bottom model: Ginver, gradient inversion (GIA) and the generator (GRN)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.attacks.vertical.parts.relaxed import relaxed
from seepage.errors import BadInputError, check_choice, check_count
from seepage.models.inverse import cells_of
from seepage.models.vertical import Stack, encoder_of
from seepage.registry import attacks
from seepage.tabular.encoder import Encoder
from seepage.wire.vertical import ActivationView, FeatureGuess, FeatureKnowledge, FeatureView

# Values that a white-box attack matches.
Match = Literal["prediction", "features"]


@dataclass(frozen=True)
class DescentAttack:
    """Common settings of attacks by descent.

    Attributes:
        valid: whether rows are kept near valid ones during the descent (ours); otherwise free numbers, as published.
        steps: number of Adam steps.
        batch_size: number of records of a step, where a network is trained.
        learning_rate: learning rate of Adam, which falls to 0 along a cosine.

    Raises:
        BadInputError: an argument is out of range.
    """

    valid: bool = False
    steps: int = 3000
    batch_size: int = 64
    learning_rate: float | int = 1e-3

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_count("batch_size", self.batch_size)
        rate = self.learning_rate
        if isinstance(rate, bool) or not 0 < rate < math.inf:
            raise BadInputError(f"a learning rate is a positive number, got learning_rate={rate!r}.")

    def rows(self, encoder: Encoder, free: Float[Tensor, "*some encoded"]) -> Float[Tensor, "*some encoded"]:
        """Return encoded rows from free numbers."""
        return relaxed(encoder, free) if self.valid else free

    def guess(self, encoder: Encoder, outputs: Float[Tensor, "training record encoded"]) -> FeatureGuess:
        """Return the guess that consists of encoded rows."""
        failed = ~outputs.flatten(1).isfinite().all(1)
        return FeatureGuess(torch.where(failed[:, None, None], torch.nan, cells_of(encoder, outputs)), failed=failed)

    def descend(self, parameters: Sequence[Tensor], loss: Callable[[int], Tensor]) -> None:
        """Take all steps along the gradient of a loss, which is summed over trainings."""
        optimiser = torch.optim.Adam(list(parameters), lr=self.learning_rate)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda k: 0.5 * (1 + math.cos(math.pi * k / self.steps))
        )
        for step in range(self.steps):
            found = torch.autograd.grad(loss(step), list(parameters))
            for parameter, gradient in zip(parameters, found, strict=True):
                parameter.grad = gradient
            optimiser.step()
            schedule.step()


@attacks.register("ginver", "split", needs=("bottom",))
@attacks.register("ginver", "vertical", needs=("bottom",))
@dataclass(frozen=True)
class Ginver(DescentAttack):
    """A network whose rows, sent through the target's bottom model, reproduce the received features.

    Source: Yin et al., Ginver (WWW 2023), white-box form. Total variation, which applies to images, is left out.

    Attributes:
        hidden: units of the network's hidden layers, InverNet's.
    """

    hidden: tuple[int, ...] = (100, 300)

    def __call__(self, view: ActivationView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess; it learns from the attacked records' own features.

        Raises:
            BadInputError: the bottom model was not granted.
        """
        bottom = frozen(knowledge.granted_bottom("Ginver"))
        encoder, received = encoder_of(knowledge.schema), view.received
        mean, std = received.mean(1, keepdim=True), received.std(1, keepdim=True).clamp(min=1e-6)
        networks = Stack((received.shape[-1], *self.hidden, encoder.width), seeds)
        scaled = (received - mean) / std
        draws = [torch.Generator().manual_seed(seed) for seed in seeds]
        every = torch.arange(len(seeds))[:, None]
        size = min(self.batch_size, view.records)

        def loss(step: int) -> Tensor:
            batch = torch.stack([torch.randint(view.records, (size,), generator=draw) for draw in draws])
            rows = self.rows(encoder, networks(scaled[every, batch]))
            return ((bottom(rows) - received[every, batch]) / std).square().mean((1, 2)).sum()

        self.descend(list(networks.parameters()), loss)
        with torch.no_grad():
            return self.guess(encoder, self.rows(encoder, networks(scaled)))


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
        """Return the guess; all records are optimised at once.

        Raises:
            BadInputError: the bottom model was not granted.
        """
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
        """Return the guess.

        Raises:
            BadInputError: the bottom model was not granted.
        """
        bottom = frozen(knowledge.granted_bottom("the generator"))
        encoder = encoder_of(knowledge.schema)
        own = encoder_of(view.model.partition.schemas[0]).encode(view.own)
        draws = [torch.Generator().manual_seed(seed) for seed in seeds]
        random = torch.stack([torch.randn(view.records, self.noise, generator=draw) for draw in draws])
        inputs = torch.cat([own, random], dim=-1)
        networks = Stack((inputs.shape[-1], *self.hidden, encoder.width), seeds)
        wanted = view.model.top(torch.cat(list(view.features), dim=-1)).detach().sigmoid()
        every = torch.arange(len(seeds))[:, None]
        size = min(self.batch_size, view.records)

        def loss(step: int) -> Tensor:
            batch = torch.stack([torch.randint(view.records, (size,), generator=draw) for draw in draws])
            rows = self.bounded_rows(encoder, networks(inputs[every, batch]))
            features = [feature[every, batch] for feature in view.features]
            error = predicted(view, features, bottom(rows)).sigmoid() - wanted[every, batch]
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


def frozen(bottom: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return the module's function with parameters that receive no gradients."""
    held = {name: parameter.detach() for name, parameter in bottom.named_parameters()}
    return lambda rows: torch.func.functional_call(bottom, held, (rows,))


def predicted(
    view: FeatureView,
    features: Sequence[Float[Tensor, "training record _feature"]],
    sent: Float[Tensor, "training record feature"],
) -> Float[Tensor, "training record output"]:
    """Return the top model's outputs for the parties' features, with other features in the target's place."""
    every = [sent if party == view.target else feature for party, feature in enumerate(features)]
    held = {name: parameter.detach() for name, parameter in view.model.top.named_parameters()}
    return torch.func.functional_call(view.model.top, held, (torch.cat(every, dim=-1),))
