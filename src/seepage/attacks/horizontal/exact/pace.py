"""Progress from within the search of a single victim, where that takes long."""

from __future__ import annotations

import time
from collections.abc import Callable

# Seconds of a victim's search after which it tells how far it is; shorter ones tell when they have ended.
_LONG = 5.0


class Pace:
    """Shares of the work that was done, each told once.

    A search tells as if all its rounds were run; it often ends earlier, and then the rest is told at once.

    Args:
        progress: called with the share of the work done since the last call; None for nobody.
        victims: number of victims.
        rounds: largest number of rounds of a victim's search.

    Example:
        >>> told = []
        >>> pace = Pace(told.append, victims=2, rounds=4)
        >>> pace.begin()
        >>> pace.searched(1.0)
        >>> pace.found()
        >>> pace.begin()
        >>> pace.rest(0.5)
        >>> told
        [0.5, 0.5]
    """

    def __init__(self, progress: Callable[[float], None] | None, victims: int, rounds: int) -> None:
        self._progress, self._victims, self._rounds = progress, victims, rounds
        self._begun = self._done = self._reported = self._ahead = 0.0

    def begin(self) -> None:
        """Begin with the next victim; what was told of the last one without an end is ahead of what follows."""
        self._ahead += self._reported
        self._begun, self._done, self._reported = time.monotonic(), 0.0, 0.0

    def searched(self, share: float) -> None:
        """Tell that a share of a round's searches has ended."""
        self._done = min(self._done + share / self._rounds, 1.0)
        if time.monotonic() - self._begun >= _LONG:
            self._tell(self._done)

    def found(self) -> None:
        """Tell that the search for all records of a victim has ended."""
        self._tell(1.0)
        self._reported = 0.0

    def rest(self, share: float) -> None:
        """Tell the share of what is done for victims whose search did not find all, without what was told of them."""
        self._ahead += self._reported
        self._reported = 0.0
        known = min(self._ahead, share)
        self._ahead -= known
        self._report(share - known)

    def _tell(self, done: float) -> None:
        share = done / self._victims - self._reported
        self._reported = done / self._victims
        self._report(share)

    def _report(self, share: float) -> None:
        if self._progress is not None and share > 0:
            self._progress(share)
