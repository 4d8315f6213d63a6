"""What an audit found: rows, runs and findings, and everything that can be made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from seepage.assessment.evidence import Evidence
from seepage.assessment.row import ResultRow
from seepage.files import write_whole
from seepage.report.console import show_report
from seepage.report.html import FILE, render
from seepage.report.summary import summary
from seepage.report.terminal import make_console
from seepage.results.checks import Alarm, not_applicable
from seepage.results.checks.facts import Facts
from seepage.results.examples import Example, examples
from seepage.results.rows import frame, write_results
from seepage.run.runner import Run
from seepage.settings.setting import Audit


@dataclass(frozen=True)
class Report:
    """What an audit found.

    Attributes:
        audit: the audit.
        rows: its results.
        runs: what each attack and baseline got out of each configuration's units.
        findings: what the audit's own checks found.
        control: results of the positive control; None where none was run.
        negative: results of the negative control; None where none was run.
        left_out: labels and numbers of units for which there was no time.
        origin: provenance of the run.
    """

    audit: Audit
    rows: list[ResultRow]
    runs: list[Run]
    findings: Sequence[Alarm] = ()
    control: list[ResultRow] | None = None
    negative: list[ResultRow] | None = None
    left_out: list[tuple[str, int]] = field(default_factory=list)
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def evidence(self) -> dict[tuple[int | None, str, str], Evidence]:
        """What is kept of the units, by batch size, defense and attack."""
        return {
            (run.configuration.batch_size, run.configuration.defense, run.label): run.evidence
            for run in self.runs
            if run.evidence is not None
        }

    @property
    def failed(self) -> list[Run]:
        """The runs of which a job failed."""
        return [run for run in self.runs if run.failures]

    @property
    def asked(self) -> int:
        """Number of units that figures may rest on: never fewer than an earlier run measured."""
        return max([self.audit.units, *(len(run.units) for run in self.runs if run.is_attack)])

    @property
    def examples(self) -> list[Example]:
        """Reconstructed records beside the truth, where records are kept."""
        dataset = self.audit.dataset
        if dataset is None:
            return []
        return [
            example
            for of, evidence in self.evidence.items()
            for example in examples(
                dataset.schema, dataset.statistics, evidence, dataset.name, self.audit.about.model, of
            )
        ]

    @property
    def not_applicable(self) -> dict[str, str]:
        """Codes of the checks that do not apply to this audit, with the reason."""
        return not_applicable(Facts(self.audit, self.rows, self.runs, self.control, self.negative))

    def frame(self) -> pd.DataFrame:
        """Return the results as a DataFrame, one row each."""
        return frame(self.rows)

    def summary(self) -> str:
        """Return what was found, in sentences."""
        return summary(self)

    def show(self, console: Console | None = None) -> None:
        """Print tables, examples and summary."""
        show_report(console or make_console(), self)

    def save(self, folder: str | Path) -> Path:
        """Write report and results to a folder; return the path of the report.

        Raises:
            BadInputError: a file cannot be written.
        """
        place = Path(folder)
        write_whole(place / FILE, render([self], self.origin), self.audit.own)
        write_results(place, self.rows, self.audit.own)
        return place / FILE
