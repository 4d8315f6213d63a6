"""Runs a published table, or a part of it, and lays the result beside the print."""

from __future__ import annotations

import copy
import csv
import io
import itertools
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from seepage.assessment.row import ResultRow
from seepage.errors import BadInputError, unknown_name
from seepage.files import write_whole
from seepage.reproduce.compare import Compared, Gain, as_csv, compare, compare_tuned, gain
from seepage.reproduce.drawing import drawing
from seepage.reproduce.table import Place, PublishedTable, Scalar, TableAudit, Unit
from seepage.results.rows import rows_of, write_results
from seepage.run.elsewhere import Machines
from seepage.run.plan import check_counts, make_plan
from seepage.run.provenance import check_folder, commit, provenance, write_provenance
from seepage.run.runner import Listener, Run, run_audits, stored_runs
from seepage.run.store import Store
from seepage.settings.catalogue import setting
from seepage.settings.setting import Audit, Configuration, Given, TaskTraining
from seepage.settings.units import Tables

FILE, FIGURE = "comparison.csv", "figure.svg"


@dataclass(frozen=True)
class Selection:
    """The selected part of a table, by names of runs such as ``faithful`` and the like; if empty, the whole table."""

    batch_sizes: Collection[int] = ()
    attacks: Collection[str] = ()
    runs: Collection[str] = ()
    labels: Collection[str] = ()
    only: Mapping[str, Collection[str]] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, set[str]]:
        """Selected values by axis, also of batch size and labels where the table has no such axes."""
        named = {"batch_size": {*map(str, self.batch_sizes)}, "labels": {*self.labels}}
        return {name: chosen for name, chosen in named.items() if chosen} | {k: {*v} for k, v in self.only.items()}

    def keeps(self, place: Place) -> bool:
        """Return whether a figure is selected, judged by the axes on which its place has a value."""
        return all(axis not in place or str(place[axis]) in wanted for axis, wanted in self.values.items())


@dataclass(frozen=True)
class ChosenPart:
    """The selected part of an audit: points of the sweep, attacks, and the names that the comparison shows.

    Points have no batch sizes where the setting sweeps over none. Baselines that are not shown serve the lift.
    """

    audit: TableAudit
    configurations: tuple[Configuration, ...] = ()
    attacks: frozenset[str] = frozenset()
    shown: frozenset[str] = frozenset()

    @classmethod
    def of(cls, audit: TableAudit, selection: Selection, all_attacks: set[str]) -> ChosenPart:
        """Return the selected part of an audit."""
        attack_names, wanted = {part.title for part in audit.spec.attacks}, {*selection.attacks}
        shown = {
            label
            for label, run in audit.shown.items()
            if (not selection.runs or run in selection.runs) and (label in attack_names or label not in all_attacks)
            if selection.keeps(audit.axes_of(label))
        }
        attacks = {a for a in attack_names & shown if not wanted or {a, audit.planned.tuned(a)} & wanted}
        others = (shown - attack_names) & wanted if attack_names and wanted and not attacks else shown - attack_names
        selected = tuple(c for c in audit.configurations if selection.keeps(audit.axes_of(configuration=c)))
        return (
            cls(audit, selected, frozenset(attacks), frozenset(attacks | others))
            if selected and attacks | others
            else cls(audit)
        )

    def has(self, configuration: Configuration) -> bool:
        """Return whether a point of the sweep is selected."""
        return any(
            c.defense == configuration.defense and c.batch_size in (None, configuration.batch_size)
            for c in self.configurations
        )

    def narrowed(self, audit: Audit) -> Audit:
        """Return the audit with only the selected parts and the parts that their lift needs."""
        chosen = copy.copy(audit)
        chosen.configurations = tuple(c for c in audit.configurations if self.has(c))
        chosen.parts = tuple(
            part
            for part in audit.parts
            if part.label in self.shown or (part.kind != "attack" and (self.attacks or part.kind == "about"))
        )
        return chosen

    def counts(
        self, selection: Selection, place: Place, label: str, configuration: Configuration, all_there: bool
    ) -> bool:
        """Return whether the comparison shows a figure: selected ones, ``all_there`` also where not measured now.

        Those that are measured only for a lift are not shown.
        """
        if self.has(configuration):
            if label in self.shown and selection.keeps({**self.audit.axes_of(configuration=configuration), **place}):
                return True
            if label in self.attacks or label not in {attack.title for attack in self.audit.spec.attacks}:
                return False
        return all_there


@dataclass(frozen=True)
class TableComparison:
    """The comparison of a table with our results so far; ``gains`` are of each other run against the first one."""

    table: PublishedTable
    cells: list[Compared] = field(default_factory=list)
    gains: dict[str, list[Gain]] = field(default_factory=dict)
    rows: list[ResultRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def reproduce(
    table: PublishedTable,
    folder: Path | None,
    units: int | None = None,
    selection: Selection | None = None,
    listener: Listener | None = None,
    run_missing: bool = True,
    say: Callable[[str], None] = lambda _: None,
    machines: Machines | None = None,
    **fields: object,
) -> TableComparison:
    """Run the audits of a published table that the folder lacks, and compare all results in the folder.

    The folder gets ``audit.sqlite`` as the runs go on (a stopped one continues), then ``comparison.csv``,
    ``results.json``, ``results.csv`` and ``provenance.json``. Different parts may be run one after the other
    into the same folder; baselines that were measured for the lift of the chosen attacks alone are not shown.

    Args:
        folder: the run folder, made if need be; None to keep nothing.
        units: number of repetitions (victims, trainings, attack seeds); as the table has it if None. Without
            ``run_missing``, all that are there count.
        selection: the part to run; all if None.
        run_missing: whether to run anything, or only to compare what is there of the selection.
        say: called with what is trained next, where a table prints how well the task is learnt.
        machines: other machines that carry the jobs out, see ``integrations.dask``; this one if None.
        fields: fields of the setting's spec that replace the table's, such as device, threads or time budget.

    Raises:
        BadInputError: the selection holds nothing of the table, the folder holds another table, other
            settings or an audit, or a file cannot be used.
    """
    selection, listener = selection or Selection(), listener or Listener()
    check_selection(table, selection)
    chosen = setting(table.setting)
    if units is not None:
        fields = {**fields, chosen.spec.repeats: units}
    planned = list(table.planned(**fields))
    for audit in planned:
        check_counts([audit.spec])
    attacks = {part.title for audit in planned for part in audit.spec.attacks}
    parts = [ChosenPart.of(audit, selection, attacks) for audit in planned]
    if not any(part.configurations for part in parts):
        raise BadInputError(
            f"no cell of {table.name!r} fits all of the chosen batch sizes, attacks, runs, labels and axes."
        )
    comparison = TableComparison(table)
    with Store(folder) as store:
        # Data that nobody asks for need not be at hand.
        wanted = {part.audit.spec.dataset for part in parts if part.configurations}
        there = {audit["spec"]["dataset"] for run in store.runs()[-1:] for audit in run["audits"]}
        wanted = there if not run_missing and there & wanted else there | wanted
        parts = [part for part in parts if part.audit.spec.dataset in wanted]
        tables = Tables(folder)
        audits = [chosen.prepare(part.audit.spec, Given(folder=folder), tables) for part in parts]
        if folder is not None:
            check_folder(folder, store, audits)
        if run_missing:
            narrowed = [part.narrowed(audit) for part, audit in zip(parts, audits, strict=True) if part.configurations]
            _run(narrowed, audits, store, folder, listener, comparison, machines)
        earlier_runs = [stored_runs(audit, store, None if run_missing else sys.maxsize) for audit in audits]
        shown = set[tuple[str, Unit, tuple[tuple[str, Scalar], ...]]]()
        for part, audit, runs in zip(parts, audits, earlier_runs, strict=True):
            about = audit.about
            if audit.dataset is not None:
                # Of all rows, not of the client's alone.
                about = replace(about, rows=sum(len(t) for t in (audit.dataset.train, audit.dataset.test) if t))
            place = ", ".join(f"{axis} {value}" for axis, value in part.audit.planned.place.items())
            training = TaskTraining(part.audit.planned.recipe, part.configurations if run_missing else ())
            rows = [*rows_of(audit, runs), *audit.further_rows(store.setup, say, training)]
            comparison.rows.extend(replace(row, variant=row.variant or place or None) for row in rows)
            cells = compare(part.audit, rows, about) + compare_tuned(part.audit, audit.configurations, runs, about)
            for cell, label, configuration in cells:
                where = (cell.run, cell.unit, tuple(sorted(cell.place.items())))
                # What the print has once, such as a baseline of two protocols, is shown once.
                if label in table.once and where in shown:
                    continue
                if part.counts(selection, cell.place, label, configuration, all_there=run_missing):
                    shown.add(where)
                    comparison.cells.append(cell)
            comparison.notes.extend(note for note in about.notes if note not in comparison.notes)
        if not run_missing and not store.is_empty and not any(earlier_runs) and not comparison.rows:
            raise BadInputError(
                f"what {str(folder)!r} holds was measured by other code, another PyTorch, on another kind of device or "
                "with another number of threads, so it cannot be compared as this program's figures; run without "
                "--compare-only to measure it again, or install the commit that its provenance.json names."
            )
        if folder is not None and run_missing:
            write_provenance(folder, store)
    comparison.gains.update(_gains(table, selection, parts, earlier_runs, run_missing))
    if folder is not None and run_missing:
        text = as_csv(table, comparison.cells, short_commit())
        write_whole(folder / FILE, text, private=False)
        if (figure := drawing(table, list(csv.DictReader(io.StringIO(text))))) is not None:
            write_whole(folder / FIGURE, figure, private=False)
        write_results(folder, comparison.rows)
    return comparison


def _run(
    narrowed: Sequence[Audit],
    audits: Sequence[Audit],
    store: Store,
    folder: Path | None,
    listener: Listener,
    comparison: TableComparison,
    machines: Machines | None,
) -> None:
    budget = audits[0].spec.time_budget
    # All of them before the first runs: a mistake in the last must not cost hours.
    plan = make_plan(narrowed, store, budget, slots=None if machines is None else machines.slots())
    listener.planned(plan)
    store.add_run(provenance(audits))
    if folder is not None:
        for audit in narrowed:
            audit.save(folder)
    for runs in run_audits(narrowed, store, listener, plan, budget, machines=machines):
        comparison.failed.update((run.label, run.failures[-1].message) for run in runs if run.failures)


def check_selection(table: PublishedTable, selection: Selection) -> None:
    """Refuse a selection that matches nothing in a table."""
    planned = list(table.planned())
    for name in ("batch_sizes", "labels"):
        if getattr(selection, name) and not all(hasattr(audit.spec, name) for audit in planned):
            raise BadInputError(
                f"{table.name!r} is of {table.setting} learning and has no choice of "
                f"{name.removesuffix('s').replace('_', ' ')}; choose with --part, --attack and --only."
            )
    options: dict[str, tuple[Collection[object], set[str]]] = {
        "attack": (selection.attacks, {part.planned.tuned(label) or label for part in planned for label in part.shown}),
        "run": (selection.runs, {run for part in planned for run in part.shown.values()}),
    }
    places = [
        part.axes_of(label, metric, configuration)
        for part in planned
        for label, configuration, metric in itertools.product(part.shown, part.configurations, table.metrics)
    ]
    for axis, chosen in selection.values.items():
        if axis in selection.only and axis not in table.axes:
            raise unknown_name(f"axis of {table.name}:", axis, table.axes)
        # The columns that figures are of are not known before anything is run.
        if all(axis in place for place in places):
            kind = "kind of labels" if axis == "labels" else axis.replace("_", " ")
            options[kind] = (chosen, {str(place[axis]) for place in places})
    for kind, (chosen, values) in options.items():
        for name in chosen:
            if str(name) not in values:
                raise unknown_name(f"{kind} of {table.name}:", str(name), values)


def short_commit() -> str:
    """Return the first digits of the program's commit, a plus where files were changed; empty outside a checkout."""
    state = commit()
    return "" if state is None else str(state["hash"])[:9] + ("+" if state["dirty"] else "")


def _gains(
    table: PublishedTable,
    selection: Selection,
    parts: Sequence[ChosenPart],
    runs_of_parts: Sequence[list[Run]],
    all_there: bool,
) -> dict[str, list[Gain]]:
    by_cell: dict[tuple[str, str, str, tuple[tuple[str, Scalar], ...]], tuple[Run, Place]] = {}
    for part, runs in zip(parts, runs_of_parts, strict=True):
        for run in runs:
            configuration, name = run.configuration, part.audit.shown.get(run.label)
            for metric in _means(run, table) if run.is_attack else ():
                place = part.audit.place(run.label, metric, configuration)
                if name is not None and place and part.counts(selection, place, run.label, configuration, all_there):
                    by_cell[name, metric, run.label, tuple(place.items())] = run, place
    gains: dict[str, list[Gain]] = {}
    for (name, metric, label, where), (run, place) in by_cell.items():
        other = by_cell.get((table.first, metric, label, where))
        if name != table.first and other is not None:
            gains.setdefault(name, []).append(gain(metric, place, run, other[0]))
    return gains


def _means(run: Run, table: PublishedTable) -> list[str]:
    """Return the metrics of a table for which each unit of a run has a value."""
    return [
        measured.metric
        for measured in run.measured
        if measured.entropy is None and measured.column is None and measured.metric in table.metrics
    ]
