"""Forecast of the jobs of audits and of their time on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seepage.devices import peak_memory
from seepage.run.plan import make_plan
from seepage.run.store import Store
from seepage.settings.setting import Audit, Configuration


@dataclass(frozen=True)
class Line:
    """A group of jobs: a part in one configuration, or all parts that share an exposure there."""

    about: str
    configuration: Configuration
    label: str
    attacks: int
    baselines: int
    units: int
    jobs: int
    seconds: float | None


@dataclass(frozen=True)
class Forecast:
    """Forecast of audits; ``memory`` is the peak of this process while it tried the parts, in bytes."""

    lines: list[Line]
    workers: int
    memory: int | None

    @property
    def jobs(self) -> int:
        """Number of jobs."""
        return sum(line.jobs for line in self.lines)

    @property
    def seconds(self) -> float | None:
        """Time of all jobs; None where only running them tells."""
        times = [line.seconds for line in self.lines]
        return None if None in times else sum(seconds or 0.0 for seconds in times) / self.workers


def forecast(audits: Sequence[Audit]) -> Forecast:
    """Try every part of some audits for a moment, alone, and keep nothing; the first steps' pace is extrapolated."""
    with Store(None) as store:
        plan = make_plan(audits, store)
    jobs: dict[int, list[int]] = {}
    for job in plan.jobs:
        jobs.setdefault(job.series[0], []).append(job.name)
    lines = []
    shown: set[tuple[int, Configuration]] = set()
    for place, series in enumerate(plan.series):
        audit, point = series.audit, (series.place, series.configuration)
        if audit.shared and point in shown:
            continue
        shown.add(point)
        names_of = {kind: [p.label for p in audit.parts if p.kind == kind] for kind in ("attack", "baseline")}
        several = f"{', '.join(names_of['attack'])}; baselines {', '.join(names_of['baseline']) or 'none'}"
        together = [i for i in jobs if (plan.series[i].place, plan.series[i].configuration) == point]
        shared_jobs = [name for i in (together if audit.shared else [place]) for name in jobs.get(i, [])]
        times = [plan.seconds_of[name] for name in shared_jobs]
        names = (audit.about.dataset, audit.about.model, audit.spec.variant)
        about = ", ".join(name for name in names if name)
        label = several if audit.shared else series.part.label
        kinds = [p.kind for p in audit.parts] if audit.shared else [series.part.kind]
        seconds = None if None in times else sum(duration or 0.0 for duration in times)
        counts = kinds.count("attack"), kinds.count("baseline")
        lines.append(Line(about, series.configuration, label, *counts, audit.units, len(shared_jobs), seconds))
    return Forecast(lines, plan.workers, peak_memory())
