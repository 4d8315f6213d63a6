"""A run that is killed or interrupted ends with the very figures of one that was left alone, and leaves no process."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from seepage import cli
from tests.processes import Program, Sweep, group_of, until, workers_of
from tests.stores import jobs_done, measurements

KILLS = int(os.environ.get("SEEPAGE_KILLS", "1"))
# German, two batch sizes, three attacks: jobs of some tenths of a second each, enough of them for every kill.
SWEEP = Sweep(victims=12 * (KILLS + 1), iterations=20)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["seepage", *SWEEP.options(folder, workers=1)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert not ended.value.code
    return folder


def stored_beyond(folder: Path, done: int) -> bool:
    """Return whether more jobs are stored than a number."""
    return jobs_done(folder, in_use=True) > done


@pytest.fixture
def started() -> Iterator[list[Program]]:
    """Programs that are ended with the test, however it ends."""
    programs: list[Program] = []
    yield programs
    for program in programs:
        program.end()


def assert_as(folder: Path, whole: Path, program: Program) -> None:
    """Check that a program ends well, that it went on from what was there, and that the folder equals the other."""
    status, told = program.ended(), program.told()
    assert status == 0, told
    # What was there before, and nothing of a failure.
    assert "Kept from before" in told
    assert len(told.splitlines()) <= 2
    assert measurements(folder) == measurements(whole)


@pytest.mark.slow
def test_kills_of_all_processes_change_no_figure_and_repeat_only_jobs_in_flight(
    tmp_path: Path, whole: Path, started: list[Program]
) -> None:
    folder, moments, done = tmp_path / "run", random.Random(0), 0
    for _ in range(KILLS):
        running = SWEEP.start(folder, workers=1)
        started.append(running)
        # As far as the first new job, then some while longer.
        until(partial(stored_beyond, folder, done), running)
        until(lambda: False, running, moments.uniform(0.0, 0.3))
        assert running.process.poll() is None, running.told()
        os.killpg(running.process.pid, signal.SIGKILL)
        running.ended()
        assert jobs_done(folder) > done
        done = jobs_done(folder)
    assert not (folder / "results.json").exists()
    assert_as(folder, whole, SWEEP.start(folder, workers=1))


@pytest.mark.slow
def test_kills_of_single_processes_and_quick_interrupts_lose_nothing_and_leave_no_process(
    tmp_path: Path, whole: Path, started: list[Program]
) -> None:
    folder = tmp_path / "run"
    # Interrupts until it has ended, as of an impatient user.
    first = SWEEP.start(folder, workers=2)
    started.append(first)
    assert until(lambda: jobs_done(folder, in_use=True) > 0, first)

    def interrupted() -> bool:
        os.killpg(first.process.pid, signal.SIGINT)
        return first.process.poll() is not None

    assert until(interrupted, pause=0.05)
    assert first.process.returncode == 130, first.told()
    assert "interrupted. The victims measured so far are kept" in first.told()
    assert "Traceback" not in first.told()
    assert until(lambda: not group_of(first.process.pid))
    assert not (folder / "results.json").exists()
    done = jobs_done(folder)
    assert done > 0

    # A worker alone: the run goes on.
    second = SWEEP.start(folder, workers=2)
    started.append(second)
    assert until(lambda: jobs_done(folder, in_use=True) > done, second)
    os.kill(workers_of(second.process.pid)[0], signal.SIGKILL)
    done = jobs_done(folder, in_use=True)
    assert until(lambda: jobs_done(folder, in_use=True) > done, second), second.told()
    # The main process alone: the workers end by themselves.
    assert until(lambda: bool(workers_of(second.process.pid)), second)
    second.process.kill()
    second.process.wait()
    assert until(lambda: not group_of(second.process.pid))
    assert jobs_done(folder) > done

    assert_as(folder, whole, SWEEP.start(folder, workers=2))
