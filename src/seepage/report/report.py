"""Audits from end to end: prepare, run, keep, report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from torch import nn

from seepage.assessment.evidence import Evidence
from seepage.config.document import make_specs, read_text_document
from seepage.config.tree import read_text
from seepage.datasets import Dataset, own_table
from seepage.errors import BadInputError
from seepage.files import write_whole
from seepage.models.model import Model
from seepage.report.console import make_console, show_report
from seepage.report.html import FILE as PAGE
from seepage.report.html import write_html
from seepage.report.summary import summary
from seepage.results.checks import Alarm, Facts, control_of, run_checks
from seepage.results.examples import Example, examples
from seepage.results.rows import Row, rows, write_results
from seepage.run.provenance import asked_before, check_folder, provenance, write_provenance
from seepage.run.runner import Listener, Run, make_plan, run_audits
from seepage.run.store import Store
from seepage.settings.horizontal_spec import HorizontalSpec, make_spec
from seepage.settings.subject import Subject, Subjects, keep_networks, prepare
from seepage.settings.tasks import learnt_rows, task_rows
from seepage.tabular.infer import Policy
from seepage.tabular.schema import Schema

DOCUMENT = "audit.yaml"


@dataclass(frozen=True)
class Report:
    """What an audit found.

    Attributes:
        spec: what was done.
        subject: to which rows and model.
        rows: one result each, see ``seepage.results.rows``.
        runs: what each attack and baseline got out of each setting's victims.
        alarms: what the audit's own checks found; None where they were not run.
        control: figures of the positive control; None where none was run.
        left_out: settings and numbers of victims for which there was no time.
    """

    spec: HorizontalSpec
    subject: Subject
    rows: list[Row]
    runs: list[Run]
    alarms: Sequence[Alarm] | None = None
    control: list[Row] | None = None
    left_out: list[tuple[str, int]] = field(default_factory=list)

    @property
    def evidence(self) -> dict[tuple[int, str, str], Evidence]:
        """What is kept of the victims, by batch size, defense and attack."""
        return {(r.batch_size, r.defense, r.called): r.evidence for r in self.runs if r.evidence is not None}

    @property
    def failed(self) -> list[Run]:
        """The runs of which a job failed."""
        return [run for run in self.runs if run.failures]

    @property
    def examples(self) -> list[Example]:
        """Reconstructed records beside the truth, where records are kept."""
        dataset, model = self.subject.dataset, self.subject.model.name
        return [
            example
            for of, found in self.evidence.items()
            for example in examples(dataset.schema, dataset.statistics, found, dataset.name, model, of)
        ]

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
        settings: any of ``HorizontalSpec``: batch_sizes, attacks, labels, victims, seed and so on.

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
    folder = None if out is None else Path(out)
    given = None if isinstance(dataset, str) else dataset
    subject = prepare(spec, given, None if isinstance(model, str) else model, folder)
    [report] = audit_all([(spec, subject)], folder)
    return report


def audit_document(document: str | Path | Mapping[str, Any], out: str | Path | None = None) -> list[Report]:
    """Run an audit document: a YAML file, or the same as a mapping.

    Args:
        document: see ``seepage.config.document.make_specs``.
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
    folder = None if out is None else Path(out)
    subjects = Subjects(folder)
    audits = [(spec, subjects.of(spec)) for spec in specs]
    return audit_all(audits, folder, document=text)


def audit_all(
    audits: Sequence[tuple[HorizontalSpec, Subject]],
    folder: Path | None,
    listener: Listener | None = None,
    budget: float | None = None,
    document: str | None = None,
) -> list[Report]:
    """Run audits and keep their results in a folder.

    The folder gets ``audit.sqlite`` as the audit goes on, in ``networks`` the networks that were trained for it, and
    ``report.html``, ``results.json``, ``results.csv`` and ``provenance.json`` when it has ended. The same audits into
    the same folder continue from what is there; where fewer victims are asked for than before, those of before are
    shown. Files of one's own data are private (mode 0600).

    Args:
        audits: specs with what they were prepared to.
        folder: the run folder, made if need be; None to keep nothing.
        listener: told about the progress.
        budget: seconds that the attacks may take; what does not fit is left out, see ``make_plan``.
        document: text that the audits were started from, copied into the folder.

    Raises:
        BadInputError: the folder holds another audit, or a setting cannot be run.
    """
    private = any(subject.own for _, subject in audits)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise BadInputError(f"--out {str(folder)!r} is a file; give the name of a folder, which is made if need be.")
    # A positive control is one more audit, so that it is planned, kept and shared like any other.
    controls = {i: control_of(spec, subject) for i, (spec, subject) in enumerate(audits) if spec.control}
    every = [*audits, *controls.values()]
    with Store(folder, private) as store:
        if folder is not None:
            check_folder(folder, store, audits)
        # All of them before the first runs: a mistake in the last must not cost hours.
        plan = make_plan(every, store, budget, asked_before(store, audits))
        listener = listener or Listener()
        listener.planned(plan)
        store.add_run(provenance(audits))
        if folder is not None:
            keep_networks(folder, audits)
        if folder is not None and document is not None:
            write_whole(folder / DOCUMENT, document, private)
        outcomes = run_audits(every, store, listener, plan, budget)
        tasks = [task_rows(spec, subject, store, listener.started) for spec, subject in audits]
        origin = store.runs()[-1]
        if folder is not None:
            write_provenance(folder, store, private)
    held = dict(zip(controls, outcomes[len(audits) :], strict=True))
    reports = []
    for i, (spec, subject) in enumerate(audits):
        made = [*rows(spec, subject, outcomes[i]), *tasks[i], *learnt_rows(spec, subject)]
        control = rows(*controls[i], held[i]) if i in controls else None
        alarms = run_checks(Facts(spec, subject, made, outcomes[i].runs, control))
        # What an earlier run measured is never replaced by less, so figures may rest on more victims than asked for.
        most = max((len(run.victims) for run in outcomes[i].runs), default=0)
        reported = spec.model_copy(update={"victims": max(spec.victims, most)})
        reports.append(Report(reported, subject, made, outcomes[i].runs, alarms, control, plan.left_out))
    if folder is not None:
        write_html(folder / PAGE, reports, origin, private)
        write_results(folder, [row for report in reports for row in report.rows], private)
    return reports


def _own(frame: pd.DataFrame, schema: Schema | None, settings: dict[str, Any]) -> tuple[Dataset, dict[str, Any]]:
    settings = dict(settings)
    target = settings.pop("target", None)
    steering = {name: settings.pop(name) for name in [f.name for f in fields(Policy)] if name in settings}
    dataset, _ = own_table(frame, schema, target=target, policy=Policy(**steering))
    return dataset, settings
