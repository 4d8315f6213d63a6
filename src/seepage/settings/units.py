"""Rows that specs name, and audits whose parts share an exposure: figures of units, forecasts from rehearsals."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

from seepage import datasets, registry
from seepage.assessment.measurement import joined_figures
from seepage.assessment.three_questions import check_quasi_identifiers
from seepage.datasets import Dataset, own_table
from seepage.datasets.dataset import some_rows
from seepage.digests import Json, digest_of, plain
from seepage.errors import BadInputError, unknown_name
from seepage.pace import Stopwatch, rehearsing, scaled
from seepage.settings.guessing import AttackedSecret, measure
from seepage.settings.part import Part, source_of
from seepage.settings.setting import About, Audit, Configuration, Exposure, Given, Outcome, PlannedPart, Progress
from seepage.settings.spec import Spec
from seepage.sources import own_code
from seepage.tabular.infer import Inferred
from seepage.tabular.one_hot import groups_of_schema
from seepage.tabular.reading import open_table
from seepage.tabular.schema import Schema

# Fields of a spec that determine its rows.
_ROWS = (
    *("dataset", "dataset_options", "data_folder", "data", "schema_file", "target", "sensitive", "separator"),
    *("encoding", "policy"),
)


class Tables:
    """Tables of specs, shared between specs of the same rows; ``folder`` holds networks that were trained before."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.cache: dict[str, Any] = {}
        self._loaded: dict[str, tuple[Dataset, Inferred | None]] = {}

    def rows(self, spec: Spec) -> tuple[Dataset, Inferred | None]:
        """Return the rows of a spec, see ``load_rows``."""
        key = rows_key(spec)
        if key not in self._loaded:
            self._loaded[key] = load_rows(spec)
        return self._loaded[key]


def rows_key(spec: Spec) -> str:
    """Return all fields of a spec that determine its rows."""
    return repr([getattr(spec, name) for name in _ROWS])


def load_rows(spec: Spec) -> tuple[Dataset, Inferred | None]:
    """Return the rows of a spec, and the inference of their schema where it was inferred."""
    if spec.data is not None:
        return _own_data(spec)
    return datasets.load(spec.dataset, folder=spec.data_folder, **spec.dataset_options), None


def _own_data(spec: Spec) -> tuple[Dataset, Inferred | None]:
    assert spec.data is not None
    separator, encoding = spec.separator, spec.encoding
    if spec.schema_file is None:
        assert spec.target is not None
        return own_table(spec.data, target=spec.target, policy=spec.policy, separator=separator, encoding=encoding)
    schema = Schema.load(spec.schema_file)
    learnt = schema.target.name
    if spec.target not in (None, learnt):
        groups = groups_of_schema(open_table(spec.data, separator=separator, encoding=encoding), schema)
        # The target may be named by any of the one-hot columns that it is made of.
        if any(group.name == learnt and spec.target in group.members for group in groups):
            learnt = spec.target
    if spec.target not in (None, learnt):
        raise unknown_name(f"target of the schema {str(spec.schema_file)!r}:", str(spec.target), [schema.target.name])
    return own_table(spec.data, schema, policy=spec.policy, separator=separator, encoding=encoding)


S = TypeVar("S", bound=Spec)
D = TypeVar("D")
A = TypeVar("A", bound="UnitsAudit[Any, Any]")

# Share of the rows that the smaller rehearsal of rows has.
_SHARE = 0.25
# A forecast gives up where a rehearsal takes longer: the first job of the run tells it as well, and is kept.
_LONGEST_REHEARSAL_SECONDS = 6.5
_FURTHER_EPOCHS = 2
# Fewer rows show too little, whatever the time.
_FEWEST_ROWS = 500
# The first call in a process takes some tenths of a second more than later ones.
_WARM_SECONDS = 1.0
# Enough for an interval that a working attack clears, and that a failing one does not exceed by chance.
CONTROL_UNITS = 5


def joined(outcomes: Sequence[Outcome], about: About) -> Outcome:
    """Return the figures of units that were measured one after the other; NaN where a unit has no such figure."""
    measured = []
    for figure in joined_figures([outcome.measured for outcome in outcomes]):
        scale = about.scale(figure.metric)
        leaks, bounds = scale.higher_leaks is not False, (scale.low, scale.high)
        measured.append(replace(figure, higher_leaks=leaks, bounds=bounds))
    times = [outcome.seconds for outcome in outcomes if outcome.seconds is not None]
    seconds = sum(times) / len(times) if times else None
    pictures = tuple(chain.from_iterable(outcome.pictures or (None,) for outcome in outcomes))
    evidence = [outcome.evidence for outcome in outcomes]
    joined_evidence = tuple(chain.from_iterable(evidence)) if all(evidence) else ()
    return Outcome(measured, seconds, joined_evidence, pictures if any(pictures) else ())


@runtime_checkable
class AttackedUnit(Protocol):
    """A unit with the attacker's view of it."""

    def about(self, part: PlannedPart) -> Outcome:
        """Return the figures of a measurement of the deployment itself."""
        ...

    def secret(self, part: PlannedPart) -> AttackedSecret[Any]:
        """Return what an attack or a baseline guesses, with all that it gets."""
        ...


@dataclass(frozen=True)
class UnitsExposure(Exposure):
    """Some units of a configuration."""

    about: About
    units: Sequence[AttackedUnit]

    def measure(self, part: PlannedPart, progress: Progress | None = None) -> Outcome:
        """Return the figures of a part in each unit."""
        about, unit_progress = part.kind == "about", scaled(progress, 1 / len(self.units))
        outcomes = [
            unit.about(part) if about else measure(part, unit.secret(part), unit_progress) for unit in self.units
        ]
        return joined(outcomes, self.about)


class UnitsAudit(Audit[S], Generic[S, D]):
    """An audit whose parts share an exposure; ``swapped`` messages are those of others: the negative control."""

    ignored: ClassVar[frozenset[str]]  # fields that change measurements, their number and their form, but no training
    # Fewest rows of the smaller rehearsal, where configurations differ in the number of rows: below, all are rehearsed.
    fewest_rows: ClassVar[int | None] = None
    spec: S
    rows: list[Json]  # values that distinguish the rows from others
    defenses: Mapping[str, D]  # mechanisms of each configuration's defense, by its label

    def __init__(self, spec: S, dataset: Dataset | None = None, own: bool = False, swapped: bool = False) -> None:
        if spec.device not in ("auto", "cpu"):
            where = f"{self.setting} learning is computed on the CPU alone"
            raise BadInputError(f"{where}, got device={spec.device!r}; use 'cpu'.")
        self.spec, self.own, self.swapped = spec, own, swapped
        self._parts = {part.title: part for part in spec.defenses}
        self._set_up(spec, dataset)

    @abstractmethod
    def _set_up(self, spec: S, dataset: Dataset | None) -> None:
        """Set the attributes that follow from spec and rows; rows of the spec where none are given."""

    @classmethod
    def prepared(cls: type[A], spec: S, given: Given, tables: Tables) -> A:
        """Return the audit of a spec."""
        dataset, inferred = (given.dataset, None) if spec.data is None else tables.rows(spec)
        audit = cls(spec, dataset, own=dataset is not None)
        audit.inferred = inferred
        if audit.schema is not None:
            # Settings without guesses of rows have no such field.
            check_quasi_identifiers(audit.schema, getattr(spec, "quasi_identifiers", ()))
        return audit

    @property
    def origin(self) -> Mapping[str, Json]:
        """Digests that distinguish the rows from others."""
        if self.dataset is None:
            return {}
        return table_origin(self.dataset, len(self.dataset.all), digest_of({"rows": self.rows}))

    @property
    def determining(self) -> Mapping[str, Json]:
        """Everything that determines figures beside spec, rows, defense and part, as JSON values."""
        return {}

    def identity(self, configuration: Configuration, part: PlannedPart) -> dict[str, Json]:
        """Return everything that determines the figures of a part, as JSON values."""
        identity = {
            "setting": self.setting,
            "spec": self.spec.model_dump(mode="json", exclude=set(self.ignored)),
            "dataset": self.about.dataset,
            "rows": self.rows,
            **self.determining,
            "code": own_code(),
            "sensitive": list(self.about.sensitive),
            "defense": plain(self.defenses[configuration.defense]),
            "defense_source": source_of(registry.defenses.of(self.setting), self._parts[configuration.defense]),
            "part": part.part.name,
            "kind": part.kind,
            "options": plain(part.part.options),
            "source": _source_of(part, self.setting),
        }
        if self.fewest_rows is not None:
            identity |= {"records": configuration.batch_size, "keep": self.spec.keep_records}
        return {**identity, "swapped": True} if self.swapped else identity

    def of_rows(self: A, rows: int) -> A:
        """Return the audit with another number of rows in each unit."""
        return type(self)(with_fields(self.spec, {"rows": (rows,)}), self.dataset, self.own)

    def forecast(self, configuration: Configuration) -> float | None:
        """Return the seconds of a unit with all its parts, from a quarter and half of its rows.

        None where configurations do not differ in rows, or a rehearsal takes too long or fails.
        """
        rows = configuration.batch_size
        if self.fewest_rows is None or rows is None:
            return None
        share = _SHARE if rows * _SHARE >= self.fewest_rows else 1.0

        def expose(size: int) -> Exposure:
            fewer = int(size * share * rows)
            return self.of_rows(fewer).expose(Configuration(configuration.defense, fewer), range(1))

        return rehearsed_exposure(expose, self.parts, 1 / share, 1 / share)

    def control(self) -> UnitsAudit[S, D] | None:
        """Return the positive control, see ``planted``."""
        return self.planted(swapped=False)

    def negative(self) -> UnitsAudit[S, D] | None:
        """Return the negative control: as the positive one, but with messages of others."""
        return self.planted(swapped=True)

    @abstractmethod
    def planted(self, swapped: bool) -> UnitsAudit[S, D] | None:
        """Return a control, whose secret is planted on the same table; None where there is none."""

    def control_on(self: A, data: Dataset, fields: Mapping[str, object], swapped: bool, why: str = "") -> A:
        """Return a control without a defense and without measurements of the task; ``why`` attacks are left out."""
        common: dict[str, object] = {
            **{"control": False, "gate": None, "keep_records": False},
            "variant": "negative control" if swapped else "positive control",
            **{"repetitions": CONTROL_UNITS, "defenses": (Part(name="none"),)},
        }
        control = type(self)(with_fields(self.spec, {**common, **fields}), data, self.own, swapped)
        missing = [part.title for part in self.spec.attacks if part not in control.spec.attacks]
        if missing:
            note = f"this control leaves out {', '.join(missing)}: {why}"
            control.about = replace(control.about, notes=(*control.about.notes, note))
        control.parts = tuple(part for part in control.parts if part.kind != "about")
        return control


def _source_of(part: PlannedPart, setting: str) -> str | None:
    registered = (registry.baselines if part.kind == "baseline" else registry.attacks).of(setting)
    # A measurement of the setting itself is not registered.
    return source_of(registered, part.part) if part.part.passed is not None or part.part.name in registered else None


def planned(about: Sequence[Part], baselines: Sequence[Part], attacks: Sequence[Part]) -> tuple[PlannedPart, ...]:
    """Return the parts of an audit in the order of results, with distinct names."""
    parts = tuple(PlannedPart(part, "about") for part in about)
    parts += tuple(PlannedPart(part, "baseline") for part in baselines)
    parts += tuple(PlannedPart(part, "attack") for part in attacks)
    names = [part.label for part in parts]
    for name in names:
        if names.count(name) > 1:
            raise BadInputError(f"two parts would both be called {name!r} in results; give one another label.")
    return parts


def with_fields(spec: S, changed: Mapping[str, object]) -> S:
    """Return a spec with other values of some fields, which are not validated; a ``KeyError`` for unknown fields."""
    for name in changed:
        type(spec).model_fields[name]
    return spec.model_copy(update=changed)


def with_few_leaked(spec: S, leaked: int, attacked: int) -> S:
    """Return a spec; where the default leaks all records that are attacked or more, half of them leak."""
    if "leaked" in spec.model_fields_set or leaked < attacked:
        return spec
    return with_fields(spec, {"leaked": attacked // 2})


def facts_of(data: Dataset, **others: Any) -> dict[str, Any]:
    """Return the fields of ``About`` that follow from a table, and others."""
    schema = data.schema
    facts = {"dataset": data.name, "notes": data.notes, "rows": len(data.all), "target": schema.target.name}
    sensitive = tuple(column.name for column in schema.columns if column.sensitive)
    return {**facts, "columns": schema.names, "sensitive": sensitive, **others}


def rows_identity(data: Dataset) -> list[Json]:
    """Return JSON values that distinguish the rows from others: their number, digests of cells and labels."""
    cells = data.all
    return [len(cells), plain(cells.cells), plain(cells.labels)]


def table_origin(data: Dataset, rows: int, digest: str) -> dict[str, Json]:
    """Return the description of a table for provenance; nothing of the rows but a digest."""
    facts = {"name": data.name, "rows": rows, "digest": digest, "source": data.source, "licence": data.licence}
    return {"dataset": {**facts, "notes": list(data.notes)}}


def rows_in_time(data: Dataset, most: int | None, seconds: float | None, rate: float, seed: int) -> Dataset:
    """Return all rows of a table or ``most`` at random; if None, as many as fit the time at ``rate`` rows a second.

    The size of the sample follows from the budget alone, so that the same command draws the same rows on every machine.
    """
    if most is None:
        most = len(data.all) if seconds is None else max(_FEWEST_ROWS, int(seconds * rate))
    if len(data.all) <= most:
        return data
    note = f"{most:,} of {len(data.all):,} rows, drawn at random"
    return replace(some_rows(data, most, seed), notes=(*data.notes, note))


def of_some_rows(data: Dataset, table: Dataset) -> tuple[str, ...]:
    """Return a sentence for the headline where figures are of a part of the rows, else nothing."""
    rows, of = len(data.all), len(table.all)
    return () if rows == of else (f"These are figures of {rows:,} of the table's {of:,} rows.",)


@dataclass(frozen=True)
class Rehearsal:
    """Seconds of a small rehearsal; ``loops`` are those of loops that were left early, in the audit itself."""

    exposure: float
    parts: float
    loops: float = 0.0


def rehearse(
    expose: Callable[[int], Exposure], parts: Sequence[PlannedPart], times: float = 2.0
) -> tuple[Rehearsal, Rehearsal] | None:
    """Return the seconds of an exposure of size 1 with all its parts, and of size 2; None where they take too long.

    Where time is ``a + b size``, two sizes tell both: ``b`` is the difference, see ``extrapolated``. The first run also
    has what a process does once, and is repeated where it was short enough for that to count.

    The audit has ``times`` the rows of the smaller one; at 1 there is a single exposure, of the audit's own rows. A
    part that fails is taken as quick.
    """
    small = _rehearsal(expose, 1, parts, times)
    if small is not None and small.exposure + small.parts < _WARM_SECONDS:
        small = _rehearsal(expose, 1, parts, times)
    if times == 1:
        return None if small is None else (small, small)
    double = None if small is None else _rehearsal(expose, 2, parts, times / 2)
    return None if small is None or double is None else (small, double)


def _rehearsal(
    expose: Callable[[int], Exposure], size: int, parts: Sequence[PlannedPart], times: float
) -> Rehearsal | None:
    watch = Stopwatch()
    exposure = expose(size)
    exposed = watch.seconds
    with rehearsing(times) as rehearsed:
        for part in parts:
            if watch.seconds > _LONGEST_REHEARSAL_SECONDS:
                return None
            try:
                exposure.measure(part)
            except Exception:  # A part of a caller's own may fail in any way.
                # The audit itself will record the failure; a small exposure may also be too small for the part.
                continue
    return Rehearsal(exposed, watch.seconds - exposed - rehearsed.spent, rehearsed.owed)


def rehearsed_exposure(
    expose: Callable[[int], Exposure], parts: Sequence[PlannedPart], times: float, rows: float = 2.0
) -> float | None:
    """Return the seconds of an exposure of ``times`` the smaller rehearsal; None where that takes too long or fails."""
    try:
        rehearsals = rehearse(expose, parts, rows)
    except BadInputError:
        return None
    if rehearsals is None:
        return None
    single, double = (rehearsal.exposure + rehearsal.parts for rehearsal in rehearsals)
    return extrapolated(single, double, times) + rehearsals[1].loops


def rehearsed_training(
    expose: Callable[[int, int], Exposure], parts: Sequence[PlannedPart], share: float, epochs: int
) -> float | None:
    """Return the seconds of a training, from few epochs on a share of the work; None where that is long or fails."""
    try:
        rehearsals = rehearse(lambda size: expose(size, 1), parts, 1 / share)
        if rehearsals is None:
            return None
        # The first exposure includes work that is done once in a process.
        shorter, longer = (_seconds(expose, number) for number in (1, 1 + _FURTHER_EPOCHS))
    except BadInputError:
        return None
    small, double = rehearsals
    trained = shorter + max(longer - shorter, 0.0) / _FURTHER_EPOCHS * (epochs - 1)
    return trained / share + extrapolated(small.parts, double.parts, 1 / share) + double.loops


def _seconds(expose: Callable[[int, int], Exposure], epochs: int) -> float:
    watch = Stopwatch()
    expose(1, epochs)
    return watch.seconds


def extrapolated(small: float, double: float, times: float) -> float:
    """Return the time of ``times`` a small rehearsal, from its time and that of twice its size; constant costs once.

    Example:
        >>> extrapolated(3.0, 5.0, times=10.0)
        21.0
    """
    slope = max(double - small, 0.0)
    return small + slope * (times - 1)
