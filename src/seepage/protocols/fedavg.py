"""FedAvg: a client trains on its records for some epochs and sends the change of the model."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.defenses import AnyDefense
from seepage.learning import GradientOf, LocalTraining, gradient, local_update
from seepage.models.model import Model
from seepage.protocols.clients import Clients
from seepage.registry import protocols
from seepage.wire.horizontal import UpdateView


@protocols.register("fedavg", "horizontal")
class FedAvg(Clients[UpdateView]):
    """One round of FedAvg (McMahan et al. 2017): a client answers with the change by local epochs, defended.

    Args:
        batch_size: number of records of a client, all of which it uses in each epoch.
        replacement, defense, clients, holds: arguments of ``Clients``; a defense of messages receives the difference
            of the parameters before and after, a defense of records each local step.
        epochs: number of local passes over the records.
        local_batch_size: number of records of a local step; all of them if None.
        learning_rate: learning rate of local plain SGD.
        shuffle: whether each epoch has an order of its own, as clients do it. TabLeak's code keeps the order in which
            the records were drawn (D10).

    Raises:
        BadInputError: a count is below 1, or the rate is not a positive number.
    """

    reveals: ClassVar[tuple[type, ...]] = (UpdateView,)

    def __init__(
        self,
        batch_size: int,
        replacement: bool = False,
        defense: AnyDefense | None = None,
        clients: int = 1,
        epochs: int = 1,
        local_batch_size: int | None = None,
        learning_rate: float | int = 0.01,
        shuffle: bool = True,
        holds: int | None = None,
    ) -> None:
        super().__init__(batch_size, replacement, defense, clients, holds)
        local = batch_size if local_batch_size is None else local_batch_size
        self.training = LocalTraining(epochs, local, learning_rate)
        self.shuffle = shuffle

    def answer(
        self,
        model: Model,
        encoded: Float[Tensor, "record encoded"],
        labels: Float[Tensor, " record"],
        generator: torch.Generator,
        gradient_of: GradientOf = gradient,
    ) -> dict[str, Tensor]:
        """Return the difference of the parameters before and after."""
        count = len(labels)
        orders = [
            torch.randperm(count, generator=generator) if self.shuffle else torch.arange(count)
            for _ in range(self.training.epochs)
        ]
        order = torch.stack(orders).to(encoded.device)
        update = local_update(model, encoded[order][None], labels[order][None], self.training, gradient_of)
        return {name: change[0] for name, change in update.items()}

    def view(self, model: Model, message: dict[str, Tensor]) -> UpdateView:
        """Return the updates."""
        return UpdateView(model, message, self.training, self.clients)

    @property
    def gradients(self) -> list[int]:
        """Number of records of each local step."""
        batches = self.training.batches(self.batch_size)
        return [batch.stop - batch.start for batch in batches] * self.training.epochs

    @property
    def rate(self) -> float:
        """Learning rate of local training."""
        return float(self.training.learning_rate)

    @property
    def sees(self) -> str:
        """Text that says what the server sees of a victim."""
        training = self.training
        epochs = "1 local epoch" if training.epochs == 1 else f"{training.epochs} local epochs"
        order = "shuffled" if self.shuffle else "in a fixed order"
        return self._of_clients(
            f"change of the model in {epochs} over {self.batch_size} records, {order}, {training.batch_size} a step, "
            f"at a learning rate of {training.learning_rate:g} that the server set"
        )
