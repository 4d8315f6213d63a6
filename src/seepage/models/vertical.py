"""Networks of vertical learning, bottom models and a top model, all with a leading axis of trainings."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seepage.errors import BadInputError
from seepage.models.split import SplitHead, check_head, label_chances, outputs_of, record_losses, usual_split_head
from seepage.registry import models
from seepage.seeds import seeded
from seepage.tabular.encoder import Encoder, to_bounds
from seepage.tabular.partition import Partition
from seepage.tabular.schema import Discrete, Schema

Features = Float[Tensor, "training record _feature"]


class Stack(nn.Module):
    """Fully connected ReLU networks, one a training, of the same widths and PyTorch's default initialisation."""

    def __init__(self, widths: Sequence[int], seeds: Sequence[int]) -> None:
        super().__init__()
        networks = [seeded(lambda: [nn.Linear(a, b) for a, b in pairwise(widths)], seed) for seed in seeds]
        layers = list(zip(*networks, strict=True))
        self.weights = nn.ParameterList(torch.stack([linear.weight.detach().T for linear in layer]) for layer in layers)
        self.biases = nn.ParameterList(
            torch.stack([linear.bias.detach()[None] for linear in layer]) for layer in layers
        )

    def forward(self, rows: Float[Tensor, "network record input"]) -> Float[Tensor, "network record output"]:
        """Return each network's outputs for its rows."""
        return torch.baddbmm(self.biases[-1], self.hidden(rows), self.weights[-1])

    def hidden(self, rows: Float[Tensor, "network record input"]) -> Float[Tensor, "network record unit"]:
        """Return the inputs of each network's last layer."""
        for weight, bias in zip([*self.weights][:-1], [*self.biases][:-1], strict=True):
            rows = torch.baddbmm(bias, rows, weight).relu()
        return rows


class NoFeatures(nn.Module):
    """The bottom model of a party without columns: it sends features of no entry, through which gradients can flow."""

    def __init__(self) -> None:
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(0))

    def forward(self, rows: Float[Tensor, "network record input"]) -> Float[Tensor, "network record 0"]:
        """Return rows without entries."""
        return rows[..., :0] + self.nothing


class Copies(nn.Module):
    """One network of any kind for each training, from rows (record, input) to (record, output), in evaluation mode."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks).eval()

    def forward(self, rows: Float[Tensor, "network record input"]) -> Float[Tensor, "network record output"]:
        """Return each network's outputs for its rows."""
        return torch.stack([network(row) for network, row in zip(self.networks, rows, strict=True)])


class Summed(nn.Module):
    """The sum of the parties' features, each of as many entries as there are outputs: learning without a top model."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, rows: Float[Tensor, "network record feature"]) -> Float[Tensor, "network record output"]:
        """Return the sum."""
        return rows.unflatten(-1, (-1, self.outputs)).sum(-2)


@runtime_checkable
class PartLayout(Protocol):
    """Layout of a party's columns, as an attacker knows it: networks and rows for it, one a training."""

    @property
    def layers(self) -> int:
        """Number of layers of an inverse network, where an attack asks for none."""
        ...

    def bottom(self, seeds: Sequence[int]) -> nn.Module:
        """Return bottom models as parties use them, from encoded rows to features."""
        ...

    def inverse(self, layers: int, seeds: Sequence[int]) -> nn.Module:
        """Return networks from features to encoded rows."""
        ...

    def queries(self, rows: int, seeds: Sequence[int]) -> Float[Tensor, "training row encoded"]:
        """Return encoded rows that an attacker invents."""
        ...


@dataclass(frozen=True)
class VerticalModel:
    """Bottom models, a top model and the partition of the columns.

    A bottom model maps its party's encoded rows (training, record, encoded), numbers scaled so that their schema's
    bounds are -1 and 1 and categories one-hot, to features; the top model maps the parties' features, one after the
    other, to outputs (training, record, output). Heads are those of ``SplitModel``.
    """

    partition: Partition
    bottoms: tuple[nn.Module, ...]
    top: nn.Module
    head: SplitHead
    name: str
    layout: PartLayout | None = None

    def __post_init__(self) -> None:
        check_head(self.head, self.partition.schema.target)
        if len(self.bottoms) != self.partition.parties:
            raise BadInputError(
                f"{self.partition.parties} parties hold columns, but there are {len(self.bottoms)} bottom models; give "
                "each party one."
            )

    @cached_property
    def encoders(self) -> tuple[Encoder, ...]:
        """Encoders between each party's cells and the inputs of its bottom model."""
        return tuple(encoder_of(schema) for schema in self.partition.schemas)

    @property
    def schema(self) -> Schema:
        """Schema of the whole table."""
        return self.partition.schema

    @property
    def classes(self) -> int:
        """Number of labels."""
        assert isinstance(self.schema.target, Discrete)
        return self.schema.target.width

    def encoded(self, cells: Float[Tensor, "*some column"]) -> tuple[Float[Tensor, "*some _encoded"], ...]:
        """Return each party's inputs for rows of the table."""
        return tuple(
            encoder.encode(cells[..., list(columns)])
            for encoder, columns in zip(self.encoders, self.partition.columns, strict=True)
        )

    def features(self, encoded: Sequence[Float[Tensor, "training record _encoded"]]) -> tuple[Features, ...]:
        """Return the features that each party's bottom model computes from its inputs."""
        return tuple(bottom(rows) for bottom, rows in zip(self.bottoms, encoded, strict=True))

    def outputs(self, features: Sequence[Features]) -> Float[Tensor, "training record output"]:
        """Return the top model's outputs."""
        return self.top(torch.cat(list(features), dim=-1))

    def probabilities(self, cells: Float[Tensor, "training record column"]) -> Float[Tensor, "training record label"]:
        """Return the chance of each label, without a graph and before any defense."""
        with torch.no_grad():
            return label_chances(self.head, self.outputs(self.features(self.encoded(cells))))

    @property
    def unsplit(self) -> bool:
        """Whether features are added up as the logits, without a top model."""
        return isinstance(self.top, Summed)

    @property
    def active(self) -> ActiveModel:
        """The part of the model that the active party knows."""
        return ActiveModel(self.partition, self.bottoms[0], self.top, self.head)

    def copy(self) -> VerticalModel:
        """Return a copy whose modules may be trained without changing this one's."""
        return replace(self, bottoms=copy.deepcopy(self.bottoms), top=copy.deepcopy(self.top))


@dataclass(frozen=True)
class ActiveModel:
    """The active party's part of the model: partition, its own bottom model, top model and its head."""

    partition: Partition
    bottom: nn.Module
    top: nn.Module
    head: SplitHead


def encoder_of(schema: Schema) -> Encoder:
    """Return the encoder of a party's columns: numbers from -1 to 1 between their bounds, categories one-hot."""
    return Encoder(schema, to_bounds(schema), torch.float32)


def losses_of(
    head: SplitHead,
    outputs: Float[Tensor, "training record output"],
    labels: Float[Tensor, "training record"] | Int[Tensor, "training record"],
) -> Float[Tensor, "training record"]:
    """Return each record's loss, see ``record_losses``."""
    return record_losses(head, outputs.flatten(0, 1), labels.flatten()).view(labels.shape)


@models.register("vertical_mlp", "vertical")
def vertical_mlp(
    partition: Partition,
    seeds: Sequence[int],
    bottom: Sequence[int] = (300, 100),
    features: int | Sequence[int] = 100,
    top: Sequence[int] | None = (100, 50),
    head: SplitHead | None = None,
) -> VerticalModel:
    """Return fully connected ReLU networks for some trainings.

    An active party that holds labels alone has no bottom model.

    Source: Yang et al., UIFV (arXiv 2406.12588): bottom models of 300, 100 and 100 units, a top model of three layers
    whose widths are not stated, (100, 50, outputs) here. Features leave the last layer without a ReLU.

    Args:
        bottom: units of each hidden layer of the bottom models.
        features: number of features that each party sends, one for all or one a party; few of them are a bottleneck.
        top: units of each hidden layer of the top model; None for no top model: each party sends as many features as
            there are logits, whatever ``features`` says, and their sum is the logits.

    Raises:
        BadInputError: there is not one number of features a party.

    Example:
        >>> from seepage.datasets.planted import telling
        >>> from seepage.tabular.partition import by_shares
        >>> rows = telling(rows=20).train
        >>> model = vertical_mlp(by_shares(rows.schema, [0.5, 0.5]), seeds=[0, 1])
        >>> model.probabilities(rows.cells.expand(2, -1, -1)).shape
        torch.Size([2, 20, 2])
    """
    target = partition.schema.target
    chosen = head or usual_split_head(target)
    # Each party draws from a stream of its own: another party's width changes no one else's initialisation.
    streams = [torch.Generator().manual_seed(seed) for seed in seeds]
    drawn = [
        [int(torch.randint(2**62, (1,), generator=stream)) for stream in streams] for _ in range(partition.parties + 1)
    ]
    outputs = outputs_of(target, chosen)
    widths = [features] * partition.parties if isinstance(features, int) else list(features)
    if top is None:
        widths = [outputs] * partition.parties
    if len(widths) != partition.parties:
        raise BadInputError(
            f"{partition.parties} parties send features, but {len(widths)} numbers of features were given; give one "
            "for all, or one a party."
        )
    if not partition.columns[0]:
        widths[0] = 0
    bottoms = tuple(
        Stack((schema.width, *bottom, width), seeds_of_party) if width else NoFeatures()
        for schema, width, seeds_of_party in zip(partition.schemas, widths, drawn[1:], strict=True)
    )
    joined = Summed(outputs) if top is None else Stack((sum(widths), *top, outputs), drawn[0])
    return VerticalModel(partition, bottoms, joined, chosen, "vertical_mlp")
