"""FedAvg: a client trains on its records for some epochs and sends the change of the model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Generator

from seepage.defenses import AnyDefense
from seepage.defenses.defense import Update
from seepage.learning import GradientOf, LocalTraining, Optimizer, Schedule, gradient, local_update
from seepage.models.model import Model
from seepage.protocols.clients import Clients, Encoded, Targets
from seepage.registry import protocols
from seepage.wire.horizontal import UpdateView
from seepage.wire.precision import Precision

# Weight decay of torch.optim.AdamW where none is given.
_ADAMW_DECAY = 0.01


@protocols.register("fedavg", "horizontal")
class FedAvg(Clients[UpdateView]):
    """One round of FedAvg (McMahan et al. 2017): a client answers with the change by local epochs, defended.

    Args:
        batch_size: number of records of a client, all of which it uses in each epoch.
        replacement, defense, clients, holds, precision: arguments of ``Clients``; a defense of messages receives the
            difference of the parameters before and after, a defense of records each local step.
        epochs: number of local passes over the records.
        local_batch_size: number of records of a local step; all of them if None.
        learning_rate: learning rate of the local optimiser's first step.
        shuffle: whether each epoch has an order of its own, as clients do it. TabLeak's code keeps the order in which
            the records were drawn (D10).
        optimizer, momentum, nesterov, betas, epsilon, schedule, rate_factor, rate_every, accumulation, drop_last:
            settings of ``LocalTraining``. The optimiser starts anew in each round.
        weight_decay: weight decay of the local optimiser; as in ``torch.optim``, 0.01 of AdamW and none of the others
            if None.

    Raises:
        BadInputError: a setting of the local training cannot be used.
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
        optimizer: Optimizer = "sgd",
        momentum: float | int = 0.0,
        nesterov: bool = False,
        weight_decay: float | int | None = None,
        betas: Sequence[float | int] = (0.9, 0.999),
        epsilon: float | int = 1e-8,
        schedule: Schedule = "constant",
        rate_factor: float | int = 0.1,
        rate_every: int = 1,
        accumulation: int = 1,
        drop_last: bool = False,
        precision: Precision = "full",
    ) -> None:
        super().__init__(batch_size, replacement, defense, clients, holds, precision)
        if weight_decay is None:
            weight_decay = _ADAMW_DECAY if optimizer == "adamw" else 0.0
        self.training = LocalTraining.of_plain(
            {
                "epochs": epochs,
                "batch_size": batch_size if local_batch_size is None else local_batch_size,
                "learning_rate": learning_rate,
                "optimizer": optimizer,
                "momentum": momentum,
                "nesterov": nesterov,
                "weight_decay": weight_decay,
                "betas": betas,
                "epsilon": epsilon,
                "schedule": schedule,
                "rate_factor": rate_factor,
                "rate_every": rate_every,
                "accumulation": accumulation,
                "drop_last": drop_last,
            }
        )
        # Refuses a client without a batch before anything runs.
        self.training.batches(batch_size)
        self.shuffle = shuffle

    def answer(
        self, model: Model, encoded: Encoded, labels: Targets, generator: Generator, gradient_of: GradientOf = gradient
    ) -> Update:
        """Return the difference of the parameters before and after."""
        count = len(labels)
        orders = [
            torch.randperm(count, generator=generator) if self.shuffle else torch.arange(count)
            for _ in range(self.training.epochs)
        ]
        order = torch.stack(orders).to(encoded.device)
        # Masks of dropout are drawn anew in each epoch.
        rows = model.drawn(encoded[order], generator)
        update = local_update(model, rows[None], labels[order][None], self.training, gradient_of)
        return {name: change[0] for name, change in update.items()}

    def view(self, model: Model, message: Update) -> UpdateView:
        """Return the updates."""
        return UpdateView(model, message, self.training, self.clients, self.precision)

    @property
    def gradients(self) -> list[int]:
        """Number of records of each local step."""
        batches = self.training.batches(self.batch_size)
        return [batch.stop - batch.start for batch in batches] * self.training.epochs

    def noise(self, noises: Sequence[float]) -> float:
        """Return the standard deviation of a message's entries by noise on its gradients; under Adam at most this."""
        training = self.training
        if training.plain:
            return float(training.learning_rate) * math.hypot(*noises)
        if training.optimizer != "sgd":
            return math.hypot(*training.rates(self.batch_size))
        factors, groups = training.factors(self.batch_size), training.groups(self.batch_size) * training.epochs
        step_factors = [f / training.accumulation for f, group in zip(factors, groups, strict=True) for _ in group]
        return math.hypot(*(f * noise for f, noise in zip(step_factors, noises, strict=True)))

    @property
    def sees(self) -> str:
        """Text that says what the server sees of a victim."""
        training = self.training
        epochs = "1 local epoch" if training.epochs == 1 else f"{training.epochs} local epochs"
        order = "shuffled" if self.shuffle else "in a fixed order"
        return self._of_clients(
            f"change of the model in {epochs} over {self.batch_size} records, {order}, {training.batch_size} a step, "
            f"by {training.describe()} that the server set{self._cast}"
        )
