"""The runner: every attack and baseline against the same units; results are stored job by job."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seepage.assessment import Measurement
from seepage.assessment.evidence import Evidence
from seepage.assessment.lifts import PROVED_CELLS
from seepage.assessment.measurement import drawn_from
from seepage.digests import digest_of
from seepage.run.elsewhere import Machines
from seepage.run.limits import SideBySide, StoppingRule
from seepage.run.plan import AT_ONCE_SECONDS, Plan, Series, at_once, make_plan, prover_of, series_of, timed
from seepage.run.store import Failure, Store
from seepage.run.workers import Finished, Job, JobRunner, ThisProcess, Work, WorkerProcesses
from seepage.settings.setting import Audit, Configuration, PlannedPart
from seepage.text import how_many

# Starting worker processes takes some seconds, which less work does not make up for.
_WORTH_WORKERS_SECONDS = 15.0
# A job begins where its forecast is at most so many times the remaining time.
_LATE = 1.1
# Figures that show whether an attack proved all, and that nothing which it proved is wrong.
_PROVED = (PROVED_CELLS, None)
_WRONG = ("certified_wrong", None)


class Listener:
    """Callbacks on the progress of a run; these ignore it."""

    def planned(self, plan: Plan) -> None:
        """Called once everything was tried, before anything runs."""

    def begin(self, work: float, jobs: int) -> None:
        """Called before the first job, with the work of all jobs and their number."""

    def started(self, what: str) -> None:
        """Called when a job begins, with its name for people."""

    def advance(self, work: float) -> None:
        """Called now and then with the work done since the last call."""

    def finished(self, what: str, figure: float | None, units: int) -> None:
        """Called when a series has new units: its mean accuracy so far (None for a baseline), and over how many."""

    def ended(self) -> None:
        """Called when a job has ended."""

    def stopped(self, what: str, share: float, of: str) -> None:
        """Called when the end of the time stopped a job: the share of it that was done, and its units in words."""

    def failed(self, what: str, why: str) -> None:
        """Called when a series lost units to a failure."""


@dataclass(frozen=True)
class Run:
    """Figures of one part on the units of one configuration.

    Attributes:
        measured: figures, one value a unit of ``units``.
        seconds: mean machine time of an attack for a unit; None for other parts.
        knowledge: side information of the attacker, as plain values.
        losses: the attack's own losses, one a unit; None where it has none.
        evidence: evidence of the units; None where there is none.
        picture: data URI of the first unit's picture; None where there is none.
    """

    configuration: Configuration
    part: PlannedPart
    measured: list[Measurement]
    units: tuple[int, ...]
    seconds: float | None
    settings: Mapping[str, Any]
    knowledge: Mapping[str, object]
    losses: tuple[float | None, ...] = ()
    evidence: Evidence | None = None
    failures: tuple[Failure, ...] = ()
    planned: int = 0
    picture: str | None = None

    @property
    def label(self) -> str:
        """The part's name in results."""
        return self.part.label

    @property
    def is_attack(self) -> bool:
        """Whether the part reads the message."""
        return self.part.kind == "attack"

    @property
    def nothing_to_add(self) -> bool:
        """Whether the part was left out, because what it would read was proved already."""
        return self.planned == 0 and not self.units and not self.failures

    @property
    def status(self) -> str:
        """``ok``, or ``failed`` where a job failed, or ``left_out`` where the time did not suffice for all units."""
        if self.failures:
            return "failed"
        return "ok" if len(self.units) >= self.planned else "left_out"


def run_audits(
    audits: Sequence[Audit],
    store: Store,
    listener: Listener | None = None,
    plan: Plan | None = None,
    budget: float | None = None,
    rules: Mapping[int, StoppingRule] | None = None,
    machines: Machines | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> list[list[Run]]:
    """Measure the units that the store does not hold yet, and return the runs of each audit.

    Everything is tried first, so that bad input stops the run before anything is kept. A part that fails later is
    recorded, and stops no other. After ``budget`` seconds jobs stop, and few others begin, see ``_Within``; before, one
    begins where the last units of its series, or else its forecast, say that it fits. ``rules`` are by place in
    ``audits``; they choose the units. Attacks that may have nothing to add (``Audit.yields``) run after the others,
    where those left something unproved.
    """
    plan = plan or make_plan(audits, store, budget, slots=None if machines is None else machines.slots())
    planned = _carry_out(plan, store, listener or Listener(), budget, rules or {}, machines, clock)
    return [
        [_run(series, store, shown, planned[i]) for i, series in enumerate(plan.series) if series.place == place]
        for place, shown in enumerate(plan.shown)
    ]


def stored_runs(audit: Audit, store: Store, shown: int | None = None) -> list[Run]:
    """Return the stored runs of an audit, of ``shown`` units or those of the spec, without running anything."""
    shown = audit.units if shown is None else shown
    return [_run(series, store, shown, audit.units) for series in series_of([audit]) if store.units(series.key)]


class _Watch:
    """Converts shares of jobs into work done, and times them."""

    def __init__(self, plan: Plan, listener: Listener, clock: Callable[[], float]) -> None:
        self._listener = listener
        self._clock = clock
        jobs = [*plan.jobs, *plan.spare]
        self._series = {job.name: job.series for job in jobs}
        self._begun: dict[int, float] = {}
        self._took: dict[int, float] = {}
        self._work = {name: 1.0 if seconds is None else seconds for name, seconds in plan.seconds_of.items()}
        self._labels = {job.name: _label(plan, job) for job in jobs}
        self._planned = [job.name for job in plan.jobs]
        self._reported: dict[int, float] = {}

    def started(self, name: int) -> None:
        # A job that is tried again begins anew.
        self._listener.advance(-self._reported.pop(name, 0.0) * self._work[name])
        self._listener.started(self._labels[name])
        self._begun[name] = self._clock()

    def advanced(self, name: int, share: float) -> None:
        self._reported[name] = self._reported.get(name, 0.0) + share
        self._listener.advance(share * self._work[name])

    def ended(self, name: int) -> None:
        # An attack may report nothing, or stop early.
        self.advanced(name, 1 - self._reported.get(name, 0.0))
        self._listener.ended()
        if name in self._begun:
            took = self._clock() - self._begun[name]
            self._took.update(dict.fromkeys(self._series[name], took / len(self._series[name])))

    def stopped(self, plan: Plan, job: Job) -> None:
        """Say how much of a job was done when its time ended."""
        of = how_many(len(job.units), plan.series[job.series[0]].audit.spec.unit)
        self._listener.stopped(_label(plan, job), min(self._reported.get(job.name, 0.0), 1.0), of)
        self._listener.ended()

    def took(self, name: int) -> float:
        """Return the seconds of the last units of a job's series; 0 before the first."""
        return sum(self._took.get(i, 0.0) for i in self._series[name])

    @property
    def work(self) -> float:
        return sum(self._work[name] for name in self._planned)


def _label(plan: Plan, job: Job) -> str:
    first = plan.series[job.series[0]]
    if len(job.series) == 1:
        return first.label
    several = f" and {len(job.series) - 1} more" if len(job.series) > 1 else ""
    return f"{first.label}{several}, {first.audit.spec.unit} {job.units.start + 1}"


@dataclass(frozen=True)
class _Within:
    """Which jobs begin, and when they stop, in a run of limited or unlimited time.

    Where an attack was measured, its baselines are, however late it is. Exact attacks that end in under a second always
    run, see ``at_once``.
    """

    plan: Plan
    store: Store
    watch: _Watch
    clock: Callable[[], float]
    ends: float | None

    def wanted(self, job: Job) -> bool:
        """Return whether a job begins now."""
        if self.ends is None or at_once(job, self.plan.series, self.plan.seconds_of.get(job.name)):
            return True
        if not self._attacks(job) and self._attacked(job):
            return True
        # What was measured tells more than a forecast.
        left, needed = self.ends - self.clock(), self.watch.took(job.name) or self.plan.seconds_of.get(job.name) or 0.0
        # Of an expensive exposure the first is begun in any case.
        exposed = self.plan.series[job.series[0]].audit.shared and job.units.start == 0
        return left > 0 and (exposed or not self._attacks(job) or needed <= left * _LATE)

    def stops(self, job: Job) -> float | None:
        """Return the time at which a job stops; None for never."""
        if self.ends is None or not self._attacks(job):
            return None
        quick = at_once(job, self.plan.series, self.plan.seconds_of.get(job.name))
        return max(self.ends, self.clock() + AT_ONCE_SECONDS) if quick else self.ends

    def _attacks(self, job: Job) -> bool:
        return any(self.plan.series[i].is_attack for i in job.series)

    def _attacked(self, job: Job) -> bool:
        """Return whether an attack was measured on a unit of a job of baselines."""
        first = self.plan.series[job.series[0]]
        of_configuration = [
            s for s in self.plan.series if (s.place, s.configuration) == (first.place, first.configuration)
        ]
        return any(not self.store.units(s.key).isdisjoint(job.units) for s in of_configuration if s.is_attack)


def _carry_out(
    plan: Plan,
    store: Store,
    listener: Listener,
    budget: float | None,
    rules: Mapping[int, StoppingRule],
    machines: Machines | None,
    clock: Callable[[], float],
) -> list[int]:
    """Run the plan, look by look where there are rules; return the number of units of each series."""
    begun = clock()
    watch = _Watch(plan, listener, clock)
    left, yielding = [*plan.jobs, *plan.spare], list[Job]()
    if left:
        listener.begin(watch.work, len(plan.jobs))
    planned = [series.audit.units for series in plan.series]
    looks = {place: rule.looks for place, rule in rules.items()}

    def run(plan: Plan, jobs: Sequence[Job]) -> Plan:
        within = _Within(plan, store, watch, clock, None if budget is None else begun + budget)
        return _carry_out_jobs(plan, jobs, store, listener, within, machines) if jobs else plan

    for number in range(max([1, *map(len, looks.values())])):
        upto = {place: counts[min(number, len(counts) - 1)] for place, counts in looks.items()}
        for i, series in enumerate(plan.series):
            if series.place in rules:
                before = planned[i] if number else 0
                attack = series.part.label if series.is_attack else None
                planned[i] = rules[series.place].units(series.configuration, attack, upto[series.place], before)
        jobs = [job for series in left if (job := _trimmed(series, planned)) is not None]
        names = {job.name for job in jobs}
        left = [job for job in left if job.name not in names]
        # Where time is limited, all attacks have their first units before any has more.
        turns = (
            [jobs] if budget is None else [[j for j in jobs if (j.units.start > 0) == more] for more in (False, True)]
        )
        for turn in turns:
            yielding += [job for job in turn if prover_of(plan.series[job.series[0]]) is not None]
            plan = run(plan, [job for job in turn if job not in yielding])
            due = [job for job in yielding if not _nothing_to_add(plan, store, plan.series[job.series[0]])]
            yielding = [job for job in yielding if job not in due]
            plan = run(plan, due)
        for place, rule in rules.items():
            rule.look(functools.partial(_measured, plan, store, place, upto[place]))
    for i in {i for job in yielding for i in job.series}:
        planned[i] = len(store.units(plan.series[i].key))
    return planned


def _nothing_to_add(plan: Plan, store: Store, series: Series) -> bool:
    """Return whether another attack proved all that a part would read, so far.

    That of a control has nothing to add where it has nothing in any configuration of the audit that is controlled.
    """
    prover, audited = prover_of(series), series.audit.controls or series.audit
    points = [series.configuration] if audited is series.audit else audited.configurations
    provers = [
        other
        for other in plan.series
        if other.audit is audited and other.is_attack and other.part.label == prover and other.configuration in points
    ]
    return len(provers) == len(points) and all(_proves_all(store, other) for other in provers)


def _proves_all(store: Store, series: Series) -> bool:
    units = sorted(unit for unit in store.units(series.key) if unit < series.audit.units)
    figures = {(f.metric, f.column): f.values for f in store.measured(series.key, units, [_PROVED, _WRONG])}
    # Of what is wrong in any cell, nothing counts as proved.
    wrong = _WRONG in figures and bool((figures[_WRONG] > 0).any())
    return bool(units) and _PROVED in figures and bool((figures[_PROVED] == 1).all()) and not wrong


def _trimmed(job: Job, planned: Sequence[int]) -> Job | None:
    """Return a job with those of its series that want its units; None without any."""
    places = [k for k, i in enumerate(job.series) if job.units.start < planned[i]]
    if not places:
        return None
    return replace(job, series=tuple(job.series[k] for k in places), parts=tuple(job.parts[k] for k in places))


def _measured(
    plan: Plan,
    store: Store,
    place: int,
    upto: int,
    configuration: Configuration,
    attack: str,
    figures: Collection[tuple[str, str | None]],
) -> SideBySide:
    """Return figures of an attack on the first units, and those of each baseline on the same units."""
    of_configuration = [
        series for series in plan.series if series.place == place and series.configuration == configuration
    ]
    baselines = [series for series in of_configuration if series.part.kind == "baseline"]
    [attacked] = [series for series in of_configuration if series.is_attack and series.part.label == attack]
    units = {unit for unit in store.units(attacked.key) if unit < upto}
    for series in baselines:
        units &= set(store.units(series.key))
    common = sorted(units)
    total = attacked.audit.batches(configuration)

    def of(series: Series) -> list[Measurement]:
        return drawn_from(store.measured(series.key, common, figures), total)

    return of(attacked), {series.part.label: of(series) for series in baselines}


def side_by_side(
    runs: Sequence[Run], configuration: Configuration, attack: str, figures: Collection[tuple[str, str | None]]
) -> SideBySide:
    """Return figures of an attack, and those of each baseline on the same units."""
    of_configuration = [run for run in runs if run.configuration == configuration]
    attacked = next((run for run in of_configuration if run.is_attack and run.label == attack), None)
    if attacked is None:
        return [], {}

    def wanted(run: Run) -> list[Measurement]:
        return [figure for figure in run.measured if (figure.metric, figure.column) in figures]

    beside = {
        run.label: wanted(run)
        for run in of_configuration
        if run.part.kind == "baseline" and run.units == attacked.units
    }
    return wanted(attacked), beside


def _carry_out_jobs(
    plan: Plan,
    jobs: Sequence[Job],
    store: Store,
    listener: Listener,
    within: _Within,
    machines: Machines | None,
) -> Plan:
    watch = within.watch
    measured = [job for job in jobs if job.name in plan.ready]
    _keep_all(plan, store, listener, watch, ((job, [plan.ready[job.name]]) for job in measured), 1)

    def run(by: JobRunner, jobs_of_runner: Sequence[Job]) -> None:
        finished = by.run(Work(jobs_of_runner, plan.audits, watch, within.wanted, within.stops))
        _keep_all(plan, store, listener, watch, finished, by.beside)

    jobs = [job for job in jobs if job.name not in plan.ready]
    if not jobs:
        return plan
    this_process = ThisProcess(within.clock)
    if machines is None and plan.workers > 1 and plan.work is None:
        # The first job shows the time of the others.
        begun = time.monotonic()
        run(this_process, jobs[:1])
        jobs = jobs[1:]
        plan = timed(plan, time.monotonic() - begun)
    if machines is not None:
        run(machines, jobs)
        return plan
    likely = {job.name for job in plan.jobs}
    left = sum(plan.seconds_of[job.name] or 0.0 for job in jobs if job.name in likely)
    workers = min(plan.workers, len(jobs)) if left >= _WORTH_WORKERS_SECONDS else 1
    run(WorkerProcesses(workers) if workers > 1 else this_process, jobs)
    return plan


def _keep_all(plan: Plan, store: Store, listener: Listener, watch: _Watch, finished: Finished, workers: int) -> None:
    # Closed at once when something is raised here: workers must not go on.
    with contextlib.closing(finished):
        for job, results in finished:
            if None in results:
                watch.stopped(plan, job)
            else:
                watch.ended(job.name)
            for i, result in zip(job.series, results, strict=True):
                series = plan.series[i]
                if result is None:
                    continue
                if isinstance(result, Failure):
                    store.add_failure(series.key, series.identity, result)
                    listener.failed(series.label, result.message)
                    continue
                # Several units run side by side: each takes that part of the machine's time.
                seconds = None if result.seconds is None else result.seconds / workers
                figures = (result.measured, seconds, result.evidence, result.pictures)
                store.add(series.key, series.identity, job.units, *figures)
                listener.finished(series.label, *_so_far(store, series))


def _so_far(store: Store, series: Series) -> tuple[float | None, int]:
    units = store.units(series.key)
    figures = store.measured(series.key, sorted(units), only=[("accuracy", None)]) if series.is_attack else []
    return figures[0].estimate().mean if figures else None, len(units)


def seconds_of(audit: Audit, store: Store, configuration: Configuration, attack: str) -> float | None:
    """Return the mean seconds of the stored units of an attack in a configuration; None without any."""
    [part] = [part for part in audit.parts if part.kind == "attack" and part.label == attack]
    times = store.seconds(digest_of(audit.identity(configuration, part))).values()
    known = [seconds for seconds in times if seconds is not None]
    return sum(known) / len(known) if known else None


def _run(series: Series, store: Store, shown: int, planned: int) -> Run:
    audit, stored = series.audit, store.units(series.key)
    units = tuple(unit for unit in range(min(shown, max(stored, default=-1) + 1)) if unit in stored)
    times, losses = store.seconds(series.key), store.losses(series.key)
    times_of_units = [seconds for unit in units if (seconds := times[unit]) is not None]
    return Run(
        configuration=series.configuration,
        part=series.part,
        measured=store.measured(series.key, units),
        units=units,
        seconds=sum(times_of_units) / len(times_of_units) if series.is_attack and times_of_units else None,
        settings=audit.options(series.configuration, series.part),
        knowledge=audit.granted(series.configuration, series.part),
        losses=tuple(losses[unit] for unit in units),
        evidence=store.evidence(series.key, units) if series.is_attack else None,
        failures=tuple(failure for failure in store.failures(series.key) if failure.units.start < audit.units),
        planned=planned,
        picture=store.picture(series.key),
    )
