"""Recipe of a client's message: the facts, besides the model that was sent, that its replay needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, PlainSerializer, model_validator
from torch import Tensor

from seepage.defenses import Defense, RecordDefense
from seepage.learning import LocalTraining
from seepage.models.head import Loss, Reduction, loss_fields
from seepage.models.message import PLAIN, MessageForm
from seepage.models.model import Model
from seepage.registry import defenses
from seepage.wire.horizontal import GradientView, KnownDefense, UpdateView, View
from seepage.wire.precision import Precision

MOST_RECORDS = 2**20
"""Largest number of records behind a message."""

Arithmetic = Literal["float16", "bfloat16", "float32", "float64", "mixed"]
"""The number format in which a client computed; ``mixed`` for automatic mixed precision."""


def _training(value: object) -> object:
    return LocalTraining.of_plain(value) if isinstance(value, Mapping) else value


class DeclaredForm(BaseModel):
    """The fields of ``MessageForm`` that are declared in any setting; those left out are the usual ones."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    loss: Loss = "cross_entropy"
    weights: tuple[float, ...] = ()
    smoothing: float = 0.0
    gamma: float = 0.0
    delta: float = 1.0
    scale: float = 1.0

    @model_validator(mode="after")
    def _checked(self) -> DeclaredForm:
        _ = self.form
        return self

    @property
    def form(self) -> MessageForm:
        """The form of the messages."""
        return MessageForm(**self.model_dump())


class DeclaredLoss(DeclaredForm):
    """The loss of a batch whose gradient clients take, as far as it is not the mean of the records' usual losses.

    Attributes:
        loss: loss of one record, such as ``focal``.
        reduction: ``mean`` or ``sum``, as in PyTorch.
        weights: weight of each class, in the order of the target's categories.
        smoothing: label smoothing.
        gamma: exponent of the focal loss.
        delta: error from which on Huber's loss is a straight line.
        scale: factor of the loss, such as a loss scale that is not undone or a sum over accumulated batches.

    Example:
        >>> DeclaredLoss(reduction="sum", weights=(1.0, 9.0)).form.describe()
        'a sum over the records, class weights 1 : 9'
    """

    reduction: Reduction = "mean"

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        """Take the name of a reduction or of a loss for the whole."""
        return loss_fields(value)


class MessageRecipe(BaseModel):
    """The computation by which a message was made; what is None is not known.

    Attributes:
        protocol: ``fedsgd``: the mean gradient over one batch; ``fedavg``: the difference of the parameters before and
            after local training.
        batch_size: number of records behind the message, those of all clients of an aggregate together.
        training: local training of ``fedavg``: optimiser, rate and schedule, epochs, local batch size, momentum,
            weight decay.
        clients: number of clients whose messages are averaged in this one.
        defense: defense that the message went through, its name and its options.
        precision: number format in which the client computed; that of the model if None.
        sent_as: number format to which the message was cast before it was sent.
        loss: loss of a batch; where it is None, an attack that solves for records fits its form on the message.

    Raises:
        pydantic.ValidationError: ``fedavg`` without a training, ``fedsgd`` with one, or a value out of range.

    Example:
        >>> MessageRecipe(batch_size=8).describe()
        'the mean gradient of one batch'
        >>> training = {"epochs": 1, "batch_size": 8, "learning_rate": 0.1}
        >>> MessageRecipe(protocol="fedavg", training=training).describe()
        'the change of the model in 1 epoch, 8 records a batch, SGD at a learning rate of 0.1'
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    protocol: Literal["fedsgd", "fedavg"] = "fedsgd"
    batch_size: Annotated[int, Field(ge=1, le=MOST_RECORDS)] | None = None
    training: (
        Annotated[
            InstanceOf[LocalTraining],
            BeforeValidator(_training),
            PlainSerializer(LocalTraining.to_plain, when_used="always"),
        ]
        | None
    ) = None
    clients: Annotated[int, Field(ge=1, le=2**20)] = 1
    defense: dict[str, dict[str, bool | int | float | str]] | None = None
    precision: Arithmetic | None = None
    sent_as: Precision = "full"
    loss: DeclaredLoss | None = None

    @model_validator(mode="after")
    def _check(self) -> MessageRecipe:
        if self.protocol == "fedavg" and self.training is None:
            raise ValueError(
                "protocol fedavg needs the client's training: epochs, batch_size, learning_rate and what differs from "
                "plain SGD"
            )
        if self.protocol == "fedsgd" and self.training is not None:
            raise ValueError("a training belongs to protocol fedavg; the message of fedsgd is one gradient")
        if self.defense is not None and len(self.defense) != 1:
            raise ValueError(f"defense is one name with its options, got {len(self.defense)}")
        if self.batch_size is not None and self.batch_size % self.clients:
            raise ValueError(f"{self.batch_size} records are not shared evenly by {self.clients} clients")
        self.known(self.batch_size or self.clients)
        return self

    def known(self, records: int) -> KnownDefense:
        """Return what an attacker knows of the defense of a message about some records."""
        if self.defense is None:
            return KnownDefense()
        [(name, options)] = self.defense.items()
        defense = defenses.of("horizontal").create(name, **options)
        assert isinstance(defense, Defense | RecordDefense)
        knowledge = defense.describe()
        if isinstance(defense, RecordDefense):
            count = records // self.clients
            rate, sizes = 1.0, [count]
            if self.training is not None:
                rate = float(self.training.learning_rate)
                sizes = [batch.stop - batch.start for batch in self.training.batches(count)] * self.training.epochs
            knowledge = replace(knowledge, noise=rate * math.hypot(*map(defense.noise, sizes)))
        # Noise of several clients averages out.
        return replace(knowledge, noise=knowledge.noise / math.sqrt(self.clients))

    def view(self, model: Model, message: Mapping[str, Tensor]) -> View:
        """Return what the server received, by parameter name without a victim axis, as the view that attacks take."""
        batched = {name: tensor[None] for name, tensor in message.items()}
        if self.loss is not None:
            model = replace(model, form=self.loss.form)
        if self.training is None:
            return GradientView(model, batched, precision=self.sent_as)
        return UpdateView(model, batched, self.training, self.clients, self.sent_as)

    def describe(self) -> str:
        """Return the computation in words."""
        of = "" if self.clients == 1 else f", the mean over {self.clients} clients"
        form = PLAIN if self.loss is None else self.loss.form
        of += "" if form.plain else f" ({form.describe()})"
        if self.training is None:
            return f"the {'mean ' if form.reduction == 'mean' else ''}gradient of one batch{of}"
        epochs = "1 epoch" if self.training.epochs == 1 else f"{self.training.epochs} epochs"
        return (
            f"the change of the model in {epochs}, {self.training.batch_size} records a batch, "
            f"{self.training.describe()}{of}"
        )
