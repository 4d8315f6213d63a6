"""The plan of a run: series, jobs, the forecast of their time, and whether this machine is large enough."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from loky import cpu_count
from pydantic import BaseModel

from seepage.devices import threads
from seepage.digests import Json, digest_of
from seepage.errors import BadInputError, Remedy
from seepage.run.store import Store
from seepage.run.workers import Job
from seepage.settings.option import TABLE, fields_of
from seepage.settings.part import NONE, Part
from seepage.settings.setting import Audit, Configuration, Outcome, PartKind, PlannedPart
from seepage.settings.spec import Spec
from seepage.text import lasting

# More restarts, steps, records or units than any published audit has.
MOST = 1_000_000
MOST_SECONDS = 30 * 86_400.0
_ALLOWED = Remedy("allow_large", True)
# Whole numbers that are no amounts.
_NO_AMOUNTS = ("seed", "model_seed")


def check_counts(specs: Sequence[Spec]) -> None:
    """Refuse specs with amounts, or numbers of measurements, above a million before anything is computed."""
    total = 0
    for spec in specs:
        if spec.allow_large:
            continue
        for name, amount in _amounts(spec):
            if amount > MOST:
                raise BadInputError(
                    f"{name} is {amount:,}, above the limit of {MOST:,}; give a smaller one, or allow it: ",
                    _ALLOWED,
                    ".",
                )
        total += spec.repeated * points_of(spec) * (len(spec.attacks) + len(spec.baselines))
    if total > MOST:
        raise BadInputError(
            f"{total:,} measurements are asked for (units times configurations times attacks and baselines), above "
            f"the limit of {MOST:,}; ask for fewer, or allow it: ",
            _ALLOWED,
            ".",
        )


def points_of(spec: Spec) -> int:
    """Return the number of configurations of a spec."""
    swept = [getattr(spec, name) for name, field in fields_of(type(spec)).items() if field.option.swept]
    return math.prod(map(len, (spec.defenses, *swept)))


def check_memory(audits: Sequence[Audit], workers: int) -> None:
    """Refuse, as bad input, audits whose attacks need more memory than this machine has, unless the spec allows it."""
    limit = installed_memory()
    for audit in audits:
        if audit.spec.allow_large or limit is None:
            continue
        for configuration in audit.configurations:
            for part in audit.parts:
                needed = audit.memory(configuration, part) * workers
                if needed > limit:
                    raise BadInputError(
                        f"{part.label!r} would hold about {needed / 1e9:,.0f} GB in {workers} "
                        f"{'process' if workers == 1 else 'processes'}, more than "
                        f"the {limit / 1e9:,.0f} GB of this machine; ask for fewer restarts, records or ",
                        Remedy("workers"),
                        ", or allow it: ",
                        _ALLOWED,
                        ".",
                    )


def check_time(seconds: float) -> None:
    """Refuse, as bad input, work with a forecast above a month."""
    if seconds > MOST_SECONDS:
        raise BadInputError(
            f"this would take at least {lasting(seconds)} on this machine, above the limit of {lasting(MOST_SECONDS)}; "
            "ask for less, set a limit with ",
            Remedy("time_budget", placeholder="TIME"),
            ", or allow it: ",
            _ALLOWED,
            ".",
        )


@contextmanager
def enough_memory() -> Iterator[None]:
    """Turn errors of arrays that are too large for the machine into a ``BadInputError``."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        message = " ".join(str(error).split())
        if not isinstance(error, MemoryError) and "memory" not in message:
            raise
        raise BadInputError(
            f"this needs more memory than the machine has ({message or 'an array could not be allocated'}); ask for "
            "fewer records, columns, units of the network or restarts."
        ) from error


def installed_memory() -> int | None:
    """Return the bytes of memory of the machine; None where the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _amounts(spec: Spec) -> Iterator[tuple[str, int]]:
    for name, entry in fields_of(type(spec)).items():
        # Bounds of columns and seeds may be of any size.
        if (entry.option.panel != TABLE or name == "dataset_options") and name not in _NO_AMOUNTS:
            yield from _within(entry.key, getattr(spec, name))


def _within(name: str, value: object) -> Iterator[tuple[str, int]]:
    if isinstance(value, int) and not isinstance(value, bool):
        yield name, value
    elif isinstance(value, Part):
        yield from _within(f"{name}: {value.name}", value.options)
    elif isinstance(value, BaseModel):
        yield from _within(name, dict(value))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if key not in _NO_AMOUNTS:
                yield from _within(f"{name}: {key}", inner)
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from _within(name, inner)


# A trial stops at the first sign of progress after this time, which is enough to extrapolate; where much is left to do,
# after a share of the forecast, within bounds.
_TRIAL_SECONDS, _TRIAL_SHARE, _MOST_TRIAL_SECONDS = 0.15, 0.02, 1.0
# Seconds of the units of a baseline from which on the second one is timed as well: the first may load modules.
_TIMED_AGAIN = 1.0
# An exact attack that takes less runs however little time is left.
AT_ONCE_SECONDS = 1.0
# Share of a limited time that trials may take.
_FOR_TRIALS = 0.5
# Fields that name the parts of a kind; measurements of the deployment are named by none.
FIELDS: Mapping[PartKind, str] = {"attack": "attacks", "baseline": "baselines", "about": "about"}
# Variants of an audit that are its controls.
POSITIVE, NEGATIVE = "positive control", "negative control"


@dataclass(frozen=True)
class Series:
    """One part in one configuration of an audit, measured on unit after unit."""

    place: int
    audit: Audit
    configuration: Configuration
    part: PlannedPart
    identity: dict[str, Json]
    key: str
    group: int

    @property
    def label(self) -> str:
        """Name in messages."""
        variant = "" if self.audit.spec.variant is None else f"{self.audit.spec.variant}: "
        return f"{variant}{self.part.label}{where(self.configuration)}"

    @property
    def is_attack(self) -> bool:
        """Whether it reads the message."""
        return self.part.kind == "attack"

    def groups(self, units: int, stored: set[int]) -> list[range]:
        """Return the groups of units in which a unit is not measured yet.

        Their bounds depend on nothing else, and a group is always measured whole. So the figures of a unit are the same
        to the last bit, whatever else was measured before.
        """
        groups = [range(begin, begin + self.group) for begin in range(0, units, self.group)]
        return [group for group in groups if any(unit not in stored for unit in group if unit < units)]


def where(configuration: Configuration) -> str:
    """Return the configuration as the end of a sentence about an attack."""
    size = "" if configuration.batch_size is None else f" at batch size {configuration.batch_size}"
    under = "" if configuration.defense == "none" else f"{',' if size else ' under'} {configuration.defense}"
    return size + under


def series_of(audits: Sequence[Audit]) -> list[Series]:
    """Return the series of some audits, audit by audit, configuration by configuration."""
    series = []
    for place, audit in enumerate(audits):
        for configuration in audit.configurations:
            for part in audit.parts:
                identity = audit.identity(configuration, part)
                # More than are asked for would be computed for nothing.
                group = min(audit.group(configuration, part), audit.units)
                series.append(Series(place, audit, configuration, part, identity, digest_of(identity), group))
    return series


@dataclass(frozen=True)
class Ends:
    """Times on a clock at which trials end, and at which a run whose time is limited does."""

    trials: float
    run: float


@dataclass(frozen=True)
class Plan:
    """The work of a run."""

    audits: tuple[Audit, ...]
    series: list[Series]
    jobs: list[Job]
    seconds_of: dict[int, float | None]
    spare: list[Job]  # do not fit the time by their forecasts; they run where the others take less
    workers: int
    stored: dict[int, int]  # units that were measured before, by place in ``series``, without zeros
    shown: tuple[int, ...]  # units of each audit that results show if they are there: never fewer than before
    ready: dict[int, Outcome] = field(default_factory=dict)

    @property
    def work(self) -> float | None:
        """Seconds of all jobs one after the other; None where they are unknown before they run."""
        seconds = [self.seconds_of[job.name] for job in self.jobs]
        return None if None in seconds else sum(duration for duration in seconds if duration is not None)

    @property
    def seconds(self) -> float | None:
        """Seconds until all jobs are done; None where they are unknown before they run."""
        return None if self.work is None else self.work / self.workers


def make_plan(
    audits: Sequence[Audit],
    store: Store,
    budget: float | None = None,
    earlier: Sequence[int] = (),
    slots: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Plan:
    """Try the series with units left to measure, and plan the jobs; ``earlier`` counts units that results show, too.

    Attacks with a cheap exposure are started on the first units and stopped soon after their first sign of progress,
    which gives a forecast of their time; one without a sign runs to its end, which is its measurement. Where time is
    limited, half of it is for trials, in the order of the jobs, and that of the strongest attack goes on where it fits.
    Settings with expensive exposures forecast their jobs themselves.
    """
    begun = clock()
    workers = _workers(audits, slots)
    # Workers elsewhere have their own memory; this machine only tries each part.
    check_memory(audits, workers if slots is None else 1)
    all_series = series_of(audits)
    shown = tuple(max([audit.units, *earlier[i : i + 1]]) for i, audit in enumerate(audits))
    counts = [sum(unit < shown[series.place] for unit in store.units(series.key)) for series in all_series]
    stored = {i: count for i, count in enumerate(counts) if count}
    unlimited = budget is not None or any(audit.spec.allow_large for audit in audits)
    with enough_memory():
        most = float("inf") if unlimited else MOST_SECONDS * workers
        ends = None if budget is None else Ends(begun + budget * _FOR_TRIALS, begun + budget)
        jobs, seconds_of, ready = _jobs(audits, all_series, store, most, ends, clock)
    if not unlimited:
        check_time(sum(seconds or 0.0 for seconds in seconds_of.values()) / workers)
    spare: list[Job] = []
    if budget is None:
        # Long jobs last would leave the other workers idle at the end.
        jobs.sort(key=lambda job: -(seconds_of[job.name] or 0.0))
    else:
        left = (budget - (clock() - begun)) * workers
        jobs, spare = _fitting(jobs, all_series, seconds_of, left, ready)
    return Plan(tuple(audits), all_series, jobs, seconds_of, spare, workers, stored, shown, ready)


def _urgency(job: Job, all_series: Sequence[Series]) -> tuple[int, int, int]:
    """Return the place of a job in a run with limited time: the lower, the sooner.

    The first attack of an audit, its strongest, comes first: without a defense, then in every other configuration.
    Baselines follow, without which no figure says anything, and its positive control, without which it does not show
    that little leaks. Then come the other attacks, each behind its control, further units, and negative controls.
    """
    first, begin = all_series[job.series[0]], job.units.start
    attacks = [part.label for part in first.audit.parts if part.kind == "attack"]
    of_job = [all_series[i] for i in job.series]
    rank = min((attacks.index(series.part.label) for series in of_job if series.is_attack), default=None)
    controls = first.audit.spec.variant
    if controls == NEGATIVE:
        return 5, -1 if rank is None else rank, begin
    if controls == POSITIVE:
        return (3, rank, begin) if rank else (2, 1, begin)
    if begin:
        return 4, begin, -1 if rank is None else rank
    if rank is None:
        return 2, 0, 0
    return (3, rank, MOST) if rank else (int(first.configuration.defense != NONE), 0, 0)


def _jobs(
    audits: Sequence[Audit], all_series: list[Series], store: Store, limit: float, ends: Ends | None,
    clock: Callable[[], float],
) -> tuple[list[Job], dict[int, float | None], dict[int, Outcome]]:  # fmt: skip
    """Return the jobs to do, and results of trials; audits may share series, which are measured once.

    No further series is tried once the forecast exceeds a limit in seconds. Where time is limited, jobs are in the
    order of their urgency, an attack is tried in one configuration of an audit, and the others are only exposed, as are
    baselines, and the negative control, which is like the positive one. After the end of trials, attacks are taken to
    last as long as elsewhere.
    """
    planned = dict[str, set[int]]()
    by_exposure: dict[tuple[int, Configuration, range], list[int]] = {}
    alone: list[tuple[int, range]] = []
    for i, series in enumerate(all_series):
        begun = planned.setdefault(series.key, set())
        groups = [g for g in series.groups(audits[series.place].units, store.units(series.key)) if g.start not in begun]
        begun.update(group.start for group in groups)
        for group in groups:
            if series.audit.shared:
                by_exposure.setdefault((series.place, series.configuration, group), []).append(i)
            else:
                alone.append((i, group))
    jobs: list[Job] = []
    seconds_of: dict[int, float | None] = {}

    def add(series: tuple[int, ...], units: range, seconds: float | None) -> None:
        first = all_series[series[0]]
        parts = tuple(all_series[i].part for i in series)
        count = first.audit.spec.threads
        seconds_of[len(jobs)] = seconds
        jobs.append(Job(len(jobs), series, first.place, first.configuration, units, parts, count))

    if ends is not None:
        alone.sort(key=lambda item: _urgency(Job(0, (item[0],), 0, Configuration(), item[1], (), 0), all_series))
        by_exposure = {exposure: _strongest_first(series, all_series) for exposure, series in by_exposure.items()}
    tried: dict[int, float | None] = {}
    alike: dict[tuple[int, str, int | None], float] = {}
    ready, longest = dict[int, Outcome](), dict[str, float]()
    scored = dict[tuple[int, Configuration], float]()
    total = 0.0
    for i, group in alone:
        if i not in tried:
            if total > limit:
                continue
            place = all_series[i].place - (all_series[i].audit.spec.variant == NEGATIVE)
            label = all_series[i].part.label
            like = (place, label, all_series[i].configuration.batch_size)
            point = (all_series[i].place, all_series[i].configuration)
            if ends is not None and not all_series[i].is_attack:
                # Baselines run in any case, after the attacks.
                trial = functools.partial(_expose, all_series[i], 0.0)
            elif ends is not None and (like in alike or clock() >= ends.trials):
                trial = functools.partial(_expose, all_series[i], alike.get(like, longest.get(label)))
            else:
                note = functools.partial(ready.__setitem__, len(jobs))
                scoring = len(group) * scored.get(point, 0.0)
                # Other attacks must not come before this one's other configurations.
                attacks = [part for part in all_series[i].audit.parts if part.kind == "attack"]
                until = ends.run if ends is not None and attacks[:1] == [all_series[i].part] else None
                trial = functools.partial(_try, all_series[i], group, clock, note, scoring, until)
            tried[i] = _unless_failing(trial, clock, not _optional(all_series[i]))
            if all_series[i].part.kind == "baseline":
                seconds_each = (tried[i] or 0.0) / len(group)
                scored[point] = min(scored.get(point, math.inf), seconds_each)
            if (seconds := tried[i]) is not None:
                alike[like] = max(alike.get(like, 0.0), seconds)
                longest[label] = max(longest.get(label, 0.0), seconds)
        total += tried[i] or 0.0
        add((i,), group, 0.0 if len(jobs) in ready else tried[i])
    forecast: dict[tuple[int, Configuration], float | None] = {}
    for (place, configuration, group), series in by_exposure.items():
        if (place, configuration) not in forecast:
            # The negative control is like the positive one, which comes right before it.
            like = (place - (audits[place].spec.variant == NEGATIVE), configuration)
            # Once one is unknown, so is the length of a run whose time is limited.
            known = ends is None or None not in forecast.values()
            with threads(audits[place].spec.threads):
                estimate = functools.partial(audits[place].forecast, configuration)
                refuses = not all(_optional(all_series[i]) for i in series)
                seconds = forecast.get(like) or (_unless_failing(estimate, clock, refuses) if known else None)
                forecast[place, configuration] = seconds
        add(tuple(series), group, forecast[place, configuration])
    if ends is not None:
        jobs.sort(key=lambda job: _urgency(job, all_series))
    return jobs, seconds_of, ready


def _strongest_first(series: Sequence[int], all_series: Sequence[Series]) -> list[int]:
    """Return the parts of an exposure in the order in which they are measured where time is limited."""
    attack = next((i for i in series if all_series[i].is_attack), None)
    return sorted(series, key=lambda i: 0 if i == attack else 1 + all_series[i].is_attack)


def _fitting(
    jobs: list[Job], all_series: list[Series], seconds_of: Mapping[int, float | None], budget: float,
    ready: Mapping[int, Outcome],
) -> tuple[list[Job], list[Job]]:  # fmt: skip
    """Return the jobs that fit a budget, and the others; jobs of unknown length, with results or at once fit."""
    fit, spare, used = list[Job](), list[Job](), 0.0
    for job in jobs:
        seconds = seconds_of[job.name] or 0.0
        first = job.name in ready or (job.units.start == 0 and all_series[job.series[0]].audit.shared)
        first = first or at_once(job, all_series, seconds_of[job.name])
        if used + seconds <= budget or first or not any(all_series[i].is_attack for i in job.series):
            used += seconds
            fit.append(job)
        else:
            spare.append(job)
    return fit, spare


def at_once(job: Job, all_series: Sequence[Series], seconds: float | None) -> bool:
    """Return whether a job runs however little time is left: an exact attack's first units, in under a second."""
    series = all_series[job.series[0]]
    quick = seconds is not None and seconds < AT_ONCE_SECONDS and job.units.start == 0
    alone = not series.audit.shared and series.audit.spec.variant is None
    return quick and alone and series.audit.exact(series.part)


def prover_of(series: Series) -> str | None:
    """Return the label of the attack whose proofs may leave a part nothing to add; None for other parts."""
    audited = series.audit.controls or series.audit
    return audited.yields.get(series.part.label) if series.is_attack else None


def _workers(audits: Sequence[Audit], slots: int | None) -> int:
    if any(audit.where != "cpu" for audit in audits):
        if slots is not None:
            raise BadInputError("other machines compute on CPUs only; give ", Remedy("device", "cpu"), ".")
        # One process keeps an accelerator busy.
        return 1
    if slots is not None:
        return max(1, slots)
    return min(audit.spec.workers or max(1, cpu_count() // audit.spec.threads) for audit in audits)


class _Started(Exception):  # noqa: N818 - no error: it ends a trial
    """Ends a trial: an attack has shown its pace."""


def _try(
    series: Series,
    group: range,
    clock: Callable[[], float],
    note: Callable[[Outcome], None],
    scored: float,
    ends: float | None = None,
) -> float:
    """Start a part on a group of units; return the forecast of its seconds, or note the outcome.

    ``scored`` are the seconds that a baseline takes on such a group: messages and scores take an attack as long. What
    is forecast to end before ``ends`` is not stopped.
    """
    reports: list[tuple[float, float]] = []

    def extrapolated() -> float:
        # Work before the first report is done once, the rest goes on at the pace of the reports.
        (first, before), (last, after) = reports[0], reports[-1]
        return first - begun + (1 - before) * (last - first) / max(after - before, 1e-9)

    def advanced(share: float) -> None:
        if not share:
            return
        reports.append((clock(), share + (reports[-1][1] if reports else 0.0)))
        if len(reports) > 1:
            enough = min(max(_TRIAL_SECONDS, _TRIAL_SHARE * extrapolated()), _MOST_TRIAL_SECONDS)
            late = ends is None or begun + extrapolated() + scored > ends
            if late and reports[-1][0] - begun >= enough:
                raise _Started

    begun = exposed = clock()
    with threads(series.audit.spec.threads):
        if series.is_attack:
            exposure = series.audit.expose(series.configuration, group)
            begun = clock()
            try:
                note(exposure.measure(series.part, advanced))
            except _Started:
                return extrapolated() + scored
            return clock() - exposed
        # What a metric returns wrongly is said before the run, however slow the machine is: the trial of an attack may
        # end before its guess is scored.
        series.audit.expose(series.configuration, range(1)).measure(series.part)
        first = again = clock() - begun
        if len(group) > 1 and len(group) * first > _TIMED_AGAIN:
            begun = clock()
            series.audit.expose(series.configuration, range(1)).measure(series.part)
            again = clock() - begun
    return first + (len(group) - 1) * again


def tried(audit: Audit, configuration: Configuration, part: PlannedPart) -> None:
    """Start a part on the first unit, and stop it at its first sign of progress, or before its guess is scored.

    Raises:
        BadInputError: the part cannot be run in this configuration. Other errors are left for its job.
    """

    def started(share: float) -> None:
        raise _Started

    try:
        with threads(audit.spec.threads):
            audit.expose(configuration, range(1)).measure(part, started)
    except BadInputError:
        raise
    except Exception:
        return


def _expose(series: Series, seconds: float | None) -> float | None:
    """Expose the first unit of a part, to check that it can be run; return the known seconds of the like."""
    with threads(series.audit.spec.threads):
        series.audit.expose(series.configuration, range(1))
    return seconds


def optional(audit: Audit, configuration: Configuration, part: PlannedPart) -> bool:
    """Return whether nobody named a part or its defense, so that one that cannot act is not tried and ends no run."""
    if audit.spec.variant in (POSITIVE, NEGATIVE):
        return True
    defended = configuration.defense != NONE
    return FIELDS[part.kind] in audit.defaults or (defended and "defenses" in audit.defaults)


def _optional(series: Series) -> bool:
    return optional(series.audit, series.configuration, series.part)


def _unless_failing(
    forecast: Callable[[], float | None], clock: Callable[[], float], refuses: bool = True
) -> float | None:
    """Return a forecast; where the trial fails, the time until then: the job will fail alike and stop no other.

    Bad input stops the run before anything is computed if ``refuses``.
    """
    begun = clock()
    try:
        return forecast()
    except Exception as error:
        if refuses and isinstance(error, BadInputError):
            raise
        return clock() - begun


def timed(plan: Plan, seconds: float) -> Plan:
    """Return the plan with unknown lengths of jobs taken from a job that has been run."""
    return replace(plan, seconds_of={name: seconds if s is None else s for name, s in plan.seconds_of.items()})
