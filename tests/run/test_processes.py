"""Worker processes that end at any moment."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from cloudpickle import register_pickle_by_value, unregister_pickle_by_value  # noqa: TID251 - functions of this file
from loky.backend import resource_tracker

import tests.run.test_processes as this
from seepage.errors import BadInputError
from seepage.run import workers
from seepage.run.processes import Event, Processes
from seepage.run.workers import Job, Work, WorkerProcesses
from tests.processes import workers_of

# Far more than fits in a pipe, as the audits of a run are.
SHARED = b"x" * 2**22


@contextmanager
def guard(seconds: int = 240) -> Iterator[None]:
    """End a test that hangs, also in a system call."""

    def over(signum: int, frame: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def sent() -> Iterator[None]:
    """Functions of this file reach other processes, which do not have it."""
    register_pickle_by_value(this)
    yield
    unregister_pickle_by_value(this)


def doubled(shared: bytes, task: object, note: Callable[[object], None]) -> object:
    """Return twice a number; what else a task may ask for ends the process."""
    note("begun")
    if task == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "survived by a child":
        # It holds the connection open.
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "killed while it sends":
        subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -9 {os.getpid()}"])
        while True:
            note(SHARED)
    if task == "waits":
        time.sleep(600)
    assert isinstance(task, int)
    return 2 * task, len(shared)


def kill(processes: list[int]) -> None:
    """Kill processes."""
    for process in processes:
        os.kill(process, signal.SIGKILL)


def until(processes: Processes, kind: str, count: int = 1) -> list[Event]:
    """Return the first events of a kind."""
    found: list[Event] = []
    while len(found) < count:
        found += [event for event in processes.events(0.1) if event.kind == kind]
    return found


@pytest.mark.long
def test_a_process_that_is_killed_as_it_starts_is_noticed_and_replaced() -> None:
    with guard(), closing(Processes(doubled, SHARED, {})) as processes:
        # Before it reads anything; the other one lives.
        processes.start(1)
        kill(workers_of(os.getpid()))
        processes.start(2)
        assert until(processes, "lost") == [Event("lost")]
        processes.start(2)
        until(processes, "ready", 2)
        assert processes.free == 2
        for task in (3, 4):
            processes.give(task)
        results = sorted(event.value for event in until(processes, "result", 2))
        assert results == [(6, len(SHARED)), (8, len(SHARED))]
    assert workers_of(os.getpid()) == []


@pytest.mark.long
@pytest.mark.parametrize("task", ["killed", "survived by a child", "killed while it sends"])
def test_a_process_that_is_killed_in_a_task_is_noticed_with_its_task(task: str) -> None:
    with guard(), closing(Processes(doubled, b"", {})) as processes:
        processes.start(1)
        until(processes, "ready")
        processes.give(task)
        assert until(processes, "lost") == [Event("lost", task)]
        assert processes.tasks == 0


@pytest.mark.long
def test_processes_that_are_killed_between_tasks_or_all_at_once_are_noticed() -> None:
    with guard(), closing(Processes(doubled, b"", {})) as processes:
        processes.start(2)
        until(processes, "ready", 2)
        processes.give("waits")
        kill(workers_of(os.getpid()))
        # Given to one that has ended, or is about to.
        processes.give(5)
        lost = until(processes, "lost", 2)
        assert {event.task for event in lost} == {"waits", 5}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:resource_tracker:UserWarning")
def test_all_workers_and_the_tracker_of_their_resources_may_be_killed_at_once() -> None:
    with guard(), closing(Processes(doubled, b"", {})) as processes:
        processes.start(2)
        tracker = resource_tracker._resource_tracker._pid
        assert tracker is not None
        kill([*workers_of(os.getpid()), tracker])
        until(processes, "lost", 2)
        processes.start(2)
        until(processes, "ready", 2)
        assert resource_tracker._resource_tracker._pid != tracker
        processes.give(6)
        assert until(processes, "result")[0].value == (12, 0)


class Silent:
    """Ignores progress."""

    def started(self, name: int) -> None:
        """Ignore a job that begins."""

    def advanced(self, name: int, share: float) -> None:
        """Ignore a share."""


def test_a_run_whose_workers_are_always_killed_ends_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    # What kills each process as soon as it is there.
    start = Processes.start

    def killed(self: Processes, count: int) -> None:
        start(self, count)
        kill(workers_of(os.getpid()))

    monkeypatch.setattr(Processes, "start", killed)
    job = Job(0, (0,), 0, None, range(1), (), 1)  # pyright: ignore[reportArgumentType]
    with guard(), pytest.raises(BadInputError, match=r"5 worker processes in a row ended .* is kept; .*workers=1"):
        list(WorkerProcesses(2).run(Work([job], [], Silent())))


@pytest.mark.long
def test_what_cannot_be_loaded_in_a_worker_ends_a_run_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "only_in_the_parent.py").write_text("class Thing: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    thing = importlib.import_module("only_in_the_parent").Thing

    monkeypatch.setattr(workers, "make_sendable", lambda audits: None)
    (tmp_path / "only_in_the_parent.py").unlink()
    job = Job(0, (0,), 0, None, range(1), (), 1)  # pyright: ignore[reportArgumentType]
    with guard(), pytest.raises(BadInputError, match=r"cannot load .*only_in_the_parent.*workers=1"):
        list(WorkerProcesses(1).run(Work([job], [thing()], Silent())))
