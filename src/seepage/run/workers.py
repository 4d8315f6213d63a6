"""Runs jobs in this process or in several others; a job that fails, or kills its worker, stops no other.

Other machines run them in the same form, see ``seepage.run.elsewhere``.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from multiprocessing import active_children
from typing import Any, Protocol, runtime_checkable

import torch
from cloudpickle import dumps, register_pickle_by_value  # noqa: TID251 - of this process's own objects, on their way to workers
from loky import ProcessPoolExecutor
from loky.backend.context import get_context
from tqdm import tqdm

from seepage.devices import keep_freed_memory, threads
from seepage.errors import BadInputError, one_line
from seepage.run.store import Failure
from seepage.settings.part import Part
from seepage.settings.setting import Audit, Configuration, Outcome, PlannedPart
from seepage.sources import loaded_files

_POLL_SECONDS = 0.1
# Interval at which a worker checks that its parent process still lives.
_WATCH_SECONDS = 0.5
# A job that ended its worker is tried once more, alone: another job may have been at fault.
_ATTEMPTS = 2


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
    """The time of a run is over: the job in which it is raised has no result, and is no failure."""


# Result of each part of a job.
Results = list[Outcome | Failure]
# The time on a clock at which a job is given up; None for none.
Ends = Callable[[Job], float | None]
Finished = Generator[tuple[Job, Results]]


@dataclass(frozen=True)
class Work:
    """Jobs of some audits that are still to be run.

    Attributes:
        watcher: gets the progress.
        wanted: is asked before each job begins.
        ends: time at which a job is given up.
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
    """Return the outcomes of the parts of a job; a part that fails stops no other, but ``TimeOverError`` passes."""
    try:
        exposure = audit.expose(job.configuration, job.units)
    except Exception as error:
        return [_failure(job, error)] * len(job.parts)
    results: Results = []
    # A shared exposure counts as one of the parts.
    count = len(job.parts) + audit.shared
    if audit.shared:
        progress(1 / count)
    for part in job.parts:
        try:
            results.append(exposure.measure(part, lambda share: progress(share / count)))
        except TimeOverError:
            raise
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
    """Runs jobs one after the other in this process; ``clock`` is that of the times at which jobs are given up."""

    clock: Callable[[], float]
    beside: int = 1

    def run(self, work: Work) -> Finished:
        """Yield jobs with their results, as ``JobRunner`` does, in order."""
        for job in work.jobs:
            if not work.wanted(job):
                continue
            work.watcher.started(job.name)
            progress = _until(work.ends(job), self.clock, functools.partial(work.watcher.advanced, job.name))
            results: Results | None = None
            with threads(job.threads), contextlib.suppress(TimeOverError):
                results = carry_out(work.audits[job.audit], job, progress)
            if results is not None:
                yield job, results


@dataclass(frozen=True)
class WorkerProcesses:
    """Runs jobs in processes of this machine, as many side by side as it says; time is ``monotonic``."""

    beside: int

    def run(self, work: Work) -> Finished:
        """Yield jobs with their results, as ``JobRunner`` does."""
        waiting = deque(work.jobs)
        attempts = dict.fromkeys((job.name for job in work.jobs), 0)
        alone: deque[Job] = deque()
        make_sendable(work.audits)
        while any(map(work.wanted, waiting)) or alone:
            # A queue for each pool: a worker that is killed while it writes leaves its lock behind.
            messages = get_context("loky").SimpleQueue()
            others = {process.pid for process in active_children()}
            state = (messages, list(work.audits), os.getpid())
            env = {"OMP_NUM_THREADS": str(max(job.threads for job in work.jobs))}
            pool = ProcessPoolExecutor(1 if alone else self.beside, initializer=_initialise, initargs=state, env=env)
            # A job that ended its worker is tried first by itself, in a pool of one.
            source, at_once = (alone, 1) if alone else (waiting, self.beside + 1)
            running: dict[Future[Results], Job] = {}
            started: set[int] = set()
            try:
                broken = False
                while not broken and (running or source):
                    while source and len(running) < at_once:
                        job = source.popleft()
                        if source is alone or work.wanted(job):
                            running[pool.submit(_work, job, work.ends(job))] = job
                    if not running:
                        break
                    finished, _ = wait(running, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
                    _listen(messages, work.watcher, started)
                    for future in finished:
                        job = running.pop(future)
                        if future.exception() is None:
                            yield job, future.result()
                        elif not isinstance(future.exception(), TimeOverError):
                            broken = True
                            running[future] = job
                            break
                if broken:
                    for job in running.values():
                        began = job.name in started or not started
                        attempts[job.name] += began
                        if attempts[job.name] >= _ATTEMPTS:
                            reason = "its worker process ended twice without a word: killed, or out of memory"
                            yield job, [Failure(job.units, reason, "")] * len(job.parts)
                        else:
                            (alone if began else waiting).appendleft(job)
            finally:
                _shut_down(pool, others)
                _listen(messages, work.watcher, started)


def _shut_down(pool: ProcessPoolExecutor, others: set[int | None]) -> None:
    """End a pool and its workers, whatever interrupts come meanwhile."""
    in_main = threading.current_thread() is threading.main_thread()
    # loky lists the workers with another program, which inherits this: an interrupt of the group would end it too.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main else None
    try:
        pool.shutdown(wait=True, kill_workers=True)
    finally:
        # Where loky's own way failed earlier, the interpreter would wait for these without end.
        for process in active_children():
            if process.pid is not None and process.pid not in others:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
        if in_main:
            signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


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


def _listen(messages: Any, watcher: Watcher, started: set[int]) -> None:
    while not messages.empty():
        name, share = messages.get()
        if share is None:
            started.add(name)
            watcher.started(name)
        else:
            watcher.advanced(name, share)


def _failure(job: Job, error: Exception) -> Failure:
    return Failure(job.units, one_line(error), traceback.format_exc())


# Objects of this worker process from its start to its end.
_state: dict[str, Any] = {}


def _initialise(messages: Any, audits: list[Audit], parent: int) -> None:
    # The interrupt of a terminal reaches every process of the group; the parent alone answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_freed_memory()
    # Programs of torch draw no bar here, but take its lock for several processes, which a worker that is killed leaves.
    tqdm.set_lock(threading.RLock())
    _state.update(messages=messages, audits=audits)
    threading.Thread(target=_outlive_nobody, args=(parent,), daemon=True).start()


def _outlive_nobody(parent: int) -> None:
    """End this process once its parent is gone: nobody is left to take its results."""
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    sys.stderr.flush()
    os._exit(1)


def _work(job: Job, ends: float | None) -> Results:
    messages = _state["messages"]
    messages.put((job.name, None))
    torch.set_num_threads(job.threads)
    progress = _until(ends, time.monotonic, lambda share: messages.put((job.name, share)))
    return carry_out(_state["audits"][job.audit], job, progress)
