"""Ginver, an attack that knows the target's bottom model, and what such attacks share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.attacks.vertical.parts.generated import relaxed
from seepage.errors import BadInputError, check_count
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
            gradients = torch.autograd.grad(loss(step), list(parameters))
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            optimiser.step()
            schedule.step()


@attacks.register("ginver", "split", needs=("bottom",))
@attacks.register("ginver", "vertical", needs=("bottom",))
@dataclass(frozen=True)
class Ginver(DescentAttack):
    """A network whose rows, sent through the target's bottom model, reproduce the received features.

    Source: Yin et al., Ginver (WWW 2023), white-box form. Total variation, which applies to images, is left out.
    Steps and learning rate are ours: with 3,000 at 0.001 a tenth fewer cells are read.

    Attributes:
        hidden: units of the network's hidden layers, InverNet's.
    """

    steps: int = 10_000
    learning_rate: float | int = 3e-3
    hidden: tuple[int, ...] = (100, 300)

    def __call__(self, view: ActivationView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess; it learns from the attacked records' own features."""
        bottom = frozen(knowledge.granted_bottom("Ginver"))
        encoder, received = encoder_of(knowledge.schema), view.received
        mean, std = received.mean(1, keepdim=True), received.std(1, keepdim=True).clamp(min=1e-6)
        networks = Stack((received.shape[-1], *self.hidden, encoder.width), seeds)
        scaled = (received - mean) / std
        draws = [torch.Generator().manual_seed(seed) for seed in seeds]
        start = torch.arange(len(seeds))[:, None]
        size = min(self.batch_size, view.records)

        def loss(step: int) -> Tensor:
            batch = torch.stack([torch.randint(view.records, (size,), generator=draw) for draw in draws])
            rows = self.rows(encoder, networks(scaled[start, batch]))
            return ((bottom(rows) - received[start, batch]) / std).square().mean((1, 2)).sum()

        self.descend(list(networks.parameters()), loss)
        with torch.no_grad():
            return self.guess(encoder, self.rows(encoder, networks(scaled)))


def frozen(bottom: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return the module's function with parameters that receive no gradients."""
    parameters = {name: parameter.detach() for name, parameter in bottom.named_parameters()}
    return lambda rows: torch.func.functional_call(bottom, parameters, (rows,))


def predicted(
    view: FeatureView,
    features: Sequence[Float[Tensor, "training record _feature"]],
    sent: Float[Tensor, "training record feature"],
) -> Float[Tensor, "training record output"]:
    """Return the top model's outputs for the parties' features, with other features in the target's place."""
    inputs = [sent if party == view.target else feature for party, feature in enumerate(features)]
    return frozen(view.model.top)(torch.cat(inputs, dim=-1))
