"""Split learning with a client that holds all columns: vanilla, U-shaped, and with a hop on the way to the server."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.defenses.feature_noise import FeatureNoise
from seepage.errors import BadInputError, check_count
from seepage.learning import check_finite, check_labels, check_losses
from seepage.models.message import PLAIN, MessageForm
from seepage.models.split import for_loss, outputs_of, record_losses, usual_split_head
from seepage.models.vertical import Copies, Stack, encoder_of
from seepage.seeds import seeded
from seepage.tabular.schema import Schema
from seepage.tabular.table import Table
from seepage.wire.labels import ReturnedView
from seepage.wire.vertical import SmashedView

WholeTopology = Literal["vanilla", "u_shaped", "multi_hop"]
# Parts of the network in the order in which records pass them, the client's first layers first.
PARTS: dict[WholeTopology, tuple[str, ...]] = {
    "vanilla": ("client", "server"),
    "u_shaped": ("client", "server", "last"),
    "multi_hop": ("client", "hop", "server"),
}


@dataclass(frozen=True)
class WholeClientModel:
    """First layers of the client, the layers that follow at another party, and what follows the second cut.

    ``client`` has a leading axis of one training. ``middle`` is the server's or a hop's; ``rest`` is the client's
    last layer where labels stay with it, or the server's layers behind a hop; None without a second cut. ``form`` is
    that of the loss of a batch.
    """

    client: nn.Module
    middle: nn.Module
    rest: nn.Module | None
    schema: Schema
    name: str = "mlp"
    form: MessageForm = PLAIN

    def parts(self, topology: WholeTopology) -> dict[str, nn.Module | None]:
        """Return the parts by name, in the order in which records pass them."""
        return dict(zip(PARTS[topology], (self.client, self.middle, self.rest), strict=False))

    @classmethod
    def of(
        cls,
        schema: Schema,
        seed: int,
        hidden: tuple[int, ...],
        cut: int,
        tower: tuple[int, ...],
        topology: WholeTopology,
        hop: tuple[int, ...] = (),
    ) -> WholeClientModel:
        """Return networks before they are trained; ``hop`` has the units of each layer of a hop, if any."""
        outputs, u_shaped = outputs_of(schema.target), topology == "u_shaped"
        # The client's last layer takes what the server's last hidden layer returns.
        units = (hop[-1] if hop else cut, *(tower or ((cut,) if u_shaped else ())))

        def server() -> nn.Sequential:
            layers: list[nn.Module] = [nn.ReLU()]
            for before, after in pairwise(units):
                layers += [nn.Linear(before, after), nn.ReLU()]
            return nn.Sequential(*layers, *(() if u_shaped else (nn.Linear(units[-1], outputs),)))

        def passing() -> nn.Sequential:
            return nn.Sequential(*(m for a, b in pairwise((cut, *hop)) for m in (nn.ReLU(), nn.Linear(a, b))))

        client, at_server = Stack((schema.width, *hidden, cut), [seed]), seeded(server, seed + 1)
        if u_shaped:
            return cls(client, at_server, seeded(lambda: nn.Linear(units[-1], outputs), seed + 2), schema)
        if topology == "multi_hop":
            return cls(client, seeded(passing, seed + 3), at_server, schema)
        return cls(client, at_server, None, schema)

    def loss_of(
        self, outputs: Float[Tensor, "record output"], labels: Float[Tensor, " record"]
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Return the loss of a batch by its form, and the mean of its records' usual losses.

        The usual loss is cross-entropy, or the squared error of a target scaled to [-1, 1].
        """
        target = self.schema.target
        head, wanted = usual_split_head(target), for_loss(target, labels)
        usual = record_losses(head, outputs, wanted).mean()
        return usual if self.form.plain else self.form.loss_of(head, outputs, wanted), usual

    def outputs(self, activations: Float[Tensor, "record cut"]) -> Float[Tensor, "record output"]:
        """Return the outputs of all layers behind the cut."""
        middle = self.middle(activations)
        return middle if self.rest is None else self.rest(middle)

    @property
    def behind_hop(self) -> nn.Module:
        """The client's first layers and those of the hop, one after the other."""
        return nn.Sequential(self.client, Copies([self.middle]))


@dataclass(frozen=True)
class TrainedWhole:
    """Result of a training; ``spread`` is that of activations before any defense.

    ``returned`` is what the sender of the second cut sent and received there in the last epoch; None without one.
    """

    model: WholeClientModel
    spread: Float[Tensor, "1 cut"]
    loss: float
    rows: Table
    returned: ReturnedView | None


@dataclass(frozen=True)
class WholeClientLearning:
    """The client sends activations of its columns and gets gradients of them back; all parties train by Adam.

    Source: Gupta and Raskar, Distributed learning of deep neural network over multiple agents (2018): vanilla split
    learning, in which the server has the labels, and the configuration without label sharing, in which the client has
    the last layer too. The server sees the same of the first cut in both. Vepakomma et al., Split learning for health
    (2018): multi-hop split learning, in which a further party computes some layers between client and server.
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
        """Train a copy of all parts."""
        check_labels(rows.labels, rows.schema.target)
        model = copy.deepcopy(model)
        order, noising = (torch.Generator().manual_seed(seed + i) for i in range(2))
        encoded, labels = encoder_of(rows.schema).encode(rows.cells), rows.labels
        parts = [part for part in (model.client, model.middle, model.rest) if part is not None]
        optimiser = torch.optim.Adam([p for part in parts for p in part.parameters()], lr=self.learning_rate)
        crossed: list[Tensor] = []
        total = 0.0
        for _ in range(self.epochs):
            total, crossed = 0.0, []
            for batch in torch.randperm(len(rows), generator=order).split(self.batch_size):
                computed = model.client(encoded[batch][None])
                spread = computed.detach().std(1, keepdim=True, correction=0)
                cut = self._sent(computed, spread, noising)[0].requires_grad_(True)
                middle = model.middle(cut)
                # What crosses the second cut is a message of its own.
                second = middle.detach().requires_grad_(True)
                outputs = middle if model.rest is None else model.rest(second)
                loss, usual = model.loss_of(outputs, labels[batch])
                optimiser.zero_grad()
                loss.backward()
                if model.rest is not None:
                    assert second.grad is not None
                    middle.backward(second.grad)
                    if not crossed:
                        crossed = [torch.zeros(len(rows), middle.shape[1]) for _ in range(2)]
                    behind = torch.full((len(batch), 1), float(len(batch)))
                    crossed[0][batch], crossed[1][batch] = second.detach(), second.grad * model.form.own_factor(behind)
                assert cut.grad is not None
                computed.backward(cut.grad[None])
                optimiser.step()
                total += float(usual.detach()) * len(batch) / len(rows)
        check_losses(torch.tensor(total, dtype=torch.float64), "split", self.learning_rate)
        with torch.no_grad():
            spread = model.client(encoded[None]).std(1, correction=0)
        # Whoever sends there has no columns of its own.
        nothing = torch.zeros(1, len(rows), 1)
        returned = ReturnedView(crossed[0][None], crossed[1][None], nothing) if crossed else None
        return TrainedWhole(model, spread, total, rows, returned)

    def observe(
        self, trained: TrainedWhole, rows: Table, seed: int, exposures: int = 1, behind_hop: bool = False
    ) -> SmashedView:
        """Return the view of a party without columns, of the mean of exposures, at the cut or behind the hop."""
        generator = torch.Generator().manual_seed(seed)
        times = 1 if self.noise is None else exposures
        with torch.no_grad():
            computed = trained.model.client(encoder_of(rows.schema).encode(rows.cells)[None])
            sent = [self._sent(computed, trained.spread[None], generator) for _ in range(times)]
            received = torch.stack([trained.model.middle(cut[0])[None] if behind_hop else cut for cut in sent]).mean(0)
        check_finite({"activations at the cut": received})
        return SmashedView(received)

    def noise_behind_hop(self, trained: TrainedWhole, seed: int) -> float:
        """Return the standard deviation of noise behind the hop, in units of the spread of what crosses there."""
        if self.noise is None:
            return 0.0
        noisy = self.observe(trained, trained.rows, seed, behind_hop=True).received
        clear = replace(self, noise=None).observe(trained, trained.rows, seed, behind_hop=True).received
        spread = clear.std(1).clamp(min=1e-6)
        return float(((noisy - clear).std(1) / spread).square().mean().sqrt())

    def _sent(self, computed: Tensor, spread: Tensor, generator: torch.Generator) -> Tensor:
        message = computed.detach().clone()
        return message if self.noise is None else self.noise(message, spread, generator)
