"""What checks read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from seepage.results.checks.alarm import Where
from seepage.results.checks.probe import Probe
from seepage.results.rows import Row
from seepage.results.tiers import is_attack, settings, strongest_row
from seepage.run.runner import Run
from seepage.settings.horizontal_spec import HorizontalSpec
from seepage.settings.subject import Subject


@dataclass(frozen=True)
class Facts:
    """An audit that has ended, as checks see it.

    Attributes:
        spec: what was to be done.
        subject: the rows and the model.
        rows: the results.
        runs: what attacks and baselines got, with what results leave out.
        control: the results of the positive control, see ``control_of``; None where it was not run.
    """

    spec: HorizontalSpec
    subject: Subject
    rows: Sequence[Row]
    runs: Sequence[Run]
    control: Sequence[Row] | None = None

    @cached_property
    def probe(self) -> Probe:
        """What the model makes of some of the client's rows."""
        return Probe.of(self.spec, self.subject)

    @cached_property
    def scores(self) -> list[Row]:
        """The accuracies of attacks over all cells that could be scored."""
        return [
            row
            for row in self.rows
            if is_attack(row) and (row["metric"], row["column"]) == ("accuracy", None) and row["mean"] is not None
        ]

    @cached_property
    def courses(self) -> dict[Where, np.ndarray]:
        """Of attacks that descend, how their own loss fell, float64 (victim, 3), see ``RecordsGuess``."""
        return {
            Where(run.batch_size, run.defense, run.called): run.evidence.course
            for run in self.runs
            if run.evidence is not None and run.evidence.course is not None
        }

    @property
    def settings(self) -> list[tuple[int, str]]:
        """Batch sizes and defenses that attacks were run at."""
        return settings(self.rows)

    def strongest(self, batch_size: int, defense: str, column: str | None = None) -> Row | None:
        """Return the accuracy of the strongest attack in a setting, see ``strongest_row``."""
        return strongest_row(self.rows, batch_size, defense, column)

    def control_closed(self, attack: str) -> float | None:
        """Return the share of the gap that an attack closed in the positive control, None if unknown."""
        row = self.control_row(attack)
        return None if row is None else control_share(row)

    def control_row(self, attack: str) -> Row | None:
        """Return the accuracy of an attack over all cells of the positive control."""
        for row in self.control or ():
            if (row["attack"], row["metric"], row["column"]) == (attack, "accuracy", None) and is_attack(row):
                return row
        return None


def control_share(row: Row) -> float | None:
    """Return the share of the gap that an attack closed in a control.

    Guessing may happen to be right in every cell of so small a sample. An attack that is right in every cell
    too has closed all there was to close.
    """
    if row["mean"] is None or row["baseline"] is None:
        return None
    if row["baseline"] >= 1:
        return 1.0 if row["mean"] >= 1 else 0.0
    return (row["mean"] - row["baseline"]) / (1 - row["baseline"])
