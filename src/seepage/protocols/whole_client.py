"""Split learning with a client that holds all columns: vanilla, and U-shaped, where labels stay with the client."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.defenses.feature_noise import FeatureNoise
from seepage.errors import BadInputError, check_count
from seepage.models.model import seeded
from seepage.models.split import record_losses
from seepage.models.vertical import Stack, encoder_of
from seepage.protocols.finite import check_finite
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.table import Table
from seepage.wire.labels import ReturnedView
from seepage.wire.vertical import SmashedView

WholeTask = Literal["sigmoid", "softmax", "regression"]


@dataclass(frozen=True)
class WholeClientModel:
    """First layers of the client, layers of the server, and the client's last layer where labels stay with it.

    Attributes:
        client: map from encoded rows to activations, behind a leading axis of one training.
        server: map from activations to logits, or to what the client's last layer takes.
        last: last layer of the client; None where the server has the labels.
        schema: schema of the table.
    """

    client: Stack
    server: nn.Module
    last: nn.Module | None
    schema: Schema

    @classmethod
    def of(
        cls, schema: Schema, seed: int, hidden: tuple[int, ...], cut: int, tower: tuple[int, ...], u_shaped: bool
    ) -> WholeClientModel:
        """Return networks before they are trained.

        Args:
            schema: schema of the table.
            seed: seed of the initialisation.
            hidden: units of each hidden layer of the client.
            cut: number of activations at the cut.
            tower: units of each hidden layer of the server.
            u_shaped: whether the last layer is the client's.
        """
        target = schema.target
        outputs = 1 if not isinstance(target, Discrete) or target.width == 2 else target.width

        def server() -> nn.Sequential:
            # The client's last layer takes what the server's last hidden layer returns.
            units = (cut, *(tower or ((cut,) if u_shaped else ())))
            layers: list[nn.Module] = [nn.ReLU()]
            for before, after in pairwise(units):
                layers += [nn.Linear(before, after), nn.ReLU()]
            return nn.Sequential(*layers, *(() if u_shaped else (nn.Linear(units[-1], outputs),)))

        last = seeded(lambda: nn.Linear((tower or (cut,))[-1], outputs), seed + 2) if u_shaped else None
        return cls(Stack((schema.width, *hidden, cut), [seed]), seeded(server, seed + 1), last, schema)

    @property
    def task(self) -> WholeTask:
        """How outputs are read."""
        target = self.schema.target
        if not isinstance(target, Discrete):
            return "regression"
        return "sigmoid" if target.width == 2 else "softmax"

    def losses(self, outputs: Float[Tensor, "record output"], labels: Float[Tensor, " record"]) -> Tensor:
        """Return each record's loss: cross-entropy, or the squared error of a target scaled to [-1, 1]."""
        task, target = self.task, self.schema.target
        if task == "regression":
            assert not isinstance(target, Discrete)
            half = (target.high - target.low) / 2 or 1.0
            wanted = (labels - (target.high + target.low) / 2) / half
            return (outputs[:, 0] - wanted.to(outputs)).square()
        return record_losses(task, outputs, labels.long())

    def outputs(self, activations: Float[Tensor, "record cut"]) -> Float[Tensor, "record output"]:
        """Return the outputs of all layers behind the cut."""
        middle = self.server(activations)
        return middle if self.last is None else self.last(middle)


@dataclass(frozen=True)
class TrainedWhole:
    """Result of a training.

    Attributes:
        model: all parts after training.
        spread: standard deviation of each activation over the records of training, before any defense.
        loss: mean loss of the last epoch.
        rows: training rows.
        returned: what the server held and received of the training rows at the second cut, where labels stay with the
            client, in the last epoch; None in vanilla split learning.
    """

    model: WholeClientModel
    spread: Float[Tensor, "1 cut"]
    loss: float
    rows: Table
    returned: ReturnedView | None


@dataclass(frozen=True)
class WholeClientLearning:
    """The client sends activations of its columns; the server returns gradients of them; both train by Adam.

    Source: Gupta and Raskar, Distributed learning of deep neural network over multiple agents (2018): vanilla split
    learning, in which the server has the labels, and the configuration without label sharing, in which the client has
    the last layer too. The server sees the same of the first cut in both.

    Attributes:
        epochs: number of passes over the rows.
        batch_size: number of records of an exchange.
        learning_rate: learning rate of Adam.
        noise: defense of activations, in training and at inference; None for nothing.

    Raises:
        BadInputError: a count is below 1, or the rate is not a positive number.
    """

    epochs: int = 5
    batch_size: int = 256
    learning_rate: float | int = 0.01
    noise: FeatureNoise | None = None

    def __post_init__(self) -> None:
        check_count("epochs", self.epochs)
        check_count("batch_size", self.batch_size)
        if isinstance(self.learning_rate, bool) or not 0 < self.learning_rate < math.inf:
            raise BadInputError(f"a learning rate is a positive number, got learning_rate={self.learning_rate!r}.")

    def train(self, model: WholeClientModel, rows: Table, seed: int) -> TrainedWhole:
        """Train all parts.

        Args:
            model: model that training starts from; left unchanged.
            rows: rows of the client.
            seed: seed of batches and noise.

        Raises:
            BadInputError: all labels are the same, or training ended in numbers that are not finite.

        Example:
            >>> from seepage.datasets.planted import telling
            >>> rows = telling(rows=60).train
            >>> start = WholeClientModel.of(rows.schema, 0, (8,), 4, (), u_shaped=True)
            >>> trained = WholeClientLearning(epochs=2).train(start, rows, seed=0)
            >>> trained.returned.gradient.shape
            torch.Size([1, 60, 4])
        """
        if bool((rows.labels == rows.labels[0]).all()):
            raise BadInputError(
                f"the target {rows.schema.target.name!r} is the same in all {len(rows)} rows, so there is nothing to "
                "learn; choose another target or add rows where it differs."
            )
        model = copy.deepcopy(model)
        order, noising = (torch.Generator().manual_seed(seed + i) for i in range(2))
        encoded, labels = encoder_of(rows.schema).encode(rows.cells), rows.labels
        parts = [part for part in (model.client, model.server, model.last) if part is not None]
        optimiser = torch.optim.Adam([p for part in parts for p in part.parameters()], lr=self.learning_rate)
        held: list[Tensor] = []
        total = 0.0
        for _ in range(self.epochs):
            total, held = 0.0, []
            for batch in torch.randperm(len(rows), generator=order).split(self.batch_size):
                computed = model.client(encoded[batch][None])
                spread = computed.detach().std(1, keepdim=True, correction=0)
                cut = self._sent(computed, spread, noising)[0].requires_grad_(True)
                middle = model.server(cut)
                # What the client's last layer gets is a message of its own.
                second = middle.detach().requires_grad_(True)
                outputs = middle if model.last is None else model.last(second)
                loss = model.losses(outputs, labels[batch]).mean()
                optimiser.zero_grad()
                loss.backward()
                if model.last is not None:
                    assert second.grad is not None
                    middle.backward(second.grad)
                    if not held:
                        held = [torch.zeros(len(rows), middle.shape[1]) for _ in range(2)]
                    held[0][batch], held[1][batch] = second.detach(), second.grad * len(batch)
                assert cut.grad is not None
                computed.backward(cut.grad[None])
                optimiser.step()
                total += float(loss.detach()) * len(batch) / len(rows)
        if not math.isfinite(total):
            raise BadInputError(
                f"split training at a learning rate of {self.learning_rate:g} ended in numbers that are not finite; "
                "give a smaller learning_rate."
            )
        with torch.no_grad():
            spread = model.client(encoded[None]).std(1, correction=0)
        # The server has no columns of its own.
        nothing = torch.zeros(1, len(rows), 1)
        returned = ReturnedView(held[0][None], held[1][None], nothing) if held else None
        return TrainedWhole(model, spread, total, rows, returned)

    def observe(self, trained: TrainedWhole, rows: Table, seed: int, exposures: int = 1) -> SmashedView:
        """Return what the server sees when the client sends activations of rows.

        Args:
            trained: result of the training.
            rows: rows that are sent.
            seed: seed of the noise.
            exposures: number of times that each is sent, with fresh noise; the mean is seen.

        Raises:
            NotFiniteError: an activation is not finite.
        """
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            computed = trained.model.client(encoder_of(rows.schema).encode(rows.cells)[None])
        times = 1 if self.noise is None else exposures
        sent = torch.stack([self._sent(computed, trained.spread[None], generator) for _ in range(times)]).mean(0)
        check_finite({"activations at the cut": sent})
        return SmashedView(sent)

    def _sent(self, computed: Tensor, spread: Tensor, generator: torch.Generator) -> Tensor:
        message = computed.detach().clone()
        return message if self.noise is None else self.noise(message, spread, generator)
