"""The ends of the program: exit statuses, messages and interrupts, the same for every command."""

from __future__ import annotations

import errno
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from types import FrameType

from seepage.errors import BadInputError, CertifiedWrongError
from seepage.text import clean


def print_message(line: str) -> None:
    """Print one line on the error stream, in which nothing of the input can steer the terminal."""
    print(f"seepage: {clean(line, 4000)}", file=sys.stderr)


def shown_path(path: str | Path) -> str:
    """Return a path as it is printed."""
    return clean(path, 4000)


class Exit(IntEnum):
    """Why the program ended. Where several apply, the first below, ``DONE`` aside, wins."""

    DONE = 0
    """All that was asked for is done, and the gate, if there is one, is shown to be passed."""
    BAD_INPUT = 2
    """Something given cannot be used; one paragraph on stderr says what. Nothing stored before is touched."""
    WRONG_PROOF = 71
    """The truth contradicts a certificate: a mistake in seepage, in one line. Nothing counts as certified."""
    GATE_FAILED = 1
    """The audit shows more leakage than ``--fail-above`` accepts, or its mean is above and no more units can help; or a
    certificate is refused, or a comparison shows that leakage has risen."""
    JOBS_FAILED = 3
    """Some jobs failed; the others are done and stored. The gate, if there is one, is not passed."""
    UNDECIDED = 4
    """The budget of the gate ended before anything was shown, with the mean at or below the limit; or not all that a
    certificate claims is verified."""
    CRASH = 70
    """A mistake in seepage itself, in one line."""
    DEVICE_FULL = 74
    """A file could not be written: the device is full, or another error of input and output, in one line."""
    INTERRUPTED = 130
    """Ctrl-C; what was measured is stored."""
    CLOSED_PIPE = 141
    """Nobody reads the output any more, as with ``| head``; nothing is printed about it."""


def status_of(error: BaseException | None) -> Exit:
    """Return the exit status of an error, by what caused it."""
    status = Exit.CRASH
    while error is not None:
        if isinstance(error, BrokenPipeError):
            return Exit.CLOSED_PIPE
        if isinstance(error, OSError) and error.errno in _DEVICE:
            return Exit.DEVICE_FULL
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorname in _OF_SQLITE:
            return Exit.DEVICE_FULL
        if isinstance(error, CertifiedWrongError):
            return Exit.WRONG_PROOF
        if isinstance(error, BadInputError):
            status = Exit.BAD_INPUT
        error = error.__cause__ or error.__context__
    return status


_DEVICE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
_OF_SQLITE = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_IOERR_WRITE")


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
