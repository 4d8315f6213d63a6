"""Simulation of the clients in FedSGD and FedAvg."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Generic, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from seepage.defenses import AnyDefense, Defense, RecordDefense, guarded
from seepage.defenses.aggregation import Aggregation
from seepage.defenses.defense import Update, check_seed_count, check_sent
from seepage.errors import BadInputError, check_choice, check_count
from seepage.learning import GradientOf, check_finite, gradient
from seepage.models.model import Model
from seepage.tabular.encoder import Encoder
from seepage.tabular.table import Table
from seepage.wire.horizontal import KnownDefense, RoundsView, View
from seepage.wire.precision import Precision, cast
from seepage.wire.secret import RecordsSecret, Transcript

M = TypeVar("M", bound=View, covariant=True)
Encoded = Float[Tensor, "record encoded"]
Targets = Float[Tensor, " record"]


class Clients(ABC, Generic[M]):
    """One or several rounds: the server sends a model, and each client answers with a defended message.

    The replication unit is a victim: all that the server receives at once. That is one client's message, or the mean
    of several clients' messages where a secure aggregation hides the single ones.

    Args:
        batch_size: number of records in one client's message.
        replacement: whether a client may hold a row twice (TabLeak's code draws with replacement).
        defense: defense that each client applies to its message, or to the gradients that it computes; none if None.
        clients: number of clients whose messages are aggregated, in each of those that the defense ``aggregation`` puts
            together; a message that the server receives depends on ``clients * batch_size`` records.
        holds: number of records of a client; in each round it draws a batch of them. Equal to the batch size if None;
            the batch is then the same in every round.
        precision: number format that each client casts its message to, after any defense; ``full`` sends it as it is.

    Raises:
        BadInputError: a count is below 1, a client holds less than a batch, or the precision is unknown.
    """

    # View types that one round reveals to the server.
    reveals: ClassVar[tuple[type, ...]]

    def __init__(
        self,
        batch_size: int,
        replacement: bool = False,
        defense: AnyDefense | None = None,
        clients: int = 1,
        holds: int | None = None,
        precision: Precision = "full",
    ) -> None:
        check_choice("precision", precision, Precision)
        self.precision: Precision = precision
        if batch_size < 1:
            raise BadInputError(f"a batch holds at least one record, got batch_size={batch_size}.")
        check_count("clients", clients)
        # Aggregates of aggregates are larger aggregates.
        clients *= defense.clients if isinstance(defense, Aggregation) else 1
        self.batch_size, self.replacement, self.defense, self.clients = batch_size, replacement, defense, clients
        self.holds = batch_size if holds is None else holds
        check_count("holds", self.holds)
        if self.holds < batch_size:
            raise BadInputError(
                f"a client draws each batch of {batch_size} from the records that it holds, got holds={self.holds}; "
                f"give at least {batch_size}."
            )

    @property
    def records(self) -> int:
        """Number of records of one victim's clients; a message is about all of them, or about a batch."""
        return self.clients * self.holds

    def run(
        self,
        model: Model,
        rows: Table,
        encoder: Encoder,
        seeds: Sequence[int],
        defense_seeds: Sequence[int] | None = None,
        drawn: Int[Tensor, "victim record"] | None = None,
    ) -> Transcript[M]:
        """Return the messages of one round for each seed, and the records behind them.

        A victim depends on its own seeds alone, its records not on the defense. ``model`` may come in versions that a
        malicious server sends its clients; a message that is not finite is a NotFiniteError. ``drawn`` are the places
        of each victim's records in the table; they are drawn by its seed if None.
        """
        if self.holds > self.batch_size:
            raise BadInputError(
                f"clients hold {self.holds} records and send messages about {self.batch_size}: run it round by round."
            )
        [sent], secret = self._rounds([model], rows, encoder, seeds, defense_seeds or (), drawn)
        return Transcript(self.view(model, sent), secret)

    def run_rounds(
        self,
        models: Sequence[Model],
        rows: Table,
        encoder: Encoder,
        seeds: Sequence[int],
        defense_seeds: Sequence[int] | None = None,
    ) -> Transcript[RoundsView]:
        """Return the messages of several rounds of the same clients, and all their records.

        The first rounds do not depend on the number of rounds that follow. The effect of a victim's own messages on
        later models is not simulated: these models come from a separate training.
        """
        if len(models) == 0:
            raise BadInputError("a protocol of several rounds needs the model of each, got none.")
        messages, secret = self._rounds(models, rows, encoder, seeds, defense_seeds or ())
        views = tuple(self.view(model, sent) for model, sent in zip(models, messages, strict=True))
        return Transcript(RoundsView(views, self.clients * self.batch_size), secret)

    def _rounds(
        self,
        models: Sequence[Model],
        rows: Table,
        encoder: Encoder,
        seeds: Sequence[int],
        defense_seeds: Sequence[int],
        places: Int[Tensor, "victim record"] | None = None,
    ) -> tuple[list[Update], RecordsSecret]:
        for model in models:
            model.check(rows.schema)
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        drawn_records = self._drawn(rows, generators, places)
        cells, labels = drawn_records.cells, drawn_records.labels
        encoded = encoder.encode(cells.to(encoder.mean.device))
        if isinstance(self.defense, RecordDefense):
            check_seed_count(len(seeds), defense_seeds)
        round_seeds = self._seeds(defense_seeds, len(models))
        clients_x = encoded.unflatten(1, (self.clients, self.holds)).flatten(0, 1)
        clients_y = labels.to(encoded.device).unflatten(1, (self.clients, self.holds)).flatten(0, 1)
        received, used = [], []
        for model, guards in zip(models, round_seeds, strict=True):
            batches = [self._batch(generators[i // self.clients]) for i in range(len(clients_x))]
            sent = model.sent(self.clients)
            whole = self.holds == self.batch_size
            # One client at a time: the bits of a message must not depend on the number of clients simulated at once,
            # nor on a copy, which may lie elsewhere in memory.
            messages = [
                self.answer(
                    sent[i % self.clients],
                    clients_x[i] if whole else clients_x[i, batch],
                    clients_y[i] if whole else clients_y[i, batch],
                    generators[i // self.clients],
                    guarded(self.defense, guards[i : i + 1]),
                )
                for i, batch in enumerate(batches)
            ]
            answers = {name: torch.stack([message[name] for message in messages]) for name in messages[0]}
            if isinstance(self.defense, Defense):
                answers = check_sent(self.defense, self.defense(dict(answers), guards), answers)
            if self.precision != "full":
                answers = {n: torch.stack([cast(part, self.precision) for part in m]) for n, m in answers.items()}
            if self.clients > 1:
                answers = {name: m.unflatten(0, (len(seeds), self.clients)).mean(1) for name, m in answers.items()}
            check_finite({f"entry {name!r}": answer for name, answer in answers.items()})
            received.append(answers)
            first = self.holds * torch.arange(self.clients)[:, None]
            used.append(torch.stack(batches).view(len(seeds), self.clients, -1).add(first).flatten(1))
        drawn = None if self.holds == self.batch_size else torch.stack(used, dim=1)
        return received, RecordsSecret(cells, labels, drawn)

    def draw(self, rows: Table, seeds: Sequence[int]) -> RecordsSecret:
        """Return the records of a victim's clients for each seed, as ``run`` draws them, without any message."""
        return self._drawn(rows, [torch.Generator().manual_seed(seed) for seed in seeds])

    def _drawn(
        self,
        rows: Table,
        generators: Sequence[torch.Generator],
        places: Int[Tensor, "victim record"] | None = None,
    ) -> RecordsSecret:
        if len(generators) == 0:
            raise BadInputError("a protocol needs at least one seed, one for each victim, got none.")
        if self.records > len(rows) and not self.replacement:
            of = "" if self.clients == 1 else f" of each of {self.clients} clients"
            what = "batch size" if self.holds == self.batch_size else "holds"
            raise BadInputError(
                f"{what} {self.holds}{of} is larger than the client's {len(rows)} rows; "
                f"use a {what} of at most {len(rows) // self.clients} or draw with replacement."
            )
        if places is None:
            places = torch.stack([self._draw(len(rows), generator) for generator in generators])
        return RecordsSecret(*rows.take(places))

    @abstractmethod
    def answer(
        self, model: Model, encoded: Encoded, labels: Targets, generator: Generator, gradient_of: GradientOf = gradient
    ) -> Update:
        """Return one client's message before any defense of messages; ``gradient_of`` has any defense of records."""

    @abstractmethod
    def view(self, model: Model, message: Update) -> M:
        """Return the server's view of messages of shape (victim, *parameter)."""

    @property
    @abstractmethod
    def gradients(self) -> list[int]:
        """Number of records of each gradient that a client's message is computed from."""

    def noise(self, noises: Sequence[float]) -> float:
        """Return the standard deviation of a message's entries by noise on its gradients."""
        return math.hypot(*noises)

    @property
    @abstractmethod
    def sees(self) -> str:
        """Text that says what the server sees of a victim."""

    def known(self) -> KnownDefense:
        """Return the messages' defense as an attacker who knows the defense knows it."""
        knowledge = KnownDefense() if self.defense is None else self.defense.describe()
        if isinstance(self.defense, RecordDefense):
            noises = [self.defense.noise(records) for records in self.gradients]
            knowledge = replace(knowledge, noise=self.noise(noises))
        # Noise of several clients averages out.
        return knowledge if self.clients == 1 else replace(knowledge, noise=knowledge.noise / self.clients**0.5)

    @property
    def _cast(self) -> str:
        return "" if self.precision == "full" else f", cast to {self.precision}"

    def _of_clients(self, message: str) -> str:
        if self.clients == 1:
            return f"one client's {message}"
        return f"the mean of {self.clients} clients' messages, each its {message}, and no single one"

    def _draw(self, rows: int, generator: torch.Generator) -> Tensor:
        if self.replacement:
            return torch.randint(rows, (self.records,), generator=generator)
        return torch.randperm(rows, generator=generator)[: self.records]

    def _batch(self, generator: torch.Generator) -> Int[Tensor, " used"]:
        """Return the positions of the records that a client uses in a round."""
        if self.holds == self.batch_size:
            return torch.arange(self.holds)
        return torch.randperm(self.holds, generator=generator)[: self.batch_size]

    def _seeds(self, seeds: Sequence[int], rounds: int) -> list[list[int]]:
        """Return one seed a client for each round: in the first, a victim's own seed where it is one client."""
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]

        def drawn() -> list[int]:
            return [seed for g in generators for seed in torch.randint(2**62, (self.clients,), generator=g).tolist()]

        return [list(seeds) if self.clients == 1 and i == 0 else drawn() for i in range(rounds)]
