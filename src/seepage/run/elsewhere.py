"""Runs jobs on other machines, through any executor of the form of ``concurrent.futures``."""

from __future__ import annotations

import hashlib
import platform
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field
from typing import Any

from cloudpickle import dumps, loads  # noqa: TID251 - of this program's own objects, between its own processes

from seepage.devices import keep_freed_memory, threads
from seepage.errors import BadInputError
from seepage.packages import installed
from seepage.run.store import Failure
from seepage.run.workers import Finished, Job, Results, Work, carry_out, make_sendable
from seepage.settings.setting import Audit
from seepage.sources import own_code

_POLL_SECONDS = 0.1
# Jobs sent for each one that runs: the next begins while the driver stores the last.
_AHEAD = 2
# Time that a run waits where no worker is left.
_PATIENCE_SECONDS = 600.0
_PACKAGES = ("numpy", "scipy", "scikit-learn", "pandas")


@dataclass(frozen=True)
class Sealed:
    """Pickled objects that no log prints, since they contain true records."""

    content: bytes = field(repr=False)
    digest: str

    @classmethod
    def of(cls, value: object) -> Sealed:
        """Return a pickled value."""
        content = dumps(value)
        return cls(content, hashlib.sha256(content).hexdigest())


def itself(sealed: Sealed) -> Sealed:
    """Return the argument."""
    return sealed


@dataclass(frozen=True)
class Machines:
    """Other machines that run jobs; their workers are inside the trust boundary.

    Attributes:
        executor: executor of jobs. A worker runs one job at a time, and the executor retries jobs that are lost with a
            worker.
        slots: function that returns the number of jobs that run side by side now. It raises ``BadInputError`` where
            jobs may not be sent.
        share: function that returns a stand-in for the audits in the arguments of a job, so that they are not sent with
            each job.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> machines = Machines(ThreadPoolExecutor(max_workers=1), slots=lambda: 1)
    """

    executor: Executor
    slots: Callable[[], int]
    share: Callable[[Sealed], Any] = itself

    @property
    def beside(self) -> int:
        """Each job has a worker of its own, whose whole time it takes."""
        return 1

    def run(self, work: Work) -> Finished:
        """Yield jobs with their results; progress is known only when one ends, and none is given up."""
        make_sendable(work.audits)
        shared = self.share(Sealed.of(list(work.audits)))
        waiting = deque(work.jobs)
        running: dict[Future[Results | str], Job] = {}
        ours, worked = versions(), time.monotonic()
        try:
            while running or any(map(work.wanted, waiting)):
                slots = self.slots()
                if slots:
                    worked = time.monotonic()
                elif time.monotonic() - worked > _PATIENCE_SECONDS:
                    raise _lost(f"no worker was left for {_PATIENCE_SECONDS:.0f} seconds")
                while waiting and len(running) < _AHEAD * slots:
                    job = waiting.popleft()
                    if not work.wanted(job):
                        continue
                    work.watcher.started(job.name)
                    running[self.executor.submit(run_job, ours, shared, Sealed.of(job))] = job
                if waiting and not running:
                    time.sleep(_POLL_SECONDS)
                finished, _ = wait(running, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
                yield from _results({future: running.pop(future) for future in finished})
        finally:
            for future in running:
                future.cancel()


def _results(finished: Mapping[Future[Results | str], Job]) -> Generator[tuple[Job, Results]]:
    for future, job in finished.items():
        if future.cancelled():
            raise _lost("the connection broke")
        error = future.exception()
        if error is not None:
            # Failures of attacks are results; this error is of the worker, or of several one after the other.
            why = f"its worker ended: {type(error).__name__}: {' '.join(str(error).split())}"
            yield job, [Failure(job.units, why, "")] * len(job.parts)
            continue
        results = future.result()
        if isinstance(results, str):
            raise BadInputError(results)
        yield job, results


def _lost(why: str) -> BadInputError:
    return BadInputError(f"the other machines are lost: {why}. What was measured is kept; run the same command again.")


# Audits of one run in this worker process, by their digest.
_audits: dict[str, list[Audit]] = {}


def run_job(expected: Mapping[str, str | None], audits: Sealed, job: Sealed) -> Results | str:
    """Run a job in a worker; return its results, or a sentence that says why this worker cannot."""
    if (differs := difference(expected, versions())) is not None:
        return f"the worker on {platform.node()} {differs}"
    if audits.digest not in _audits:
        forget()
        keep_freed_memory()
        _audits[audits.digest] = loads(audits.content)
    mine: Job = loads(job.content)
    with threads(mine.threads):
        return carry_out(_audits[audits.digest][mine.audit], mine, lambda share: None)


def forget() -> None:
    """Drop the audits that this worker process holds."""
    _audits.clear()


def versions() -> dict[str, str | None]:
    """Return the versions that figures depend on."""
    code = own_code()
    packages = {name: installed(name) for name in _PACKAGES}
    return {"seepage": code["digest"], "torch": code["torch"], "python": platform.python_version(), **packages}


def difference(ours: Mapping[str, str | None], there: Mapping[str, str | None]) -> str | None:
    """Return the end of a sentence about a worker with other versions; None where they are the same."""
    for name, version in ours.items():
        if there.get(name) != version:
            what = "seepage's code of digest" if name == "seepage" else name
            return f"has {what} {there.get(name)} where this machine has {version}; install the same versions on both."
    return None
