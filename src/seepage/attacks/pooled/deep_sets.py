"""White-box attack that is invariant to the order of hidden units (Ganju et al., 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from seepage.errors import BadInputError, check_count
from seepage.registry import attacks
from seepage.seeds import seeded
from seepage.shadow.stacked import Stacked
from seepage.wire.pooled import ModelView, PooledKnowledge, PropertyGuess


class _Sets(nn.Module):
    """A description of each unit, summed over a layer and passed on; a linear layer classifies all layers' sums."""

    def __init__(self, models: Stacked, worlds: int, width: int, described: int, dropout: float) -> None:
        super().__init__()
        units, before = [], 0
        for weight in models.weights:
            first = nn.Linear((before or weight.shape[2]) + 1, width)
            units.append(nn.Sequential(first, nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, described), nn.ReLU()))
            # Each unit of the next layer receives the descriptions of this one's, weighted by its own weights.
            before = described
        self.units = nn.ModuleList(units)
        self.last = nn.Linear(described * len(models.weights), worlds)

    def forward(self, weights: list[Tensor], biases: list[Tensor]) -> Tensor:
        sums, described = [], None
        for describe, weight, bias in zip(self.units, weights, biases, strict=True):
            inputs = weight if described is None else weight @ described
            described = describe(torch.cat([inputs, bias[..., None]], dim=2))
            sums.append(described.sum(1))
        return self.last(torch.cat(sums, dim=1))


@attacks.register("deep_sets", "pooled", needs=("auxiliary",))
@dataclass(frozen=True)
class DeepSets:
    """Distinguishes shares by a classifier of weights that does not depend on the order of hidden units.

    Source: Ganju, Wang, Yang, Gunter and Borisov, *Property Inference Attacks on Fully Connected Neural Networks using
    Permutation Invariant Representations* (2018). Every unit is described from its weights, its bias and what describes
    the layer before; descriptions are summed over a layer; a linear layer takes the sums of all layers. Deviations:
    from the second layer on, a unit's weights enter as weights of the descriptions before it, not side by side, so that
    the classifier does not depend on the order of units; weights are standardised over shadow models. The last layer's
    units are classes, which have an order; they are summed, too, as published.

    Attributes:
        width: number of hidden units of the description.
        described: number of entries of a unit's description.
        dropout: dropout of a description's hidden units (0.5 in the paper, with thousands of shadow models).
        epochs: number of passes over the shadow models, in one batch.
        learning_rate, weight_decay: settings of Adam.

    Raises:
        BadInputError: a count is below 1.
    """

    width: int = 64
    described: int = 8
    dropout: float = 0.5
    epochs: int = 300
    learning_rate: float = 1e-2
    weight_decay: float = 1e-2

    def __post_init__(self) -> None:
        for name in ("width", "described", "epochs"):
            check_count(name, getattr(self, name))

    def __call__(self, view: ModelView, knowledge: PooledKnowledge, seeds: Sequence[int] = (0,)) -> PropertyGuess:
        """Return the chances of each share for each target. Models that are not fully connected are refused."""
        shadows = knowledge.trained("even")
        models, attacked = shadows.models, view.models
        if not isinstance(models, Stacked) or not isinstance(attacked, Stacked):
            raise BadInputError(
                "the attack deep_sets reads fully connected networks; choose white_box or an attack on answers."
            )
        worlds = shadows.world(knowledge.shares)
        inputs, targets = _standardised(models, models), _standardised(attacked, models)

        def fit() -> Tensor:
            network = _Sets(models, len(knowledge.shares), self.width, self.described, self.dropout)
            optimiser = torch.optim.Adam(network.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)
            for _ in range(self.epochs):
                optimiser.zero_grad()
                functional.cross_entropy(network(*inputs), worlds).backward()
                optimiser.step()
            network.eval()
            with torch.no_grad():
                return torch.softmax(network(*targets).double(), dim=1)

        # Dropout draws from PyTorch's global generator, as initialisers do.
        return PropertyGuess(knowledge.shares, seeded(fit, seeds[0]))


def _standardised(models: Stacked, by: Stacked) -> tuple[list[Float[Tensor, "model out in"]], list[Tensor]]:
    """Return weights and biases standardised by their mean and spread over all of ``by``'s models."""
    # Inputs of the first layer have an order, and moments of their own; those of later layers, hidden units, do not.
    weights, biases = [], []
    parts = zip(models.weights, models.biases, by.weights, by.biases, strict=True)
    for layer, (weight, bias, weight_by, bias_by) in enumerate(parts):
        over = (0, 1, 2) if layer else (0, 1)
        weights.append((weight - weight_by.mean(over)) / weight_by.std(over).clamp(min=1e-8))
        biases.append((bias - bias_by.mean()) / bias_by.std().clamp(min=1e-8))
    return weights, biases
