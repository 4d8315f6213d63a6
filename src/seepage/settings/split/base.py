"""Common parts of audits of split learning in all topologies: rows, networks, figures of columns, units, forecasts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from seepage import datasets
from seepage.assessment import measure_columns
from seepage.assessment.evidence import evidence_of_columns
from seepage.assessment.three_questions import Questions, questions_of_records
from seepage.datasets import Dataset
from seepage.datasets.dataset import some_rows
from seepage.digests import Json
from seepage.models.own import OwnFactory, find_own
from seepage.settings.guessing import AttackedSecret
from seepage.settings.setting import Configuration, Exposure, Outcome, PlannedPart, Scale
from seepage.settings.spec import Spec
from seepage.settings.split.spec import SplitSpec
from seepage.settings.threat_model import Deployment, refuse_inapplicable
from seepage.settings.units import (
    AttackedUnit,
    UnitsAudit,
    UnitsExposure,
    rehearsed_training,
    rows_identity,
    rows_in_time,
    with_fields,
)
from seepage.sources import is_own
from seepage.tabular.align import right_cells
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.wire.labels import LabelGuess
from seepage.wire.secret import CutTranscript
from seepage.wire.split import CutGuess

_NO_LEAK = ("calibration", "ties", "likely", "replayed", "certified_cells", "still_possible")
COLUMN_SCALES = {
    "r2": Scale(True, 0.0, 1.0),
    "certified_wrong": Scale(False, 0.0, 1.0),
    **dict.fromkeys(_NO_LEAK, Scale(None, 0.0, 1.0)),
}
"""Readings of the figures of private columns, by metric, where these are no rates of leakage."""


def columns_outcome(
    schema: Schema,
    private: Sequence[int],
    statistics: Statistics,
    transcript: CutTranscript,
    guess: CutGuess,
    keep_records: bool,
    questions: Questions | None = None,
) -> Outcome:
    """Return the figures of a guess of one training, with those of each record where a figure is their mean."""
    measured = measure_columns(schema, private, transcript, guess)
    if questions is not None:
        measured += questions_of_records(questions, transcript.cells[None], guess.cells[None])
    private_schema = schema.model_copy(update={"columns": tuple(schema.columns[i] for i in private)})
    marginals = [statistics.marginals[i] for i in private]
    right = right_cells(private_schema, guess.cells, transcript.cells)
    evidence = evidence_of_columns(
        private_schema, marginals, transcript.cells, guess.cells, right, transcript.labels, keep_records
    )
    return Outcome(measured, evidence=[evidence])


D = TypeVar("D")

# Rows that one training with its attacks processes in a second.
_ROWS_A_SECOND = 600


class TopologyAudit(UnitsAudit[SplitSpec, D], Generic[D]):
    """An audit of split learning in one topology; a unit is one training, with all attacked records in it."""

    setting = "split"
    ignored = frozenset({*Spec.model_fields, "repetitions", "private_columns"}) - {"dataset_options", "seed", "threads"}
    data: Dataset
    factory: OwnFactory | None

    def _set_up(self, spec: SplitSpec, dataset: Dataset | None) -> None:
        self.table = dataset or datasets.load(spec.dataset, folder=spec.data_folder, **spec.dataset_options)
        rate = _ROWS_A_SECOND / spec.repetitions
        self.data = rows_in_time(self.table, spec.most_rows, spec.time_budget, rate, spec.seed)
        self.dataset = self.data
        refuse_inapplicable(spec.attacks, self.deployed(spec), spec.baselines)
        self.factory = find_own(spec.model) if is_own(spec.model) else None
        self.rows = rows_identity(self.data)
        self._forecast: float | None = None

    @staticmethod
    @abstractmethod
    def deployed(spec: SplitSpec) -> Deployment:
        """Return the threat model of the topology: views and side information of the attacker."""

    @abstractmethod
    def attacked(self, defense: D, unit: int) -> AttackedUnit:
        """Return a training, with the attacker's view of the attacked records."""

    @property
    def determining(self) -> Mapping[str, Json]:
        """Everything that determines figures beside spec, rows, defense and part, as JSON values."""
        return {"network": None if self.factory is None else self.factory.digest}

    def expose(self, configuration: Configuration, units: range) -> Exposure:
        """Train with each unit's seeds and return the attacker's views of the attacked records."""
        defense = self.defenses[configuration.defense]
        return UnitsExposure(self.about, [self.attacked(defense, unit) for unit in units])

    @property
    @abstractmethod
    def fewest(self) -> float:
        """Least number of rows of a rehearsal with labels of both kinds and some records of each batch."""

    @abstractmethod
    def rehearsed(self, share: float) -> Mapping[str, Json]:
        """Return further fields of the spec for a rehearsal."""

    def forecast(self, configuration: Configuration) -> float | None:
        """Return the seconds of a training with all its parts, from rehearsals on two small shares of the work."""
        if self._forecast is None:
            rows = len(self.data.all)
            share = min(0.5, max(0.02, self.fewest / rows))

            def expose(size: int, epochs: int) -> Exposure:
                sample = some_rows(self.data, int(size * share * rows), self.spec.seed)
                spec = with_fields(self.spec, {"epochs": epochs, **self.rehearsed(size * share)})
                return type(self)(spec, sample, self.own).expose(configuration, range(1))

            self._forecast = rehearsed_training(expose, self.parts, share, self.spec.epochs)
        return self._forecast


class AttackedTopology(ABC):
    """One training, with the attacker's view of the attacked rows."""

    def secret(self, part: PlannedPart) -> AttackedSecret[Any]:
        """Return what a part guesses: labels, or columns."""
        return self.labels() if part.column is not None else self.columns(part)

    @abstractmethod
    def labels(self) -> AttackedSecret[LabelGuess]:
        """Return the labels of training as a secret."""

    @abstractmethod
    def columns(self, part: PlannedPart) -> AttackedSecret[Any]:
        """Return the columns as a secret, with what an attack or a baseline is granted."""
