"""The time of a run: how much of it is left, and what is not begun any more once little is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from seepage.digests import Json
from seepage.settings.setting import Kept

# Share of the time that what comes after the attacks is given: trainings of the task, checks and the report.
_TRAININGS, _REPORT = 0.2, 0.08


class Budget:
    """Time that a run may take, from now on.

    It is counted in seconds of the processor where this process computes alone, so that other work on the machine takes
    nothing of it, else in seconds of the wall clock.

    Args:
        seconds: length of that time.
        alone: whether this process computes alone.
    """

    def __init__(self, seconds: float, alone: bool) -> None:
        self.clock = time.process_time if alone else time.monotonic
        self._ends = self.clock() + seconds
        self._seconds = seconds

    @property
    def left(self) -> float:
        """Seconds that are left; negative once the time is over."""
        return self._ends - self.clock()

    def for_jobs(self, trains: bool) -> float:
        """Return the seconds that attacks and baselines may take.

        Args:
            trains: whether the task is trained after them.
        """
        return self.left - self._seconds * (_REPORT + (_TRAININGS if trains else 0.0))

    def within(self, kept: Kept) -> Kept:
        """Return a function that keeps what is made as another does, but makes nothing for which there is no time.

        As much as the longest so far is taken to be needed.
        """
        longest = 0.0

        def timed(made_from: Mapping[str, Json], make: Callable[[], Any] | None) -> Any:
            nonlocal longest
            if make is None or self.left < longest + self._seconds * _REPORT:
                return kept(made_from, None)
            begun = self.clock()
            found = kept(made_from, make)
            longest = max(longest, self.clock() - begun)
            return found

        return timed
