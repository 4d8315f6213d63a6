"""What audits would run, and about how long they would take here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seepage.run.memory import peak_memory
from seepage.run.plan import Series, make_plan
from seepage.run.store import Store
from seepage.settings.setting import Audit, Configuration, PartKind


@dataclass(frozen=True)
class Line:
    """One kind of job: a part in one configuration, or all parts that share an exposure there.

    Attributes:
        about: the table and the model, and what else tells the audit from the others.
        configuration: point of the sweep.
        label: the attack or baseline, or the number of parts.
        kind: the part's kind; ``attack`` where parts share an exposure.
        units: number of units that the audit asks for.
        jobs: number of jobs to run; none where another audit runs the same.
        seconds: time that the jobs would take in one process; None where only running them tells.
    """

    about: str
    configuration: Configuration
    label: str
    kind: PartKind
    units: int
    jobs: int
    seconds: float | None


@dataclass(frozen=True)
class Forecast:
    """What audits would run.

    Attributes:
        lines: kinds of jobs, baselines before attacks in each configuration.
        workers: number of jobs that would run side by side.
        memory: most bytes that this process has held while it tried the parts; None where that is not known.
    """

    lines: list[Line]
    workers: int
    memory: int | None

    @property
    def jobs(self) -> int:
        """Number of jobs."""
        return sum(line.jobs for line in self.lines)

    @property
    def seconds(self) -> float | None:
        """Time that all of it would take; None where only running it tells."""
        known = [line.seconds for line in self.lines]
        return None if None in known else sum(seconds or 0.0 for seconds in known) / self.workers


def forecast(audits: Sequence[Audit]) -> Forecast:
    """Try every part of some audits for a moment, without keeping anything.

    The time is an estimate: the pace of the first steps, measured while nothing else ran beside it.

    Raises:
        BadInputError: a part cannot be run.
    """
    with Store(None) as store:
        plan = make_plan(audits, store)
    jobs: dict[int, list[int]] = {}
    for job in plan.jobs:
        jobs.setdefault(job.series[0], []).append(job.name)
    lines = []
    shown: set[tuple[int, Configuration]] = set()
    for place, series in enumerate(plan.series):
        audit = series.audit
        if audit.shared and (series.place, series.configuration) in shown:
            continue
        shown.add((series.place, series.configuration))
        names_of = {kind: [p.label for p in audit.parts if p.kind == kind] for kind in ("attack", "baseline")}
        several = f"{', '.join(names_of['attack'])}; baselines {', '.join(names_of['baseline']) or 'none'}"
        begun = [i for i in jobs if i == place or (audit.shared and _together(plan.series[i], series))]
        own = [name for i in begun for name in jobs[i]]
        known = [plan.seconds_of[name] for name in own]
        names = (audit.about.dataset, audit.about.model, audit.spec.variant)
        lines.append(
            Line(
                about=", ".join(name for name in names if name),
                configuration=series.configuration,
                label=several if audit.shared else series.part.label,
                kind="attack" if audit.shared else series.part.kind,
                units=audit.units,
                jobs=len(own),
                seconds=None if None in known else sum(seconds or 0.0 for seconds in known),
            )
        )
    return Forecast(lines, plan.workers, peak_memory())


def _together(first: Series, second: Series) -> bool:
    return (first.place, first.configuration) == (second.place, second.configuration)
