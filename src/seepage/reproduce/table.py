"""A published table as data: the audits that make it and the figures it prints."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from importlib import resources
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from seepage.assessment.utility import Recipe
from seepage.errors import unknown_name
from seepage.settings.horizontal_spec import HorizontalSpec, make_spec

_SUFFIX = ".yaml"

Scalar = str | int | float
# Where a figure stands in a table: its value on each axis.
Place = dict[str, Scalar]
Unit = Literal["percent", "plain"]


class Figure(BaseModel):
    """One published figure; rates are in [0, 1].

    Attributes:
        mean: over the published units (victims, or trainings), or a figure that no single one has.
        std: population standard deviation over them; None where the table prints none.
    """

    model_config = ConfigDict(frozen=True)

    mean: float
    std: float | None


class Reading(BaseModel):
    """What a table prints of one metric of results.

    Attributes:
        place: where: values on axes of the table.
        unit: ``percent``, or ``plain`` for figures that are no rates.
        published: number of units behind a published figure, the table's number of victims if None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    place: Place = Field(default_factory=dict)
    unit: Unit = "percent"
    published: int | None = Field(default=None, ge=2)


class PlannedRun(BaseModel):
    """Audits of a table that belong together.

    Attributes:
        name: what the comparison calls them, such as ``faithful``.
        audit: fields of ``HorizontalSpec`` besides those of the whole table.
        sweep: further fields by their values; every combination is an audit.
        place: values on axes of the table that no field of the audit tells.
        compared: what each attack or baseline is held against: a published method, or values on axes; its own
            name where none is given here.
        grid: attacks by options with a list of values each, and every combination a point. The paper's figure is that
            of the point that is best on the truth; see ``audit.tuning``.
        task: arguments of ``Recipe``: how the task is trained, for tables that print its accuracy.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    audit: dict[str, Any]
    sweep: dict[str, list[Any]] = Field(default_factory=dict)
    place: Place = Field(default_factory=dict)
    compared: dict[str, str | Place] = Field(default_factory=dict)
    grid: dict[str, dict[str, list[Any]]] = Field(default_factory=dict)
    task: dict[str, Any] | None = None

    @property
    def recipe(self) -> Recipe | None:
        """How the task is trained, None where the table prints nothing of it."""
        if self.task is None:
            return None
        values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in self.task.items()}
        return Recipe(**values)

    def audits(self) -> Iterator[dict[str, Any]]:
        """Return the fields of each audit."""
        points = [_point(attack, options) for attack, grid in self.grid.items() for options in _combinations(grid)]
        for swept in _combinations(self.sweep):
            yield {**self.audit, **swept, **({"attacks": [*self.audit.get("attacks", []), *points]} if points else {})}

    def tuned(self, called: str) -> str | None:
        """Return the attack whose grid something is a point of, by its name in results; None if it is none."""
        return name if (name := called.partition("(")[0]) in self.grid else None


class Printed(BaseModel):
    """What a paper prints in one table.

    Attributes:
        name: ``system/table``.
        title, source: what it shows and where it was printed.
        published_victims: number of units (victims, trainings) behind each published figure.
        metrics: of results, and where the table prints each; one where they differ in nothing else.
        axes: what tells figures apart, outermost first.
        published: by the values on the axes, mean and standard deviation (or mean alone), rates in percent; empty
            for a figure whose values are not printed.
        notes: what a reader of the comparison must know.
        judged: whether ours are held against the print; not where they are of other data, as from a generator.
        unlike: places whose printed figure is of something else than ours; a place names values on some of the axes.
        spread_stated: whether the paper says what its standard deviations are of.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str
    source: str
    published_victims: int = Field(ge=2)
    metrics: dict[str, Reading] = Field(default_factory=lambda: {"accuracy": Reading()})
    axes: tuple[str, ...]
    published: dict[Any, Any] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    judged: bool = True
    unlike: tuple[Place, ...] = ()
    spread_stated: bool = True

    @property
    def first(self) -> str:
        """Name of the run that is held against the print; others are stronger or explain it."""
        raise NotImplementedError

    def figure(self, place: Place, unit: Unit = "percent") -> Figure | None:
        """Return a published figure, None where the table has none.

        Args:
            place: its value on each axis.
            unit: of the table's numbers there.
        """
        found: Any = self.published
        for axis in self.axes:
            found = found.get(place.get(axis)) if isinstance(found, dict) else None
        if found is None:
            return None
        by = 100 if unit == "percent" else 1
        mean, *std = [round(number / by, 6) for number in (found if isinstance(found, list) else [found])]
        return Figure(mean=mean, std=std[0] if std else None)

    def judges(self, place: Place) -> bool:
        """Return whether the printed figure of a place is of the same thing as ours."""
        return self.judged and not any(
            all(str(place.get(axis)) == str(value) for axis, value in other.items()) for other in self.unlike
        )


class PublishedTable(Printed):
    """A table of a paper on gradients and updates.

    Attributes:
        axes: ``dataset``, ``model``, ``labels``, ``batch_size``, ``defense``, ``method`` (an attack or baseline),
            ``restarts``, ``iterations``, options of the protocol, ``rounds`` of training before, or any that runs,
            metrics and what attacks are compared with give values on.
        audit: fields of ``HorizontalSpec`` that all runs share.
        runs: what to run.

    Example:
        >>> table = load_table("tableak/table17")
        >>> table.figure({"labels": "true", "method": "tableak", "batch_size": 32})
        Figure(mean=0.793, std=0.045)
    """

    audit: dict[str, Any]
    runs: tuple[PlannedRun, ...]

    @property
    def first(self) -> str:
        """Name of the run that is as the paper's."""
        return self.runs[0].name

    def place(
        self,
        run: PlannedRun,
        spec: HorizontalSpec,
        called: str | None = None,
        metric: str | None = None,
        **more: Scalar | None,
    ) -> Place:
        """Return where something stands in the table, on the axes on which it has a value.

        Args:
            run, spec: what it belongs to.
            called: the attack or baseline, by its name in results.
            metric: of results.
            more: values on further axes, such as batch size and defense.
        """
        known: dict[str, Scalar | None] = {
            name: getattr(spec, name) for name in ("dataset", "model", "labels", "restarts", "iterations")
        }
        known |= {name: value for name, value in spec.protocol_options.items() if isinstance(value, Scalar)}
        if spec.training is not None:
            known["rounds"] = spec.training.rounds
        known |= {**more, **run.place}
        if called is not None:
            called = run.tuned(called) or called
            against = run.compared.get(called, called)
            known |= {"method": called, **against} if isinstance(against, dict) else {"method": against}
        if metric is not None:
            known |= self.metrics[metric].place
        return {axis: value for axis in self.axes if (value := known.get(axis)) is not None}

    def specs(self, **settings: Any) -> Iterator[tuple[PlannedRun, HorizontalSpec]]:
        """Return the runs with their specs.

        Args:
            settings: fields of ``HorizontalSpec`` that replace the table's (victims, device, threads).

        Raises:
            BadInputError: a setting cannot be used.
        """
        for planned in self.runs:
            for audit in planned.audits():
                yield planned, make_spec(**{**self.audit, **audit, **settings})

    def values(self, axis: str) -> list[Scalar]:
        """Return the values that the runs have on an axis.

        Raises:
            BadInputError: the table has no such axis.
        """
        if axis not in self.axes:
            raise unknown_name(f"axis of {self.name}:", axis, self.axes)
        found = [
            self.place(run, spec, called, metric, batch_size=size, defense=defense.called).get(axis)
            for run, spec in self.specs()
            for called in dict.fromkeys([*(part.called for part in spec.attacks), *run.compared])
            for size in spec.batch_sizes
            for defense in spec.defenses
            for metric in self.metrics
        ]
        return list(dict.fromkeys(value for value in found if value is not None))


def _combinations(lists: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*lists.values()):
        yield dict(zip(lists, values, strict=True))


def _point(attack: str, options: dict[str, Any]) -> dict[str, Any]:
    told = ", ".join(f"{name}={value}" for name, value in options.items())
    return {"name": attack, "options": options, "label": f"{attack}({told})"}


def tables() -> dict[str, PublishedTable]:
    """Return all tables by name, in the order in which a person counts."""
    folder = resources.files("seepage.reproduce")
    texts = [file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(_SUFFIX)]
    loaded = [PublishedTable.model_validate(yaml.safe_load(text)) for text in texts]
    return {table.name: table for table in sorted(loaded, key=lambda table: _counted(table.name))}


def load_table(name: str) -> PublishedTable:
    """Return the table ``name``.

    Raises:
        BadInputError: there is none; the message names the nearest.
    """
    known = tables()
    if name not in known:
        raise unknown_name("table", name, known)
    return known[name]


def _counted(name: str) -> list[str | int]:
    # Texts and numbers take turns, so that like is compared with like.
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
