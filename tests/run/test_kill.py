"""A run that is killed again and again ends with the very figures of one that was left alone."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.stores import jobs_done, measurements

KILLS = int(os.environ.get("SEEPAGE_KILLS", "3"))
# German, two batch sizes, three attacks: jobs of some hundredths of a second each, enough of them for every kill.
VICTIMS = 32 * max(1, KILLS // 3)
SWEEP = [
    *("audit", "--dataset", "german", "--model", "nn1", "--batch-size", "2", "--batch-size", "4"),
    *("--attack", "tableak", "--attack", "inverting_gradients", "--attack", "dlg"),
    *("--victims", str(VICTIMS), "--restarts", "8", "--iterations", "60"),
]
PROGRAM = [sys.executable, "-c", "from seepage.cli import main; main()"]


def start(folder: Path, workers: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*PROGRAM, *SWEEP, "--workers", str(workers), "--out", str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


@pytest.mark.parametrize("workers", [1])
def test_kills_at_random_moments_change_no_figure_and_repeat_only_jobs_in_flight(tmp_path: Path, workers: int) -> None:
    moments = random.Random(0)
    killed, done = tmp_path / "killed", 0
    for _ in range(KILLS):
        running = start(killed, workers)
        # As far as the first new job, then some while longer.
        until = time.monotonic() + 120
        while jobs_done(killed, in_use=True) <= done and running.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(moments.uniform(0.0, 0.3))
        assert running.poll() is None, running.communicate()[1].decode()
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
        assert jobs_done(killed) > done
        done = jobs_done(killed)
    assert not (killed / "results.json").exists()
    for folder in (killed, tmp_path / "whole"):
        ending = start(folder, workers)
        told = ending.communicate()[1].decode()
        assert ending.returncode == 0, told
        # What was there before, and nothing of a failure.
        assert ("Kept from before" in told) == (folder == killed)
        assert len(told.splitlines()) <= 2
    assert measurements(killed) == measurements(tmp_path / "whole")
