"""The exit statuses of the program, the same for every command."""

from __future__ import annotations

import errno
import sqlite3
from enum import IntEnum

from seepage.errors import BadInputError, CertifiedWrongError


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
