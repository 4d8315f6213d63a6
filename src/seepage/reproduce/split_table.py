"""A published table on split learning as data, and running it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seepage.audit import Row, Store, write_results, write_whole
from seepage.audit.split_spec import SplitSpec
from seepage.audit.split_study import run_split, split_rows
from seepage.errors import BadInputError, unknown_name
from seepage.reproduce.compare import Compared, as_csv, of_row
from seepage.reproduce.reproduce import FILE, Comparison, Selection, short_commit
from seepage.reproduce.table import Place, Printed

# Records attacked in a quick look.
QUICK_RECORDS = 200


class SplitAudit(BaseModel):
    """One audit of a table.

    Attributes:
        audit: fields of ``SplitSpec`` besides those of the whole table.
        place: values on axes of the table that no figure of the audit tells.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    audit: dict[str, Any] = Field(default_factory=dict)
    place: Place = Field(default_factory=dict)


class SplitTable(Printed):
    """A table of a paper on split learning; units are trainings.

    Attributes:
        axes: ``dataset``, ``column`` (``label`` for the target), ``defense``, ``method`` (an attack or baseline), or
            any that audits or ``compared`` give values on.
        audit: fields of ``SplitSpec`` that all audits share.
        audits: what to run.
        parts: names of runs with the attacks and baselines, by their names in results, that each shows; the first is
            held against the print.
        compared: what each attack or baseline is held against, values on axes; its own name on ``method`` else.
        once: attacks and baselines that the print has once for all defenses: shown under the first alone.

    Example:
        >>> table = load_split_table("exact/table8")
        >>> table.figure({"column": "sex", "defense": "sl", "votes": 5})
        Figure(mean=0.8231, std=None)
    """

    audit: dict[str, Any]
    audits: tuple[SplitAudit, ...] = (SplitAudit(),)
    parts: dict[str, tuple[str, ...]]
    compared: dict[str, Place] = Field(default_factory=dict)
    once: tuple[str, ...] = ()

    @property
    def first(self) -> str:
        """Name of the run that is as the paper's."""
        return next(iter(self.parts))

    def specs(self, **settings: Any) -> Iterator[tuple[SplitAudit, SplitSpec]]:
        """Return the audits with their specs.

        Args:
            settings: fields of ``SplitSpec`` that replace the table's, such as ``trainings``.

        Raises:
            BadInputError: a setting cannot be used.
        """
        for planned in self.audits:
            try:
                yield planned, SplitSpec.model_validate({**self.audit, **planned.audit, **settings})
            except ValidationError as error:
                first = error.errors()[0]
                said = str(first["msg"]).removeprefix("Value error, ")
                raise BadInputError(f"{'.'.join(map(str, first['loc']))}: {said}.") from error

    def place(self, planned: SplitAudit, row: Row) -> Place:
        """Return where a result stands in the table, on the axes on which it has a value."""
        known = {
            "dataset": row["dataset"],
            "column": row["column"],
            "defense": row["defense"],
            "method": row["attack"],
            **planned.place,
            **self.compared.get(str(row["attack"]), {}),
            **self.metrics[str(row["metric"])].place,
        }
        return {axis: value for axis in self.axes if (value := known.get(axis)) is not None}

    def part(self, called: str) -> str | None:
        """Return the run that shows an attack or baseline, None where the table does not."""
        return next((name for name, shown in self.parts.items() if called in shown), None)


def split_tables() -> dict[str, SplitTable]:
    """Return all tables on split learning by name."""
    folder = resources.files("seepage.reproduce") / "split"
    texts = [file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".yaml")]
    made = [SplitTable.model_validate(yaml.safe_load(text)) for text in texts]
    return {table.name: table for table in sorted(made, key=lambda table: table.name)}


def load_split_table(name: str) -> SplitTable:
    """Return the table ``name``.

    Raises:
        BadInputError: there is none; the message names the nearest.
    """
    known = split_tables()
    if name not in known:
        raise unknown_name("table", name, known)
    return known[name]


def reproduce_split(
    table: SplitTable,
    folder: Path | None,
    trainings: int = 3,
    selection: Selection | None = None,
    run_missing: bool = True,
    say: Callable[[str], None] = lambda _: None,
    **settings: Any,
) -> Comparison:
    """Run what of a table is missing in a folder and compare all that is there, see ``reproduce``.

    Args:
        table: which.
        folder: the run folder, made if need be; None to keep nothing.
        trainings: of each audit.
        selection: ``runs``, ``attacks`` and ``only`` of it.
        run_missing: whether to run anything, or only to compare what is there.
        say: called with what is trained next.
        settings: fields of ``SplitSpec`` that replace the table's, such as records or threads.

    Raises:
        BadInputError: the selection holds nothing of the table, or a file cannot be used.
    """
    selection = selection or Selection()
    _check(table, selection)
    comparison = Comparison(table)
    with Store(folder) as store:
        for planned, spec in table.specs(trainings=trainings, **settings):
            chosen = _chosen(table, planned, spec, selection)
            if chosen is None:
                continue
            outcome = run_split(chosen, store, say=say, run_missing=run_missing)
            made = split_rows(outcome)
            comparison.rows.extend({**row, "variant": _told(planned.place)} for row in made)
            comparison.cells.extend(_cells(table, planned, chosen, made, selection, len(outcome.dataset.all)))
            note = f"{outcome.configurations:,} configurations of private cells and label"
            comparison.notes.extend(n for n in (*outcome.dataset.notes, note) if n not in comparison.notes)
    if not comparison.cells and run_missing:
        raise BadInputError(f"no cell of {table.name!r} fits all of the chosen runs, attacks and axes.")
    if folder is not None and run_missing:
        write_whole(folder / FILE, as_csv(table, comparison.cells, short_commit()))
        write_results(folder, comparison.rows)
    return comparison


def _chosen(table: SplitTable, planned: SplitAudit, spec: SplitSpec, selection: Selection) -> SplitSpec | None:
    """Return an audit with the attacks, baselines and defenses that were chosen; None with nothing left."""

    def kept(**known: str) -> bool:
        place = {"dataset": spec.dataset, **known, **planned.place}
        return all(axis not in place or str(place[axis]) in wanted for axis, wanted in selection.only.items())

    def shown(called: str) -> bool:
        run = table.part(called)
        return run is not None and (not selection.runs or run in selection.runs)

    if not kept():
        return None
    defenses = tuple(defense for defense in spec.defenses if kept(defense=defense.label))
    attacks = tuple(p for p in spec.attacks if shown(p.called))
    if selection.attacks:
        attacks = tuple(p for p in attacks if p.called in selection.attacks)
    if not defenses:
        return None
    return spec.model_copy(update={"defenses": defenses, "attacks": attacks})


def _cells(
    table: SplitTable,
    planned: SplitAudit,
    spec: SplitSpec,
    made: Sequence[Row],
    selection: Selection,
    rows: int,
) -> list[Compared]:
    target = _label_name(made)
    cells = []
    for row in made:
        called = str(row["attack"])
        run = table.part(called)
        if run is None or row["metric"] not in table.metrics or (selection.runs and run not in selection.runs):
            continue
        if called in table.once and row["defense"] != spec.defenses[0].label:
            continue
        if "column" in table.axes and row["column"] is None:
            continue
        named = {**row, "column": "label" if row["column"] == target else row["column"]}
        place = table.place(planned, named)
        if any(axis in place and str(place[axis]) not in wanted for axis, wanted in selection.only.items()):
            continue
        cells.append(of_row(table, run, place, row, rows))
    return cells


def _label_name(made: Sequence[Row]) -> str | None:
    """Return the target's name: what only figures of labels carry last."""
    named = [str(row["column"]) for row in made if row["column"] is not None and row["metric"] == "accuracy"]
    return named[-1] if named else None


def _told(place: Mapping[str, Any]) -> str | None:
    return ", ".join(f"{axis} {value}" for axis, value in place.items()) or None


def _check(table: SplitTable, selection: Selection) -> None:
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
