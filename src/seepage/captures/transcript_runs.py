"""A transcript of split or of vertical training as an exposure: the tables beside it, and guesses of labels."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import torch
from torch import Tensor, nn

from seepage import registry
from seepage.assessment import Measurement
from seepage.assessment.labels import measure_labels
from seepage.captures.transcripts import RecordedTraining, RoundMessages, read_cells
from seepage.errors import BadInputError
from seepage.needs import Need
from seepage.registry import Registry
from seepage.seeds import stream
from seepage.settings.part import Part, make_part
from seepage.settings.setting import About, Exposure, Outcome, PlannedPart, Progress, Scale
from seepage.settings.units import joined
from seepage.tabular.assumed import partial_statistics
from seepage.tabular.reading import open_table
from seepage.tabular.schema import Column, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table, frame_of
from seepage.wire.labels import LabelGuess, LabelKnowledge, ReturnedView

# Figures of an attack's own answers; it has them without the truth, and of all records.
OWN_FIGURES = frozenset({"replayed", "likely", "ties", "certified_cells", "still_possible"})
# Figures that say nothing of a transcript's attack.
NO_MEANING = frozenset({"calibration", "coverage", "failed", *OWN_FIGURES})


class TranscriptTables:
    """A transcript with the tables beside it: public rows, records that the attacker knows, and the truth.

    Args:
        data: public rows of the same kind.

    Attributes:
        statistics: marginals of the public rows, or without any of the known records; of other columns all values are
            likely.
        public: public rows; None without.
        places: position of each record by its id.
        known_labels, leaked: positions of records with a known label, or with known private cells, and these; None
            without.
        truth: positions of records with a known truth, with true private cells and label; None without.
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
        schema = self.schema
        self.public = None if data is None else Table.read(data, schema, separator, missing=None)
        self.places = {identifier: place for place, identifier in enumerate(training.ids)}
        self._secret = [schema.columns[i] for i in training.private]
        self.truth = self._table(truth, "the truth", (*self._secret, schema.target))
        self.known_labels, self.leaked = self._granted_records(granted)
        cells = self._leaked_cells()
        self.statistics = partial_statistics(schema, cells) if self.public is None else Statistics.of(self.public)
        names = [column.name for column in (*self._secret, schema.target)]
        self.assumed = tuple(name for name in names if self.public is None and name not in cells)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all records."""
        return self.training.ids

    @property
    def origin(self) -> str:
        """Origin of the statistics, in words."""
        if self.public is not None:
            return "marginals of the public rows"
        assumed = f"all values likely of {', '.join(self.assumed)}"
        if self.known_labels is None and self.leaked is None:
            return f"assumed: {assumed}"
        return "marginals of the known records" + (f"; assumed: {assumed}" if self.assumed else "")

    def _leaked_cells(self) -> dict[str, Tensor]:
        """Return the cells of known records, by column."""
        leaked_cells = {}
        if self.leaked is not None:
            leaked_cells |= {
                column.name: cells for column, cells in zip(self._secret, self.leaked[1].unbind(1), strict=True)
            }
        if self.known_labels is not None:
            leaked_cells[self.schema.target.name] = self.known_labels[1]
        return leaked_cells

    def true_cells(self, places: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return indices of the given records with a known truth, and their true cells; None without any."""
        if self.truth is None:
            return None
        at, cells = _among(self.truth, places)
        return (at, cells) if len(at) else None

    def own_cells(self, places: Sequence[int]) -> Tensor | None:
        """Return the attacker's own cells of some records, and labels where it gave them; None without own columns."""
        if self.training.own is None:
            return None
        rows, cells, _ = self.training.own
        return cells[[rows[self.ids[place]] for place in places]]

    def _table(self, path: Path | None, what: str, columns: Sequence[Column]) -> tuple[Tensor, Tensor] | None:
        """Return positions of the transcript's records in a table, and their cells."""
        if path is None:
            return None
        rows, cells = read_cells(path, columns, self.training.about.id, what, self.separator)
        there = [(place, rows[identifier]) for identifier, place in self.places.items() if identifier in rows]
        if not there:
            raise BadInputError(
                f"{what}, {str(path)!r}, and the transcript have no record in common: ids there are such as "
                f"{next(iter(rows))!r}, in the transcript such as {self.ids[0]!r}."
            )
        places, at = map(list, zip(*there, strict=True))
        return torch.tensor(places), cells[at]

    def _granted_records(
        self, granted: Path | None
    ) -> tuple[tuple[Tensor, Tensor] | None, tuple[Tensor, Tensor] | None]:
        """Return known labels, and known private cells, each with the positions of their records."""
        if granted is None:
            return None, None
        names = open_table(granted, self.separator).names
        target, what = self.schema.target, "the known records"
        private = [column.name for column in self._secret]
        lacking = [name for name in private if name not in names]
        if target.name not in names and lacking:
            raise BadInputError(
                f"{what}, {str(granted)!r}, have neither the label {target.name!r} nor all private columns (they "
                f"lack {', '.join(map(repr, lacking))}); give one of the two."
            )
        labels = None if target.name not in names else self._table(granted, what, [target])
        leaked = None if lacking else self._table(granted, what, self._secret)
        return None if labels is None else (labels[0], labels[1][:, 0]), leaked

    def labels_of(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return indices of the given records whose labels the attacker knows, and these labels."""
        if self.known_labels is None:
            return torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.float64)
        return _among(self.known_labels, places)


class TranscriptExposure(Exposure, ABC):
    """A transcript as the attacker sees it.

    Attributes:
        limits: sentence for each part of the network that no attack solves exactly.
        further: attacks that are tried beside all registered ones, where none is named.
        answers: guessed cells of each record by the label of the attack, with the record's id.
    """

    setting: ClassVar[str]
    scales: ClassVar[Mapping[str, Scale]]

    def __init__(self, tables: TranscriptTables) -> None:
        self.tables = tables
        self.reveals: tuple[type, ...] = ()
        self.grants: set[Need] = set() if tables.known_labels is None else {"labels"}
        self.notes: list[str] = []
        self.limits: list[str] = []
        self.doubts: list[str] = []
        self.further: list[Part] = []
        self.answers: dict[str, pd.DataFrame] = {}
        self.about = About("transcript", tables.training.about.topology, "", scales=self.scales)

    def measure(self, part: PlannedPart, progress: Progress | None = None) -> Outcome:
        """Run an attack or a baseline, and score its guess where the truth is known."""
        registered = (registry.attacks if part.kind == "attack" else registry.baselines).of(self.setting)
        figures = self.columns(part, registered) if part.column is None else self.label(part, registered)
        return joined([figures], self.about)

    @abstractmethod
    def baselines(self) -> Sequence[Part]:
        """Return the baselines of columns that the transcript has the knowledge for."""

    @abstractmethod
    def columns(self, part: PlannedPart, registered: Registry[Any]) -> Outcome:
        """Guess the private columns, keep the guess and return its figures."""

    @abstractmethod
    def returned(self) -> tuple[Tensor, ReturnedView]:
        """Return the positions of the records whose gradients came back, and these gradients as a view."""

    def label(self, part: PlannedPart, registered: Registry[Any]) -> Outcome:
        """Guess labels alone, keep the guess and return its figures."""
        tables, target = self.tables, self.tables.schema.target
        places, view = self.returned()
        at, labels = tables.labels_of(places)
        knowledge = LabelKnowledge(target, tables.statistics.target, at[None], labels[None])
        attack, begun = make_part(registered, part.part), time.perf_counter()
        guess: LabelGuess = attack(view, knowledge, [stream(tables.seed, 0, "starts")])
        seconds = (time.perf_counter() - begun) / max(1, len(places))
        alone = Schema.model_construct(columns=(target,), target=target)
        self.keep(part, places, {target.name: frame_of(alone, guess.labels[0][:, None])[target.name]})
        return Outcome(self.right_labels(places, guess), seconds)

    def right_labels(self, places: Tensor, guess: LabelGuess) -> list[Measurement]:
        """Return the figures of guessed labels on records whose truth is known and whose label the attacker lacks.

        Args:
            places: positions of the records.
        """
        truth = self.tables.true_cells(places)
        if truth is None:
            return []
        open_ = ~torch.isin(truth[0], self.tables.labels_of(places)[0])
        at, true = truth[0][open_], truth[1][open_, -1]
        if not len(at):
            return []
        some = LabelGuess(guess.labels[:, at], None if guess.chances is None else guess.chances[:, at])
        return meaningful(measure_labels(self.tables.schema.target, true[None], some))

    def keep(self, part: PlannedPart, places: Tensor, columns: Mapping[str, Iterable[object]]) -> None:
        """Keep an attack's answers with the ids of the records."""
        if part.kind == "attack":
            ids = [self.tables.ids[place] for place in places.tolist()]
            named = {name: list(values) for name, values in columns.items()}
            self.answers[part.label] = pd.DataFrame({"attack": part.label, "id": ids, **named})


class UnknownPart(nn.Module):
    """A part of the network that the transcript does not hold; attacks that need it cannot be tried."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def forward(self, cells: Tensor) -> Tensor:
        """Refuse to compute."""
        raise BadInputError(f"it needs {self.what}.")


def history_of(rounds: Sequence[RoundMessages], places: Mapping[str, int]) -> dict[int, list[tuple[int, int]]]:
    """Return, for each record, the pairs of round index and row in that round, the oldest first."""
    history: dict[int, list[tuple[int, int]]] = {}
    for k, messages in enumerate(rounds):
        for row, identifier in enumerate(messages.ids):
            history.setdefault(places[identifier], []).append((k, row))
    return history


def meaningful(figures: Sequence[Measurement]) -> list[Measurement]:
    """Return the figures that have a meaning for a transcript."""
    return [figure for figure in figures if figure.metric not in NO_MEANING]


def gathered(rounds: Sequence[RoundMessages], name: str, exchange: Iterable[tuple[int, int]]) -> Tensor:
    """Return one tensor of the messages as rows, for pairs of round index and row in that round."""
    return torch.stack([getattr(rounds[k], name)[row] for k, row in exchange])


def _among(table: tuple[Tensor, Tensor], places: Tensor) -> tuple[Tensor, Tensor]:
    """Return indices of the given records that a table holds, and their rows in the table.

    Args:
        table: positions of the table's records in the transcript, and its rows.
        places: positions of the records in the transcript.
    """
    place_of = {place: k for k, place in enumerate(places.tolist())}
    there = [(place_of[place], k) for k, place in enumerate(table[0].tolist()) if place in place_of]
    at, chosen = torch.tensor(there, dtype=torch.long).reshape(-1, 2).unbind(1)
    return at, table[1][chosen]
