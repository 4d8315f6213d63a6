"""Programs that tests and benchmarks start, and the processes that they leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

# Seconds after which a program hangs, on however loaded a machine: no test asks how long anything takes.
HANGS = 3600.0
# Workers at once, however little there is to do.
PROGRAM = """
from seepage.cli import main
from seepage.run import runner
runner._WORTH_WORKERS_SECONDS = 0.0
main()
"""


@dataclass(frozen=True)
class Program:
    """A program that was started as the first of a new group of processes.

    Attributes:
        process: the process.
        errors: path of the file with its standard error.
    """

    process: subprocess.Popen[bytes]
    errors: Path

    def ended(self) -> int:
        """Return the exit status, once it has ended."""
        return self.process.wait(timeout=HANGS)

    def told(self) -> str:
        """Return what it printed to its standard error so far."""
        return self.errors.read_text()

    def end(self) -> None:
        """Kill what is left of its group."""
        for process in group_of(self.process.pid):
            os.kill(process, signal.SIGKILL)
        self.process.wait()


@dataclass(frozen=True)
class Sweep:
    """An audit of German Credit with two batch sizes and three attacks.

    Attributes:
        victims: number of victims.
        iterations: number of steps of each attack.
    """

    victims: int
    iterations: int

    def options(self, out: Path, workers: int) -> list[str]:
        """Return the options of its command."""
        return [
            *("audit", "--dataset", "german", "--model", "nn1", "--batch-size", "2", "--batch-size", "4"),
            *("--attack", "tableak", "--attack", "inverting_gradients", "--attack", "dlg"),
            *("--victims", str(self.victims), "--restarts", "8", "--iterations", str(self.iterations)),
            *("--no-control", "--workers", str(workers), "--out", str(out)),
        ]

    def start(self, out: Path, workers: int) -> Program:
        """Start it into a run folder; beside that comes a file with its standard error."""
        # A file: what nobody reads of a pipe would hold the program up, and workers may outlive it.
        errors = out.with_name(f"{out.name}.txt")
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *self.options(out, workers)],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.DEVNULL,
                stderr=file,
                start_new_session=True,
                # A suite in the background of a shell ignores interrupts, and so would what it starts.
                preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
            )
        return Program(process, errors)


def until(
    reached: Callable[[], bool], program: Program | None = None, seconds: float = HANGS, pause: float = 0.01
) -> bool:
    """Wait, and return whether something was reached before the time was over and the program had ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and (program is None or program.process.poll() is None):
        if reached():
            return True
        time.sleep(pause)
    return False


def group_of(group: int) -> list[int]:
    """Return the living processes of a group; zombies, which only wait to be asked for their status, are none."""
    return [process for process, (state, _, of) in _processes().items() if of == group and state != "Z"]


def workers_of(parent: int) -> list[int]:
    """Return the worker processes that a program started."""
    return [process for process in children_of(parent) if b"popen_loky_posix" in _command(process)]


def children_of(parent: int) -> list[int]:
    """Return the living processes that a program started."""
    return [process for process, (state, of, _) in _processes().items() if of == parent and state != "Z"]


def _processes() -> dict[int, tuple[str, int, int]]:
    """Return state, parent and group of all processes."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        # It may have ended since.
        with suppress(OSError):
            found[int(folder.name)] = _process(folder)
    return found


def _process(folder: Path) -> tuple[str, int, int]:
    """Return state, parent and group of a process."""
    # The name, in parentheses, may hold anything.
    state, parent, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
    return state, int(parent), int(group)


def _command(process: int) -> bytes:
    """Return the command of a process; empty for one that has ended."""
    folder = Path("/proc") / str(process)
    with suppress(OSError):
        # It is empty for a moment while a process starts, longer on busy cores, and for a zombie always.
        while not (command := (folder / "cmdline").read_bytes()) and _process(folder)[0] != "Z":
            time.sleep(0.001)
        return command
    return b""
