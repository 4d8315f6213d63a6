"""The ends of the program: exit statuses, messages and interrupts, the same for every command."""

from __future__ import annotations

import errno
import io
import os
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
from typing import Any

from seepage.errors import BadInputError, CertifiedWrongError
from seepage.text import clean


class _Lenient(io.FileIO):
    """An error stream that raises nothing: where its device is full or its reader left, the status still tells."""

    def write(self, content: Any) -> int:
        """Write what can be written; return that all was."""
        try:
            return super().write(content) or 0
        except OSError:
            return len(memoryview(content).cast("B"))


@contextmanager
def standard_streams() -> Iterator[None]:
    """Have three standard streams for a while, of which the error stream raises nothing.

    Raises:
        BadInputError: standard output is closed.
    """
    closed = [number for number in range(3) if not _is_open(number)]
    # Else the next file that is opened would be taken for the stream.
    for number in closed:
        given = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
        if given != number:
            os.dup2(given, number)
            os.close(given)
    errors, output = sys.stderr, sys.stdout
    if output is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    buffer = getattr(errors, "buffer", None)
    # A stream without a buffer is raw itself.
    raw = getattr(buffer, "raw", buffer)
    if errors is None or (isinstance(raw, io.FileIO) and raw.fileno() == 2):
        writer = io.BufferedWriter(_Lenient(2, "w", closefd=False))
        encoding = "utf-8" if errors is None else errors.encoding
        sys.stderr = io.TextIOWrapper(writer, encoding, "backslashreplace", line_buffering=True)
    try:
        if 1 in closed:
            raise BadInputError(
                "standard output is closed, so that nothing could be printed; redirect it to a file or to /dev/null."
            )
        yield
    except BadInputError as error:
        if 1 not in closed:
            raise
        print_message(str(error))
        sys.exit(Exit.BAD_INPUT)
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            # What is still buffered would fail again when the interpreter ends, and change the status.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.stderr.flush()
        sys.stderr, sys.stdout = errors, output


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


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
    """The truth contradicts a certificate, in one line: a mistake in seepage or, of a capture, a declaration that
    differs from what the site did, or the truth of other records. Nothing counts as certified."""
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
        if isinstance(error, BadInputError) or is_of_a_path(error):
            status = Exit.BAD_INPUT
        error = error.__cause__ or error.__context__
    return status


def is_of_a_path(error: BaseException) -> bool:
    """Return whether an error says that a path cannot be used, such as one that is too long or forbidden."""
    return isinstance(error, OSError) and error.errno in _PATHS and error.filename is not None


_PATHS = (
    *(errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.EEXIST),
    *(errno.ELOOP, errno.EROFS, errno.ENXIO, errno.ENODEV, errno.EINVAL),
)
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
    in_main_thread = threading.current_thread() is threading.main_thread()
    # A shell starts what runs in the background with interrupts ignored, which stays so.
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    interrupts = Interrupts()
    signal.signal(signal.SIGINT, interrupts)
    try:
        yield
    finally:
        # The program is about to end with the status of an interrupt, which another one must not change.
        signal.signal(signal.SIGINT, signal.default_int_handler if interrupts.answered is None else signal.SIG_IGN)
