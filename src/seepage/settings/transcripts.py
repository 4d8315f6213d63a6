"""A transcript as an exposure: attacks that can be tried, guesses of labels, the negative control, and findings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import torch
from torch import Tensor, nn

from seepage import registry
from seepage.assessment import Measurement, ResultRow
from seepage.assessment.alignment import Alignment, alignment
from seepage.assessment.labels import measure_labels
from seepage.captures.transcripts import (
    TRANSCRIPT,
    RecordedTraining,
    read_about,
    read_transcript,
)
from seepage.digests import Json
from seepage.errors import BadInputError
from seepage.registry import Attack, Entry, Need
from seepage.seeds import stream
from seepage.settings.captured import (
    RECONSTRUCTION,
    CapturedExposure,
    Reader,
    marginals_of,
)
from seepage.settings.catalogue import deployment_of, view_in_words
from seepage.settings.catalogue import setting as setting_of
from seepage.settings.findings import Findings, FindingsSection, FindingsTable
from seepage.settings.guessing import AttackedSecret, entry_in, measure
from seepage.settings.labels import guesses_labels, with_label_columns
from seepage.settings.part import Part, entry_of
from seepage.settings.setting import About, Outcome, PlannedPart, Progress, Scale
from seepage.settings.spec import Spec
from seepage.settings.threat_model import Deployment
from seepage.settings.transcript_tables import TranscriptSpec, TranscriptTables
from seepage.settings.transcript_words import (
    OWN_ANSWERS,
    alignment_section,
    certified_words,
    left_words,
    own_answers,
    reasons_section,
)
from seepage.settings.units import joined
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Statistics, partial_statistics
from seepage.tabular.table import frame_of_columns
from seepage.text import clean, how_many
from seepage.wire.labels import LabelGuess, LabelKnowledge, ReturnedView

# Figures of an attack's own answers; it has them without the truth, and of all records.
OWN_FIGURES = frozenset({"replayed", "likely", "ties", "certified_cells", "still_possible"})
# Figures that say nothing of a transcript's attack.
NO_MEANING = frozenset({"calibration", "coverage", "failed", *OWN_FIGURES})
# What has to be given for an attack that lacks it.
_LACKS: dict[Need, str] = {
    "auxiliary": "it needs public rows of the same kind; give --data TABLE",
    "leaked": "it needs records whose private cells the attacker knows; give --known TABLE",
    "labels": "it needs records whose label the attacker knows; give --known TABLE",
    "weights": "it needs the client's weights; put client-N.safetensors into the folder",
    "bottom": "it needs the attacked party's first layers, or bottom model; put client-N.safetensors into the folder",
    "queries": "it needs a live party that answers queries, which no transcript is",
    "gradients": "it needs gradients of the passive party's own parameters, which cross no wire",
    "steering": "it needs a training that it changes, which no transcript is",
}
# Needs that no table or file beside a transcript meets.
_OF_LIVE: tuple[Need, ...] = ("queries", "gradients", "steering")
# Records among which messages are exchanged at most.
_MOST_EXCHANGED = 1_000
_ACTIVE = "it is active: it needs a training that it changes, which no transcript is"


class TranscriptExposure(CapturedExposure):
    """A transcript as the attacker sees it, as far as ``training`` says.

    ``history`` has pairs of round index and row in that round, the oldest first, for the position of each record.
    Attacks in ``further`` are tried beside the default ones, where none is named. ``labels_too`` is whether attacks on
    the columns answer the label as well. ``limits`` are of its network, ``doubts`` of answers that replay little.
    """

    scales: ClassVar[Mapping[str, Scale]]
    labels_too: ClassVar[bool] = False
    all_or_none = False

    def __init__(self, tables: TranscriptTables, training: RecordedTraining | None = None) -> None:
        self.tables, self.training = tables, training or tables.training
        self.setting, self.schema = self.training.about.setting, tables.schema
        self.stated = self.training.about.defense
        self.reveals: tuple[type, ...] = ()
        self.grants: set[Need] = set() if tables.known_labels is None else {"labels"}
        self.notes, self.limits, self.doubts = list[str](), list[str](), list[str]()
        self.further, self.answers = list[Part](), dict[str, pd.DataFrame]()
        self.planned, self.named, about = tuple[PlannedPart, ...](), False, self.training.about
        self.about = About("transcript", about.topology, "", scales=self.scales)
        granted: dict[str, Json] = {
            "statistics": tables.origin,
            "auxiliary": 0 if tables.public is None else len(tables.public),
            "labels": 0 if tables.known_labels is None else len(tables.known_labels[0]),
            "leaked": 0 if tables.leaked is None else len(tables.leaked[0]),
            "weights": len(tables.training.weights),
            "own columns": tables.training.own_columns is not None,
            "defense": {name: dict(options) for name, options in (about.defense or {}).items()},
        }
        self.granted = granted
        history: dict[int, list[tuple[int, int]]] = {}
        for k, messages in enumerate(self.training.rounds):
            for row, identifier in enumerate(messages.ids):
                history.setdefault(tables.places[identifier], []).append((k, row))
        self.history = dict(sorted(history.items()))

    @property
    def deployed(self) -> Deployment:
        """What crossed the wire, and what was given beside it."""
        topology = self.training.about.topology
        protocol = self.setting if topology == "columns" else topology
        return Deployment(self.setting, protocol, self.reveals, frozenset(self.grants))

    def parts(self, named: Sequence[Part]) -> list[PlannedPart]:
        """Return the attacks that are tried, and where the truth is known the baselines that go with them."""
        self.named = bool(named)
        parts = [PlannedPart(part, "attack") for part in named or self._usual_attacks()]
        if self.tables.truth is not None:
            back = any(issubclass(view, ReturnedView) for view in self.reveals)
            beside = [*self.baselines(), *([Part(name="label_mode")] if back else [])]
            parts = [*(PlannedPart(part, "baseline") for part in beside), *parts]
        self.planned = tuple(with_label_columns(parts, self.setting, self.schema.target.name))
        self.about = self._about_attacks()
        return list(self.planned)

    def _about_attacks(self) -> About:
        """Return the description of the transcript and of the attacker."""
        tables, described, setting = self.tables, self.training.about, self.setting
        labels = self.labels_too or any(part.column is not None for part in self.planned if part.kind == "attack")
        attacker = "The active party" if setting == "vertical" else f"The {described.attacker}"
        model = tables.spec.model or described.model
        return replace(
            self.about,
            model=model or "not named",
            lead="What a transcript gives away of the columns and labels that its parties keep.",
            attacker=attacker,
            message="what crossed the wire",
            threat_model=(
                f"The attacker is {attacker.lower()}, honest but curious. It has what crossed the wire in "
                f"{how_many(len(tables.training.rounds), 'round')} of {setting} learning, with "
                f"{how_many(len(tables.ids), 'record')}. "
                f"Private: {', '.join(described.private)}.",
                f"Its marginals: {tables.origin}.",
            ),
            limits=tuple(self.limits),
            rows=len(tables.ids),
            label=tables.schema.target.name if labels else None,
            label_attacker="The passive party" if setting == "vertical" else None,
            columns=described.private,
            settings={"seed": tables.seed, "model": model},
        )

    def _usual_attacks(self) -> list[Part]:
        """Return the attacks that are tried where nobody names any, those of the setting's audits first."""
        registered = registry.attacks.of(self.setting)
        usual = [*self._spec_of_topology().attacks, *self.further]
        tried = [entry for part in usual if self._lacks(entry := entry_of(registered, part)) is None]
        labels = any(self.labels_too or guesses_labels(entry) for entry in tried)
        columns = any(not guesses_labels(entry) for entry in tried)
        names = {part.name for part in usual}
        others = [entry for entry in registered.entries() if entry.name not in names]
        others = [entry for entry in others if not (labels if guesses_labels(entry) else columns)]
        return [*usual, *(Part(name=entry.name) for entry in others if self._lacks(entry) is None)]

    def _spec_of_topology(self) -> Spec:
        """Return the specification of an audit in the transcript's topology, with its defaults."""
        about, spec = self.training.about, setting_of(self.setting).spec
        described = {"topology": about.topology, "attacker": about.attacker}
        return spec.of(**{name: value for name, value in described.items() if name in spec.model_fields})

    def lacks(self, part: PlannedPart) -> str | None:
        """Return why an attack cannot be tried; None where it can."""
        return self._lacks(entry_in(self.setting, part))

    def _lacks(self, entry: Entry[Attack]) -> str | None:
        if entry.traits.active:
            return _ACTIVE
        target = self.schema.target
        if entry.traits.classes and not isinstance(target, Discrete):
            return f"it tells classes apart, and the target {target.name!r} is a number"
        if entry.sees and not any(issubclass(shown, taken) for taken in entry.sees for shown in self.reveals):
            views = " or ".join(view_in_words(view.__name__) for view in entry.sees)
            topology, usual = self.training.about.topology, deployment_of(self._spec_of_topology()).reveals
            # What parties of different columns send depends on more than the topology.
            if topology != "columns" and not any(issubclass(shown, t) for t in entry.sees for shown in usual):
                return f"it takes {views}; the topology {topology!r} has no such view"
            return f"it takes {views}, which this transcript does not show"
        live: Need | None = next((need for need in _OF_LIVE if need in entry.needs), None)
        if live is not None:
            return _LACKS[live]
        if "auxiliary" in entry.needs and "auxiliary" not in self.grants and self.tables.public is not None:
            return "it needs the attacker's own columns (own.csv) beside public rows, and this transcript has none"
        return next((_LACKS.get(need, f"it needs {need}") for need in entry.needs if need not in self.grants), None)

    def findings(self, rows: Sequence[ResultRow], not_tried: Mapping[str, str]) -> Findings:
        """Return the answers of each attack, what they say of themselves, and what was not tried."""
        tables, training, notes = self.tables, self.tables.training, list(dict.fromkeys(self.notes))
        tried = [part for part in self.planned if part.kind == "attack" and part.label in self.answers]
        attacks = [
            {
                "attack": part.label,
                "sought": "columns" if part.column is None else "label",
                "records": len(self.answers[part.label]),
            }
            for part in tried
        ]
        answers = {part.label: {} for part in tried}
        for row in rows:
            if row.attack in answers and row.column is None and row.metric in OWN_ANSWERS:
                answers[row.attack][row.metric] = row.mean
        left_out, cannot = self._attacks_not_planned()
        reasons = {**not_tried, **cannot}
        aligned = self._alignment()
        figures = {
            "setting": self.setting,
            "records": len(tables.ids),
            "rounds": len(training.rounds),
            "private": list(training.about.private),
            "knowledge": self.granted,
            "notes": notes,
            "scored": None if tables.truth is None else len(tables.truth[0]),
            "alignment": None if aligned is None else asdict(aligned),
            "attacks": attacks,
            "left_out": left_out,
            "not_tried": [{"attack": name, "reason": reason} for name, reason in reasons.items()],
        }
        table = FindingsTable(
            "What each attack says of its own answers",
            (
                ("Attack", "attack", "text"),
                ("Guesses", "sought", "text"),
                ("Records", "records", "count"),
                ("Of its answers", "shown", "text"),
            ),
            tuple({**attack, "shown": own_answers(answers[str(attack["attack"])])} for attack in attacks),
            sparse=True,
        )
        sentences = [
            f"{how_many(len(tables.ids), 'record')} in {how_many(len(training.rounds), 'round')} of {self.setting} "
            f"learning, private: {', '.join(training.about.private)}. Attacks that ran: "
            f"{', '.join(answers) or 'none'}.",
            *self.doubts,
            *certified_words(answers, rows),
            *self.limits,
            *left_words(self.setting, left_out, reasons),
        ]
        sections = [
            FindingsSection(
                "What the transcript gives away", tuple(sentences), (*notes, *self._scoring_notes()), (table,)
            ),
            *([] if aligned is None else [alignment_section(aligned)]),
            *([reasons_section(reasons)] if reasons else []),
        ]
        frames = list(self.answers.values())
        whole = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"attack": [], "id": []})
        return Findings(tuple(sections), figures, {RECONSTRUCTION: whole})

    def _attacks_not_planned(self) -> tuple[list[str], dict[str, str]]:
        """Return the attacks that could be tried and were not asked for, and why each of the others cannot be."""
        registered, planned = registry.attacks.of(self.setting), {part.part.name for part in self.planned}
        others = [] if self.named else [name for name in registered.names() if name not in planned]
        reasons = {name: self._lacks(registered[name]) for name in others}
        cannot = {name: reason for name, reason in reasons.items() if reason is not None}
        return [name for name in others if name not in cannot], cannot

    def _scoring_notes(self) -> list[str]:
        """Return what figures are of, where the truth is known."""
        tables, private = self.tables, self.training.about.private
        if tables.truth is None:
            return []
        points = [f"figures are of the {len(tables.truth[0]):,} records with a known truth"]
        if tables.assumed:
            of = f" of {clean(', '.join(tables.assumed), 200)}" if len(tables.assumed) <= len(private) else ""
            points.insert(
                0,
                f"the best baseline, which sees no message and holds no marginals{of}, takes all values as equally "
                "likely",
            )
        return points

    def _alignment(self) -> Alignment | None:
        """Return what the attacker learnt by alignment; None where it gave no table of its own."""
        training = self.tables.training
        if training.own_columns is None:
            return None
        rows, cells, labelled = training.own_columns
        columns = [training.schema.columns[i] for i in training.public] + [training.schema.target] * labelled
        shared = torch.zeros(len(cells), dtype=torch.bool)
        shared[[rows[identifier] for identifier in training.ids]] = True
        return alignment(cells, columns, shared, self.tables.seed)

    def swapped(self) -> TranscriptExposure:
        """Return the negative control: each scored record keeps its place and own cells, with another one's messages.

        Records whose label or cells the attacker knows keep theirs, and are not scored; others are left out.

        Raises:
            BadInputError: fewer than two scored records have messages to exchange.
        """
        truth, tables = self.tables.truth, copy(self.tables)
        granted = [known[0] for known in (tables.known_labels, tables.leaked) if known is not None]
        known = {place for places in granted for place in places.tolist()}
        scored = [] if truth is None else [place for place in truth[0].tolist() if place not in known][:_MOST_EXCHANGED]
        if truth is None or len(scored) < 2:
            raise BadInputError(
                "Messages are exchanged among records with a known truth whose label the attacker does not know, of "
                f"which there are {len(scored)}."
            )
        shuffled = torch.randperm(len(scored), generator=torch.Generator().manual_seed(tables.seed))
        order = [scored[k] for k in shuffled.tolist()]
        sender = dict(zip(order, [*order[1:], order[0]], strict=True)) | {place: place for place in known}
        is_scored = torch.isin(truth[0], torch.tensor(scored))
        tables.truth = truth[0][is_scored], truth[1][is_scored]
        exchanged = copy(self)
        exchanged.tables, exchanged.answers, exchanged.notes, exchanged.doubts = tables, {}, [], []
        columns = zip((*self.training.about.private, self.schema.target.name), tables.truth[1].unbind(1), strict=True)
        exchanged.exchanged = partial_statistics(self.schema, dict(columns))
        exchanged.exchange({place: sender[place] for place in self.history if place in sender})
        return exchanged

    def exchange(self, sender: Mapping[int, int]) -> None:
        """Give each record the messages of its sender; records without one are left out."""
        self.history = {place: self.history[other] for place, other in sender.items()}

    def statistics_of(self, part: PlannedPart) -> Statistics:
        """Return the marginals that a part is given."""
        return marginals_of(part, self.exchanged) or self.tables.statistics

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
        positions, labels = tables.labels_of(places)
        knowledge = LabelKnowledge(target, self.statistics_of(part).target, positions[None], labels[None])
        seeds = [stream(tables.seed, 0, "starts")]

        def score(guess: LabelGuess) -> Outcome:
            self.keep(part, places, frame_of_columns([target], guess.labels[0][:, None]))
            return Outcome(self.right_labels(places, guess))

        number, shape = max(1, len(places)), {"training": 1, "record": len(places)}
        return AttackedSecret(self.setting, LabelGuess, lambda: (view, knowledge), seeds, score, number, shape)

    def right_labels(self, places: Tensor, guess: LabelGuess) -> list[Measurement]:
        """Return the figures of guessed labels on records with a known truth and a label that the attacker lacks."""
        truth = self.tables.true_cells(places)
        if truth is None:
            return []
        unknown = ~torch.isin(truth[0], self.tables.labels_of(places)[0])
        positions, true = truth[0][unknown], truth[1][unknown, -1]
        if not len(positions):
            return []
        scored = LabelGuess(guess.labels[:, positions], None if guess.chances is None else guess.chances[:, positions])
        return meaningful(measure_labels(self.tables.schema.target, true[None], scored))

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


def transcript_reader(spec: type[TranscriptSpec], expose: Callable[[TranscriptTables], TranscriptExposure]) -> Reader:
    """Return the reader of a setting's transcripts."""

    def training_at(path: Path, schema: Path | None) -> RecordedTraining:
        return read_transcript(path, None if schema is None else Schema.load(schema))

    return Reader(
        "a transcript",
        lambda path: (path / TRANSCRIPT).exists() and read_about(path / TRANSCRIPT).setting == spec.setting,
        spec,
        lambda path, given: expose(TranscriptTables(training_at(path, given.schema_file), given)),
        training_at,
    )
