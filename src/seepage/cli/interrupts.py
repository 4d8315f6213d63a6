"""Interrupts of the terminal (Ctrl-C): the first ends the work, those that follow at once do not end the tidying up."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# An interrupt so soon after one that was answered is part of it; later ones interrupt again, should tidying up hang.
_SAME_SECONDS = 5.0


class Interrupts:
    """Handler of interrupts that raises ``KeyboardInterrupt``, but not twice in quick succession."""

    def __init__(self) -> None:
        self.answered: float | None = None

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        """Raise ``KeyboardInterrupt`` unless one was raised a moment ago."""
        now = time.monotonic()
        if self.answered is not None and now - self.answered < _SAME_SECONDS:
            return
        self.answered = now
        raise KeyboardInterrupt


@contextmanager
def first_interrupt() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` at the first of several quick interrupts, and none during the cleanup."""
    own = threading.current_thread() is threading.main_thread()
    # A shell starts what runs in the background with interrupts ignored, which stays so.
    if not own or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    interrupts = Interrupts()
    signal.signal(signal.SIGINT, interrupts)
    try:
        yield
    finally:
        # The program is about to end with the status of an interrupt, which another one must not change.
        signal.signal(signal.SIGINT, signal.default_int_handler if interrupts.answered is None else signal.SIG_IGN)
