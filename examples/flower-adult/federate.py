"""Runs the app in a federation on this machine: a SuperLink and a SuperNode a client, each a process of its own.

    python federate.py --clients 3 --rounds 3 --policy block --out run

Exit statuses: 0 the run is completed, 1 it failed, 2 it did not end in time.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent
NO_INSTALLATION = "disable-runtime-dependency-installation"
POLICIES = ("none", "report", "block", "noise", "clip")


def main() -> int:
    """Run the federation that the command line asks for."""
    parser = argparse.ArgumentParser(description="Run the app in a federation on this machine.")
    parser.add_argument("--out", type=Path, required=True, help="folder of logs and captured updates")
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=16, help="records of a client")
    parser.add_argument("--policy", choices=POLICIES, default="none", help="what each client's guard does")
    parser.add_argument("--optimizer", choices=("sgd", "adam"), default="sgd")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, default=300, help="time after which the run is given up")
    given = parser.parse_args()
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    config = {
        **{name: getattr(given, name) for name in ("rounds", "clients", "records", "policy", "optimizer")},
        "learning-rate": given.learning_rate,
        "captured": str(out / "captured"),
        "logs": str(out / "logs"),
    }
    with Federation(out, [None] * given.clients, given.seconds) as federation:
        status = federation.run(config)
    print(f"the run is {status}; see {out}")
    return {"finished:completed": 0, "running": 2}.get(status, 1)


class Federation:
    """A SuperLink and a SuperNode a client on this machine, for as long as it is entered.

    Args:
        out: folder of the logs of all processes.
        policies: policy of each client's own guard; that of the run if None.
        seconds: time after which the link, or a run, is given up.
        simulated: whether Flower's simulation engine, which needs Ray, runs two clients in place of SuperNodes.
    """

    def __init__(
        self, out: Path, policies: Sequence[str | None], seconds: float = 300, simulated: bool = False
    ) -> None:
        self._out, self._policies, self._seconds = out, policies, seconds
        self._engine = ["--simulation"] if simulated else []
        self._programs = Path(sys.executable).parent
        self._home = out / "flower"
        # Telemetry off: nothing is sent anywhere.
        off = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
        self._environment = {**os.environ, **off, "FLWR_HOME": str(self._home)}
        self._environment["PATH"] = os.pathsep.join([str(self._programs), os.environ.get("PATH", "")])
        self._environment["OMP_NUM_THREADS"] = "1"
        # Nodes look for work this often; on one machine that costs nothing.
        self._environment["FLWR_SUPEREXEC_TASK_POLL_INTERVAL"] = "0.2"
        self._stack = ExitStack()

    def __enter__(self) -> Federation:
        """Start link and nodes."""
        host, port = "127.0.0.1", free_port()
        self._home.mkdir(exist_ok=True)
        (self._home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{host}:{port}"\ninsecure = true\n',
            encoding="utf-8",
        )
        with ExitStack() as started:
            self._stack = started
            plain = ["--insecure", "--host", host]
            self._start(
                "superlink", "flower-superlink", *plain, "--port", str(port), "--" + NO_INSTALLATION, *self._engine
            )
            wait_for(host, port, self._seconds)
            for client, policy in enumerate(self._policies):
                config = f"partition-id={client}" + ("" if policy is None else f' policy="{policy}"')
                own = ["--superlink", f"{host}:{port}", "--node-config", config]
                self._start(f"supernode-{client}", "flower-supernode", *plain, "--port", str(free_port()), *own)
            self._stack = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop nodes and link."""
        self._stack.close()

    def run(self, config: dict[str, int | float | str]) -> str:
        """Run the app, wait for its end, and return its status as Flower says it.

        Args:
            config: values of ``[tool.flwr.app.config]``.
        """
        values = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        try:
            begun = self._flwr(
                *("run", str(HERE), "here", "--run-config", values, "--format", "json", "--stream"),
                seconds=self._seconds,
            )
        except subprocess.TimeoutExpired:
            return "running"
        if begun.returncode:
            return f"not started: {begun.stdout}{begun.stderr}"
        # The app's log follows.
        number = str(json.JSONDecoder().raw_decode(begun.stdout)[0]["run-id"])
        asked = self._flwr("list", "here", "--run-id", number, "--format", "json")
        return str(json.loads(asked.stdout)["runs"][0]["status"])

    def _flwr(self, *arguments: str, seconds: float | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._programs / "flwr"), *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            cwd=self._out,
            timeout=seconds,
        )

    def _start(self, name: str, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        with (self._out / f"{name}.log").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=log, cwd=self._out, start_new_session=True
            )
        self._stack.callback(stop, process)


def free_port() -> int:
    """Return a port of this machine that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(host: str, port: int, seconds: float) -> None:
    """Wait until somebody listens on a port."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) == 0:
                return
        time.sleep(0.2)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process that was started here, and the ones that it started."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
