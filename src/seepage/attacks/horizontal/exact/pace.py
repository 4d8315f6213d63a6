"""Progress from within the search of a single victim, where that takes long."""

from __future__ import annotations

import time
from collections.abc import Callable

# Seconds of the processor after which a victim's search tells how far it is; shorter ones tell when they have ended.
_LONG = 20.0
# Rounds that a search takes as a rule: it ends after one where all records are found, and after six where none is.
_USUAL = 4


class Pace:
    """Progress of searches: each share of the work is reported once, as if a search took four rounds."""

    def __init__(self, progress: Callable[[float], None] | None, victims: int, rounds: int) -> None:
        self._progress, self._victims, self._rounds = progress, victims, min(rounds, _USUAL)
        self._begun = self._done = self._reported = self._ahead = 0.0

    def begin(self) -> None:
        """Begin with the next victim; what was reported of one that did not end counts for later ones."""
        self._ahead += self._reported
        self._begun, self._done, self._reported = time.process_time(), 0.0, 0.0

    def searched(self, share: float) -> None:
        """Report that a share of a round's searches has ended."""
        self._done = min(self._done + share / self._rounds, 1.0)
        if time.process_time() - self._begun >= _LONG:
            self._tell(self._done)

    def end(self) -> None:
        """Report that the search for all records of a victim has ended."""
        self._tell(1.0)
        self._reported = 0.0

    def rest(self, share: float) -> None:
        """Report a share of the fallback's work on incomplete victims, less what was reported of them before."""
        self._ahead += self._reported
        self._reported = 0.0
        overlap = min(self._ahead, share)
        self._ahead -= overlap
        self._report(share - overlap)

    def _tell(self, done: float) -> None:
        share = done / self._victims - self._reported
        self._reported = done / self._victims
        self._report(share)

    def _report(self, share: float) -> None:
        if self._progress is not None and share > 0:
            self._progress(share)
