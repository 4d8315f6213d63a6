"""A published table as data: the audits that make it and the figures it prints."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Literal, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from seepage.assessment.utility import Recipe
from seepage.errors import unknown_name
from seepage.results.agreement import PublishedFigure
from seepage.settings.catalogue import setting
from seepage.settings.setting import Configuration
from seepage.settings.spec import Spec

Scalar = str | int | float
# Baselines of tables that name none: those that the figures were measured beside. An audit's own may be stronger.
_BASELINES: Mapping[str, tuple[object, ...]] = {
    "horizontal": ("likeliest", "mode", "random"),
    "split": (
        "marginals",
        {"name": "knn", "options": {"on": "features"}, "label": "knn_features"},
        {"name": "knn", "options": {"on": "output"}, "label": "knn_output"},
    ),
    "vertical": ("constant", "median", "random", "own_columns"),
}
# Where a figure stands in a table: its value on each axis.
Place = dict[str, Scalar]
Unit = Literal["percent", "plain"]


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Reading(_Data):
    """What a table prints of one metric of results.

    Attributes:
        published: number of units behind a figure; the table's if None.
        span: width of the range that a plain number's margins are shares of; None leaves it without a margin, and so
            without an outcome. Rates have 1.
    """

    place: Place = Field(default_factory=dict)
    unit: Unit = "percent"
    published: int | None = Field(default=None, ge=2)
    span: float | None = Field(default=None, gt=0)


class PlannedAudit(_Data):
    """One audit of a table, or several that differ in fields of their specs.

    Attributes:
        name: run that shows it, such as ``faithful``; empty where the table's ``parts`` tell.
        sweep: further fields by their values, or axes of the table by the values on them and the fields that each
            stands for; every combination is an audit.
        place: values on axes of the table that no field of the spec tells.
        grid: attacks by options with a list of values each, and every combination a point. The paper's figure is that
            of the point that is best on the truth; see ``results.tuning``.
        task: arguments of ``Recipe``: how the task is trained, for tables that print its accuracy.
    """

    name: str = ""
    spec: dict[str, Any] = Field(default_factory=dict)
    sweep: dict[str, list[object] | dict[Scalar, dict[str, Any]]] = Field(default_factory=dict)
    place: Place = Field(default_factory=dict)
    compared: dict[str, str | Place] = Field(default_factory=dict)
    grid: dict[str, dict[str, list[object]]] = Field(default_factory=dict)
    task: dict[str, object] | None = None

    @property
    def recipe(self) -> Recipe | None:
        """Training recipe of the task; None where the table prints no task metric."""
        if self.task is None:
            return None
        values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in self.task.items()}
        return Recipe(**values)

    def swept(self) -> Iterator[PlannedAudit]:
        """Return each audit of the sweep on its own."""
        points = [_point(attack, options) for attack, grid in self.grid.items() for options in _combinations(grid)]
        choices = [
            [({axis: value}, fields) for value, fields in values.items()]
            if isinstance(values, dict)
            else [({}, {axis: value}) for value in values]
            for axis, values in self.sweep.items()
        ]
        for chosen in itertools.product(*choices):
            spec, place = dict(self.spec), dict(self.place)
            for on_axes, fields in chosen:
                spec |= fields
                place |= on_axes
            if points:
                spec["attacks"] = [*spec.get("attacks", []), *points]
            yield self.model_copy(update={"spec": spec, "sweep": {}, "place": place})

    def tuned(self, label: str) -> str | None:
        """Return the attack whose grid contains a point, by the point's name in results; None for other names."""
        return name if (name := label.partition("(")[0]) in self.grid else None


class Drawn(_Data):
    """What a table shows as a figure.

    Attributes:
        across: axis whose values stand from left to right.
        panels: axes whose values have a panel each; the other axes tell the curves of a panel apart.
        runs: runs that are drawn; all if empty.
    """

    across: str
    panels: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()


class PublishedTable(_Data):
    """A table of a paper: the audits to run, and the printed figures; CONTRIBUTING.md says how one is added.

    Attributes:
        published_victims: number of units (victims, trainings) behind each published figure.
        axes: what tells figures apart, outermost first: fields of the spec, options of the protocol, ``rounds`` of
            training before, ``batch_size``, ``defense``, ``column`` (``label`` for the target), ``method`` (an attack
            or baseline), or any that audits, metrics or what attacks are compared with give values on.
        parts: names of runs with the attacks and baselines, by their names in results, that each shows, where audits
            have no names; the first is held against the print.
        compared: what each attack or baseline is held against: a published method, or values on axes; its own name
            where none is given.
        once: attacks and baselines that the print has once for all defenses: shown under the first alone.
        published: by the values on the axes, mean and standard deviation (or mean alone), rates in percent; empty
            for a figure whose values are not printed.
        judged: whether ours are held against the print; not where they are of other data, as from a generator.
        drawn: figure that shows it, for curves; None for what is a table alone.
        unlike: places whose printed figure is of something else than ours; a place names values on some of the axes.
    """

    name: str
    title: str
    source: str
    published_victims: int = Field(ge=2)
    setting: str
    metrics: dict[str, Reading] = Field(default_factory=lambda: {"accuracy": Reading()})
    axes: tuple[str, ...]
    spec: dict[str, Any] = Field(default_factory=dict)
    audits: tuple[PlannedAudit, ...] = (PlannedAudit(),)
    parts: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    compared: dict[str, str | Place] = Field(default_factory=dict)
    once: tuple[str, ...] = ()
    published: dict[object, object] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    judged: bool = True
    unlike: tuple[Place, ...] = ()
    binomial: bool = False
    drawn: Drawn | None = None

    @model_validator(mode="after")
    def _distinguishable(self) -> PublishedTable:
        if not self.audits or any(bool(audit.name) == bool(self.parts) for audit in self.audits):
            raise ValueError("either each audit has a name, or the table has parts")
        if self.drawn is not None and not {self.drawn.across, *self.drawn.panels} <= {*self.axes}:
            raise ValueError(f"a figure is drawn along axes of the table, {self.axes}; got {self.drawn}")
        return self

    @property
    def first(self) -> str:
        """Name of the run that follows the paper; other runs are stronger attacks or explain a difference."""
        return self.audits[0].name or next(iter(self.parts))

    def figure(self, place: Place, unit: Unit = "percent") -> PublishedFigure | None:
        """Return a published figure, of numbers in a unit; None where the table has none."""
        printed: object = self.published
        for axis in self.axes:
            # Places that were read from a file have texts where a document has numbers.
            values = {str(value): inner for value, inner in printed.items()} if isinstance(printed, dict) else {}
            printed = values.get(str(place.get(axis)))
        if printed is None:
            return None
        by = 100 if unit == "percent" else 1
        numbers = cast("list[float]", printed if isinstance(printed, list) else [printed])
        mean, *std = [round(number / by, 6) for number in numbers]
        return PublishedFigure(mean=mean, std=std[0] if std else None)

    def cells(self) -> Iterator[Place]:
        """Yield the place of each printed figure, whether it is measured or not; values on axes are texts."""

        def below(printed: object, axes: Sequence[str]) -> Iterator[Place]:
            if isinstance(printed, dict) and axes:
                for value, inner in printed.items():
                    yield from ({axes[0]: str(value), **place} for place in below(inner, axes[1:]))
            elif not isinstance(printed, dict):
                yield {}

        return below(self.published, self.axes)

    def reading(self, place: Place) -> Reading:
        """Return what is printed at a place: the reading whose own place says most of it."""
        fitting = (r for r in self.metrics.values() if all(place.get(a) == str(v) for a, v in r.place.items()))
        return max(fitting, key=lambda reading: len(reading.place))

    def judges(self, place: Place) -> bool:
        """Return whether the printed figure at a place measures the same thing as ours."""
        return self.judged and not any(
            all(str(place.get(axis)) == str(value) for axis, value in other.items()) for other in self.unlike
        )

    def planned(self, **fields: object) -> Iterator[TableAudit]:
        """Return the audits with their specs, whose fields, such as device or threads, may be replaced."""
        kind = setting(self.setting).spec
        usual = {"baselines": _BASELINES[self.setting]} if self.setting in _BASELINES else {}
        for planned in self.audits:
            for swept in planned.swept():
                yield TableAudit(self, swept, kind.of(**{**usual, **self.spec, **swept.spec, **fields}))


@dataclass(frozen=True)
class TableAudit:
    """One audit of a table with its spec, and the places of its figures in the table."""

    table: PublishedTable
    planned: PlannedAudit
    spec: Spec

    @property
    def shown(self) -> dict[str, str]:
        """The runs that show attacks and baselines, by their names in results."""
        table, planned = self.table, self.planned
        if not planned.name:
            return {label: run for run, names in table.parts.items() for label in names}
        compared = [label for label in (*table.compared, *planned.compared) if label not in planned.grid]
        return dict.fromkeys([*(part.title for part in self.spec.attacks), *compared], planned.name)

    @property
    def configurations(self) -> list[Configuration]:
        """The points of the sweep; without batch sizes where the setting sweeps over none."""
        sizes = getattr(self.spec, "batch_sizes", (None,))
        return [Configuration(part.title, size) for size in sizes for part in self.spec.defenses]

    def axes_of(
        self,
        label: str | None = None,
        metric: str | None = None,
        configuration: Configuration | None = None,
        column: str | None = None,
    ) -> Place:
        """Return the values of a figure on all axes, including axes that the table does not have.

        Label and column are names in results; the column of the target is called ``label``.
        """
        table, planned, spec = self.table, self.planned, self.spec
        axes: dict[str, object] = {name: getattr(spec, name) for name in type(spec).model_fields}
        axes |= getattr(spec, "protocol_options", {})
        axes["rounds"] = getattr(getattr(spec, "training", None), "rounds", None)
        axes |= (
            {} if configuration is None else {"batch_size": configuration.batch_size, "defense": configuration.defense}
        )
        axes |= {"column": column} | planned.place
        if label is not None:
            label = planned.tuned(label) or label
            against = {**table.compared, **planned.compared}.get(label, label)
            axes |= {"method": label, **against} if isinstance(against, dict) else {"method": against}
        if metric is not None:
            axes |= table.metrics[metric].place
        return {axis: value for axis, value in axes.items() if isinstance(value, Scalar)}

    def place(
        self,
        label: str,
        metric: str | None = None,
        configuration: Configuration | None = None,
        column: str | None = None,
    ) -> Place:
        """Return the place of a figure in the table: its values on the axes of the table, see ``axes_of``."""
        axes = self.axes_of(label, metric, configuration, column)
        return {axis: axes[axis] for axis in self.table.axes if axis in axes}


def _combinations(lists: Mapping[str, Sequence[object]]) -> Iterator[dict[str, object]]:
    for values in itertools.product(*lists.values()):
        yield dict(zip(lists, values, strict=True))


def _point(attack: str, options: Mapping[str, object]) -> dict[str, object]:
    values = ", ".join(f"{name}={value}" for name, value in options.items())
    return {"name": attack, "options": options, "label": f"{attack}({values})"}


@cache
def tables() -> Mapping[str, PublishedTable]:
    """Return all tables by name, in the order in which a person counts."""
    return MappingProxyType({name: load_table(name) for name in names()})


@cache
def names() -> tuple[str, ...]:
    """Return the names of all tables, in the order in which a person counts."""
    files = (file.name for file in (resources.files("seepage.reproduce") / "tables").iterdir())
    names = [file.removesuffix(".yaml").replace("_", "/", 1) for file in files if file.endswith(".yaml")]
    return tuple(sorted(names, key=_counted))


@cache
def load_table(name: str) -> PublishedTable:
    """Return the table ``name``."""
    if name not in names():
        raise unknown_name("table", name, names())
    file = resources.files("seepage.reproduce") / "tables" / f"{name.replace('/', '_', 1)}.yaml"
    return PublishedTable.model_validate(yaml.safe_load(file.read_text("utf-8")))


def _counted(name: str) -> list[str | int]:
    # Texts and numbers take turns, so that like is compared with like.
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
