"""A transcript of a party's first layers as an exposure: columns behind activations, labels behind gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage import registry
from seepage.attacks.vertical import inversion_in_words
from seepage.captures.transcripts import (
    TranscriptDescription,
)
from seepage.errors import BadInputError
from seepage.models.own import OwnFactory, find_own
from seepage.models.own_parts import own_bottom, own_whole
from seepage.models.split import outputs_of, usual_split_head
from seepage.models.vertical import ActiveModel, Copies, Stack
from seepage.models.weights import load_weights
from seepage.protocols.whole_client import PARTS, WholeClientModel
from seepage.seeds import stream
from seepage.settings.guessing import AttackedSecret, entry_in
from seepage.settings.outcomes import FEATURE_SCALES, features_outcome
from seepage.settings.part import Part
from seepage.settings.setting import Outcome, PlannedPart
from seepage.settings.transcript_tables import TranscriptTables
from seepage.settings.transcripts import TranscriptExposure, UnknownPart, meaningful
from seepage.sources import is_own
from seepage.tabular.partition import Partition
from seepage.tabular.table import frame_of
from seepage.wire.labels import LogitsView, ReturnedView
from seepage.wire.secret import FeatureTranscript
from seepage.wire.vertical import (
    FeatureAuxiliary,
    FeatureGuess,
    FeatureKnowledge,
    FeatureView,
    KnownFeatures,
    Leaked,
    SmashedView,
)


class ActivationExposure(TranscriptExposure):
    """The messages of a party's first layers, and the gradients that came back.

    The active party attacks columns, and the passive party labels. A client that holds all columns is attacked by a
    server or a hop without columns.
    """

    scales = FEATURE_SCALES

    def __init__(self, tables: TranscriptTables) -> None:
        super().__init__(tables)
        training, about = self.training, self.training.about
        self.attacked_schema = training.schema.model_copy(update={"columns": training.private_columns})
        if any(len(messages) > 1 for messages in self.history.values()):
            self.notes.append("of each record the newest message is attacked")
        self._take_newest()
        if not len(self.places):
            raise BadInputError("all records of the transcript are known, so that none is left to attack; know fewer.")
        bottom = self._bottom(tables.spec.model)
        if bottom is not None:
            self.grants.add("bottom")
            hop = " and those of the hop" if about.behind_hop else ""
            part = f"client's first layers{hop}" if about.whole else "attacked party's bottom model"
            self.limits.append(inversion_in_words(bottom, self.attacked_schema, part))
        marginals = tuple(tables.statistics.marginals[i] for i in training.private)
        self.knowledge = FeatureKnowledge(self.attacked_schema, marginals, _feature_defense(about), bottom=bottom)
        if tables.leaked is not None:
            self.grants.add("leaked")
            places, true = tables.leaked
            leaked = Leaked(
                true[None], self._messages("activations", places).float()[None], self._own_cells(places)[None]
            )
            self.knowledge = replace(self.knowledge, leaked=leaked)
        received = self._messages("activations", self.places).float()[None]
        self.view = SmashedView(received) if about.whole else self._features(received)
        # What a server without columns sends on, or the features of a party: what gradients came back for.
        self.crossed = ("outputs", "output_gradients") if about.whole else ("activations", "gradients")
        self.returned_kind = ReturnedView if about.whole or about.top else LogitsView
        back = all(getattr(training.rounds[k], self.crossed[1]) is not None for k, _ in self.newest.values())
        self.reveals = (type(self.view), *((self.returned_kind,) if back else ()))

    def _take_newest(self) -> None:
        """Set the newest message of each record, and the positions of the records that are attacked."""
        tables = self.tables
        self.newest = {place: messages[-1] for place, messages in self.history.items()}
        leaked_places = set() if tables.leaked is None else set(tables.leaked[0].tolist())
        self.places = torch.tensor([place for place in self.newest if place not in leaked_places])

    def exchange(self, sender: Mapping[int, int]) -> None:
        """Give each record the messages of its sender; the attacker's own cells stay with the record."""
        super().exchange(sender)
        self._take_newest()
        received = self._messages("activations", self.places).float()[None]
        self.view = SmashedView(received) if isinstance(self.view, SmashedView) else self._features(received)

    def _features(self, received: Tensor) -> FeatureView:
        """Return the active party's view of the attacked records, and complete its knowledge."""
        tables, training = self.tables, self.training
        partition = Partition(tables.schema, (training.public, training.private))
        unknown = UnknownPart("the active party's top model, which a transcript of vertical learning does not hold")
        active = ActiveModel(partition, unknown, unknown, training.about.head or usual_split_head(tables.schema.target))
        if tables.public is not None and training.own_columns is not None:
            self.grants.add("auxiliary")
            rows = tables.public
            private, public = (rows.cells[None][..., list(part)] for part in (training.private, training.public))
            auxiliary = FeatureAuxiliary(private, public, rows.labels[None], (None, None))
            self.knowledge = replace(self.knowledge, auxiliary=auxiliary)
        labels = None
        if training.own_columns is not None and training.own_columns[2]:
            labels = tables.own_cells(self.places.tolist())[None, :, -1]
        silent = received.new_zeros(1, received.shape[1], 0)
        return FeatureView(active, 1, self._own_cells(self.places)[None], (silent, received), labels)

    def _own_cells(self, places: Tensor) -> Float[Tensor, "record own"]:
        """Return the attacker's own cells of some records, without labels."""
        return self.tables.own_cells(places.tolist())[:, : len(self.training.public)]

    def returned(self) -> tuple[Tensor, ReturnedView]:
        """Return the gradients that came back of all records, as a view without own columns.

        The attacked party's own columns are the secret of other attacks, and are in no transcript.
        """
        places = torch.tensor(list(self.newest))
        message, gradient = (self._messages(name, places) for name in self.crossed)
        own_gradient = gradient * self._messages("behind", places)[:, None].to(gradient)
        view = self.returned_kind(message[None], own_gradient[None], message.new_zeros(1, len(message), 1))
        return places, view

    def columns(self, part: PlannedPart) -> AttackedSecret[FeatureGuess]:
        """Return the attacked party's columns as a secret, a guess of which is kept."""
        marginals = tuple(self.statistics_of(part).marginals[i] for i in self.training.private)
        knowledge = replace(self.knowledge, marginals=marginals)
        inputs = (self.view, knowledge.only(entry_in(self.setting, part).needs))
        seeds, records = [stream(self.tables.seed, 0, "attack") % 2**62], len(self.places)
        shape = {"training": 1, "record": records, "column": len(self.attacked_schema.columns)}
        score = partial(self._outcome_of, part)
        return AttackedSecret(self.setting, FeatureGuess, lambda: inputs, seeds, score, records, shape)

    def _outcome_of(self, part: PlannedPart, guess: FeatureGuess) -> Outcome:
        """Keep a guess of the columns, and return its figures on the records with a known truth."""
        if bool(guess.cells.isnan().any()):
            raise BadInputError("it failed: its numbers are not finite")
        self.keep(part, self.places, frame_of(self.attacked_schema, guess.cells[0]))
        if guess.choice is not None:
            self.notes.append(f"{part.label} answers by {guess.choice[0]}")
        truth = self.tables.true_cells(self.places)
        if truth is None:
            return Outcome([])
        positions, true = truth
        transcript = FeatureTranscript(self.view.of(positions), true[None, :, :-1], true[None, :, -1])
        scored = features_outcome(self.knowledge, transcript, FeatureGuess(guess.cells[:, positions]), False)
        return replace(scored, measured=meaningful(scored.measured))

    def baselines(self) -> list[Part]:
        """Return the baselines that the transcript has the knowledge for."""
        return [
            Part(name=entry.name)
            for entry in registry.baselines.of(self.setting).entries()
            if any(isinstance(self.view, view) for view in entry.sees) and self.grants.issuperset(entry.needs)
        ]

    def _bottom(self, network: str | None) -> nn.Module | None:
        """Return the attacked party's first layers; None where weights or network are unknown."""
        training, about = self.training, self.training.about
        if not training.weights:
            return None
        name, width = network or about.model, training.rounds[0].activations.shape[1]
        if network is not None and is_own(network):
            loaded, bottom = self._own_layers(find_own(network), width)
        elif name == ("mlp" if about.whole else "vertical_mlp"):
            loaded, bottom = self._usual_layers(width)
        else:
            reason = "is not named" if name is None else f"{name!r} is known by name alone"
            self.notes.append(
                f"weights of the attacked party are there, but their network {reason}; name it with --model "
                "FILE.py:FACTORY"
            )
            return None
        load_weights(loaded, training.weights[-1][1])
        return bottom

    def _own_layers(self, factory: OwnFactory, width: int) -> tuple[nn.Module, nn.Module]:
        """Return what weights are loaded into, and the first layers of a network of the user's own."""
        about, schema = self.training.about, self.attacked_schema
        if about.topology == "columns":
            copies, answered = own_bottom(factory, schema, 1, width, [0])
            if answered != width:
                raise BadInputError(
                    f"the bottom model {factory.reference!r} returns {answered} features where the transcript has "
                    f"{width}; name the network that was trained."
                )
            return copies.networks[0], copies
        parts = PARTS[about.topology][: 2 if about.behind_hop else 1]
        client, further = own_whole(factory, schema, parts, outputs_of(schema.target), width, 0, about.options, width)
        if not further:
            return client.networks[0], client
        return nn.Sequential(client.networks[0], *further), nn.Sequential(client, Copies(further))

    def _usual_layers(self, width: int) -> tuple[nn.Module, nn.Module]:
        """Return what weights are loaded into, and the first layers of the described network."""
        about = self.training.about
        hidden = _units(about, "hidden" if about.whole else "bottom")
        if not about.behind_hop:
            layers = Stack((self.attacked_schema.width, *hidden, width), [0])
            return layers, layers
        hop, cut = _units(about, "hop"), about.options.get("cut")
        if not hop or hop[-1] != width or not isinstance(cut, int) or cut < 1:
            raise BadInputError(
                f"what the hop sends on has {width} entries, but the transcript's network is described by "
                f"hop={list(hop)} and cut={cut!r}; give the units of the hop's layers, and the number of activations "
                "of the client."
            )
        network = WholeClientModel.of(self.attacked_schema, 0, hidden, cut, (), "multi_hop", hop)
        return nn.Sequential(network.client, network.middle), network.behind_hop

    def _messages(self, name: str, places: Tensor) -> Tensor:
        """Return one kind of the newest messages of some records."""
        return self.training.gathered(name, [self.newest[place] for place in places.tolist()])


def _units(about: TranscriptDescription, name: str) -> tuple[int, ...]:
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
