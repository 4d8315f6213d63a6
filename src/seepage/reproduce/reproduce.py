"""Runs a published table, or a part of it, and lays the result beside the print."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seepage.assessment import Measurement
from seepage.assessment.row import ResultRow
from seepage.errors import BadInputError, unknown_name
from seepage.files import write_whole
from seepage.reproduce.compare import Compared, Gain, as_csv, compare, compare_tuned, gain
from seepage.reproduce.table import PlannedRun, Printed, PublishedTable
from seepage.results.rows import rows, write_results
from seepage.run.provenance import check_folder, commit, provenance, write_provenance
from seepage.run.runner import Listener, Outcome, Run, held_runs, make_plan, run_audits
from seepage.run.store import Store
from seepage.settings.horizontal_spec import HorizontalSpec
from seepage.settings.part import Part
from seepage.settings.subject import Subject, Subjects, keep_networks
from seepage.settings.tasks import learnt_rows, task_rows

FILE = "comparison.csv"
# Victims of a quick look.
QUICK = 3
# More than anyone runs.
_ALL = 1_000_000


@dataclass(frozen=True)
class Selection:
    """Which part of a table to run; an empty choice is all of it.

    Attributes:
        batch_sizes: as in ``HorizontalSpec``.
        attacks: by name in results.
        runs: names of runs (``faithful``, ``default``).
        labels: ``true``, ``restored``.
        only: values to keep on axes of the table, as texts.
    """

    batch_sizes: Collection[int] = ()
    attacks: Collection[str] = ()
    runs: Collection[str] = ()
    labels: Collection[str] = ()
    only: Mapping[str, Collection[str]] = field(default_factory=dict)

    def of(self, table: PublishedTable, planned: PlannedRun, spec: HorizontalSpec) -> HorizontalSpec | None:
        """Return the part of an audit that was chosen, None for nothing of it."""
        if (self.runs and planned.name not in self.runs) or (self.labels and spec.labels not in self.labels):
            return None

        def kept(called: str | None = None, **more: Any) -> bool:
            place = table.place(planned, spec, called, **more)
            return all(axis not in place or str(place[axis]) in wanted for axis, wanted in self.only.items())

        def those(parts: tuple[Part, ...]) -> tuple[Part, ...]:
            return tuple(part for part in parts if kept(part.called))

        if not kept():
            return None
        sizes = tuple(
            size
            for size in spec.batch_sizes
            if (not self.batch_sizes or size in self.batch_sizes) and kept(batch_size=size)
        )
        defenses = tuple(part for part in spec.defenses if kept(defense=part.called))
        attacks = tuple(
            part
            for part in those(spec.attacks)
            if not self.attacks or {part.called, planned.tuned(part.called)} & {*self.attacks}
        )
        # Beside attacks, baselines serve the lift; alone, they are what is compared.
        baselines = spec.baselines if spec.attacks else those(spec.baselines)
        if not sizes or not defenses or (spec.attacks and not attacks) or (spec.baselines and not baselines):
            return None
        return spec.model_copy(
            update={"batch_sizes": sizes, "attacks": attacks, "defenses": defenses, "baselines": baselines}
        )


@dataclass(frozen=True)
class Comparison:
    """A table as far as it was run.

    Attributes:
        table: what was printed.
        cells: ours beside theirs.
        gains: each other run against the first one on the same victims, method and labels.
        rows: all results, see ``seepage.results.rows``.
        notes: on the data.
    """

    table: Printed
    cells: list[Compared] = field(default_factory=list)
    gains: dict[str, list[Gain]] = field(default_factory=dict)
    rows: list[ResultRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def reproduce(
    table: PublishedTable,
    folder: Path | None,
    victims: int = 20,
    selection: Selection | None = None,
    listener: Listener | None = None,
    run_missing: bool = True,
    say: Callable[[str], None] = lambda _: None,
    **settings: Any,
) -> Comparison:
    """Run what of a table is missing in a folder and compare all that is there.

    The folder gets ``audit.sqlite`` as the runs go on (a stopped one continues), then ``comparison.csv``,
    ``results.json``, ``results.csv`` and ``provenance.json``. Different parts may be run one after the other
    into the same folder.

    Args:
        table: which.
        folder: the run folder, made if need be; None to keep nothing.
        victims: batches attacked in each cell; without ``run_missing``, all that are there count.
        selection: the part to run; all if None.
        listener: told about the progress.
        run_missing: whether to run anything, or only to compare what is there.
        say: called with what is trained next, where a table prints how well the task is learnt.
        settings: fields of ``HorizontalSpec`` that replace the table's, such as device or threads.

    Raises:
        BadInputError: the selection holds nothing of the table, the folder holds another table, other
            settings or an audit, or a file cannot be used.
    """
    selection = selection or Selection()
    check_selection(table, selection)
    planned = list(table.specs(victims=victims, **settings))
    chosen = [selection.of(table, run, spec) for run, spec in planned]
    if not any(chosen):
        raise BadInputError(
            f"no cell of {table.name!r} fits all of the chosen batch sizes, attacks, runs, labels and axes."
        )
    with Store(folder) as store:
        # Data that nobody asks for need not be at hand.
        wanted = {spec.dataset for spec in chosen if spec is not None}
        there = {audit["spec"]["dataset"] for run in store.runs()[-1:] for audit in run["audits"]}
        wanted = there if not run_missing and there & wanted else there | wanted
        known = [(run, spec, part) for (run, spec), part in zip(planned, chosen, strict=True) if spec.dataset in wanted]
        subjects = Subjects(folder)
        audits = [(spec, subjects.of(spec)) for _, spec, _ in known]
        if folder is not None:
            check_folder(folder, store, audits)
        if run_missing:
            parts = [(part, subjects.of(part)) for _, _, part in known if part is not None]
            plan = make_plan(parts, store)
            store.add_run(provenance(audits))
            if folder is not None:
                keep_networks(folder, parts)
            run_audits(parts, store, listener, plan)
            for run, _, part in known:
                if part is not None and run.recipe is not None:
                    task_rows(part, subjects.of(part), store, say, run.recipe)
        comparison = Comparison(table)
        held: list[tuple[PlannedRun, HorizontalSpec, list[Run]]] = []
        for run, spec, _ in known:
            subject = subjects.of(spec)
            every = spec if run_missing else spec.model_copy(update={"victims": _ALL})
            runs = held_runs(every, subject, store)
            made = rows(every, subject, Outcome(runs))
            if run.recipe is not None:
                made += task_rows(spec, subject, store, say, run.recipe, train=False)
            made += learnt_rows(spec, subject)
            held.append((run, spec, runs))
            comparison.rows.extend(made)
            comparison.cells.extend(compare(table, run, spec, made, _rows(subject)))
            comparison.cells.extend(compare_tuned(table, run, spec, runs, _rows(subject)))
            comparison.notes.extend(n for n in subject.dataset.notes if n not in comparison.notes)
        if not run_missing and not comparison.cells and not store.is_empty:
            raise BadInputError(
                f"what {str(folder)!r} holds was measured by other code, another PyTorch, on another kind of device or "
                "with another number of threads, so it cannot be compared as this program's figures; run without "
                "--compare-only to measure it again, or install the commit that its provenance.json names."
            )
        if folder is not None and run_missing:
            write_provenance(folder, store)
    comparison.gains.update(_gains(table, held))
    if folder is not None and run_missing:
        write_whole(folder / FILE, as_csv(table, comparison.cells, short_commit()))
        write_results(folder, comparison.rows)
    return comparison


def check_selection(table: PublishedTable, selection: Selection) -> None:
    """Refuse a choice that a table does not have.

    Raises:
        BadInputError: names what is unknown, and the nearest names.
    """
    specs = [(run.name, spec) for run, spec in table.specs()]
    attacks = {run.tuned(part.called) or part.called for run, spec in table.specs() for part in spec.attacks}
    known: dict[str, tuple[Collection[object], set[str]]] = {
        "batch size": (selection.batch_sizes, {str(size) for _, spec in specs for size in spec.batch_sizes}),
        "attack": (selection.attacks, attacks),
        "run": (selection.runs, {name for name, _ in specs}),
        "kind of labels": (selection.labels, {spec.labels for _, spec in specs}),
    }
    known |= {
        axis.replace("_", " "): (wanted, set(map(str, table.values(axis)))) for axis, wanted in selection.only.items()
    }
    for kind, (chosen, names) in known.items():
        for name in chosen:
            if str(name) not in names:
                raise unknown_name(f"{kind} of {table.name}:", str(name), names)


def _rows(subject: Subject) -> int:
    dataset = subject.dataset
    return len(dataset.train) + (0 if dataset.test is None else len(dataset.test))


def short_commit() -> str:
    """Return the first digits of the program's commit, a plus where files were changed; empty outside a checkout."""
    found = commit()
    return "" if found is None else str(found["hash"])[:9] + ("+" if found["dirty"] else "")


def _gains(
    table: PublishedTable, held: Sequence[tuple[PlannedRun, HorizontalSpec, list[Run]]]
) -> dict[str, list[Gain]]:
    first = table.first
    by_cell = {
        (planned.name, metric, run.called, tuple(place.items())): (run, place)
        for planned, spec, runs in held
        for run in runs
        for metric in _means(run, table)
        if run.is_attack
        and (place := table.place(planned, spec, run.called, metric, batch_size=run.batch_size, defense=run.defense))
    }
    gains: dict[str, list[Gain]] = {}
    for (name, metric, called, where), (run, place) in by_cell.items():
        other = by_cell.get((first, metric, called, where))
        if name != first and other is not None:
            gains.setdefault(name, []).append(gain(metric, place, run, other[0]))
    return gains


def _means(run: Run, table: PublishedTable) -> list[str]:
    """Return the metrics of a table that each victim of a run has a value of."""
    return [
        measured.metric
        for measured in run.measured
        if isinstance(measured, Measurement) and measured.column is None and measured.metric in table.metrics
    ]
