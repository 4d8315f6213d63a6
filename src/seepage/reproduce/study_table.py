"""A published table that a study measures, as data, and running it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from seepage.assessment.row import ResultRow
from seepage.errors import BadInputError, unknown_name
from seepage.files import write_whole
from seepage.reproduce.compare import Compared, as_csv, of_row
from seepage.reproduce.reproduce import FILE, Comparison, Selection, short_commit
from seepage.reproduce.table import Place, Printed
from seepage.results.rows import write_results
from seepage.run.provenance import study_provenance, write_provenance
from seepage.run.runner import Listener
from seepage.run.store import Store
from seepage.settings.studies import study_kind
from seepage.settings.study import Study, run_study, study_rows
from seepage.settings.study_spec import StudySpec


class StudyAudit(BaseModel):
    """One audit of a table.

    Attributes:
        audit: fields of the study's spec besides those of the whole table.
        place: values on axes of the table that no figure of the audit tells.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    audit: dict[str, Any] = Field(default_factory=dict)
    place: Place = Field(default_factory=dict)


class StudyTable(Printed):
    """A table of a paper that a study measures; units are those of the study.

    Attributes:
        study: name of the setting, see ``audit.studies``.
        axes: ``dataset``, ``model``, ``batch_size``, ``column`` (``label`` for the target), ``defense``, ``method`` (an
            attack or baseline), or any that audits, metrics or ``compared`` give values on.
        audit: fields of the study's spec that all audits share.
        audits: what to run.
        parts: names of runs with the attacks and baselines, by their names in results, that each shows; the first is
            held against the print.
        compared: what each attack or baseline is held against, values on axes; its own name on ``method`` else.
        once: attacks and baselines that the print has once for all defenses: shown under the first alone.

    Example:
        >>> table = load_study_table("exact/table8")
        >>> table.figure({"column": "sex", "defense": "sl", "votes": 5})
        Figure(mean=0.8231, std=None)
    """

    study: str
    audit: dict[str, Any] = Field(default_factory=dict)
    audits: tuple[StudyAudit, ...] = (StudyAudit(),)
    parts: dict[str, tuple[str, ...]]
    compared: dict[str, Place] = Field(default_factory=dict)
    once: tuple[str, ...] = ()

    @property
    def first(self) -> str:
        """Name of the run that is as the paper's."""
        return next(iter(self.parts))

    def specs(self, **settings: Any) -> Iterator[tuple[StudyAudit, StudySpec]]:
        """Return the audits with their specs.

        Args:
            settings: fields of the study's spec that replace the table's, such as ``units``.

        Raises:
            BadInputError: a setting cannot be used.
        """
        for planned in self.audits:
            yield planned, study_kind(self.study).spec.of(**{**self.audit, **planned.audit, **settings})

    def place(self, planned: StudyAudit, row: ResultRow) -> Place:
        """Return where a result stands in the table, on the axes on which it has a value."""
        known = {
            "dataset": row.dataset,
            "model": row.model,
            "batch_size": row.batch_size,
            "column": row.column,
            "defense": row.defense,
            "method": row.attack,
            **planned.place,
            **self.compared.get(row.attack, {}),
            **self.metrics[row.metric].place,
        }
        return {axis: value for axis in self.axes if (value := known.get(axis)) is not None}

    def part(self, called: str) -> str | None:
        """Return the run that shows an attack or baseline, None where the table does not."""
        return next((name for name, shown in self.parts.items() if called in shown), None)


def study_tables() -> dict[str, StudyTable]:
    """Return all tables that studies measure, by name."""
    folder = resources.files("seepage.reproduce") / "studies"
    texts = [file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".yaml")]
    made = [StudyTable.model_validate(yaml.safe_load(text)) for text in texts]
    return {table.name: table for table in sorted(made, key=lambda table: table.name)}


def load_study_table(name: str) -> StudyTable:
    """Return the table ``name``.

    Raises:
        BadInputError: there is none; the message names the nearest.
    """
    known = study_tables()
    if name not in known:
        raise unknown_name("table", name, known)
    return known[name]


def reproduce_study(
    table: StudyTable,
    folder: Path | None,
    units: int | None = None,
    selection: Selection | None = None,
    listener: Listener | None = None,
    run_missing: bool = True,
    **settings: Any,
) -> Comparison:
    """Run what of a table is missing in a folder and compare all that is there, see ``reproduce``.

    Args:
        table: which.
        folder: the run folder, made if need be; None to keep nothing.
        units: of each audit; as the table has it if None.
        selection: ``runs``, ``attacks`` and ``only`` of it.
        listener: told about the progress.
        run_missing: whether to run anything, or only to compare what is there.
        settings: fields of the study's spec that replace the table's, such as records or threads.

    Raises:
        BadInputError: the selection holds nothing of the table, or a file cannot be used.
    """
    selection = selection or Selection()
    _check(table, selection)
    comparison = Comparison(table)
    studies: list[tuple[StudySpec, Study]] = []
    with Store(folder) as store:
        more = {**settings, **({} if units is None else {"units": units})}
        for planned, spec in table.specs(**more):
            chosen = _chosen(table, planned, spec, selection)
            if chosen is None:
                continue
            study = study_kind(table.study).study(chosen)
            studies.append((chosen, study))
            made = study_rows(run_study(study, store, listener, run_missing))
            comparison.rows.extend(replace(row, variant=_told(planned.place)) for row in made)
            first = chosen.swept[0].called if chosen.swept else None
            comparison.cells.extend(_cells(table, planned, study, first, made, selection))
            comparison.notes.extend(n for n in study.notes if n not in comparison.notes)
        if not comparison.cells and run_missing:
            raise BadInputError(
                f"no cell of {table.name!r} fits all of the chosen runs, attacks and axes. {_values(table)}"
            )
        if run_missing:
            store.add_run(study_provenance(studies))
            if folder is not None:
                write_provenance(folder, store)
    if folder is not None and run_missing:
        write_whole(folder / FILE, as_csv(table, comparison.cells, short_commit()))
        write_results(folder, comparison.rows)
    return comparison


def _chosen(table: StudyTable, planned: StudyAudit, spec: StudySpec, selection: Selection) -> StudySpec | None:
    """Return an audit with the attacks, baselines and defenses that were chosen; None with nothing left."""

    def kept(**known: str) -> bool:
        place = {"dataset": spec.dataset, **known, **planned.place}
        return all(axis not in place or str(place[axis]) in wanted for axis, wanted in selection.only.items())

    def shown(called: str) -> bool:
        run = table.part(called)
        return run is not None and (not selection.runs or run in selection.runs)

    if not kept():
        return None
    defenses = tuple(defense for defense in spec.swept if kept(defense=defense.called))
    attacks = tuple(p for p in spec.attacks if shown(p.called))
    if selection.attacks:
        attacks = tuple(p for p in attacks if p.called in selection.attacks)
    if spec.swept and not defenses:
        return None
    return spec.model_copy(update={"attacks": attacks, **({"defenses": defenses} if spec.swept else {})})


def _cells(
    table: StudyTable,
    planned: StudyAudit,
    study: Study,
    first: str | None,
    made: Sequence[ResultRow],
    selection: Selection,
) -> list[Compared]:
    cells = []
    for row in made:
        called = row.attack
        run = table.part(called)
        if run is None or row.metric not in table.metrics or (selection.runs and run not in selection.runs):
            continue
        if called in table.once and row.defense != first:
            continue
        # Figures of all columns together and of single ones never stand in the same table.
        if ("column" in table.axes) == (row.column is None):
            continue
        named = replace(row, column="label" if row.column == study.target else row.column)
        place = table.place(planned, named)
        if any(axis in place and str(place[axis]) not in wanted for axis, wanted in selection.only.items()):
            continue
        cells.append(of_row(table, run, place, row, study.rows))
    return cells


def _values(table: StudyTable) -> str:
    """Return what is known to stand on the axes that a selection names, before anything has run."""
    found: dict[str, list[str]] = {axis: [] for axis in table.axes}

    def note(place: Mapping[str, Any]) -> None:
        for axis, value in place.items():
            if axis in found and str(value) not in found[axis]:
                found[axis].append(str(value))

    def walk(level: Any, axes: Sequence[str]) -> None:
        if axes and isinstance(level, dict):
            for key, inner in level.items():
                note({axes[0]: key})
                walk(inner, axes[1:])

    for planned, spec in table.specs():
        note({"dataset": spec.dataset, **planned.place})
        for defense in spec.swept:
            note({"defense": defense.called})
    walk(table.published, table.axes)
    told = [f"{axis}: {', '.join(values)}" for axis, values in found.items() if values]
    return f"Known values: {'; '.join(told)}." if told else ""


def _told(place: Mapping[str, Any]) -> str | None:
    return ", ".join(f"{axis} {value}" for axis, value in place.items()) or None


def _check(table: StudyTable, selection: Selection) -> None:
    for run in selection.runs:
        if run not in table.parts:
            raise unknown_name(f"run of {table.name}:", run, table.parts)
    shown = {called for names in table.parts.values() for called in names}
    for attack in selection.attacks:
        if attack not in shown:
            raise unknown_name(f"attack of {table.name}:", attack, shown)
    for axis in selection.only:
        if axis not in table.axes:
            raise unknown_name(f"axis of {table.name}:", axis, table.axes)
