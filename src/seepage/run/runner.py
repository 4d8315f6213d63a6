"""The runner: every attack and baseline against the same victims; what is measured is kept job by job."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loky import cpu_count

from seepage.assessment import Measured, Measurement
from seepage.assessment.evidence import Evidence
from seepage.run.job import Done, attack
from seepage.run.store import Failure, Store
from seepage.run.workers import Errand, run_here, run_in_workers, threads
from seepage.settings.device import find_device
from seepage.settings.grid import Setting, settings
from seepage.settings.horizontal_spec import HorizontalSpec
from seepage.settings.subject import Subject
from seepage.wire.horizontal import Knowledge

Audit = tuple[HorizontalSpec, Subject]

# A trial is stopped at the first sign of progress after so long: enough to tell how long the whole will take.
_TRIAL_SECONDS = 0.15
# Starting worker processes takes some seconds, which less work than this does not make up for.
_WORTH_WORKERS_SECONDS = 15.0


class Listener:
    """Told how an audit gets on; this one ignores it."""

    def planned(self, plan: Plan) -> None:
        """Called once every setting was tried, before anything runs."""

    def begin(self, work: float, jobs: int) -> None:
        """Called before the first job of an audit or a study, with the work of all jobs and their number."""

    def started(self, what: str) -> None:
        """Called when a job begins, with the setting's name for people."""

    def advance(self, work: float) -> None:
        """Called now and then with the work done since the last call."""

    def finished(self, what: str, figure: float | None, victims: int) -> None:
        """Called when a job is done: mean accuracy of the setting so far (None for a guess), over how many victims."""

    def failed(self, what: str, why: str) -> None:
        """Called when a job has failed."""


@dataclass(frozen=True)
class Run:
    """What one attack or baseline got out of the victims of one setting.

    Attributes:
        batch_size: records behind one gradient.
        defense: what the clients did to their updates.
        called: name of the attack or baseline in results.
        is_attack: whether it saw the update.
        measured: its scores, one a victim of ``victims``.
        victims: indices of the measured victims.
        seconds: mean time an attack took the machine for a victim; None for baselines.
        settings: how it was configured.
        knowledge: what the attacker was granted.
        losses: the attack's own, one a victim; None where it has none.
        evidence: of the attack's victims; None of baselines.
        failures: the jobs that failed.
        asked: number of victims that the audit asked for.
    """

    batch_size: int
    defense: str
    called: str
    is_attack: bool
    measured: list[Measured]
    victims: tuple[int, ...]
    seconds: float | None
    settings: dict[str, Any]
    knowledge: dict[str, Any]
    losses: tuple[float | None, ...] = ()
    evidence: Evidence | None = None
    failures: tuple[Failure, ...] = ()
    asked: int = 0

    @property
    def status(self) -> str:
        """``ok``, or ``failed`` where a job failed, or ``left_out`` where the time did not suffice for all victims."""
        if self.failures:
            return "failed"
        return "ok" if len(self.victims) >= self.asked else "left_out"


@dataclass(frozen=True)
class Outcome:
    """All runs of an audit, baselines before attacks at each point."""

    runs: list[Run] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """What is to be measured.

    Attributes:
        jobs: setting (by its place in ``settings``) and victims of each job, in order.
        settings: all of them, of all audits.
        left_out: names of settings and victims that do not fit the time.
        hands: jobs that run side by side.
        groups: seconds for a group of victims, by setting; what had victims left only.
        counts: number of settings of each audit.
        held: victims that were measured before, by setting; those with any only.
        shown: victims of each audit that results are to hold if they are there: never fewer than before.
    """

    jobs: list[tuple[int, range]]
    settings: list[Setting]
    left_out: list[tuple[str, int]]
    hands: int
    groups: dict[int, float]
    counts: tuple[int, ...]
    held: dict[int, int]
    shown: tuple[int, ...]

    @property
    def work(self) -> float:
        """Seconds that the jobs take one after the other."""
        return sum(self.groups[i] for i, _ in self.jobs)

    @property
    def seconds(self) -> float:
        """Seconds that the jobs take."""
        return self.work / self.hands


def make_plan(audits: Sequence[Audit], store: Store, budget: float | None = None, earlier: Sequence[int] = ()) -> Plan:
    """Try every setting of audits that has victims left to measure, without keeping anything, and plan the jobs.

    Each attack is started on the first victims and stopped soon after its first sign of progress, which
    also tells how long it will take; one that gives no sign runs to its end.

    Args:
        audits: what to do, to what.
        store: holds what was measured before.
        budget: seconds that the audits may take; no limit if None. Every setting gets its first victims
            before any gets more.
        earlier: victims that earlier runs of each audit asked for, none if left out: results show those that were
            measured, however few are asked for now.

    Raises:
        BadInputError: a setting cannot be run (the batch is larger than the data, an option is unknown,
            labels cannot be restored, ...).
    """
    by_audit = [settings(spec, subject) for spec, subject in audits]
    every = [setting for some in by_audit for setting in some]
    shown = tuple(max([spec.victims, *earlier[i : i + 1]]) for i, (spec, _) in enumerate(audits))
    most = [victims for victims, some in zip(shown, by_audit, strict=True) for _ in some]
    held = {i: sum(victim < most[i] for victim in store.victims(every[i].key)) for i in range(len(every))}
    groups = _groups(every, store)
    seconds = {i: _try(every[i]) for i in groups if groups[i]}
    jobs = [(i, group) for i in seconds for group in groups[i]]
    hands = _hands(audits)
    left_out: list[tuple[str, int]] = []
    if budget is None:
        # Long jobs last would leave the other workers idle at the end.
        jobs.sort(key=lambda job: -seconds[job[0]])
    else:
        jobs.sort(key=lambda job: (every[job[0]].is_attack, job[1].start))
        jobs, left_out = _fitting(jobs, every, seconds, budget * hands)
    held = {i: victims for i, victims in held.items() if victims}
    return Plan(jobs, every, left_out, hands, seconds, tuple(map(len, by_audit)), held, shown)


def _groups(every: list[Setting], store: Store) -> dict[int, list[range]]:
    """Return what is to be measured of each setting; audits may share settings, which are measured once."""
    groups, planned = {}, dict[str, set[int]]()
    for i, setting in enumerate(every):
        begun = planned.setdefault(setting.key, set())
        groups[i] = [g for g in setting.groups(store.victims(setting.key)) if g.start not in begun]
        begun.update(group.start for group in groups[i])
    return groups


def _fitting(
    jobs: list[tuple[int, range]], every: list[Setting], seconds: Mapping[int, float], budget: float
) -> tuple[list[tuple[int, range]], list[tuple[str, int]]]:
    fit, left, used = [], dict[int, int](), 0.0
    for i, group in jobs:
        if used + seconds[i] <= budget or not every[i].is_attack:
            used += seconds[i]
            fit.append((i, group))
        else:
            left[i] = left.get(i, 0) + sum(victim < every[i].spec.victims for victim in group)
    return fit, [(every[i].called, victims) for i, victims in left.items()]


def _hands(audits: Sequence[Audit]) -> int:
    """Return how many jobs run side by side."""
    if any(find_device(spec.device).type != "cpu" for spec, _ in audits):
        # One process keeps an accelerator busy.
        return 1
    return min(spec.workers or max(1, cpu_count() // spec.threads) for spec, _ in audits)


class _Started(Exception):  # noqa: N818 - no error: it ends a trial
    """An attack has shown how fast it is."""


def _try(setting: Setting) -> float:
    """Start an attack on its first group of victims; return the seconds that the whole would take."""
    reports: list[tuple[float, float]] = []

    def advanced(share: float) -> None:
        reports.append((time.perf_counter(), share + (reports[-1][1] if reports else 0.0)))
        if reports[-1][0] - begun >= _TRIAL_SECONDS and len(reports) > 1:
            raise _Started

    begun = time.perf_counter()
    with threads(setting.spec.threads):
        transcript = setting.transcript(range(setting.group if setting.is_attack else 1))
        if setting.is_attack:
            dataset = setting.subject.dataset
            knowledge = Knowledge(dataset.schema, dataset.statistics, **setting.granted(transcript))
            seeds = range(setting.group)
            begun = time.perf_counter()
            try:
                attack(setting.made, transcript, knowledge, seeds, advanced)
            except _Started:
                # What comes before the first report is done once, the rest goes on at the pace of the reports.
                (first, before), (last, after) = reports[0], reports[-1]
                return first - begun + (1 - before) * (last - first) / max(after - before, 1e-9)
    return time.perf_counter() - begun


def run_audits(
    audits: Sequence[Audit],
    store: Store,
    listener: Listener | None = None,
    plan: Plan | None = None,
    budget: float | None = None,
) -> list[Outcome]:
    """Run what of some audits is not in the store yet, and return all of it.

    Args:
        audits: what to do, to what.
        store: holds what was measured before and keeps what is measured now.
        listener: told about the progress.
        plan: what ``make_plan`` said; called here if None.
        budget: seconds after which no further job is begun; no limit if None.

    Raises:
        BadInputError: a setting cannot be run, or the store cannot be written. Every setting is tried
            first, so that a bad one stops the audits before anything is kept. A job that fails later is
            recorded, and stops no other.
    """
    plan = plan or make_plan(audits, store, budget)
    listener = listener or Listener()
    _carry_out(plan, store, listener, budget)
    outcomes, place = [], 0
    for count, shown in zip(plan.counts, plan.shown, strict=True):
        outcomes.append(Outcome([_run(s, store, shown) for s in plan.settings[place : place + count]]))
        place += count
    return outcomes


class _Watch:
    """Turns shares of jobs into work done."""

    def __init__(self, plan: Plan, listener: Listener) -> None:
        self._plan, self._listener = plan, listener
        self._reported: dict[int, float] = {}

    def work(self, name: int) -> float:
        return self._plan.groups[self._plan.jobs[name][0]]

    def started(self, name: int) -> None:
        # A job that is tried again begins anew.
        self._listener.advance(-self._reported.pop(name, 0.0) * self.work(name))
        self._listener.started(self._plan.settings[self._plan.jobs[name][0]].called)

    def advanced(self, name: int, share: float) -> None:
        self._reported[name] = self._reported.get(name, 0.0) + share
        self._listener.advance(share * self.work(name))

    def ended(self, name: int) -> None:
        # An attack may report nothing, or stop early.
        self.advanced(name, 1 - self._reported.get(name, 0.0))


def _carry_out(plan: Plan, store: Store, listener: Listener, budget: float | None) -> None:
    if not plan.jobs:
        return
    listener.begin(plan.work, len(plan.jobs))
    watch = _Watch(plan, listener)
    subjects = list({id(setting.subject): setting.subject for setting in plan.settings}.values())
    about = {id(subject): i for i, subject in enumerate(subjects)}
    tables = {i: (subject.dataset.schema, subject.dataset.statistics) for i, subject in enumerate(subjects)}
    errands = [
        Errand(
            name=name,
            make=lambda setting=plan.settings[i], victims=victims: setting.job(victims),
            about=about[id(plan.settings[i].subject)],
            victims=victims,
            threads=plan.settings[i].spec.threads,
        )
        for name, (i, victims) in enumerate(plan.jobs)
    ]
    workers = min(plan.hands, len(errands)) if plan.work >= _WORTH_WORKERS_SECONDS else 1
    begun = time.monotonic()

    def wanted() -> bool:
        return budget is None or time.monotonic() - begun < budget

    if workers == 1:
        outcomes = run_here(errands, tables, watch, wanted)
    else:
        outcomes = run_in_workers(errands, tables, watch, wanted, workers)
    # Closed at once when something is raised here: workers must not go on.
    with contextlib.closing(outcomes):
        for errand, outcome in outcomes:
            watch.ended(errand.name)
            setting = plan.settings[plan.jobs[errand.name][0]]
            if isinstance(outcome, Failure):
                store.add_failure(setting.key, setting.identity, outcome)
                listener.failed(setting.called, outcome.message)
            else:
                _keep(store, setting, errand.victims, outcome, workers)
                listener.finished(setting.called, *_so_far(store, setting))


def _keep(store: Store, setting: Setting, victims: range, done: Done, workers: int) -> None:
    # Several victims are attacked side by side: each takes that part of the machine's time.
    store.add(setting.key, setting.identity, victims.start, done.measured, done.seconds / workers, done.evidence)


def _so_far(store: Store, setting: Setting) -> tuple[float | None, int]:
    held = store.victims(setting.key)
    if not setting.is_attack:
        return None, len(held)
    for measured in store.measured(setting.key, sorted(held), only="accuracy"):
        if isinstance(measured, Measurement) and measured.column is None:
            return measured.estimate().mean, len(held)
    return None, len(held)


def held_runs(spec: HorizontalSpec, subject: Subject, store: Store) -> list[Run]:
    """Return what the store holds of an audit, without running anything: all victims of each setting."""
    runs = []
    for setting in settings(spec, subject):
        held = store.victims(setting.key)
        if held:
            runs.append(_run(setting, store, spec.victims))
    return runs


def _run(setting: Setting, store: Store, shown: int) -> Run:
    held = store.victims(setting.key)
    victims = tuple(v for v in range(min(shown, max(held, default=-1) + 1)) if v in held)
    seconds, losses = store.seconds(setting.key), store.losses(setting.key)
    return Run(
        batch_size=setting.batch_size,
        defense=setting.defense.called,
        called=setting.part.called,
        is_attack=setting.is_attack,
        measured=store.measured(setting.key, victims),
        victims=victims,
        seconds=sum(seconds[v] for v in victims) / len(victims) if setting.is_attack and victims else None,
        settings=setting.settings(),
        knowledge=setting.knowledge(),
        losses=tuple(losses[v] for v in victims),
        evidence=store.evidence(setting.key, victims) if setting.is_attack else None,
        failures=tuple(f for f in store.failures(setting.key) if f.victims.start < setting.spec.victims),
        asked=setting.spec.victims,
    )
