"""Runs a published table, or a part of it, and lays the result beside the print."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seepage.audit import (
    AuditSpec,
    Listener,
    Outcome,
    Row,
    Run,
    Store,
    Subjects,
    check_folder,
    held_runs,
    make_plan,
    provenance,
    rows,
    run_audits,
    write_provenance,
    write_results,
    write_whole,
)
from seepage.errors import BadInputError, unknown_name
from seepage.reproduce.compare import Compared, Gain, as_csv, compare, gain
from seepage.reproduce.table import PlannedRun, PublishedTable

FILE = "comparison.csv"
# More than anyone runs.
_ALL = 1_000_000


@dataclass(frozen=True)
class Selection:
    """Which part of a table to run; an empty choice is all of it.

    Attributes:
        batch_sizes: as in ``AuditSpec``.
        attacks: by name in results.
        runs: names of runs (``faithful``, ``default``).
        labels: ``true``, ``restored``.
    """

    batch_sizes: Collection[int] = ()
    attacks: Collection[str] = ()
    runs: Collection[str] = ()
    labels: Collection[str] = ()

    def of(self, planned: PlannedRun, spec: AuditSpec) -> AuditSpec | None:
        """Return the part of a run that was chosen, None for nothing of it."""
        if (self.runs and planned.name not in self.runs) or (self.labels and spec.labels not in self.labels):
            return None
        sizes = tuple(size for size in spec.batch_sizes if not self.batch_sizes or size in self.batch_sizes)
        attacks = tuple(part for part in spec.attacks if not self.attacks or part.called in self.attacks)
        if not sizes or (spec.attacks and not attacks):
            return None
        return spec.model_copy(update={"batch_sizes": sizes, "attacks": attacks})


@dataclass(frozen=True)
class Comparison:
    """A table as far as it was run.

    Attributes:
        table: what was printed.
        cells: ours beside theirs.
        gains: each other run against the first one on the same victims, method and labels.
        rows: all results, see ``seepage.audit.rows``.
    """

    table: PublishedTable
    cells: list[Compared] = field(default_factory=list)
    gains: dict[str, list[Gain]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)


def reproduce(
    table: PublishedTable,
    folder: Path | None,
    victims: int = 20,
    selection: Selection | None = None,
    listener: Listener | None = None,
    run_missing: bool = True,
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
        settings: fields of ``AuditSpec`` that replace the table's, such as device or threads.

    Raises:
        BadInputError: the selection holds nothing of the table, the folder holds another table, other
            settings or an audit, or a file cannot be used.
    """
    selection = selection or Selection()
    check_selection(table, selection)
    planned = list(table.specs(victims=victims, **settings))
    chosen = [(run, spec, selection.of(run, spec)) for run, spec in planned]
    if not any(part for _, _, part in chosen):
        raise BadInputError(f"no cell of {table.name!r} fits all of the chosen batch sizes, attacks, runs and labels.")
    subjects = Subjects()
    audits = [(spec, subjects.of(spec)) for _, spec in planned]
    with Store(folder) as store:
        if folder is not None:
            check_folder(folder, store, audits)
        if run_missing:
            parts = [(part, subjects.of(part)) for _, _, part in chosen if part is not None]
            plan = make_plan(parts, store)
            store.add_run(provenance(audits))
            run_audits(parts, store, listener, plan)
        else:
            planned = [(run, spec.model_copy(update={"victims": _ALL})) for run, spec in planned]
        held = [(run, spec, held_runs(spec, subjects.of(spec), store)) for run, spec in planned]
        is_empty = store.is_empty
        if folder is not None and run_missing:
            write_provenance(folder, store)
    comparison = Comparison(table)
    for run, spec, runs in held:
        made = rows(spec, subjects.of(spec), Outcome(runs))
        comparison.rows.extend(made)
        comparison.cells.extend(compare(table, run, spec, made))
    if not run_missing and not comparison.cells and not is_empty:
        raise BadInputError(
            f"what {str(folder)!r} holds was measured by other code, another PyTorch, on another kind of device or "
            "with another number of threads, so it cannot be compared as this program's figures; run without "
            "--compare-only to measure it again, or install the commit that its provenance.json names."
        )
    comparison.gains.update(_gains(table, held))
    if folder is not None and run_missing:
        write_whole(folder / FILE, as_csv(comparison.cells))
        write_results(folder, comparison.rows)
    return comparison


def check_selection(table: PublishedTable, selection: Selection) -> None:
    """Refuse a choice that a table does not have.

    Raises:
        BadInputError: names what is unknown, and the nearest names.
    """
    specs = [(run.name, spec) for run, spec in table.specs()]
    known: dict[str, tuple[Collection[object], set[str]]] = {
        "batch size": (selection.batch_sizes, {str(size) for _, spec in specs for size in spec.batch_sizes}),
        "attack": (selection.attacks, {part.called for _, spec in specs for part in spec.attacks}),
        "run": (selection.runs, {name for name, _ in specs}),
        "kind of labels": (selection.labels, {spec.labels for _, spec in specs}),
    }
    for kind, (chosen, names) in known.items():
        for name in chosen:
            if str(name) not in names:
                raise unknown_name(f"{kind} of {table.name}:", str(name), names)


def _gains(table: PublishedTable, held: Sequence[tuple[PlannedRun, AuditSpec, list[Run]]]) -> dict[str, list[Gain]]:
    first = table.runs[0].name
    by_cell = {
        (planned.name, spec.labels, run.batch_size, run.called): run
        for planned, spec, runs in held
        for run in runs
        if run.is_attack
    }
    gains: dict[str, list[Gain]] = {}
    for (name, labels, size, called), run in by_cell.items():
        other = by_cell.get((first, labels, size, called))
        if name != first and other is not None:
            gains.setdefault(name, []).append(gain(table.metric, labels, run, other))
    return gains
