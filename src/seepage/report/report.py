"""Audits from end to end: prepare, run, keep, report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from torch import nn

from seepage.audit import (
    AuditSpec,
    Example,
    Listener,
    Row,
    Store,
    Subject,
    check_audit,
    check_folder,
    make_spec,
    make_specs,
    prepare,
    provenance,
    read_examples,
    read_text,
    read_text_document,
    rows,
    run_audit,
    write_examples,
    write_provenance,
    write_results,
    write_whole,
)
from seepage.audit.checks import Alarm, Facts, run_checks
from seepage.datasets import Dataset, own_table
from seepage.errors import BadInputError
from seepage.models.model import Model
from seepage.report.console import make_console, show_report
from seepage.report.frames import Evidence
from seepage.report.html import FILE as PAGE
from seepage.report.html import write_html
from seepage.report.summary import summary
from seepage.tabular.infer import Policy
from seepage.tabular.schema import Schema

DOCUMENT = "audit.yaml"


@dataclass(frozen=True)
class Report:
    """What an audit found.

    Attributes:
        spec: what was done.
        subject: to which rows and model.
        rows: one result each, see ``seepage.audit.rows``.
        examples: reconstructed records beside the truth, where they were computed or kept.
        evidence: what was right, cell by cell, by batch size, defense and attack.
        alarms: what the audit's own checks found; None where they were not run.
        control: figures of the positive control; None where none was run.
    """

    spec: AuditSpec
    subject: Subject
    rows: list[Row]
    examples: list[Example]
    evidence: Mapping[tuple[int, str, str], Evidence] = field(default_factory=dict)
    alarms: Sequence[Alarm] | None = None
    control: list[Row] | None = None

    def frame(self) -> pd.DataFrame:
        """Return the results as a DataFrame, one row each."""
        return pd.DataFrame(self.rows)

    def summary(self) -> str:
        """Return what was found, in sentences."""
        return summary(self.spec, self.subject, self.rows, self.alarms or ())

    def show(self, console: Console | None = None) -> None:
        """Print tables, examples and summary."""
        show_report(console or make_console(), self.spec, self.subject, self.rows, self.examples, self.alarms or ())


def audit(
    dataset: str | Dataset | pd.DataFrame = "adult",
    model: str | Model | nn.Module = "nn3",
    *,
    schema: Schema | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> Report:
    """Measure what one client's gradients give away.

    Args:
        dataset: a registered name, a dataset, or a DataFrame of one's own.
        model: a registered name, a model, or a module (whose head then follows from the target,
            or from the setting ``head``).
        schema: of the DataFrame; inferred if None, with the settings ``target`` and those of ``tabular.Policy``.
        out: run folder, see ``audit_all``; None to keep nothing.
        settings: any of ``AuditSpec``: batch_sizes, attacks, labels, victims, seed and so on.

    Raises:
        BadInputError: something cannot be used as given.

    Example:
        >>> report = audit("german", batch_sizes=2, attacks="inverting_gradients", victims=3, iterations=20)
        >>> report.frame().query("metric == 'accuracy' and column.isna()")["attack"].tolist()
        ['inverting_gradients', 'likeliest', 'mode', 'random']
    """
    if isinstance(dataset, pd.DataFrame):
        dataset, settings = _own(dataset, schema, settings)
    elif schema is not None:
        raise BadInputError(
            "a schema was given, but no DataFrame that it could describe; pass the DataFrame as dataset."
        )
    settings["dataset"] = dataset if isinstance(dataset, str) else dataset.name
    settings["model"] = model if isinstance(model, str) else getattr(model, "name", type(model).__name__)
    spec = make_spec(**settings)
    subject = prepare(spec, None if isinstance(dataset, str) else dataset, None if isinstance(model, str) else model)
    [report] = audit_all([(spec, subject)], None if out is None else Path(out))
    return report


def audit_document(document: str | Path | Mapping[str, Any], out: str | Path | None = None) -> list[Report]:
    """Run an audit document: a YAML file, or the same as a mapping.

    Args:
        document: see ``seepage.audit.make_specs``.
        out: run folder, see ``audit_all``; a copy of the file goes there too. None to keep nothing.

    Returns:
        One report for each table, model and protocol, and for each value of what else a spec cannot sweep over.

    Raises:
        BadInputError: something in the document cannot be used, or cannot be run.

    Example:
        >>> document = {"dataset": "german", "protocol": {"batch_size": [1, 2]}, "attacks": "dlg", "iterations": 3}
        >>> [report] = audit_document({**document, "victims": 2, "control": False})
        >>> sorted(set(report.frame()["batch_size"]))
        [1, 2]
    """
    text = None if isinstance(document, Mapping) else read_text(document)
    if isinstance(document, Mapping):
        specs = make_specs(document)
    else:
        assert text is not None
        specs = read_text_document(text, str(document), Path(document).parent)
    audits = [(spec, prepare(spec)) for spec in specs]
    folder = None if out is None else Path(out)
    reports = audit_all(audits, folder)
    if folder is not None and text is not None:
        keep_document(folder, text, audits)
    return reports


def keep_document(folder: Path, text: str, audits: Sequence[tuple[AuditSpec, Subject]]) -> None:
    """Put a copy of the document that audits were started from into their run folder."""
    write_whole(folder / DOCUMENT, text, private=any(subject.own for _, subject in audits))


def audit_all(
    audits: Sequence[tuple[AuditSpec, Subject]],
    folder: Path | None,
    listener: Listener | None = None,
) -> list[Report]:
    """Run audits and keep their results in a folder.

    The folder gets ``victims.jsonl`` as the audit goes on, and ``report.html``, ``results.json``,
    ``results.csv``, ``provenance.json`` and, for public data only, ``examples.json`` when it has ended. The same audits
    into the same folder continue from what is there. Files of one's own data are private (mode 0600).

    Args:
        audits: specs with what they were prepared to.
        folder: the run folder, made if need be; None to keep nothing.
        listener: told about the progress.

    Raises:
        BadInputError: the folder holds another audit, or a setting cannot be run.
    """
    private = any(subject.own for _, subject in audits)
    if folder is not None:
        check_folder(folder, audits)
    store = Store(folder, private)
    # All of them before the first runs: a mistake in the last must not cost hours.
    for spec, subject in audits:
        check_audit(spec, subject, store)
    kept = [] if folder is None else read_examples(folder)
    reports = []
    for spec, subject in audits:
        outcome = run_audit(spec, subject, store, listener, checked=True)
        about = (subject.dataset.name, subject.model.name)
        fresh = {(e.batch_size, e.attack) for e in outcome.examples}
        earlier = [e for e in kept if (e.dataset, e.model) == about and (e.batch_size, e.attack) not in fresh]
        shown = [*outcome.examples, *earlier]
        made = rows(spec, subject, outcome)
        alarms = run_checks(Facts(spec, subject, made, outcome.runs))
        reports.append(Report(spec, subject, made, shown, alarms=alarms))
    if folder is not None:
        public = [example for report in reports if not report.subject.own for example in report.examples]
        if public:
            write_examples(folder, public)
        origin = provenance(audits)
        write_provenance(folder, origin, private)
        write_html(folder / PAGE, reports, origin, private)
        write_results(folder, [row for report in reports for row in report.rows], private)
    return reports


def _own(frame: pd.DataFrame, schema: Schema | None, settings: dict[str, Any]) -> tuple[Dataset, dict[str, Any]]:
    settings = dict(settings)
    target = settings.pop("target", None)
    steering = {name: settings.pop(name) for name in [f.name for f in fields(Policy)] if name in settings}
    dataset, _ = own_table(frame, schema, target=target, policy=Policy(**steering))
    return dataset, settings
