"""Baselines of vertical learning: guesses of the active party without the target's features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.models.inverse import Inverter, cells_of
from seepage.models.split import for_loss
from seepage.models.vertical import encoder_of
from seepage.registry import baselines
from seepage.tabular.schema import Discrete
from seepage.wire.secureboost import ColumnSumsView
from seepage.wire.vertical import ActivationView, FeatureGuess, FeatureKnowledge, FeatureView

# Share of a column's range: UIFV counts a number as right within 0.2 where bounds are -1 and 1.
NEAR = 0.1


@baselines.register("constant", "split")
@baselines.register("constant", "vertical")
@baselines.register("constant", "trees")
@dataclass(frozen=True)
class Constant:
    """Each column's most frequent category, or the number with most others within a tenth of the column's range."""

    def __call__(
        self, view: ActivationView | ColumnSumsView, knowledge: FeatureKnowledge, seeds: Sequence[int] = (0,)
    ) -> FeatureGuess:
        """Return the guess; ``seeds`` are not used."""
        return _same(view, constants(knowledge))


def constants(knowledge: FeatureKnowledge) -> Float[Tensor, " column"]:
    """Return each column's most frequent category, or the number with most others within a tenth of its range."""
    row = []
    for column, marginal in zip(knowledge.schema.columns, knowledge.marginals, strict=True):
        numeric = not isinstance(column, Discrete)
        row.append(float(marginal.likeliest(NEAR * (column.high - column.low))) if numeric else marginal.median)
    return torch.tensor(row, dtype=torch.float64)


@baselines.register("median", "split")
@baselines.register("median", "vertical")
@baselines.register("median", "trees")
@dataclass(frozen=True)
class Median:
    """Each column's most frequent category or median."""

    def __call__(
        self, view: ActivationView | ColumnSumsView, knowledge: FeatureKnowledge, seeds: Sequence[int] = (0,)
    ) -> FeatureGuess:
        """Return the guess; ``seeds`` are not used."""
        return _same(view, torch.tensor([marginal.median for marginal in knowledge.marginals], dtype=torch.float64))


@baselines.register("random", "vertical")
@dataclass(frozen=True)
class UniformRows:
    """Encoded rows drawn evenly from -1 to 1: UIFV's comparison."""

    def __call__(self, view: FeatureView, knowledge: FeatureKnowledge, seeds: Sequence[int] = (0,)) -> FeatureGuess:
        """Return the guess, of each training by its seed."""
        encoder = encoder_of(knowledge.schema)
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        drawn = [torch.rand(view.records, encoder.width, generator=generator) for generator in generators]
        return FeatureGuess(cells_of(encoder, 2 * torch.stack(drawn) - 1))


@baselines.register("own_columns", "vertical", needs=("auxiliary",))
@dataclass(frozen=True)
class OwnColumns:
    """A network's prediction from the attacker's own columns, trained on auxiliary rows, without the target's features.

    Where the attacker knows labels of the records, the label is one more column.

    Attributes:
        epochs, hidden, converge: settings of the network.
    """

    epochs: int = 30
    hidden: tuple[int, ...] = (100, 300)
    converge: bool = True

    @property
    def inverter(self) -> Inverter:
        """Recipe of the network."""
        return Inverter(self.hidden, "fields", epochs=self.epochs, converge=self.converge)

    def __call__(self, view: FeatureView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess; ``seeds`` are those of each training's network."""
        rows = knowledge.granted_auxiliary("the guess by the attacker's own columns")
        encoder = encoder_of(knowledge.schema)
        labels = None if view.labels is None else rows.labels
        train_inputs, inputs = own_inputs(view, rows.own, labels), own_inputs(view, view.own, view.labels)
        network = self.inverter.fit(train_inputs, encoder.encode(rows.cells), encoder, seeds)
        return FeatureGuess(network.cells(inputs), network.chances(inputs), failed=network.failed)


def own_inputs(
    view: FeatureView, columns: Float[Tensor, "training row own"], labels: Float[Tensor, "training row"] | None
) -> Float[Tensor, "training row input"]:
    """Return the attacker's own columns as inputs of a network, followed by labels where given, classes one-hot.

    Without any, the only input is a constant.
    """
    partition = view.model.partition
    encoded = encoder_of(partition.schemas[0]).encode(columns)
    if not encoded.shape[-1]:
        encoded = encoded.new_zeros(*encoded.shape[:-1], 1)
    if labels is None:
        return encoded
    target = partition.schema.target
    if not isinstance(target, Discrete):
        return torch.cat([encoded, for_loss(target, labels)[..., None].to(encoded)], dim=-1)
    return torch.cat([encoded, torch.nn.functional.one_hot(labels.long(), target.width).to(encoded)], dim=-1)


def _same(view: ActivationView | ColumnSumsView, row: Float[Tensor, " column"]) -> FeatureGuess:
    return FeatureGuess(row.repeat(view.trainings, view.records, 1))
