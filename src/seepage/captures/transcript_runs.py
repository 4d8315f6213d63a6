"""What attacks on transcripts of split and of vertical training share: tables beside them, labels, and findings."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, cast

import pandas as pd
import torch
from torch import Tensor, nn

from seepage import registry
from seepage.assessment import Figures
from seepage.assessment.labels import measure_labels
from seepage.captures.transcripts import RecordedTraining, RoundMessages, read_cells
from seepage.digests import Json
from seepage.errors import BadInputError
from seepage.files import make_folder, write_whole
from seepage.needs import Need
from seepage.results.proofs import WRONG
from seepage.seeds import stream
from seepage.settings.part import Part, make_part
from seepage.tabular.assumed import partly_known_statistics
from seepage.tabular.reading import open_table
from seepage.tabular.schema import Column, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table, frame_of
from seepage.text import percent, printable_json
from seepage.wire.labels import LabelGuess, LabelKnowledge, ReturnedView

RESULTS, RECONSTRUCTION = "results.json", "reconstruction.csv"
# Figures that say nothing of a transcript's attack.
NO_MEANING = frozenset(
    {"calibration", "coverage", "failed", "replayed", "likely", "ties", "certified_cells", WRONG, "still_possible"}
)


@dataclass(frozen=True)
class TriedAttack:
    """What one attack read.

    Attributes:
        attack: label of the attack.
        sought: ``columns``, or ``label`` where labels alone are guessed.
        records: number of records that it guessed.
        seconds: time that it took.
        shown: shares of its answers that are likely, certified, tied or still possible, by metric and column.
        scores: figure of each metric and column beside the best baseline; None without the truth.
        answers: guessed cells of each record, with its id, for ``reconstruction.csv``.
    """

    attack: str
    sought: str
    records: int
    seconds: float
    shown: Figures
    scores: list[dict[str, Json]] | None
    answers: pd.DataFrame


@dataclass(frozen=True)
class TranscriptFindings:
    """What a transcript gives away.

    Attributes:
        setting: ``split`` or ``vertical``.
        records, rounds: number of records, and of rounds in which they were seen.
        private: names of the private columns.
        tried: attacks that ran.
        not_tried: reason, for each attack that could not be tried.
        knowledge: what attacks were granted or assumed.
        notes: what a reader should know of the transcript.
        scored: number of records with a known truth; None without.
        limits: sentence for each part of the network that no attack solves exactly.
        doubts: sentence for an attack whose answers replay few messages, so that something does not fit.
        assumed: names of attacked columns whose marginals nothing tells, so that baselines take all values as likely.
    """

    setting: str
    records: int
    rounds: int
    private: tuple[str, ...]
    tried: tuple[TriedAttack, ...]
    not_tried: Mapping[str, str]
    knowledge: Mapping[str, Json]
    notes: tuple[str, ...]
    scored: int | None = None
    limits: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    def headline(self) -> list[str]:
        """Return what was found, and what could not be tried, as sentences."""
        said = [
            f"{self.records:,} records in {self.rounds:,} rounds of {self.setting} learning, private: "
            f"{', '.join(self.private)}. Attacks that ran: {', '.join(one.attack for one in self.tried) or 'none'}."
        ]
        said += self.doubts
        best = max(self.tried, key=lambda one: one.shown.get(("certified_cells", None)) or 0.0, default=None)
        certified = None if best is None else best.shown.get(("certified_cells", None))
        if best is not None and certified:
            said.append(
                f"{best.attack} certifies {percent(certified)} of the private cells: no other values replay their "
                f"messages, given the declared network, weights, loss and defense.{_below_baseline(best)}"
            )
        said += self.limits
        if self.not_tried:
            said.append(
                f"Not tried: {', '.join(self.not_tried)}. What was not tried is not known to be safe; reasons below."
            )
        return said

    def to_plain(self) -> dict[str, Json]:
        """Return all findings but the guessed cells as JSON values."""
        return {
            "setting": self.setting,
            "records": self.records,
            "rounds": self.rounds,
            "private": list(self.private),
            "headline": list(self.headline()),
            "knowledge": dict(self.knowledge),
            "notes": list(self.notes),
            "scored": self.scored,
            "attacks": [
                {
                    "attack": one.attack,
                    "sought": one.sought,
                    "records": one.records,
                    "seconds": one.seconds,
                    "shown": [
                        {"metric": metric, "column": column, "value": value}
                        for (metric, column), value in one.shown.items()
                    ],
                    "scores": cast("Json", one.scores),
                }
                for one in self.tried
            ],
            "not_tried": [{"attack": name, "reason": reason} for name, reason in self.not_tried.items()],
        }

    def write(self, folder: Path) -> None:
        """Write ``reconstruction.csv`` and ``results.json`` for their owner alone."""
        make_folder(folder, private=True)
        frames = [one.answers for one in self.tried]
        table = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"attack": [], "id": []})
        write_whole(folder / RECONSTRUCTION, table.to_csv(index=False), private=True)
        # Last: where it is, the other is whole.
        text = printable_json(self.to_plain())
        write_whole(folder / RESULTS, text + "\n", private=True)


class TranscriptTables:
    """A transcript with the tables beside it: public rows, records that the attacker knows, and the truth.

    Args:
        training: the transcript.
        data: public rows of the same kind.
        known: table of records that the attacker knows, with ids and the label, all private columns, or both.
        truth: table of true private cells and labels, with ids.
        separator: separator of the cells of CSV files.
        seed: seed of the attacks.

    Attributes:
        statistics: marginals of the public rows, or without any of the known records; of other columns all values are
            likely.
        assumed: names of private columns, and of the target, whose marginals nothing tells.
        public: public rows; None without.
        places: position of each record by its id.
        known_labels, leaked: positions of records with a known label, or with known private cells, and these; None
            without.
        truth: positions of records with a known truth, with true private cells and label; None without.

    Raises:
        BadInputError: something does not fit the transcript.
    """

    def __init__(
        self,
        training: RecordedTraining,
        data: Path | None,
        known: Path | None,
        truth: Path | None,
        separator: str,
        seed: int,
    ) -> None:
        self.training, self.schema, self.separator, self.seed = training, training.schema, separator, seed
        schema = self.schema
        self.public = None if data is None else Table.read(data, schema, separator, missing=None)
        self.places = {one: place for place, one in enumerate(training.ids)}
        self._secret = [schema.columns[i] for i in training.private]
        self.truth = self._table(truth, "the truth", (*self._secret, schema.target))
        self.known_labels, self.leaked = self._what_is_known(known)
        cells = self._known_cells()
        self.statistics = partly_known_statistics(schema, cells) if self.public is None else Statistics.of(self.public)
        names = [column.name for column in (*self._secret, schema.target)]
        self.assumed = tuple(name for name in names if self.public is None and name not in cells)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all records."""
        return self.training.ids

    @property
    def origin(self) -> str:
        """Words for where the statistics come from."""
        if self.public is not None:
            return "marginals of the public rows"
        assumed = f"all values likely of {', '.join(self.assumed)}"
        if self.known_labels is None and self.leaked is None:
            return f"assumed: {assumed}"
        return "marginals of the known records" + (f"; assumed: {assumed}" if self.assumed else "")

    def _known_cells(self) -> dict[str, Tensor]:
        """Return the cells of known records, by column."""
        known = {}
        if self.leaked is not None:
            known |= {column.name: cells for column, cells in zip(self._secret, self.leaked[1].unbind(1), strict=True)}
        if self.known_labels is not None:
            known[self.schema.target.name] = self.known_labels[1]
        return known

    def true_cells(self, places: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return which of some records have a known truth, by their position, and its cells; None where none has."""
        if self.truth is None:
            return None
        at, cells = _among(self.truth, places)
        return (at, cells) if len(at) else None

    def _table(self, path: Path | None, what: str, columns: Sequence[Column]) -> tuple[Tensor, Tensor] | None:
        """Return positions of the transcript's records in a table, and their cells."""
        if path is None:
            return None
        rows, cells = read_cells(path, columns, self.training.about.id, what, self.separator)
        there = [(place, rows[one]) for one, place in self.places.items() if one in rows]
        if not there:
            raise BadInputError(
                f"{what}, {str(path)!r}, and the transcript have no record in common: ids there are such as "
                f"{next(iter(rows))!r}, in the transcript such as {self.ids[0]!r}."
            )
        places, at = map(list, zip(*there, strict=True))
        return torch.tensor(places), cells[at]

    def _what_is_known(self, known: Path | None) -> tuple[tuple[Tensor, Tensor] | None, tuple[Tensor, Tensor] | None]:
        """Return known labels, and known private cells, each with the positions of their records."""
        if known is None:
            return None, None
        names = open_table(known, self.separator).names
        target, what = self.schema.target, "the known records"
        private = [column.name for column in self._secret]
        lacking = [name for name in private if name not in names]
        if target.name not in names and lacking:
            raise BadInputError(
                f"{what}, {str(known)!r}, have neither the label {target.name!r} nor all private columns (they "
                f"lack {', '.join(map(repr, lacking))}); give one of the two."
            )
        labels = None if target.name not in names else self._table(known, what, [target])
        leaked = None if lacking else self._table(known, what, self._secret)
        return None if labels is None else (labels[0], labels[1][:, 0]), leaked

    def answers(self, part: str, places: Tensor, columns: Mapping[str, Iterable[object]]) -> pd.DataFrame:
        """Return guessed cells of records as rows with the attack's label and the records' ids."""
        ids = [self.ids[place] for place in places.tolist()]
        return pd.DataFrame({"attack": part, "id": ids, **{name: list(values) for name, values in columns.items()}})

    def label_finding(
        self, part: Part, places: Tensor, view: ReturnedView, baselines: Figures, named: Mapping[tuple, str]
    ) -> TriedAttack:
        """Return what an attack on labels alone reads.

        Args:
            part: the attack.
            places: positions of the view's records.
            view: what came back of them.
            baselines: best figure of the baselines by metric and column.
            named: name of that baseline.
        """
        target = self.schema.target
        at, labels = torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.float64)
        if self.known_labels is not None:
            at, labels = _among(self.known_labels, places)
        knowledge = LabelKnowledge(target, self.statistics.target, at[None], labels[None])
        attack = make_part(registry.attacks.of(self.training.about.setting), part)
        begun = time.perf_counter()
        guess: LabelGuess = attack(view, knowledge, [stream(self.seed, 0, "starts")])
        seconds = time.perf_counter() - begun
        scores, truth = None, self.true_cells(places)
        if truth is not None:
            true = torch.full((1, view.records), torch.nan, dtype=torch.float64)
            true[0, truth[0]] = truth[1][:, -1]
            counted = ~true.isnan()
            counted[0, at] = False
            if bool(counted.any()):
                mode = LabelGuess(torch.full_like(true, self.statistics.target.median))
                figures, plain = (
                    Figures({(one.metric, one.column): float(one.values[0]) for one in found})
                    for found in (measure_labels(target, true, said, counted) for said in (guess, mode))
                )
                best, names = best_figures([("label_mode", plain)], baselines, named)
                scores = score_rows(figures, best, names)
        alone = Schema.model_construct(columns=(target,), target=target)
        said = frame_of(alone, guess.labels[0][:, None])[target.name]
        return TriedAttack(
            part.called,
            "label",
            view.records,
            seconds,
            {},
            scores,
            self.answers(part.called, places, {target.name: said}),
        )


class TranscriptRun(ABC):
    """Attacks on the transcript of one setting.

    Attributes:
        tables: the transcript with the tables beside it.
        reveals: views that it shows.
        grants: side information that it holds.
        notes: what a reader should know of it.
        limits: sentence for each part of the network that no attack solves exactly.
        doubts: sentence for an attack so far whose answers replay few messages.
        further: attacks that are tried beside all registered ones, where none is named.
    """

    setting: ClassVar[str]

    def __init__(self, tables: TranscriptTables) -> None:
        self.tables = tables
        self.reveals: tuple[type, ...] = ()
        self.grants: set[Need] = set()
        self.notes: list[str] = []
        self.limits: list[str] = []
        self.doubts: list[str] = []
        self.further: list[Part] = []

    @abstractmethod
    def tried(self, part: Part) -> TriedAttack:
        """Return what an attack reads."""


class UnknownPart(nn.Module):
    """A part of the network that the transcript does not hold; attacks that need it cannot be tried.

    Args:
        what: words for the part, and what to do.
    """

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def forward(self, cells: Tensor) -> Tensor:
        """Refuse to compute."""
        raise BadInputError(f"it needs {self.what}.")


def _below_baseline(tried: TriedAttack) -> str:
    """Return, as a sentence, that an attack reads less of the cells than a baseline; empty where it does not."""
    for row in tried.scores or []:
        value, base = row["value"], row["baseline"]
        whole = (row["metric"], row["column"]) == ("accuracy", None)
        if whole and isinstance(value, float) and isinstance(base, float) and value < base:
            return (
                f" Of all private cells it reads {percent(value)}, less than the baseline {row['baseline_name']} "
                f"with {percent(base)}."
            )
    return ""


def score_rows(figures: Figures, baselines: Figures, named: Mapping[tuple, str]) -> list[dict[str, Json]]:
    """Return figures as rows of plain values, each beside the best baseline.

    Args:
        figures: figures by metric and column.
        baselines: best figure of the baselines by the same keys.
        named: name of that baseline.

    Example:
        >>> key = ("accuracy", None)
        >>> score_rows({key: 1.0}, {key: 0.75}, {key: "mode"})[0]["lift"]
        0.25
    """
    rows: list[dict[str, Json]] = []
    for key, value in figures.items():
        if value is None or value != value:
            continue
        best = baselines.get(key)
        rows.append(
            {
                "metric": key[0],
                "column": key[1],
                "value": value,
                "baseline": best,
                "baseline_name": named.get(key),
                "lift": None if best is None else value - best,
            }
        )
    return rows


def best_figures(
    found: Iterable[tuple[str, Figures]], so_far: Figures | None = None, names: Mapping[tuple, str] | None = None
) -> tuple[Figures, dict[tuple, str]]:
    """Return the best figure of several baselines, and the name of that baseline.

    Args:
        found: name and figures of each.
        so_far: best figures of further baselines.
        names: names of these.

    Example:
        >>> best_figures([("mode", {("accuracy", None): 0.5})], {("accuracy", None): 0.75}, {("accuracy", None): "knn"})
        ({('accuracy', None): 0.75}, {('accuracy', None): 'knn'})
    """
    best: Figures = dict(so_far or {})
    named: dict[tuple, str] = dict(names or {})
    for name, figures in found:
        for key, value in figures.items():
            before = best.get(key)
            if value is not None and value == value and (before is None or value > before):
                best[key], named[key] = value, name
    return best, named


def history_of(rounds: Sequence[RoundMessages], places: Mapping[str, int]) -> dict[int, list[tuple[int, int]]]:
    """Return, for each record, the place of each round that it is in and its row there, the oldest first."""
    found: dict[int, list[tuple[int, int]]] = {}
    for k, messages in enumerate(rounds):
        for row, one in enumerate(messages.ids):
            found.setdefault(places[one], []).append((k, row))
    return found


def _among(held: tuple[Tensor, Tensor], places: Tensor) -> tuple[Tensor, Tensor]:
    """Return which of some records a table holds, by their position, and its rows of them.

    Args:
        held: positions of the table's records in the transcript, and its rows.
        places: positions of the records in the transcript.
    """
    place_of = {place: k for k, place in enumerate(places.tolist())}
    there = [(place_of[place], k) for k, place in enumerate(held[0].tolist()) if place in place_of]
    at, chosen = torch.tensor(there, dtype=torch.long).reshape(-1, 2).unbind(1)
    return at, held[1][chosen]
