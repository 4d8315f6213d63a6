"""Worker processes of this machine; the end of one is noticed, whatever ended it and at whatever moment.

Each has a connection of its own, and they share no lock, queue or memory. A process that is killed thus leaves nothing
behind for which another process, or this one, would wait.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import Any, Literal

from cloudpickle import dumps, loads  # noqa: TID251 - of this program's own objects, between its own processes
from loky.backend import resource_tracker
from loky.backend.process import LokyProcess
from loky.backend.utils import kill_process_tree

from seepage.errors import one_line

# Interval at which a worker checks that its parent process still lives.
_WATCH_SECONDS = 0.5

Kind = Literal["up", "ready", "refused", "note", "result", "lost"]
# Runs a task in a worker process, and may send notes on the way.
Function = Callable[[Any, Any, Callable[[object], None]], object]


@dataclass(frozen=True)
class Event:
    """What became known of a worker process.

    Attributes:
        kind: ``ready`` for tasks; ``refused``, it cannot take any; ``note`` on a task; its ``result``; ``lost``, the
            process has ended.
        task: task of the process; None where it has none.
        value: note or result; the reason why tasks are refused.
    """

    kind: Kind
    task: Any = None
    value: Any = None


@dataclass(eq=False)
class _Worker:
    process: Any
    connection: Any
    ready: bool = False
    task: Any = None


class Processes:
    """Processes that run a function on tasks, one task a process at a time.

    Args:
        function: function of ``shared``, a task and a callback that sends a note; returns the result.
        shared: what all tasks share. It is sent to each process once.
        environment: environment variables of the processes, beside those of this one.
    """

    def __init__(self, function: Function, shared: object, environment: Mapping[str, str]) -> None:
        self._content = dumps((function, shared))
        self._environment = dict(environment)
        self._workers: list[_Worker] = []

    @property
    def tasks(self) -> int:
        """Number of tasks that are running."""
        return sum(worker.task is not None for worker in self._workers)

    @property
    def free(self) -> int:
        """Number of processes that wait for a task."""
        return sum(worker.ready and worker.task is None for worker in self._workers)

    def start(self, count: int) -> None:
        """Start processes until there are ``count``."""
        while len(self._workers) < count:
            pipe, there = Pipe()
            try:
                # Its start writes what the process reads first, and holds both ends of that pipe meanwhile: if the
                # process is killed, all that does not fit in a pipe is waited for without end. So this stays small.
                process = LokyProcess(target=_serve, args=(there, os.getpid()), env=self._environment)
                with _uninterrupted():
                    process.start()
            except BaseException:
                pipe.close()
                raise
            finally:
                # The only copy is that of the process: with it the connection ends.
                there.close()
            self._workers.append(_Worker(process, pipe))

    def give(self, task: object) -> None:
        """Send a task to a process that waits for one."""
        worker = next(worker for worker in self._workers if worker.ready and worker.task is None)
        worker.task = task
        _send(worker, dumps(task))

    def events(self, seconds: float) -> Iterator[Event]:
        """Wait up to some seconds, and yield what became known."""
        wait([worker.connection for worker in self._workers], seconds)
        for worker in list(self._workers):
            # Asked before its messages are read: what it sent before it ended counts. A connection may outlive its
            # process where that had children.
            lives = worker.process.is_alive()
            try:
                while worker.connection.poll():
                    event = self._received(worker)
                    if event is not None:
                        yield event
            except (EOFError, OSError):
                lives = False
            if not lives:
                self._workers.remove(worker)
                _end(worker)
                yield Event("lost", worker.task)

    def _received(self, worker: _Worker) -> Event | None:
        kind, value = loads(worker.connection.recv_bytes())
        task = worker.task
        if kind == "up":
            # Now that it reads, so that this does not wait while it starts.
            _send(worker, self._content)
            return None
        if kind == "ready":
            worker.ready = True
        elif kind == "result":
            worker.task = None
        return Event(kind, task, value)

    def close(self) -> None:
        """End all processes and their children, whatever interrupts come meanwhile."""
        in_main = threading.current_thread() is threading.main_thread()
        # Children may be listed with another program, which inherits this: an interrupt of the group would end it too.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main else None
        try:
            while self._workers:
                _end(self._workers.pop())
        finally:
            if in_main:
                signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


def _send(worker: _Worker, content: bytes) -> None:
    # Of a process that has ended; its end becomes known with the next events.
    with contextlib.suppress(OSError):
        worker.connection.send_bytes(content)


def _end(worker: _Worker) -> None:
    """End a process with its children."""
    worker.connection.close()
    with contextlib.suppress(Exception):
        kill_process_tree(worker.process)
    if worker.process.is_alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.process.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        worker.process.join()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Start a process that no interrupt of the terminal ends before it can ignore them; here they come later."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Its start allows interrupts again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Any, parent: int) -> None:
    """Run tasks in a worker process until it is ended."""
    # The interrupt of a terminal reaches every process of the group; the parent alone answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_outlive_nobody, args=(parent,), daemon=True).start()

    def send(kind: Kind, value: object) -> None:
        connection.send_bytes(dumps((kind, value)))

    def note(value: object) -> None:
        send("note", value)

    try:
        send("up", None)
        content = connection.recv_bytes()
        try:
            function, shared = loads(content)
        except Exception as error:
            send("refused", one_line(error))
            return
        send("ready", None)
        while True:
            task = loads(connection.recv_bytes())
            send("result", function(shared, task, note))
    except (EOFError, OSError):
        # The parent has ended, or closed the connection.
        _leave()


def _outlive_nobody(parent: int) -> None:
    """End this process once its parent is gone: nobody is left to take its results."""
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    _leave()


def _leave() -> None:
    # The error stream may be full, or have no reader.
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(1)
