"""Audits on a Dask cluster: the same figures, encrypted connections, and workers that die."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from seepage.auditing import audit, audit_document, prepare_all, run_all
from seepage.cli.options import ClusterOptions
from seepage.errors import BadInputError
from seepage.integrations.dask import check_address, cluster
from seepage.reproduce.reproduce import Selection, reproduce
from seepage.reproduce.table import load_table
from seepage.run import elsewhere
from seepage.run.elsewhere import Machines, Sealed, difference, versions
from seepage.run.plan import make_plan
from seepage.run.runner import Listener
from seepage.run.store import Store
from seepage.run.workers import Work
from seepage.settings.horizontal.audit import HorizontalAudit
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.setting import Audit
from tests.commands import commands
from tests.integrations.dask_cluster import Certificates, LoopbackCluster, certificates
from tests.processes import until
from tests.stores import measurements

# A network of one's own, which ends one worker that computes with it.
NETS = """
import os
import signal
from pathlib import Path

from torch import nn


class Net(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, 6), nn.ReLU(), nn.Linear(6, outputs))

    def forward(self, x):
        folder = os.environ.get("ENDS_WORKERS")
        if folder is not None and (Path(folder) / "one").exists():
            (Path(folder) / "one").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layers(x)
"""
OPTIONS: dict[str, Any] = {
    "dataset": "german",
    "model": "nets.py:Net",
    "batch_sizes": [2, 3],
    "attacks": ["tableak", "dlg"],
    "victims": 6,
    "restarts": 2,
    "iterations": 10,
    "workers": 1,
    "control": False,
}
Start = Callable[..., LoopbackCluster]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts clusters that end with the test."""
    clusters: list[LoopbackCluster] = []

    def starting(tls: Certificates | None = None, **environment: str) -> LoopbackCluster:
        clusters.append(LoopbackCluster(tmp_path, tls, {"ENDS_WORKERS": str(tmp_path), **environment}))
        return clusters[-1]

    yield starting
    for started in clusters:
        started.end()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a network of one's own."""
    folder = tmp_path_factory.mktemp("networks")
    (folder / "nets.py").write_text(NETS)
    return folder


@pytest.fixture(scope="module")
def audits(folder: Path) -> list[Audit]:
    return prepare_all([make_spec(**{**OPTIONS, "model": f"{folder / 'nets.py'}:Net"})])


@pytest.fixture(scope="module")
def here(audits: list[Audit], folder: Path) -> Path:
    """A run folder of this machine alone."""
    run_all(audits, folder / "here")
    return folder / "here"


def rows(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of results but for their times."""
    found = json.loads((folder / "results.json").read_text())["rows"]
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in found]


class Ending(Listener):
    """Has one of the workers end in the middle of a job, once some jobs have ended."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ends, self.failures = folder, 0, []

    def ended(self) -> None:
        self.ends += 1
        if self.ends == 5:
            (self.folder / "one").touch()

    def failed(self, what: str, why: str) -> None:
        self.failures.append(why)


@pytest.mark.slow
def test_figures_of_an_encrypted_cluster_that_loses_a_worker_are_those_of_this_machine(
    tmp_path: Path, audits: list[Audit], here: Path, start: Start
) -> None:
    tls = certificates(tmp_path)
    made = start(tls)
    workers = [made.add_worker("--nthreads=1", "--no-nanny") for _ in range(2)]
    made.wait_for_workers()
    listener = Ending(tmp_path)
    with cluster(made.address, **tls) as machines:
        assert machines.slots() == 2
        [there] = run_all(audits, tmp_path / "there", listener, machines=machines)
        assert until(lambda: machines.slots() == 1)
    assert sorted(worker.poll() or 0 for worker in workers) == [-signal.SIGKILL, 0]
    assert listener.failures == []
    assert not there.failed
    assert measurements(tmp_path / "there") == measurements(here)
    assert measurements(here)["scores"]
    assert rows(tmp_path / "there") == rows(here)
    # Logs of a cluster hold names of functions, and nothing of the jobs.
    told = (tmp_path / "worker.txt").read_text() + (tmp_path / "scheduler.txt").read_text()
    assert "Sealed(" not in told
    # Workers drop the rows in the end.
    assert told.count("Run out-of-band function 'forget'") == 1


@pytest.mark.slow
def test_a_job_that_ends_its_workers_is_recorded_and_measured_by_the_same_command_later(
    tmp_path: Path, folder: Path, start: Start, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = start(DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0")
    made.add_worker("--nthreads=1")
    run = commands(capfd, monkeypatch, tmp_path)
    options = [
        *(
            "audit",
            "--dataset",
            "german",
            "--model",
            f"{folder / 'nets.py'}:Net",
            "--batch-size",
            "2",
            "--attack",
            "dlg",
        ),
        *(
            "--attack",
            "dlg",
            "--victims",
            "2",
            "--restarts",
            "1",
            "--iterations",
            "5",
            "--no-control",
            "--out",
            "run",
            "--quiet",
        ),
        *("--cluster", made.address),
    ]
    # Without encryption only where that is asked for.
    assert run(*options)[0] == 2
    (tmp_path / "one").touch()
    status, _, told = run(*options, "--insecure-cluster")
    assert status == 3, told
    assert measurements(tmp_path / "run")["failures"]
    assert not (tmp_path / "one").exists()
    # The nanny has started the worker anew.
    status, _, told = run(*options, "--insecure-cluster")
    assert status == 0, told
    assert run(*[*options[:-4], "apart", "--quiet"])[0] == 0
    assert measurements(tmp_path / "run") == measurements(tmp_path / "apart")


@pytest.mark.parametrize(
    ("address", "insecure", "said"),
    [
        ("tcp://127.0.0.1:8786", False, "not encrypted"),
        ("10.0.0.5:8786", False, "not encrypted"),
        ("ws://127.0.0.1:8786", False, "not encrypted"),
        ("tcp://10.0.0.5:8786", True, "loopback"),
        ("tcp://localhost.example.org:8786", True, "loopback"),
        ("tls://127.0.0.1:8786", True, "loopback"),
        ("tcp://0.0.0.0:8786", True, "loopback"),
    ],
)
def test_records_travel_encrypted_or_not_at_all(address: str, insecure: bool, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        check_address(address, insecure)


def test_certificates_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="needs certificates"), cluster("tls://127.0.0.1:1"):
        pass
    with pytest.raises(BadInputError, match=r"no file 'none\.pem'"), cluster("tls://127.0.0.1:1", ca="none.pem"):
        pass


def test_a_scheduler_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seepage.integrations.dask._CONNECT_SECONDS", 0.5)
    with (
        pytest.raises(BadInputError, match=r"no scheduler can be reached at 'tcp://127\.0\.0\.1:1'"),
        cluster("tcp://127.0.0.1:1", insecure=True),
    ):
        pass


def test_options_of_a_cluster_need_its_address() -> None:
    with pytest.raises(BadInputError, match="give --cluster ADDRESS"):
        ClusterOptions(insecure=True).connect()


class Silent:
    def started(self, name: int) -> None: ...

    def advanced(self, name: int, share: float) -> None: ...


def test_any_executor_gives_the_figures_of_this_machine_and_another_version_gives_none(
    tmp_path: Path, audits: list[Audit], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(max_workers=1) as executor:
        machines = Machines(executor, slots=lambda: 1)
        run_all(audits, tmp_path / "there", machines=machines)
        assert measurements(tmp_path / "there") == measurements(here)
        # What the driver has is compared with what each worker has.
        real = versions()
        found = iter([{**real, "torch": "0.1"}])
        monkeypatch.setattr(elsewhere, "versions", lambda: next(found, real))
        plan = make_plan(audits, Store(None), slots=1)
        with pytest.raises(BadInputError, match=r"has torch .* where this machine has 0\.1"):
            list(machines.run(Work(plan.jobs, plan.audits, Silent())))


class Counting(ThreadPoolExecutor):
    """One worker, which counts the jobs that it gets."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)
        self.jobs = 0

    def submit(self, *task: Any, **arguments: Any) -> Any:
        self.jobs += 1
        return super().submit(*task, **arguments)


def measured_alike(folder: Path, run: Callable[[Path, Machines | None], object]) -> None:
    """Run on this machine and on an executor; both keep the same, and the executor got jobs."""
    run(folder / "here", None)
    with Counting() as executor:
        run(folder / "there", Machines(executor, slots=lambda: 1))
        assert executor.jobs
    assert measurements(folder / "there") == measurements(folder / "here")


@pytest.mark.slow
def test_audits_from_python_and_documents_run_on_other_machines(tmp_path: Path) -> None:
    few: dict[str, Any] = {"dataset": "german", "attacks": "dlg", "victims": 2, "iterations": 3, "control": False}
    few["workers"] = 1
    spec = make_spec(**few, batch_sizes=1)
    measured_alike(tmp_path / "audit", lambda folder, there: audit(spec, out=folder, machines=there))
    document = {**few, "protocol": {"batch_size": 1}}
    measured_alike(tmp_path / "text", lambda folder, there: audit_document(document, out=folder, machines=there))


def test_published_tables_run_on_other_machines(tmp_path: Path) -> None:
    table, part = load_table("tableak/table18"), Selection(batch_sizes={2}, attacks={"dlg"})
    few: dict[str, Any] = {"iterations": 3, "threads": 1, "workers": 1}
    measured_alike(tmp_path, lambda folder, there: reproduce(table, folder, 2, part, machines=there, **few))


def test_the_command_of_tables_takes_a_cluster(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seepage = commands(capfd, monkeypatch, tmp_path)
    for options, said in (
        (["--insecure-cluster"], "give --cluster ADDRESS"),
        (["--cluster", "tcp://10.0.0.5:8786"], "not encrypted"),
    ):
        status, _, told = seepage("reproduce", "tableak/table18", "--victims", 2, *options)
        assert status == 2
        assert said in " ".join(told.split())
    assert not list(tmp_path.iterdir())


def test_a_run_without_workers_waits_and_then_ends(audits: list[Audit], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "_PATIENCE_SECONDS", 0.2)
    plan = make_plan(audits, Store(None), slots=1)
    with ThreadPoolExecutor(max_workers=1) as executor, pytest.raises(BadInputError, match="no worker was left"):
        list(Machines(executor, slots=lambda: 0).run(Work(plan.jobs, plan.audits, Silent())))


def test_nothing_is_handed_out_when_the_time_is_over(audits: list[Audit]) -> None:
    plan = make_plan(audits, Store(None), slots=1)
    with ThreadPoolExecutor(max_workers=1) as executor:
        machines = Machines(executor, slots=lambda: 1)
        assert list(machines.run(Work(plan.jobs, plan.audits, Silent(), wanted=lambda _: False))) == []


def test_an_accelerator_stays_on_this_machine(audits: list[Audit], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HorizontalAudit, "where", "cuda")
    with pytest.raises(BadInputError, match="device='cpu'"):
        make_plan(audits, Store(None), slots=2)


def test_what_is_sealed_is_not_printed() -> None:
    assert "secret" not in repr(Sealed.of("secret"))
    assert difference(versions(), versions()) is None
