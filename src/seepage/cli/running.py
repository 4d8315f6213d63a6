"""Running audits from the command line: progress, tables, the gate and the exit status."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import typer
from rich.console import Console
from rich.text import Text

from seepage.cli.app import interruptible
from seepage.cli.exits import Exit
from seepage.cli.tables import show_study
from seepage.cli.text import told
from seepage.config.document import read_text_document
from seepage.config.wording import as_key, as_option
from seepage.errors import BadInputError
from seepage.report import Bar, Report, StudyReport, audit_all, check_gate, combined, gate, make_console, run_studies
from seepage.report.inferred import show_inferred
from seepage.results.gate import Decision
from seepage.run.runner import Listener
from seepage.settings.horizontal_spec import HorizontalSpec
from seepage.settings.spec import Gate, Spec
from seepage.settings.studies import load_study
from seepage.settings.study import Study
from seepage.settings.subject import Subject, Subjects


def run(
    text: str,
    name: str,
    folder: Path,
    given: Mapping[str, Any],
    out: Path | None,
    *,
    as_json: bool = False,
    quiet: bool = False,
    kept: str | None = None,
) -> None:
    """Run the audits of a document with a progress bar, print what they found, and decide a gate.

    Args:
        text: text of the document.
        name: name of the document for messages.
        folder: folder from which files that it names are looked for.
        given: values of fields from the command line.
        out: run folder; None for a new one.
        as_json: whether to print results as JSON.
        quiet: whether to print neither progress nor tables.
        kept: text that is kept in the run folder; None for none.

    Raises:
        BadInputError: something cannot be used.
        typer.Exit: the gate fails, or some jobs failed.
    """
    specs = read_text_document(text, name, folder, given)
    # What is wrong with a table is worded as it was named.
    wording = as_option if kept is None or given.get("data") is not None else as_key
    try:
        ready = _ready(specs, out)
    except BadInputError as error:
        raise BadInputError(error.worded(lambda remedy: wording(remedy, type(specs[0])))) from error
    limit = specs[0].gate
    if limit is not None:
        for columns in ready.columns:
            check_gate(limit.above, limit.column, columns)
    place = out or Path("runs") / f"{ready.dataset}-{datetime.now():%Y%m%d-%H%M%S}"
    messages = make_console(stderr=True)
    if not quiet:
        ready.announce(messages)
    with Bar(messages) if not quiet else nullcontext(Listener()) as bar:
        reports = interruptible(lambda: ready.run(place, bar, kept), place)
    if as_json:
        rows = [row for report in reports for row in report.rows]
        print(json.dumps(rows, indent=1, allow_nan=False, ensure_ascii=False))
    elif not quiet:
        console = make_console()
        for report in reports:
            ready.show(console, report)
        console.print(Text(f"Report: {place / 'report.html'} (figures: results.json, results.csv)"))
    if limit is not None:
        decision = combined([ready.decide(report, limit) for report in reports])
        told(decision.line)
        if decision.failed:
            raise typer.Exit(Exit.GATE_FAILED)
    if any(getattr(report, "failed", None) for report in reports):
        raise typer.Exit(Exit.JOBS_FAILED)


class _Audits:
    """Audits of horizontal learning, ready to run."""

    def __init__(self, audits: Sequence[tuple[HorizontalSpec, Subject]]) -> None:
        self._audits = audits
        self.dataset = audits[0][1].dataset.name
        self.columns = [subject.dataset.schema.names for _, subject in audits]

    def announce(self, console: Console) -> None:
        inferred = self._audits[0][1].inferred
        if inferred is not None:
            show_inferred(console, inferred)

    def run(self, folder: Path, listener: Listener, document: str | None) -> list[Report]:
        return audit_all(self._audits, folder, listener, self._audits[0][0].time_budget, document)

    def show(self, console: Console, report: Report) -> None:
        report.show(console)

    def decide(self, report: Report, limit: Gate) -> Decision:
        return gate(report.rows, limit.above, limit.column, report.alarms or ())


class _Studies:
    """Audits of other settings, ready to run."""

    def __init__(self, studies: Sequence[tuple[Spec, Study]]) -> None:
        self._studies = studies
        self.dataset = studies[0][1].dataset
        self.columns = [[name for _, study in studies for name in study.columns]]

    def announce(self, console: Console) -> None:
        """Nothing is inferred that is not in the notes."""

    def run(self, folder: Path, listener: Listener, document: str | None) -> list[StudyReport]:
        return run_studies(self._studies, folder, listener, document)

    def show(self, console: Console, report: StudyReport) -> None:
        show_study(console, report)

    def decide(self, report: StudyReport, limit: Gate) -> Decision:
        return gate(report.rows, limit.above, limit.column, report.alarms, report.study.unit)


def _ready(specs: Sequence[Spec], out: Path | None) -> Any:
    if isinstance(specs[0], HorizontalSpec):
        subjects = Subjects(out)
        return _Audits([(spec, subjects.of(spec)) for spec in cast("Sequence[HorizontalSpec]", specs)])
    return _Studies([load_study(spec) for spec in specs])
