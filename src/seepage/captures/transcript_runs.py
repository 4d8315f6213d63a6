"""A transcript of split or of vertical training as an exposure: the tables beside it, and guesses of labels."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pandas as pd
import torch
from torch import Tensor, nn

from seepage import registry
from seepage.assessment import Measurement
from seepage.assessment.labels import measure_labels
from seepage.captures.transcripts import RecordedTraining, read_cells
from seepage.errors import BadInputError
from seepage.registry import Attack, Need, Registry
from seepage.seeds import stream
from seepage.settings.part import Part, make_part
from seepage.settings.setting import About, Exposure, Outcome, PlannedPart, Progress, Scale
from seepage.settings.units import joined
from seepage.tabular.reading import open_table
from seepage.tabular.schema import Column, Schema
from seepage.tabular.statistics import Statistics, partial_statistics
from seepage.tabular.table import Table, frame_of
from seepage.wire.labels import LabelGuess, LabelKnowledge, ReturnedView

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
    Attacks in ``further`` are tried beside all registered ones, where none is named.
    """

    scales: ClassVar[Mapping[str, Scale]]

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
        registered = (registry.attacks if part.kind == "attack" else registry.baselines).of(self.setting)
        figures = self.columns(part, registered) if part.column is None else self.label(part, registered)
        return joined([figures], self.about)

    @abstractmethod
    def baselines(self) -> Sequence[Part]:
        """Return the baselines of columns that the transcript has the knowledge for."""

    @abstractmethod
    def columns(self, part: PlannedPart, registered: Registry[Attack]) -> Outcome:
        """Guess the private columns, keep the guess and return its figures."""

    @abstractmethod
    def returned(self) -> tuple[Tensor, ReturnedView]:
        """Return the positions of the records whose gradients came back, and these gradients as a view."""

    def label(self, part: PlannedPart, registered: Registry[Attack]) -> Outcome:
        """Guess labels alone, keep the guess and return its figures."""
        tables, target = self.tables, self.tables.schema.target
        places, view = self.returned()
        at, labels = tables.labels_of(places)
        knowledge = LabelKnowledge(target, tables.statistics.target, at[None], labels[None])
        attack, begun = make_part(registered, part.part), time.perf_counter()
        guess: LabelGuess = attack(view, knowledge, [stream(tables.seed, 0, "starts")])
        seconds = (time.perf_counter() - begun) / max(1, len(places))
        alone = Schema.model_construct(columns=(target,), target=target)
        self.keep(part, places, frame_of(alone, guess.labels[0][:, None]))
        return Outcome(self.right_labels(places, guess), seconds)

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
