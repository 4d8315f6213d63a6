"""Why the program ended: its exit status, the same for every command."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seepage.cli.exits import Exit, status_of
from seepage.errors import BadInputError
from seepage.registry import datasets
from tests.commands import commands
from tests.parts import register
from tests.processes import HANGS

PROGRAM = "import sys; from seepage.cli import main; main()"


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command in which $SEEPAGE is the program."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.replace("$SEEPAGE", '"$PYTHON" -c "$CODE"')],
        capture_output=True,
        text=True,
        timeout=HANGS,
        check=False,
        env={**os.environ, "PYTHON": sys.executable, "CODE": PROGRAM},
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


@pytest.mark.long
def test_full_and_closed_streams_keep_the_status() -> None:
    assert shell("$SEEPAGE --version >&-").returncode == Exit.BAD_INPUT
    assert shell("$SEEPAGE audit --dataset nowhere 2>/dev/full").returncode == Exit.BAD_INPUT


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_stream_that_is_closed_or_full_never_says_that_a_gate_failed(
    unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    closed = shell("$SEEPAGE checks >&-")
    assert closed.returncode == Exit.BAD_INPUT
    assert "standard output is closed" in closed.stderr
    # Nobody reads what the error stream says; the status stays.
    for redirected in ("2>&-", "2>/dev/full", "2> >(true)"):
        assert shell(f"$SEEPAGE checks {redirected}").returncode == Exit.DONE
        assert shell(f"$SEEPAGE audit --dataset nowhere {redirected}").returncode == Exit.BAD_INPUT
        assert shell(f"$SEEPAGE audit --unknown {redirected}").returncode == Exit.BAD_INPUT
    assert shell("$SEEPAGE checks >/dev/full 2>/dev/full").returncode == Exit.DEVICE_FULL
    assert shell("$SEEPAGE checks <&- >&- 2>&-").returncode == Exit.BAD_INPUT


LONG, DEEP = "a" * 300, "/".join(["folder"] * 700)


@pytest.mark.long
@pytest.mark.parametrize("path", [LONG, DEEP], ids=["name", "path"])
@pytest.mark.parametrize(
    "options",
    [
        ["audit", "--target", "y", "--data", "{}.csv"],
        ["audit", "{}"],
        ["spec", "check", "{}"],
        ["spec", "new", "--out", "{}"],
        ["verify", "{}"],
        ["compare", "{}", "{}"],
        ["rounds", "{}.csv"],
        ["new", "attack", "{}.py"],
    ],
    ids=lambda options: " ".join(options),
)
def test_a_path_that_is_too_long_is_bad_input(
    options: list[str], path: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    status, _, err = commands(capfd, monkeypatch, tmp_path)(*(option.replace("{}", path) for option in options))
    assert status == Exit.BAD_INPUT
    assert "mistake in seepage" not in err


AUDIT = [
    *("audit", "--dataset", "german", "--batch-size", "1", "--attack", "dlg:{iterations: 2}", "--victims", "2"),
    *("--no-control", "--defense", "none", "--workers", "1", "--quiet", "--out"),
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of which nobody else is harmed where it is full."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = shell(f"mount -t tmpfs -o size=64k tmpfs '{folder}'")
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    shell(f"umount '{folder}'")


def test_a_full_disk_loses_nothing_that_was_stored_and_one_that_is_read_only_is_refused(
    disk: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seepage, run = commands(capfd, monkeypatch, tmp_path), disk / "run"
    status, _, errors = seepage(*AUDIT, run)
    assert (status, errors.count("\n")) == (Exit.DEVICE_FULL, 1), errors
    assert "What was stored before is intact" in errors
    assert shell(f"mount -o remount,size=50m '{disk}'").returncode == 0
    # Reads all that was stored, and goes on.
    assert seepage(*AUDIT, run)[0] == Exit.DONE
    assert shell(f"mount -o remount,ro '{disk}'").returncode == 0
    for out in (run, disk / "other"):
        status, _, errors = seepage(*AUDIT, out)
        assert (status, errors.count("\n")) == (Exit.BAD_INPUT, 1), errors
        assert "Read-only file system" in errors


def test_a_crash_is_no_failed_gate_and_no_traceback_unless_asked_for(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(seed: int = 0, data_folder: Path | None = None) -> None:
        raise RuntimeError("loose <wire>")

    register(monkeypatch, datasets, "broken", broken)
    seepage = commands(capfd, monkeypatch, tmp_path)
    command = ("audit", "--dataset", "broken", "--fail-above", 0.2, "--attack", "dlg")
    status, _, errors = seepage(*command)
    assert (status, errors.count("\n")) == (Exit.CRASH, 1)
    assert "RuntimeError: loose <wire>; this is a mistake in seepage" in errors
    monkeypatch.setenv("SEEPAGE_TRACEBACK", "1")
    with pytest.raises(RuntimeError, match="loose <wire>"):
        seepage(*command)


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
