"""Runs jobs in this process or in several others; a job that fails, or kills its worker, stops no other.

Other machines run them in the same form, see ``seepage.run.elsewhere``.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from cloudpickle import dumps, register_pickle_by_value  # noqa: TID251 - of this process's own objects, on their way to workers
from tqdm import tqdm

from seepage.devices import keep_freed_memory, threads
from seepage.errors import BadInputError, Remedy, one_line
from seepage.run.processes import Processes
from seepage.run.store import Failure
from seepage.settings.part import Part
from seepage.settings.setting import Audit, Configuration, Outcome, PlannedPart
from seepage.sources import loaded_files

_POLL_SECONDS = 0.1
# Number of worker processes that may end, one after the other, before they take a job.
_STARTS = 5


@dataclass(frozen=True)
class Job:
    """Some parts of an audit on some units of one configuration."""

    name: int
    series: tuple[int, ...]  # places in the plan
    audit: int  # place in the run; workers hold all audits
    configuration: Configuration
    units: range
    parts: tuple[PlannedPart, ...]
    threads: int


@runtime_checkable
class Watcher(Protocol):
    """Callbacks on the progress of jobs."""

    def started(self, name: int) -> None:
        """Called when a job begins."""

    def advanced(self, name: int, share: float) -> None:
        """Called now and then with the share of a job done since the last call."""


class TimeOverError(Exception):
    """The time of a run is over: the part in which it is raised has no result, and is no failure."""


# Result of each part of a job; None for a part that the end of the time stopped, or that did not begin.
Results = list[Outcome | Failure | None]
# The time on a clock at which a job stops; None for none.
Ends = Callable[[Job], float | None]
Finished = Generator[tuple[Job, Results]]


@dataclass(frozen=True)
class Work:
    """Jobs of some audits that are still to be run.

    Attributes:
        watcher: gets the progress.
        wanted: is asked before each job begins.
        ends: time at which a job stops.
    """

    jobs: Sequence[Job]
    audits: Sequence[Audit]
    watcher: Watcher
    wanted: Callable[[Job], bool] = lambda job: True
    ends: Ends = lambda job: None


@runtime_checkable
class JobRunner(Protocol):
    """Jobs are run by this process, by worker processes, or by other machines."""

    @property
    def beside(self) -> int:
        """Number of jobs that run side by side on one machine, and share its time."""
        ...

    def run(self, work: Work) -> Finished:
        """Yield jobs with their results, in any order."""
        ...


def carry_out(audit: Audit, job: Job, progress: Callable[[float], None]) -> Results:
    """Return the outcomes of the parts of a job; a part that fails stops no other.

    Once ``progress`` raises ``TimeOverError``, attacks that have not ended have no outcome. Baselines have one, without
    which the figures of an attack that did end would say nothing.
    """
    try:
        exposure = audit.expose(job.configuration, job.units)
    except Exception as error:
        return [_failure(job, error)] * len(job.parts)
    results: Results = []
    # A shared exposure counts as one of the parts.
    count, over = len(job.parts) + audit.shared, False

    def advanced(share: float) -> None:
        # A guess that is made is scored, however late it is.
        if share:
            progress(share / count)

    if audit.shared:
        # An exposure that took all the time is still attacked once.
        with contextlib.suppress(TimeOverError):
            advanced(1.0)
    for part in job.parts:
        try:
            if part.kind == "attack" and results:
                progress(0.0)
            useless = over and not any(isinstance(result, Outcome) for result in results)
            results.append(None if useless else exposure.measure(part, advanced if part.kind == "attack" else None))
        except TimeOverError:
            over = True
            results.append(None)
        except Exception as error:
            results.append(_failure(job, error))
    return results


def _until(
    ends: float | None, clock: Callable[[], float], progress: Callable[[float], None]
) -> Callable[[float], None]:
    """Return a callback that reports progress and raises ``TimeOverError`` once a time is over."""

    def reported(share: float) -> None:
        progress(share)
        if ends is not None and clock() > ends:
            raise TimeOverError

    return reported


@dataclass(frozen=True)
class ThisProcess:
    """Runs jobs one after the other in this process; ``clock`` is that of the times at which jobs stop."""

    clock: Callable[[], float]
    beside: int = 1

    def run(self, work: Work) -> Finished:
        """Yield jobs with their results, as ``JobRunner`` does, in order."""
        for job in work.jobs:
            if not work.wanted(job):
                continue
            work.watcher.started(job.name)
            progress = _until(work.ends(job), self.clock, functools.partial(work.watcher.advanced, job.name))
            with threads(job.threads):
                results = carry_out(work.audits[job.audit], job, progress)
            yield job, results


@dataclass(frozen=True)
class WorkerProcesses:
    """Runs jobs in processes of this machine, as many side by side as it says; time is ``monotonic``."""

    beside: int

    def run(self, work: Work) -> Finished:
        """Yield jobs with their results, as ``JobRunner`` does.

        Raises:
            BadInputError: no worker process starts, or an object of a caller cannot be sent to one.
        """
        make_sendable(work.audits)
        lost: list[Job] = []
        yield from _side_by_side(work, work.jobs, self.beside, lost)
        # Another job may have been at fault: each is tried once more with none beside it.
        again: list[Job] = []
        yield from _side_by_side(work, lost, 1, again)
        for job in again:
            reason = "its worker process ended twice without a word: killed, or out of memory"
            yield job, [Failure(job.units, reason, "")] * len(job.parts)


def _side_by_side(work: Work, jobs: Sequence[Job], beside: int, lost: list[Job]) -> Finished:
    """Yield jobs with their results; those whose worker process ended go to ``lost``."""
    waiting = deque(jobs)
    if not waiting:
        return
    environment = {"OMP_NUM_THREADS": str(max(job.threads for job in waiting))}
    ended = 0
    with contextlib.closing(Processes(_work, list(work.audits), environment)) as processes:
        while processes.tasks or any(map(work.wanted, waiting)):
            processes.start(min(beside, processes.tasks + len(waiting)))
            while waiting and processes.free:
                job = waiting.popleft()
                if work.wanted(job):
                    processes.give((job, work.ends(job)))
            for event in processes.events(_POLL_SECONDS):
                job = None if event.task is None else event.task[0]
                if event.kind == "refused":
                    raise BadInputError(
                        f"a worker process cannot load what it needs: {event.value}; give ", Remedy("workers", 1), "."
                    )
                if event.kind == "lost" and job is not None:
                    lost.append(job)
                elif event.kind == "lost":
                    ended += 1
                    if ended >= _STARTS:
                        raise BadInputError(
                            f"{ended} worker processes in a row ended before they took a job: killed, or out of "
                            "memory. What was measured is kept; free memory and run the same command again, or give ",
                            Remedy("workers", 1),
                            ".",
                        )
                elif job is not None and event.kind == "note":
                    if event.value is None:
                        ended = 0
                        work.watcher.started(job.name)
                    else:
                        work.watcher.advanced(job.name, event.value)
                elif job is not None and event.kind == "result":
                    yield job, event.value


def make_sendable(audits: Sequence[Audit]) -> None:
    """Prepare audits to be sent to other processes; refuse an object of a caller that cannot be sent."""
    for module in loaded_files():
        # A file that was loaded by its path is no module that another process could import.
        register_pickle_by_value(module)
    for part in (part for audit in audits for part in audit.spec.passed):
        _check_sent(part)


def _check_sent(part: Part) -> None:
    try:
        dumps(part.passed)
    except Exception as error:  # What an object holds may refuse in any way.
        raise BadInputError(
            f"{part.title!r} cannot be sent to worker processes ({type(error).__name__}: {error}); give workers=1, or "
            "have it hold nothing that belongs to one process, such as an open file or a lock."
        ) from error


def _failure(job: Job, error: BaseException) -> Failure:
    return Failure(job.units, one_line(error), traceback.format_exc())


# Whether this worker process is prepared; a process that runs no job need not be.
_prepared: list[bool] = []


def _prepare() -> None:
    """Prepare this worker process for jobs."""
    if _prepared:
        return
    _prepared.append(True)
    keep_freed_memory()
    # Programs of torch draw no bar here, but take its lock for several processes, which a worker that is killed leaves.
    tqdm.set_lock(threading.RLock())


def _work(audits: Sequence[Audit], task: tuple[Job, float | None], note: Callable[[object], None]) -> Results:
    """Run a job in a worker process."""
    job, ends = task
    _prepare()
    note(None)
    torch.set_num_threads(job.threads)
    results: Results
    try:
        results = carry_out(audits[job.audit], job, _until(ends, time.monotonic, note))
        # A result that cannot be sent is the failure of its job.
        dumps(results)
    except BaseException as error:
        # Of a part that ends the program, too: there would be no word of why.
        results = [_failure(job, error)] * len(job.parts)
    return results
