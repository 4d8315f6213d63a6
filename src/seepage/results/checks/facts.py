"""What checks read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from seepage.assessment.row import ResultRow
from seepage.datasets.dataset import Dataset
from seepage.results.checks.alarm import Where
from seepage.results.tiers import settings, strongest_row
from seepage.run.runner import Run
from seepage.settings.probe import Probe
from seepage.settings.setting import Audit

# What a check reads beside the rows of results.
Need = Literal["table", "gradient", "descent", "proofs"]


@dataclass(frozen=True)
class Facts:
    """An audit that has ended, as checks see it.

    Attributes:
        audit: the audit.
        rows: its results.
        runs: runs of its parts, with what results leave out.
        control: results of the positive control; None where it was not run.
        negative: results of the negative control; None where it was not run.
    """

    audit: Audit
    rows: Sequence[ResultRow]
    runs: Sequence[Run]
    control: Sequence[ResultRow] | None = None
    negative: Sequence[ResultRow] | None = None

    @cached_property
    def probe(self) -> Probe | None:
        """What the model makes of some of the client's rows; None in settings where no gradient is the message."""
        return self.audit.probe()

    @property
    def table(self) -> Dataset:
        """The rows, in settings where they are a table."""
        assert self.audit.dataset is not None
        return self.audit.dataset

    def lacks(self, need: Need) -> str | None:
        """Return the reason why a check that needs something does not apply; None where it does."""
        if need == "table" and self.audit.dataset is None:
            return "the rows are no table"
        if need == "gradient" and self.probe is None:
            return f"no gradient of a batch is the message in {self.audit.setting} learning"
        if need == "descent" and not self.courses:
            return "no attack that was run descends a loss of its own"
        if need == "proofs" and not any(run.evidence is not None and run.evidence.regime for run in self.runs):
            return "no attack that was run proves anything"
        return None

    @cached_property
    def scores(self) -> list[ResultRow]:
        """The accuracies of attacks over all cells that could be scored."""
        return [
            row
            for row in self.rows
            if row.is_attack and (row.metric, row.column) == ("accuracy", None) and row.mean is not None
        ]

    @cached_property
    def courses(self) -> dict[Where, np.ndarray]:
        """Of attacks that descend, how their own loss fell, float64 (victim, 3), see ``RecordsGuess``."""
        return {
            Where(run.configuration.batch_size, run.configuration.defense, run.label): run.evidence.course
            for run in self.runs
            if run.evidence is not None and run.evidence.course is not None
        }

    @property
    def settings(self) -> list[tuple[int | None, str]]:
        """Batch sizes and defenses that attacks were run at."""
        return settings(self.rows)

    def strongest(self, batch_size: int | None, defense: str, column: str | None = None) -> ResultRow | None:
        """Return the accuracy of the strongest attack in a setting, see ``strongest_row``."""
        return strongest_row(self.rows, batch_size, defense, column)

    def control_closed(self, attack: str) -> float | None:
        """Return the share of the gap that an attack closed in the positive control, None if unknown."""
        row = self.control_row(attack)
        return None if row is None else control_share(row)

    def control_row(self, attack: str) -> ResultRow | None:
        """Return the accuracy of an attack over all cells of the positive control."""
        for row in self.control or ():
            if (row.attack, row.metric, row.column) == (attack, "accuracy", None) and row.is_attack:
                return row
        return None


def control_share(row: ResultRow) -> float | None:
    """Return the share of the gap that an attack closed in a control.

    Guessing may happen to be right in every cell of so small a sample. An attack that is right in every cell
    too has closed all there was to close.
    """
    if row.mean is None or row.baseline is None:
        return None
    if row.baseline >= 1:
        return 1.0 if row.mean >= 1 else 0.0
    return (row.mean - row.baseline) / (1 - row.baseline)
