"""The exit statuses of the program, the same for every command."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Why the program ended. Where several apply, the first below, ``DONE`` aside, wins."""

    DONE = 0
    """All that was asked for is done, and the gate, if there is one, passed."""
    BAD_INPUT = 2
    """Something given cannot be used; one paragraph on stderr says what. Nothing stored before is touched."""
    GATE_FAILED = 1
    """The audit shows more leakage than ``--fail-above`` accepts, or does not show that there is less."""
    JOBS_FAILED = 3
    """Some jobs failed; the others are done and stored."""
    INTERRUPTED = 130
    """Ctrl-C; what was measured is stored."""
