"""Time budget of a run: what is left, and which work does not begin any more once little is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from seepage.digests import Json
from seepage.settings.setting import Cache

# Shares of the time for the work after the attacks: trainings of the task, checks and the report.
_TRAININGS, _REPORT = 0.2, 0.08
# Checks and report take longer where there are many columns.
_SECONDS_A_FIGURE = 8e-4
_MOST_FOR_REPORT = 0.25


class Budget:
    """Time budget of a run, from now on.

    It counts processor seconds where this process computes alone, so that other work on the machine takes nothing of
    it, else wall-clock seconds.
    """

    def __init__(self, seconds: float, alone: bool) -> None:
        self.clock = time.process_time if alone else time.monotonic
        self._ends = self.clock() + seconds
        self._seconds = seconds
        self._report = _REPORT * seconds

    def report_on(self, figures: int) -> None:
        """Keep back the time of a report on a number of figures: columns of all parts in all configurations."""
        self._report = max(self._report, min(_SECONDS_A_FIGURE * figures, _MOST_FOR_REPORT * self._seconds))

    @property
    def left(self) -> float:
        """Seconds that are left; negative once the time is over."""
        return self._ends - self.clock()

    def for_jobs(self, trains: bool) -> float:
        """Return the seconds for attacks and baselines, less where the task is trained after them."""
        return self.left - self._report - (_TRAININGS * self._seconds if trains else 0.0)

    def within(self, cache: Cache) -> Cache:
        """Return a cache that computes nothing for which there is no time, by the longest computation so far."""
        longest = 0.0

        def timed(identity: Mapping[str, Json], make: Callable[[], object] | None) -> Any:
            nonlocal longest
            if make is None or self.left < longest + self._report:
                return cache(identity, None)
            begun = self.clock()
            values = cache(identity, make)
            longest = max(longest, self.clock() - begun)
            return values

        return timed
