"""Attacks on a transcript of vertical training: a passive party's columns, and the label of the active party."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage import registry
from seepage.attacks.vertical import inversion_in_words
from seepage.captures.transcript_runs import (
    TranscriptExposure,
    TranscriptTables,
    UnknownPart,
    gathered,
    history_of,
    meaningful,
)
from seepage.captures.transcripts import TranscriptDescription
from seepage.errors import BadInputError
from seepage.models.own import find_own, is_own
from seepage.models.own_parts import own_bottom
from seepage.models.split import usual_split_head
from seepage.models.vertical import ActiveModel, Stack
from seepage.models.weights import load_weights
from seepage.registry import Registry
from seepage.seeds import stream
from seepage.settings.features import FEATURE_SCALES, features_outcome
from seepage.settings.part import Part, entry_of, make_part
from seepage.settings.setting import Outcome, PlannedPart
from seepage.tabular.partition import Partition
from seepage.tabular.table import frame_of
from seepage.wire.labels import LogitsView, ReturnedView
from seepage.wire.secret import FeatureTranscript
from seepage.wire.vertical import (
    ActivationView,
    FeatureAuxiliary,
    FeatureGuess,
    FeatureKnowledge,
    FeatureView,
    KnownFeatures,
    Leaked,
)


class ActivationExposure(TranscriptExposure):
    """The messages of a party's first layers, and the gradients that came back.

    Args:
        network: name of the attacked party's network, or reference of one of the user's own; that of the transcript if
            None.
    """

    scales = FEATURE_SCALES

    def __init__(self, tables: TranscriptTables, network: str | None) -> None:
        super().__init__(tables)
        training = tables.training
        self.network = network
        self.attacked_schema = training.schema.model_copy(
            update={"columns": tuple(training.schema.columns[i] for i in training.private)}
        )
        history = history_of(training.rounds, tables.places)
        self.newest = {place: seen[-1] for place, seen in sorted(history.items())}
        if any(len(seen) > 1 for seen in history.values()):
            self.notes.append("of each record the newest message is attacked")
        leaked = set() if tables.leaked is None else set(tables.leaked[0].tolist())
        self.places = torch.tensor([place for place in self.newest if place not in leaked])
        if not len(self.places):
            raise BadInputError("all records of the transcript are known, so that none is left to attack; know fewer.")
        if tables.leaked is not None:
            self.grants.add("leaked")
        bottom = self._bottom()
        if bottom is not None:
            self.grants.add("bottom")
            self.limits.append(inversion_in_words(bottom, self.attacked_schema, self.part))
        marginals = tuple(tables.statistics.marginals[i] for i in training.private)
        knowledge = FeatureKnowledge(self.attacked_schema, marginals, _feature_defense(training.about), bottom=bottom)
        if tables.leaked is not None:
            places, true = tables.leaked
            sent = self.messages("activations", places).float()
            knowledge = replace(knowledge, leaked=Leaked(true[None], sent[None], self.own(places)[None]))
        self.knowledge = knowledge
        self.view = self._seen()

    @property
    @abstractmethod
    def part(self) -> str:
        """Words for the attacked party's first layers."""

    @abstractmethod
    def own(self, places: Tensor) -> Float[Tensor, "record own"]:
        """Return the attacker's own cells of some records."""

    @abstractmethod
    def _seen(self) -> ActivationView:
        """Return the attacker's view of the attacked records, and complete its knowledge."""

    @abstractmethod
    def _some(self, at: Tensor) -> ActivationView:
        """Return the attacker's view of some of the attacked records."""

    @abstractmethod
    def _loaded(self, name: str | None, file: Path, width: int) -> nn.Module | None:
        """Return the attacked party's first layers with their weights; None where their network is not known."""

    @abstractmethod
    def _returned(self, places: Tensor) -> ReturnedView:
        """Return the gradients that came back to the party without labels, as a view."""

    def _exchanged(self, places: Tensor, kind: type[ReturnedView], sent: str, returned: str) -> ReturnedView:
        """Return messages and the gradients that came back for them, as a view without own columns.

        The attacked party's own columns are the secret of other attacks, and are in no transcript.

        Args:
            places: positions of the records.
        """
        message, came = self.messages(sent, places), self.messages(returned, places)
        own_gradient = came * self.messages("behind", places)[:, None].to(came)
        return kind(message[None], own_gradient[None], message.new_zeros(1, len(message), 1))

    def returned(self) -> tuple[Tensor, ReturnedView]:
        """Return the gradients that came back of all records, as a view."""
        places = torch.tensor(list(self.newest))
        return places, self._returned(places)

    def columns(self, part: PlannedPart, registered: Registry[Any]) -> Outcome:
        """Guess the attacked party's columns, keep the guess and return its figures."""
        begun, needs = time.perf_counter(), entry_of(registered, part.part).needs
        guess: FeatureGuess = make_part(registered, part.part)(self.view, self.knowledge.only(needs), self._seeds)
        seconds = (time.perf_counter() - begun) / len(self.places)
        if bool(guess.cells.isnan().any()):
            raise BadInputError("it failed: its numbers are not finite")
        frame = frame_of(self.attacked_schema, guess.cells[0])
        self.keep(part, self.places, {name: frame[name] for name in frame.columns})
        truth = self.tables.true_cells(self.places)
        if truth is None:
            return Outcome([], seconds)
        at, true = truth
        seen = FeatureTranscript(self._some(at), true[None, :, :-1], true[None, :, -1])
        scored = features_outcome(self.knowledge, seen, FeatureGuess(guess.cells[:, at]), seconds, False)
        return replace(scored, measured=meaningful(scored.measured))

    def baselines(self) -> list[Part]:
        """Return the baselines that the transcript has the knowledge for."""
        return [
            Part(name=entry.name)
            for entry in registry.baselines.of(self.setting).entries()
            if any(isinstance(self.view, view) for view in entry.sees) and self.grants.issuperset(entry.needs)
        ]

    @property
    def _seeds(self) -> list[int]:
        return [stream(self.tables.seed, 0, "attack") % 2**62]

    def _bottom(self) -> nn.Module | None:
        """Return the attacked party's first layers; None where weights or network are unknown."""
        training = self.tables.training
        if not training.weights:
            return None
        width, name = training.rounds[0].activations.shape[1], self.network or training.about.model
        own = self.network is not None and is_own(self.network)
        bottom = self._loaded(name, training.weights[-1][1], width) if own or not is_own(name or "") else None
        if bottom is None:
            reason = "is not named" if name is None else f"{name!r} is known by name alone"
            self.notes.append(
                f"weights of the attacked party are there, but their network {reason}; name it with --model "
                "FILE.py:FACTORY"
            )
        return bottom

    def messages(self, name: str, places: Tensor) -> Tensor:
        """Return one kind of the newest messages of some records."""
        return gathered(self.tables.training.rounds, name, (self.newest[place] for place in places.tolist()))

    def came_back(self, name: str) -> bool:
        """Return whether one kind of messages is there of all records."""
        rounds = self.tables.training.rounds
        return all(getattr(rounds[k], name) is not None for k, _ in self.newest.values())


class VerticalTranscriptExposure(ActivationExposure):
    """A transcript of vertical learning: the active party attacks columns, the passive party labels."""

    setting = "vertical"

    @property
    def part(self) -> str:
        """Words for the passive party's bottom model."""
        return "attacked party's bottom model"

    def own(self, places: Tensor) -> Float[Tensor, "record own"]:
        """Return the active party's own cells of some records."""
        training = self.tables.training
        return self._own_cells(places)[:, : len(training.public)]

    def _own_cells(self, places: Tensor) -> Tensor:
        """Return the active party's own cells, and labels where it gave them."""
        own = self.tables.own_cells(places.tolist())
        none = torch.zeros(len(places), len(self.tables.training.public), dtype=torch.float64)
        return none if own is None else own

    def _seen(self) -> FeatureView:
        tables, training = self.tables, self.tables.training
        returned = LogitsView if not training.about.top else ReturnedView
        self.reveals = (FeatureView, *((returned,) if self.came_back("gradient") else ()))
        partition = Partition(tables.schema, (training.public, training.private))
        own = training.own
        unknown = UnknownPart("the active party's top model, which a transcript of vertical learning does not hold")
        active = ActiveModel(partition, unknown, unknown, training.about.head or usual_split_head(tables.schema.target))
        received = self.messages("activations", self.places).float()
        silent = received.new_zeros(len(received), 0)
        if tables.public is not None and own is not None:
            rows = tables.public
            auxiliary = FeatureAuxiliary(
                rows.cells[None][..., list(training.private)],
                rows.cells[None][..., list(training.public)],
                rows.labels[None],
                (None, None),
            )
            self.grants.add("auxiliary")
            self.knowledge = replace(self.knowledge, auxiliary=auxiliary)
        labels = self._own_cells(self.places)[None, :, -1] if own is not None and own[2] else None
        return FeatureView(active, 1, self.own(self.places)[None], (silent[None], received[None]), labels)

    def _some(self, at: Tensor) -> FeatureView:
        assert isinstance(self.view, FeatureView)
        return FeatureView(self.view.model, 1, self.view.own[:, at], tuple(f[:, at] for f in self.view.features))

    def _loaded(self, name: str | None, file: Path, width: int) -> nn.Module | None:
        if name is not None and is_own(name):
            copies, answered = own_bottom(find_own(name), self.attacked_schema, 1, width, [0])
            if answered != width:
                raise BadInputError(
                    f"the bottom model {name!r} returns {answered} features where the transcript has {width}; name "
                    "the network that was trained."
                )
            load_weights(copies.networks[0], file)
            return copies
        if name != "vertical_mlp":
            return None
        bottom = Stack((self.attacked_schema.width, *hidden_of(self.tables.training.about, "bottom"), width), [0])
        load_weights(bottom, file)
        return bottom

    def _returned(self, places: Tensor) -> ReturnedView:
        kind = ReturnedView if self.tables.training.about.top else LogitsView
        return self._exchanged(places, kind, "activations", "gradient")


def hidden_of(about: TranscriptDescription, name: str) -> tuple[int, ...]:
    """Return the units of layers that an option of the described network lists; empty without the option."""
    units = about.options.get(name, ())
    if not isinstance(units, tuple) or any(unit < 1 for unit in units):
        raise BadInputError(
            f"the transcript's network has the option {name}: {units!r}; give the units of each layer, such as [16]."
        )
    return units


def _feature_defense(about: TranscriptDescription) -> KnownFeatures:
    """Return the attacker's knowledge of a stated defense of activations or features."""
    defense = about.defense or {}
    scale = defense.get("feature_noise", {}).get("scale", 0.0)
    if isinstance(scale, bool | str) or scale < 0:
        raise BadInputError(f"the transcript states feature_noise with scale {scale!r}; give a number from 0 up.")
    return KnownFeatures(defense, float(scale))
