"""Progress of long work, and rehearsals, which take a few steps of a loop and extrapolate the time of the others."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass

Progress = Callable[[float], None]
"""Callback that gets the share of the work done since the last call."""

# Time after which a loop is left.
_SECONDS = 0.1


def scaled(progress: Progress | None, share: float) -> Progress | None:
    """Return the function that reports the progress of a part which makes up ``share`` of the whole."""
    return None if progress is None else lambda done: progress(done * share)


class Stopwatch:
    """Seconds of work where nothing runs beside it: processor time, or less with several threads."""

    def __init__(self) -> None:
        self._begun = (time.perf_counter(), time.process_time())

    @property
    def seconds(self) -> float:
        """Seconds since its creation."""
        wall, processor = self._begun
        return min(time.perf_counter() - wall, time.process_time() - processor)


@dataclass
class Rehearsed:
    """Time that a rehearsal left out; the rows of the work are those of its rehearsal so many ``times``."""

    times: float
    owed: float = 0.0
    spent: float = 0.0


_now: ContextVar[Rehearsed | None] = ContextVar("rehearsal", default=None)


@contextlib.contextmanager
def rehearsing(times: float) -> Iterator[Rehearsed]:
    """End loops over ``paced`` early for a while, and extrapolate their time; see ``Rehearsed`` for ``times``."""
    rehearsed = Rehearsed(times)
    token = _now.set(rehearsed)
    try:
        yield rehearsed
    finally:
        _now.reset(token)


def rehearsal() -> Rehearsed | None:
    """Return the current rehearsal; None outside of one."""
    return _now.get()


def paced(steps: int, least: int = 5) -> Iterator[int]:
    """Yield the numbers of some steps; in a rehearsal the first of them, at least so many.

    Example:
        >>> with rehearsing(1.0) as rehearsed:
        ...     taken = [sum(range(10**6)) for _ in paced(1000)]
        >>> len(taken) < 100, rehearsed.owed > 10 * rehearsed.spent
        (True, True)
    """
    rehearsed = rehearsal()
    if rehearsed is None:
        yield from range(steps)
        return
    watch, first, spent, taken = Stopwatch(), 0.0, 0.0, 0
    for step in range(steps):
        yield step
        spent, taken = watch.seconds, step + 1
        if taken == 1:
            # Work that is done once for all steps is part of the first.
            first = spent
        if spent > _SECONDS and taken >= least:
            break
    step_seconds = (spent - first) / (taken - 1) if taken > 1 else spent
    rehearsed.spent += spent
    rehearsed.owed += step_seconds * steps
