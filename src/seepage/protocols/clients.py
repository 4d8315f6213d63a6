"""Clients that answer a server: what FedSGD and FedAvg share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Generic

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.defenses import AnyDefense, Defense, RecordDefense, guarded
from seepage.defenses.defense import check_one_each
from seepage.errors import BadInputError, check_count
from seepage.knowledge import KnownDefense
from seepage.learning import GradientOf, gradient
from seepage.models.model import Model
from seepage.tabular.encoder import Encoder
from seepage.tabular.table import Table
from seepage.transcript import RecordsSecret, Transcript, V


class Clients(ABC, Generic[V]):
    """One round: the server sends a model, each client answers from records of its own, defended.

    The replication unit is a victim: what the server receives at once. That is one client's message, or the
    mean of several clients' where a secure aggregation keeps the single messages from the server.

    Args:
        batch_size: records behind one client's message.
        replacement: whether a client may hold a row twice (TabLeak's code draws with replacement).
        defense: what each client does to its message before it sends it, or to the gradients that it computes;
            nothing if None.
        clients: whose messages are aggregated; the records behind what the server receives are
            ``clients * batch_size``.

    Raises:
        BadInputError: a count is below 1.
    """

    def __init__(
        self, batch_size: int, replacement: bool = False, defense: AnyDefense | None = None, clients: int = 1
    ) -> None:
        if batch_size < 1:
            raise BadInputError(f"a batch holds at least one record, got batch_size={batch_size}.")
        check_count("clients", clients)
        self.batch_size, self.replacement, self.defense, self.clients = batch_size, replacement, defense, clients

    @property
    def records(self) -> int:
        """Records behind what the server receives of one victim."""
        return self.clients * self.batch_size

    def run(
        self,
        model: Model,
        rows: Table,
        encoder: Encoder,
        seeds: Sequence[int],
        defense_seeds: Sequence[int] | None = None,
    ) -> Transcript[V]:
        """Return what the server receives for each seed, and the records behind it.

        A victim depends on its own seeds alone, not on the victims it is run with. Its records do not
        depend on the defense.

        Args:
            model: the global model, or the versions of it that a malicious server sends its clients.
            rows: the clients'.
            encoder: from rows to the model's inputs.
            seeds: one a victim, of its records.
            defense_seeds: one a victim, of what the defense draws; needed where there is a defense.

        Raises:
            BadInputError: there are fewer rows than records, the model does not fit them or comes in
                versions for another number of clients, there is no seed, or not one a victim for the defense.
        """
        model.check(rows.schema)
        if len(seeds) == 0:
            raise BadInputError("a protocol needs at least one seed, one for each victim, got none.")
        if self.records > len(rows) and not self.replacement:
            of = "" if self.clients == 1 else f" of each of {self.clients} clients"
            raise BadInputError(
                f"batch size {self.batch_size}{of} is larger than the client's {len(rows)} rows; "
                f"use a batch size of at most {len(rows) // self.clients} or draw with replacement."
            )
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        cells, labels = rows.at(torch.stack([self._draw(len(rows), generator) for generator in generators]))
        encoded = encoder.encode(cells.to(encoder.mean.device))
        if isinstance(self.defense, RecordDefense):
            check_one_each(len(seeds), defense_seeds or ())
        guards = self._seeds(defense_seeds or ())
        clients_x = encoded.unflatten(1, (self.clients, self.batch_size)).flatten(0, 1)
        clients_y = labels.to(encoded.device).unflatten(1, (self.clients, self.batch_size)).flatten(0, 1)
        sent = model.sent(self.clients)
        # One client at a time: the bits of a message must not depend on how many clients are simulated at once.
        messages = [
            self.answer(
                sent[i % self.clients], x, y, generators[i // self.clients], guarded(self.defense, guards[i : i + 1])
            )
            for i, (x, y) in enumerate(zip(clients_x, clients_y, strict=True))
        ]
        received = {name: torch.stack([message[name] for message in messages]) for name in messages[0]}
        if isinstance(self.defense, Defense):
            received = self.defense(received, guards)
        if self.clients > 1:
            received = {name: m.unflatten(0, (len(seeds), self.clients)).mean(1) for name, m in received.items()}
        return Transcript(self.view(model, received), RecordsSecret(cells, labels))

    @abstractmethod
    def answer(
        self,
        model: Model,
        encoded: Float[Tensor, "record encoded"],
        labels: Float[Tensor, " record"],
        generator: torch.Generator,
        gradient_of: GradientOf = gradient,
    ) -> dict[str, Tensor]:
        """Return one client's message before any defense of messages, by parameter name.

        Args:
            model: that the server sent.
            encoded, labels: the client's records.
            generator: of what it draws at random.
            gradient_of: computes gradients, under a defense of records where there is one.
        """

    @abstractmethod
    def view(self, model: Model, message: dict[str, Tensor]) -> V:
        """Return what the server sees, given messages of shape (victim, *parameter)."""

    @property
    @abstractmethod
    def gradients(self) -> list[int]:
        """How many records are behind each of the gradients whose sum, times ``rate``, is a client's message."""

    @property
    def rate(self) -> float:
        """By what the sum of gradients is multiplied in a message."""
        return 1.0

    @property
    @abstractmethod
    def sees(self) -> str:
        """What the server sees of a victim, for people."""

    def known(self) -> KnownDefense:
        """Return what an attacker who knows the defense knows of the messages received."""
        known = KnownDefense() if self.defense is None else self.defense.describe()
        if isinstance(self.defense, RecordDefense):
            noises = [self.defense.noise(records) for records in self.gradients]
            known = replace(known, noise=self.rate * math.hypot(*noises))
        # Noise of several clients averages out.
        return known if self.clients == 1 else replace(known, noise=known.noise / self.clients**0.5)

    def _of_clients(self, message: str) -> str:
        if self.clients == 1:
            return f"one client's {message}"
        return f"the mean of {self.clients} clients' messages, each its {message}, and no single one"

    def _draw(self, rows: int, generator: torch.Generator) -> Tensor:
        if self.replacement:
            return torch.randint(rows, (self.records,), generator=generator)
        return torch.randperm(rows, generator=generator)[: self.records]

    def _seeds(self, seeds: Sequence[int]) -> list[int]:
        """Return one seed a client: a victim's own where it is one client."""
        if self.clients == 1:
            return list(seeds)
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        return [seed for g in generators for seed in torch.randint(2**62, (self.clients,), generator=g).tolist()]
