"""Rehearsals of long loops: a few steps are taken, and the time of the others is owed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

# A loop is left after so long.
_SECONDS = 0.1


class Stopwatch:
    """Seconds that work takes where nothing runs beside it: those of the processor, or fewer with several threads."""

    def __init__(self) -> None:
        self._begun = (time.perf_counter(), time.process_time())

    @property
    def seconds(self) -> float:
        """Seconds since it was made."""
        wall, processor = self._begun
        return min(time.perf_counter() - wall, time.process_time() - processor)


@dataclass
class Rehearsed:
    """What a rehearsal left out.

    Attributes:
        times: number of times that the rows of the work are those of its rehearsal.
        owed: seconds that whole loops take.
        spent: seconds that were spent in them.
    """

    times: float
    owed: float = 0.0
    spent: float = 0.0


_now: ContextVar[Rehearsed | None] = ContextVar("rehearsal", default=None)


@contextlib.contextmanager
def rehearsing(times: float) -> Iterator[Rehearsed]:
    """Have loops over ``paced`` end early for a while, and note how long they would take.

    Args:
        times: number of times that the rows of the work are those of its rehearsal.
    """
    rehearsed = Rehearsed(times)
    token = _now.set(rehearsed)
    try:
        yield rehearsed
    finally:
        _now.reset(token)


def rehearsal() -> Rehearsed | None:
    """Return the rehearsal that goes on; None where the work itself does."""
    return _now.get()


def paced(steps: int, least: int = 5) -> Iterator[int]:
    """Yield the numbers of some steps; in a rehearsal the first of them.

    Args:
        steps: number of steps.
        least: least number of them that a rehearsal takes.

    Example:
        >>> len([*paced(1000)])
        1000
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
            # What is done once for all steps is part of the first.
            first = spent
        if spent > _SECONDS and taken >= least:
            break
    each = (spent - first) / (taken - 1) if taken > 1 else spent
    rehearsed.spent += spent
    rehearsed.owed += each * steps
