"""A study: attacks and guesses measured on set-ups that are dear to make, several times and under each defense.

Split learning, vertical federated learning and pooled learning are audited this way: a *unit* is one independent
repetition (a training, or targets with their shadow models), made once for each defense and only if something of it is
still to be measured, and shared by all attacks and guesses. Intervals are over units. What each attack or guess got out
of a unit is kept in the store at once, so that a stopped study continues.

A setting plugs in with one file: a spec (a subclass of ``Spec``) and a function that makes a ``Study`` of it,
entered in ``audit.studies``. Tables of ``reproduce``, the report, the gate and the command line then work as they are.

Example:
    >>> from seepage.settings.part import Part
    >>> from seepage.run.store import Store
    >>> def make(unit, defense):
    ...     hidden = 0.9 if defense == "none" else 0.6
    ...     def measure(part):
    ...         right = 0.5 if part.kind == "guess" else hidden + unit / 100
    ...         return Answer({("accuracy", None): right}, seconds=0.1)
    ...     return measure
    >>> study = Study(
    ...     kind="coins", dataset="coins", protocol="toss", model="none", units=3, unit="toss", make=make,
    ...     defenses={"none": {}, "gloves": {"thick": True}}, identity={"coins": 1},
    ...     parts=(StudyPart(Part(name="coin"), "guess"), StudyPart(Part(name="peek"), "attack")),
    ... )
    >>> rows = study_rows(run_study(study, Store(None)))
    >>> [(row["defense"], row["mean"], round(row["lift"], 2)) for row in rows if row["is_attack"]]
    [('none', 0.91, 0.41), ('gloves', 0.61, 0.11)]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.assessment import Measurement, lift
from seepage.results.rows import Row
from seepage.run.runner import Listener
from seepage.run.store import Store
from seepage.run.workers import threads
from seepage.settings.code import own_code
from seepage.settings.grid import plain
from seepage.settings.part import Part, distinct_names
from seepage.settings.setting import RATE, Audit, Configuration, Exposure, Outcome, Scale

# A part measures the set-up itself, guesses without what crossed the wire, or attacks.
StudyPartKind = Literal["about", "guess", "attack"]


@dataclass(frozen=True)
class StudyPart:
    """What is measured on every unit.

    Attributes:
        part: registered name, options and name in results.
        kind: ``about`` the set-up itself, a ``guess`` without what crossed the wire, or an ``attack``.
    """

    part: Part
    kind: StudyPartKind

    @property
    def called(self) -> str:
        """The name in results."""
        return self.part.called


@dataclass(frozen=True)
class Answer:
    """What one part got out of one unit.

    Attributes:
        figures: by metric and column (None: all of them); None where one does not apply.
        seconds: that it took for each attacked record (or target); None where that says nothing.
        picture: of what was found, or is to be found, as an address that holds itself; None for what is no image.
        each: what a figure is the mean of, by its metric and column: a value for each target of the unit. Intervals
            resample units, and targets within them, where it is given.
    """

    figures: Mapping[tuple[str, str | None], float | None]
    seconds: float | None = None
    picture: str | None = None
    each: Mapping[tuple[str, str | None], Sequence[float]] = field(default_factory=dict)


Measure = Callable[[StudyPart], Answer]


@dataclass(frozen=True)
class Study:
    """What is measured on what, ready to run.

    The figure ``("accuracy", None)`` of each attack and guess is what verdicts and gates look at.

    Attributes:
        kind: name of the setting, see ``audit.studies``.
        dataset, protocol, model: names in results.
        units: number of repetitions.
        unit: what one is called, in the singular.
        make: makes a unit (by its number) under a defense (by its label) and returns what measures parts on it.
        defenses: by label, everything that determines what clients do, as JSON values.
        parts: what is measured, in the order of results; guesses before attacks.
        identity: everything else that determines figures, as JSON values: rows, networks, seeds, but neither the
            number of units nor labels.
        batch_size: records of an exchange, where there is such a number.
        scales: of metrics that are no rates.
        utility: metrics of parts ``about`` that say how well the task is learnt, the first that is measured counts.
        granted: what an attacker holds beside the defense, for people, by defense and part.
        settings: how the set-ups were configured, for results.
        facts: the threat model and what was done, a sentence each, for the report.
        notes: on the rows, for the report.
        rows: of the data set.
        target: name of the column that is learnt; figures of it are those of the label.
        columns: that accuracies are told of one by one.
        sensitive: names of the columns that the report marks.
        lead: what the report is about, in a sentence.
        attacker, headline: for sentences such as "the server reads 71% of all private cells".
        seen: what the attacker has and a guess has not, for sentences too.
        variant: what tells this study from others beside it; None where it is alone.
        seed: every random number follows from it.
        threads: of the CPU.
        own: whether the rows are one's own, and private.
    """

    kind: str
    dataset: str
    protocol: str
    model: str
    units: int
    unit: str
    make: Callable[[int, str], Measure]
    defenses: Mapping[str, Mapping[str, Any]]
    parts: tuple[StudyPart, ...]
    identity: Mapping[str, Any]
    batch_size: int | None = None
    scales: Mapping[str, Scale] = field(default_factory=dict)
    utility: tuple[str, ...] = ("auc", "task_accuracy")
    granted: Callable[[str, StudyPart], Mapping[str, Any]] = lambda defense, part: {}
    settings: Mapping[str, Any] = field(default_factory=dict)
    facts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rows: int = 0
    target: str | None = None
    columns: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()
    lead: str = "What an honest-but-curious participant learns from what crosses the wire."
    attacker: str = "The attacker"
    headline: str = "all private cells"
    seen: str = "what crosses the wire"
    variant: str | None = None
    seed: int = 0
    threads: int = 1
    own: bool = False

    def __post_init__(self) -> None:
        distinct_names("part", [part.called for part in self.parts])

    def scale(self, metric: str) -> Scale:
        """Return how a metric reads, a rate unless said otherwise."""
        return self.scales.get(metric, RATE)


@dataclass(frozen=True)
class StudyRun:
    """What one part got out of the units under one defense.

    Attributes:
        defense: label.
        part: which.
        measured: figures, one value a unit.
        seconds: mean time for a record; None for what is no attack.
        picture: of the first unit that has one.
    """

    defense: str
    part: StudyPart
    measured: list[Measurement]
    seconds: float | None
    picture: str | None = None


@dataclass(frozen=True)
class StudyOutcome:
    """All runs of a study, as far as they were measured."""

    study: Study
    runs: list[StudyRun] = field(default_factory=list)


def run_study(study: Study, store: Store, listener: Listener | None = None, run_missing: bool = True) -> StudyOutcome:
    """Measure what the store does not hold and return everything.

    Args:
        study: what to measure.
        store: holds what was measured before, and gets each part of each unit as soon as it is measured.
        listener: told about the progress; a job is one part of one unit.
        run_missing: whether to measure anything, or only to return what is held.

    Raises:
        BadInputError: whatever a part raises.
    """
    listener = listener or Listener()
    base = {"study": study.kind, "made_from": plain(dict(study.identity)), "code": own_code()}
    held: dict[tuple[str, int, str], dict[str, Any]] = {}
    missing: dict[tuple[str, int], list[tuple[StudyPart, dict[str, Any]]]] = {}
    for defense, does in study.defenses.items():
        for unit in range(study.units):
            of_unit = {**base, "defense": plain(dict(does)), "unit": unit}
            for part in study.parts:
                identity = {**of_unit, "part": part.part.name, "kind": part.kind, "options": plain(part.part.options)}
                found = store.setup(identity, None)
                if found is None:
                    missing.setdefault((defense, unit), []).append((part, identity))
                else:
                    held[defense, unit, part.called] = found
    if run_missing and missing:
        jobs = sum(map(len, missing.values()))
        listener.begin(float(jobs), jobs)
        with threads(study.threads):
            for (defense, unit), parts in missing.items():
                where = f"{study.unit} {unit + 1} of {study.units} under {defense}"
                listener.started(f"{where}: set-up")
                measure: Measure | None = None
                for i, (part, identity) in enumerate(parts):
                    if i:
                        listener.started(f"{where}: {part.called}")
                    # Parts with the same name and options are measured once.
                    if measure is None:
                        measure = study.make(unit, defense)
                    made = measure
                    held[defense, unit, part.called] = store.setup(
                        identity, lambda made=made, part=part: _plain(made(part))
                    )
                    listener.advance(1.0)
                    listener.finished(f"{where}: {part.called}", None, unit + 1)
    return StudyOutcome(study, _runs(study, held))


def _plain(answer: Answer) -> dict[str, Any]:
    figures = [[metric, column, value] for (metric, column), value in answer.figures.items()]
    each = [[metric, column, list(values)] for (metric, column), values in answer.each.items()]
    return {"figures": figures, "seconds": answer.seconds, "picture": answer.picture, "each": each}


def _runs(study: Study, held: Mapping[tuple[str, int, str], dict[str, Any]]) -> list[StudyRun]:
    runs = []
    for defense in study.defenses:
        for part in study.parts:
            values = [found for unit in range(study.units) if (found := held.get((defense, unit, part.called)))]
            if not values:
                continue
            figures: dict[tuple[str, str | None], list[float]] = {}
            for k, one in enumerate(values):
                for metric, column, value in one["figures"]:
                    row = figures.setdefault((metric, column), [float("nan")] * len(values))
                    row[k] = float("nan") if value is None else value
            measured = []
            for (metric, column), row in figures.items():
                scale = study.scale(metric)
                numbers = torch.tensor(row, dtype=torch.float64)
                bounds = (scale.low, scale.high)
                clusters = _clusters(values, metric, column)
                measured.append(Measurement(metric, column, numbers, scale.higher_leaks is not False, bounds, clusters))
            times = [one["seconds"] for one in values if one["seconds"] is not None]
            seconds = sum(times) / len(times) if times and part.kind == "attack" else None
            picture = next((one["picture"] for one in values if one.get("picture")), None)
            runs.append(StudyRun(defense, part, measured, seconds, picture))
    return runs


def _clusters(
    values: Sequence[Mapping[str, Any]], metric: str, column: str | None
) -> tuple[Float[Tensor, " _target"], ...] | None:
    """Return what a figure of each unit is the mean of; None where a unit does not tell."""
    found = [
        torch.tensor(each, dtype=torch.float64)
        for one in values
        for name, of, each in one.get("each", ())
        if (name, of) == (metric, column)
    ]
    return tuple(found) if len(found) == len(values) else None


def study_rows(outcome: StudyOutcome) -> list[Row]:
    """Return the results of a study as rows, see ``audit.rows``; n counts units.

    The lift is over the best guess on the same metric, column and units; the ones of metrics that say nothing about
    leakage are None.
    """
    study = outcome.study
    made: list[Row] = []
    for defense in study.defenses:
        here = [run for run in outcome.runs if run.defense == defense]
        guesses = {run.part.called: run.measured for run in here if run.part.kind == "guess"}
        for run in here:
            for measured in run.measured:
                estimate = measured.estimate()
                telling = run.part.kind == "attack" and study.scale(measured.metric).higher_leaks is not None
                # On the very same units, all of them: a guess that lacks some cannot be compared with.
                comparable = {
                    name: [m for m in other if len(m.values) == len(measured.values)] for name, other in guesses.items()
                }
                gained = lift(measured, comparable) if telling else None
                made.append(
                    {
                        "dataset": study.dataset,
                        "protocol": study.protocol,
                        "model": study.model,
                        "variant": study.variant,
                        "batch_size": study.batch_size,
                        "attack": run.part.called,
                        "defense": defense,
                        "metric": measured.metric,
                        "column": measured.column,
                        "mean": estimate.mean,
                        "low": estimate.low,
                        "high": estimate.high,
                        "std": estimate.std,
                        "n": estimate.n,
                        "baseline": None if gained is None else gained.reference.mean,
                        "baseline_name": None if gained is None else gained.baseline,
                        "lift": None if gained is None else gained.gain.mean,
                        "lift_low": None if gained is None else gained.gain.low,
                        "lift_high": None if gained is None else gained.gain.high,
                        "seconds_per_victim": run.seconds,
                        "is_attack": run.part.kind == "attack",
                        "status": "undefined" if estimate.mean is None else "ok",
                        "seed": study.seed,
                        "settings": {**study.settings, "options": plain(run.part.part.options)},
                        "knowledge": dict(study.granted(defense, run.part)) if run.part.kind == "attack" else {},
                    }
                )
    return made


def study_of(audit: Audit) -> Study:
    """Return an audit as a study, for what does not read audits themselves."""
    by_label = {one.defense: one for one in audit.configurations}
    parts = {part.label: part for part in audit.parts}
    first = audit.configurations[0]
    about = audit.about
    return Study(
        kind=audit.setting,
        dataset=about.dataset,
        protocol=about.protocol,
        model=about.model,
        units=audit.units,
        unit=type(audit.spec).unit,
        make=_Exposures(audit).make,
        defenses={label: {"defense": _defense_of(audit, one)} for label, one in by_label.items()},
        parts=tuple(StudyPart(part.part, "guess" if part.kind == "baseline" else part.kind) for part in audit.parts),
        identity={"setting": audit.setting, "identity": audit.identity(first, audit.parts[0])},
        batch_size=first.batch_size,
        scales=about.scales,
        utility=about.utility,
        granted=lambda defense, part: audit.granted(by_label[defense], parts[part.called]),
        settings=about.settings,
        facts=about.threat_model,
        notes=about.notes,
        rows=about.rows,
        target=about.target,
        columns=about.columns,
        sensitive=about.sensitive,
        lead=about.lead,
        attacker=about.attacker,
        headline=about.secret,
        seen=about.message,
        variant=audit.spec.variant,
        seed=audit.spec.seed,
        threads=audit.spec.threads,
        own=audit.own,
    )


def _defense_of(audit: Audit, configuration: Configuration) -> Any:
    return audit.identity(configuration, audit.parts[0])["defense"]


class _Exposures:
    """Makes the exposures of an audit; the latest group is kept, as units of it are measured one after the other."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._kept: tuple[tuple[str, range], Exposure, dict[str, Outcome]] | None = None

    def make(self, unit: int, defense: str) -> Measure:
        """Return what measures parts on a unit under a defense."""
        audit = self._audit
        configuration = next(one for one in audit.configurations if one.defense == defense)
        size = audit.group(configuration, audit.parts[0])
        units = range(unit // size * size, unit // size * size + size)
        if self._kept is None or self._kept[0] != (defense, units):
            self._kept = ((defense, units), audit.expose(configuration, units), {})
        _, exposure, outcomes = self._kept
        planned = {(part.part.name, part.kind, repr(part.part.options)): part for part in audit.parts}

        def measure(part: StudyPart) -> Answer:
            kind = "baseline" if part.kind == "guess" else part.kind
            found = planned[part.part.name, kind, repr(part.part.options)]
            if found.label not in outcomes:
                outcomes[found.label] = exposure.measure(found)
            return _answer(outcomes[found.label], unit - units.start)

        return measure


def _answer(found: Outcome, place: int) -> Answer:
    figures: dict[tuple[str, str | None], float | None] = {}
    each: dict[tuple[str, str | None], Sequence[float]] = {}
    for one in found.measured:
        assert isinstance(one, Measurement)
        value = float(one.values[place])
        figures[one.metric, one.column] = None if value != value else value
        if one.clusters is not None:
            each[one.metric, one.column] = one.clusters[place].tolist()
    picture = found.pictures[place] if found.pictures else None
    return Answer(figures, found.seconds, picture, each)
