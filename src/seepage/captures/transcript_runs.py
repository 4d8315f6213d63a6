"""A transcript as an exposure: the tables beside it, guesses of labels, attacks on activations or features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage import registry
from seepage.assessment import Measurement
from seepage.assessment.labels import measure_labels
from seepage.attacks.vertical import inversion_in_words
from seepage.captures.transcripts import RecordedTraining, TranscriptDescription, read_cells
from seepage.errors import BadInputError
from seepage.models.own import OwnFactory, find_own
from seepage.models.own_parts import own_bottom, own_whole
from seepage.models.split import outputs_of, usual_split_head
from seepage.models.vertical import ActiveModel, Copies, Stack
from seepage.models.weights import load_weights
from seepage.protocols.whole_client import PARTS, WholeClientModel
from seepage.registry import Need
from seepage.seeds import stream
from seepage.settings.guessing import AttackedSecret, entry_in, measure
from seepage.settings.outcomes import FEATURE_SCALES, features_outcome
from seepage.settings.part import Part
from seepage.settings.setting import About, Exposure, Outcome, PlannedPart, Progress, Scale
from seepage.settings.units import joined
from seepage.sources import is_own
from seepage.tabular.partition import Partition
from seepage.tabular.reading import open_table
from seepage.tabular.schema import Column, Schema
from seepage.tabular.statistics import Statistics, partial_statistics
from seepage.tabular.table import Table, frame_of
from seepage.wire.labels import LabelGuess, LabelKnowledge, LogitsView, ReturnedView
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

# Figures of an attack's own answers; it has them without the truth, and of all records.
OWN_FIGURES = frozenset({"replayed", "likely", "ties", "certified_cells", "still_possible"})
# Figures that say nothing of a transcript's attack.
NO_MEANING = frozenset({"calibration", "coverage", "failed", *OWN_FIGURES})


class TranscriptTables:
    """A transcript with the tables beside it: public rows, records that the attacker knows, and the truth.

    ``known_labels``, ``leaked`` and ``truth`` are positions of records and their cells (the truth's with the label);
    ``places`` is the position of each record by its id.
    """

    def __init__(
        self,
        training: RecordedTraining,
        data: Path | None,
        granted: Path | None,
        truth: Path | None,
        separator: str,
        seed: int,
    ) -> None:
        self.training, self.schema, self.separator, self.seed = training, training.schema, separator, seed
        schema, private = self.schema, training.private_columns
        self.public = None if data is None else Table.read(data, schema, separator, missing=None)
        self.ids = training.ids
        self.places = {identifier: place for place, identifier in enumerate(self.ids)}
        self.truth = None if truth is None else self._table(truth, "the truth", (*private, schema.target))
        self.known_labels: tuple[Tensor, Tensor] | None = None
        self.leaked: tuple[Tensor, Tensor] | None = None
        cells = {} if granted is None else self._granted_cells(granted)
        self.statistics = partial_statistics(schema, cells) if self.public is None else Statistics.of(self.public)
        names = [column.name for column in (*private, schema.target)]
        self.assumed = tuple(name for name in names if self.public is None and name not in cells)

    @property
    def origin(self) -> str:
        """Origin of the statistics, in words."""
        if self.public is not None:
            return "marginals of the public rows"
        assumed = f"all values likely of {', '.join(self.assumed)}"
        if self.known_labels is None and self.leaked is None:
            return f"assumed: {assumed}"
        return "marginals of the known records" + (f"; assumed: {assumed}" if self.assumed else "")

    def true_cells(self, places: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return indices of the given records with a known truth, and their true cells; None without any."""
        if self.truth is None:
            return None
        at, cells = _among(self.truth, places)
        return (at, cells) if len(at) else None

    def own_cells(self, places: Sequence[int]) -> Tensor:
        """Return the attacker's own cells of some records, and labels where it gave them; zeros without own columns."""
        if self.training.own is None:
            return torch.zeros(len(places), len(self.training.public), dtype=torch.float64)
        rows, cells, _ = self.training.own
        return cells[[rows[self.ids[place]] for place in places]]

    def _table(self, path: Path, what: str, columns: Sequence[Column]) -> tuple[Tensor, Tensor]:
        """Return positions of the transcript's records in a table, and their cells."""
        rows, cells = read_cells(path, columns, self.training.about.id, what, self.separator)
        there = [(place, rows[identifier]) for identifier, place in self.places.items() if identifier in rows]
        if not there:
            raise BadInputError(
                f"{what}, {str(path)!r}, and the transcript have no record in common: ids there are such as "
                f"{next(iter(rows))!r}, in the transcript such as {self.ids[0]!r}."
            )
        places, at = map(list, zip(*there, strict=True))
        return torch.tensor(places), cells[at]

    def _granted_cells(self, granted: Path) -> dict[str, Tensor]:
        """Read known labels and known private cells; return the cells by column."""
        names, target, what = open_table(granted, self.separator).names, self.schema.target, "the known records"
        private = self.training.private_columns
        lacking = [column.name for column in private if column.name not in names]
        if target.name not in names and lacking:
            raise BadInputError(
                f"{what}, {str(granted)!r}, have neither the label {target.name!r} nor all private columns (they "
                f"lack {', '.join(map(repr, lacking))}); give one of the two."
            )
        granted_cells: dict[str, Tensor] = {}
        if target.name in names:
            places, cells = self._table(granted, what, [target])
            self.known_labels = places, cells[:, 0]
            granted_cells[target.name] = cells[:, 0]
        if not lacking:
            self.leaked = self._table(granted, what, private)
            columns = zip(private, self.leaked[1].unbind(1), strict=True)
            granted_cells |= {column.name: cells for column, cells in columns}
        return granted_cells

    def labels_of(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return indices of the given records whose labels the attacker knows, and these labels."""
        if self.known_labels is None:
            return torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.float64)
        return _among(self.known_labels, places)


class TranscriptExposure(Exposure, ABC):
    """A transcript as the attacker sees it, as far as ``training`` says.

    ``history`` has pairs of round index and row in that round, the oldest first, for the position of each record.
    Attacks in ``further`` are tried beside the default ones, where none is named. ``labels_too`` is whether attacks on
    the columns answer the label as well.
    """

    scales: ClassVar[Mapping[str, Scale]]
    labels_too: ClassVar[bool] = False

    def __init__(self, tables: TranscriptTables, training: RecordedTraining | None = None) -> None:
        self.tables, self.training = tables, training or tables.training
        self.setting = self.training.about.setting
        self.reveals: tuple[type, ...] = ()
        self.grants: set[Need] = set() if tables.known_labels is None else {"labels"}
        self.notes, self.limits, self.doubts = list[str](), list[str](), list[str]()
        self.further, self.answers = list[Part](), dict[str, pd.DataFrame]()
        self.about = About("transcript", self.training.about.topology, "", scales=self.scales)
        history: dict[int, list[tuple[int, int]]] = {}
        for k, messages in enumerate(self.training.rounds):
            for row, identifier in enumerate(messages.ids):
                history.setdefault(tables.places[identifier], []).append((k, row))
        self.history = dict(sorted(history.items()))

    def measure(self, part: PlannedPart, progress: Progress | None = None) -> Outcome:
        """Run an attack or a baseline, and score its guess where the truth is known."""
        secret = self.columns(part) if part.column is None else self.label(part)
        return joined([measure(part, secret, progress)], self.about)

    @abstractmethod
    def baselines(self) -> Sequence[Part]:
        """Return the baselines of columns that the transcript has the knowledge for."""

    @abstractmethod
    def columns(self, part: PlannedPart) -> AttackedSecret[Any]:
        """Return the private columns as a secret, a guess of which is kept."""

    @abstractmethod
    def returned(self) -> tuple[Tensor, ReturnedView]:
        """Return the positions of the records whose gradients came back, and these gradients as a view."""

    def label(self, part: PlannedPart) -> AttackedSecret[LabelGuess]:
        """Return the labels alone as a secret, a guess of which is kept."""
        tables, target = self.tables, self.tables.schema.target
        places, view = self.returned()
        at, labels = tables.labels_of(places)
        knowledge = LabelKnowledge(target, tables.statistics.target, at[None], labels[None])
        seeds = [stream(tables.seed, 0, "starts")]
        alone = Schema.model_construct(columns=(target,), target=target)

        def score(guess: LabelGuess) -> Outcome:
            self.keep(part, places, frame_of(alone, guess.labels[0][:, None]))
            return Outcome(self.right_labels(places, guess))

        number, shape = max(1, len(places)), {"training": 1, "record": len(places)}
        return AttackedSecret(self.setting, LabelGuess, lambda: (view, knowledge), seeds, score, number, shape)

    def right_labels(self, places: Tensor, guess: LabelGuess) -> list[Measurement]:
        """Return the figures of guessed labels on records with a known truth and a label that the attacker lacks."""
        truth = self.tables.true_cells(places)
        if truth is None:
            return []
        unknown = ~torch.isin(truth[0], self.tables.labels_of(places)[0])
        at, true = truth[0][unknown], truth[1][unknown, -1]
        if not len(at):
            return []
        some = LabelGuess(guess.labels[:, at], None if guess.chances is None else guess.chances[:, at])
        return meaningful(measure_labels(self.tables.schema.target, true[None], some))

    def keep(self, part: PlannedPart, places: Tensor, answers: pd.DataFrame) -> None:
        """Keep an attack's answers with the ids of the records."""
        if part.kind == "attack":
            ids = [self.tables.ids[place] for place in places.tolist()]
            named = {name: list(values) for name, values in answers.items()}
            self.answers[part.label] = pd.DataFrame({"attack": part.label, "id": ids, **named})


class UnknownPart(nn.Module):
    """A part of the network that the transcript does not hold; attacks that need it cannot be tried."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def forward(self, cells: Tensor) -> Tensor:
        """Refuse to compute."""
        raise BadInputError(f"it needs {self.what}.")


def meaningful(figures: Sequence[Measurement]) -> list[Measurement]:
    """Return the figures that have a meaning for a transcript."""
    return [figure for figure in figures if figure.metric not in NO_MEANING]


def _among(table: tuple[Tensor, Tensor], places: Tensor) -> tuple[Tensor, Tensor]:
    """Return indices of the given records that a table of positions and rows holds, and their rows in the table."""
    place_of = {place: k for k, place in enumerate(places.tolist())}
    there = [(place_of[place], k) for k, place in enumerate(table[0].tolist()) if place in place_of]
    at, chosen = torch.tensor(there, dtype=torch.long).reshape(-1, 2).unbind(1)
    return at, table[1][chosen]


class ActivationExposure(TranscriptExposure):
    """The messages of a party's first layers, and the gradients that came back.

    The active party attacks columns, and the passive party labels. A client that holds all columns is attacked by a
    server or a hop without columns. ``network`` names the attacked party's, in place of the transcript's.
    """

    scales = FEATURE_SCALES

    def __init__(self, tables: TranscriptTables, network: str | None) -> None:
        super().__init__(tables)
        training, about = self.training, self.training.about
        self.attacked_schema = training.schema.model_copy(update={"columns": training.private_columns})
        self.newest = {place: seen[-1] for place, seen in self.history.items()}
        if any(len(seen) > 1 for seen in self.history.values()):
            self.notes.append("of each record the newest message is attacked")
        leaked_places = set() if tables.leaked is None else set(tables.leaked[0].tolist())
        self.places = torch.tensor([place for place in self.newest if place not in leaked_places])
        if not len(self.places):
            raise BadInputError("all records of the transcript are known, so that none is left to attack; know fewer.")
        bottom = self._bottom(network)
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
            leaked = Leaked(true[None], self._messages("activations", places).float()[None], self._own(places)[None])
            self.knowledge = replace(self.knowledge, leaked=leaked)
        received = self._messages("activations", self.places).float()[None]
        self.view = SmashedView(received) if about.whole else self._features(received)
        # What a server without columns sends on, or the features of a party: what gradients came back for.
        self.crossed = ("outputs", "output_gradients") if about.whole else ("activations", "gradients")
        self.returned_kind = ReturnedView if about.whole or about.top else LogitsView
        back = all(getattr(training.rounds[k], self.crossed[1]) is not None for k, _ in self.newest.values())
        self.reveals = (type(self.view), *((self.returned_kind,) if back else ()))

    def _features(self, received: Tensor) -> FeatureView:
        """Return the active party's view of the attacked records, and complete its knowledge."""
        tables, training = self.tables, self.training
        partition = Partition(tables.schema, (training.public, training.private))
        unknown = UnknownPart("the active party's top model, which a transcript of vertical learning does not hold")
        active = ActiveModel(partition, unknown, unknown, training.about.head or usual_split_head(tables.schema.target))
        if tables.public is not None and training.own is not None:
            self.grants.add("auxiliary")
            rows = tables.public
            cells, own = rows.cells[None][..., list(training.private)], rows.cells[None][..., list(training.public)]
            auxiliary = FeatureAuxiliary(cells, own, rows.labels[None], (None, None))
            self.knowledge = replace(self.knowledge, auxiliary=auxiliary)
        labels = None
        if training.own is not None and training.own[2]:
            labels = tables.own_cells(self.places.tolist())[None, :, -1]
        silent = received.new_zeros(1, received.shape[1], 0)
        return FeatureView(active, 1, self._own(self.places)[None], (silent, received), labels)

    def _own(self, places: Tensor) -> Float[Tensor, "record own"]:
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
        seen = (self.view, self.knowledge.only(entry_in(self.setting, part).needs))
        seeds, records = [stream(self.tables.seed, 0, "attack") % 2**62], len(self.places)
        shape = {"training": 1, "record": records, "column": len(self.attacked_schema.columns)}
        score = partial(self._scored, part)
        return AttackedSecret(self.setting, FeatureGuess, lambda: seen, seeds, score, records, shape)

    def _scored(self, part: PlannedPart, guess: FeatureGuess) -> Outcome:
        """Keep a guess of the columns, and return its figures on the records with a known truth."""
        if bool(guess.cells.isnan().any()):
            raise BadInputError("it failed: its numbers are not finite")
        self.keep(part, self.places, frame_of(self.attacked_schema, guess.cells[0]))
        if guess.choice is not None:
            self.notes.append(f"{part.label} answers by {guess.choice[0]}")
        truth = self.tables.true_cells(self.places)
        if truth is None:
            return Outcome([])
        at, true = truth
        seen = FeatureTranscript(self.view.of(at), true[None, :, :-1], true[None, :, -1])
        scored = features_outcome(self.knowledge, seen, FeatureGuess(guess.cells[:, at]), False)
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
