"""Attacks on one party of each federation whose records are all guessed: views, seeds, and scores of the guesses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from seepage.assessment import create
from seepage.assessment.measurement import Measurement
from seepage.assessment.three_questions import Population, Questions
from seepage.seeds import stream
from seepage.settings.guessing import measure
from seepage.settings.outcomes import attacked_records
from seepage.settings.setting import Configuration, Exposure, Outcome, PlannedPart, Progress
from seepage.settings.units import UnitsAudit, joined
from seepage.wire.horizontal import RecordsGuess
from seepage.wire.secret import RecordsSecret


@dataclass(frozen=True)
class AttackedParty:
    """One federation: message of the attacked party, the records behind it, and figures of the federation."""

    message: Any
    cells: Tensor
    labels: Tensor
    figures: Sequence[Measurement]


A = TypeVar("A", bound=UnitsAudit[Any, Any])
P = TypeVar("P", bound=AttackedParty)


@dataclass
class FederationsExposure(Exposure, Generic[A, P]):
    """Messages of some attacked parties, each in a federation of its own."""

    metrics: ClassVar[tuple[str, ...]]
    audit: A
    configuration: Configuration
    units: range
    federations: Sequence[P]

    @abstractmethod
    def view(self) -> object:
        """Return the attacker's view of all messages."""

    @abstractmethod
    def knowledge(self) -> object:
        """Return what the attacker knows beside the messages."""

    @abstractmethod
    def further(self, secret: RecordsSecret, guess: RecordsGuess) -> list[Measurement]:
        """Return figures of a guess that only this setting has."""

    def measure(self, part: PlannedPart, progress: Progress | None = None) -> Outcome:
        """Attack the parties and score the guesses; a guess without records has no figures of records."""
        audit = self.audit
        if part.kind == "about":
            return joined([Outcome(federation.figures) for federation in self.federations], audit.about)
        is_attack, data = part.kind == "attack", audit.dataset
        assert data is not None
        true = zip(*((federation.cells, federation.labels) for federation in self.federations), strict=True)

        def questions() -> Questions:
            population = Population.of(data.all, data.schema, data.statistics, audit.spec.quasi_identifiers)
            return Questions(population, self._seeds("questions"), possible=is_attack)

        records = attacked_records(
            audit.setting,
            data.statistics,
            data.schema,
            (self.view(), self.knowledge()),
            RecordsSecret(*map(torch.stack, true)),
            self._seeds("starts" if is_attack else "baseline"),
            [create(name) for name in self.metrics],
            keep_records=audit.keeps_records if is_attack else None,
            questions=questions,
            further=self.further,
        )
        return measure(part, records, progress)

    def _seeds(self, purpose: str) -> list[int]:
        return [stream(self.audit.spec.seed, unit, purpose) % 2**62 for unit in self.units]
