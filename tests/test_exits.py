"""Why the program ended: its exit status, the same for every command."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from seepage.cli.exits import Exit, status_of
from seepage.errors import BadInputError

PROGRAM = "import sys; from seepage.cli import main; main()"
BROKEN = """
from seepage import registry
@registry.datasets.register("broken")
def broken(seed=0, data_folder=None):
    {what}
from seepage.cli import main
main()
"""


def shell(command: str, code: str = PROGRAM, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command in which $SEEPAGE is the program."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.replace("$SEEPAGE", '"$PYTHON" -c "$CODE"')],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHON": sys.executable, "CODE": code, **variables},
    )


def test_a_closed_pipe_ends_quietly() -> None:
    ran = shell("$SEEPAGE checks | true")
    assert (ran.returncode, ran.stderr) == (Exit.CLOSED_PIPE, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device here that is always full")
def test_a_full_device_is_said_in_a_line() -> None:
    ran = shell("$SEEPAGE checks > /dev/full")
    assert ran.returncode == Exit.DEVICE_FULL
    assert ran.stderr.count("\n") == 1
    assert "make room" in ran.stderr


def test_a_crash_is_no_failed_gate_and_no_traceback_unless_asked_for() -> None:
    code = BROKEN.format(what="raise RuntimeError('loose <wire>')")
    command = "$SEEPAGE audit --dataset broken --fail-above 0.2 --attack dlg"
    ran = shell(command, code)
    assert ran.returncode == Exit.CRASH
    assert ran.stderr.count("\n") == 1
    assert "RuntimeError: loose <wire>; this is a mistake in seepage" in ran.stderr
    assert "Traceback" in shell(command, code, SEEPAGE_TRACEBACK="1").stderr


def test_the_status_is_that_of_what_caused_an_error() -> None:
    def caused(error: Exception, cause: BaseException) -> Exception:
        error.__cause__ = cause
        return error

    assert status_of(BadInputError("?")) is Exit.BAD_INPUT
    assert status_of(caused(BadInputError("?"), OSError(errno.ENOSPC, "full"))) is Exit.DEVICE_FULL
    assert status_of(caused(BadInputError("?"), OSError(errno.EACCES, "locked"))) is Exit.BAD_INPUT
    assert status_of(BrokenPipeError()) is Exit.CLOSED_PIPE
    assert status_of(None) is Exit.CRASH
    full = sqlite3.connect(":memory:")
    full.execute("PRAGMA max_page_count = 2")
    full.execute("CREATE TABLE t (x)")
    with pytest.raises(sqlite3.OperationalError) as found:
        full.execute("INSERT INTO t VALUES (zeroblob(1000000))")
    assert status_of(caused(BadInputError("?"), found.value)) is Exit.DEVICE_FULL
