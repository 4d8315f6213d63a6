"""Dask clusters of real processes on this machine's loopback address."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from distributed.security import Security

from tests.processes import HANGS


class Certificates(TypedDict):
    """Paths of PEM files, by option."""

    ca: str
    cert: str
    key: str


def certificates(folder: Path) -> Certificates:
    """Write a new certificate, which is its own authority, and its key."""
    made = Security.temporary()

    def written(name: str, text: object) -> str:
        path = folder / f"{name}.pem"
        path.touch(mode=0o600)
        path.write_text(str(text))
        return str(path)

    return Certificates(
        ca=written("ca", made.tls_ca_file),
        cert=written("cert", made.tls_client_cert),
        key=written("key", made.tls_client_key),
    )


class LoopbackCluster:
    """A scheduler and workers with one thread each, as processes of their own.

    Args:
        folder: folder of what they write.
        tls: paths of certificates by option; unencrypted if None.
        environment: further environment variables of the processes.
    """

    def __init__(self, folder: Path, tls: Certificates | None = None, environment: dict[str, str] | None = None):
        self.folder = folder
        self._options = (
            []
            if tls is None
            else [f"--tls-ca-file={tls['ca']}", f"--tls-cert={tls['cert']}", f"--tls-key={tls['key']}"]
        )
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
        self._file = folder / "scheduler.json"
        self.scheduler = self._start("scheduler", f"--scheduler-file={self._file}", "--host=127.0.0.1", "--port=0")
        self.workers: list[subprocess.Popen[bytes]] = []
        self.address = self._address()

    def add_worker(self, *options: str) -> subprocess.Popen[bytes]:
        """Start one more worker, which joins in some seconds."""
        name = f"worker-{len(self.workers)}"
        place = f"--local-directory={self.folder / name}"
        self.workers.append(self._start("worker", self.address, f"--name={name}", place, "--nworkers=1", *options))
        return self.workers[-1]

    def wait_for_workers(self) -> None:
        """Wait until all workers have joined."""
        told = self.folder / "worker.txt"
        self._until(lambda: told.read_text().count("Registered to:") >= len(self.workers), told)

    def end(self) -> None:
        """Kill all processes."""
        for process in (*self.workers, self.scheduler):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, what: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *options, *self._options, "--no-dashboard"]
        with (self.folder / f"{what}.txt").open("ab") as told:
            return subprocess.Popen(command, env=self._environment, stdout=told, stderr=told, start_new_session=True)

    def _address(self) -> str:
        self._until(lambda: self._file.exists() and bool(self._file.read_text()), self.folder / "scheduler.txt")
        return str(json.loads(self._file.read_text())["address"])

    def _until(self, met: Callable[[], bool], told: Path) -> None:
        until = time.monotonic() + HANGS
        while not met():
            if time.monotonic() > until or self.scheduler.poll() is not None:
                raise RuntimeError(told.read_text())
            time.sleep(0.05)
