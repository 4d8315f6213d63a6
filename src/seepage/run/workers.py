"""Carries jobs out, in this process or in several others; a job that fails, or kills its worker, stops no other."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from loky import ProcessPoolExecutor
from loky.backend.context import get_context

from seepage.errors import BadInputError
from seepage.run.job import Done, Job, carry_out
from seepage.run.memory import keep_freed_memory
from seepage.run.store import Failure
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics

_POLL_SECONDS = 0.1
# A job that ended its worker is tried once more, alone: it may have been another's fault.
_ATTEMPTS = 2


@dataclass(frozen=True)
class Errand:
    """A job to be made when its turn comes, and what its outcome is reported by.

    Attributes:
        name: unique among the errands.
        make: returns the job; it runs in this process, which alone holds the client's rows.
        about: which of the tables it is about.
        victims: whom it attacks.
        threads: CPU threads it runs with.
    """

    name: int
    make: Callable[[], Job]
    about: int
    victims: range
    threads: int


@runtime_checkable
class Watcher(Protocol):
    """Told how errands get on."""

    def started(self, name: int) -> None:
        """Called when an errand's job begins."""

    def advanced(self, name: int, share: float) -> None:
        """Called now and then with the share of a job done since the last call."""


Tables = Mapping[int, tuple[Schema, Statistics]]
Outcomes = Generator[tuple[Errand, Done | Failure]]


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Have PyTorch use so many CPU threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_here(errands: list[Errand], tables: Tables, watcher: Watcher, wanted: Callable[[], bool]) -> Outcomes:
    """Carry errands out one after the other in this process.

    Args:
        errands: what to do.
        tables: schema and statistics by ``Errand.about``.
        watcher: told about the progress.
        wanted: asked before each; nothing more is begun once it says no.
    """
    for errand in errands:
        if not wanted():
            return
        watcher.started(errand.name)
        with threads(errand.threads):
            try:
                schema, statistics = tables[errand.about]
                report = functools.partial(watcher.advanced, errand.name)
                done = carry_out(errand.make(), schema, statistics, report)
            except Exception as error:
                yield errand, _failure(errand, error)
                continue
        yield errand, done


def run_in_workers(
    errands: list[Errand], tables: Tables, watcher: Watcher, wanted: Callable[[], bool], workers: int
) -> Outcomes:
    """Carry errands out in worker processes; as ``run_here``, but outcomes come in any order."""
    waiting = deque(errands)
    attempts = dict.fromkeys((errand.name for errand in errands), 0)
    alone: deque[Errand] = deque()
    while (waiting and wanted()) or alone:
        # One a crew: a worker that is killed while it writes leaves its lock behind.
        messages = get_context("loky").SimpleQueue()
        crew = ProcessPoolExecutor(
            1 if alone else workers,
            initializer=_initialise,
            initargs=(messages, dict(tables), os.getpid()),
            env={"OMP_NUM_THREADS": str(max(errand.threads for errand in errands))},
        )
        # What ended a worker is tried by itself first, in a crew of one.
        source, at_once = (alone, 1) if alone else (waiting, workers + 1)
        running: dict[Future[Done], Errand] = {}
        started: set[int] = set()
        try:
            broken = False
            while not broken and (running or (source and (alone or wanted()))):
                while source and len(running) < at_once and (alone or wanted()):
                    errand = source.popleft()
                    try:
                        with threads(errand.threads):
                            job = errand.make()
                    except Exception as error:
                        yield errand, _failure(errand, error)
                        continue
                    running[crew.submit(_work, errand.name, errand.about, errand.threads, job)] = errand
                finished, _ = wait(running, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
                _listen(messages, watcher, started)
                for future in finished:
                    errand = running.pop(future)
                    error = future.exception()
                    if error is None:
                        yield errand, future.result()
                    elif isinstance(error, _Failed):
                        yield errand, Failure(errand.victims, error.message, error.trace)
                    else:
                        broken = True
                        running[future] = errand
                        break
            if broken:
                for errand in running.values():
                    began = errand.name in started or not started
                    attempts[errand.name] += began
                    if attempts[errand.name] >= _ATTEMPTS:
                        why = "its worker process ended twice without a word: killed, or out of memory"
                        yield errand, Failure(errand.victims, why, "")
                    else:
                        (alone if began else waiting).appendleft(errand)
        finally:
            crew.shutdown(wait=True, kill_workers=True)
            _listen(messages, watcher, started)


def _listen(messages: Any, watcher: Watcher, started: set[int]) -> None:
    while not messages.empty():
        name, share = messages.get()
        if share is None:
            started.add(name)
            watcher.started(name)
        else:
            watcher.advanced(name, share)


def _failure(errand: Errand, error: Exception) -> Failure:
    return Failure(errand.victims, _line(error), traceback.format_exc())


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, BadInputError) and text else f"{type(error).__name__}: {text}".rstrip(": ")


class _Failed(Exception):  # noqa: N818 - the carrier of an error, which itself may not survive the way back
    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message, trace)
        self.message, self.trace = message, trace


# What a worker process holds from its start to its end.
_held: dict[str, Any] = {}


def _initialise(messages: Any, tables: Tables, parent: int) -> None:
    # The interrupt of a terminal reaches every process of the group; the parent alone answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_freed_memory()
    _held.update(messages=messages, tables=tables, parent=parent)


def _work(name: int, about: int, count: int, job: Job) -> Done:
    messages = _held["messages"]
    messages.put((name, None))

    def advanced(share: float) -> None:
        # Nobody is left to take the outcome of a parent that was killed.
        if os.getppid() != _held["parent"]:
            os._exit(1)
        messages.put((name, share))

    torch.set_num_threads(count)
    try:
        schema, statistics = _held["tables"][about]
        return carry_out(job, schema, statistics, advanced)
    except Exception as error:
        raise _Failed(_line(error), traceback.format_exc()) from None
