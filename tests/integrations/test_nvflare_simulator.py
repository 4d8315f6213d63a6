"""NVFlare's simulator runs a job of two sites, each with a guard of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from seepage.models.states import state_digest
from tests.integrations.updates import after_one_step, guard_file, network
from tests.processes import HANGS

ROOT = Path(__file__).resolve().parents[2]
POLICIES = {"site-1": "policy: block\nmode: strict\n", "site-2": "policy: report\n"}
# The server sends its model once and writes what comes back; a client trains a step on its records.
CODE = """
import json
from pathlib import Path

import torch
from nvflare.apis.controller_spec import Task
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.executor import Executor
from nvflare.apis.impl.controller import Controller

from tests.integrations.updates import after_one_step, network


class Server(Controller):
    def __init__(self, out):
        super().__init__()
        self.out = Path(out)

    def start_controller(self, fl_ctx): ...

    def stop_controller(self, fl_ctx): ...

    def process_result_of_unknown_task(self, client, task_name, client_task_id, result, fl_ctx): ...

    def control_flow(self, abort_signal, fl_ctx):
        weights = {name: tensor.numpy() for name, tensor in network().state_dict().items()}
        task = Task("train", DXO(DataKind.WEIGHTS, weights).to_shareable(), result_received_cb=self.received)
        self.broadcast_and_wait(task, fl_ctx, min_responses=2, abort_signal=abort_signal)

    def received(self, client_task, fl_ctx):
        found = {"code": client_task.result.get_return_code()}
        if found["code"] == "OK":
            data = from_shareable(client_task.result).data
            found["weights"] = {name: array.tolist() for name, array in data.items()}
        (self.out / f"{client_task.client.name}.json").write_text(json.dumps(found))


class Client(Executor):
    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        before = {name: torch.as_tensor(array) for name, array in from_shareable(shareable).data.items()}
        after = {name: tensor.numpy() for name, tensor in after_one_step(before).items()}
        return DXO(DataKind.WEIGHTS, after).to_shareable()
"""


def app(folder: Path, kind: str, config: dict[str, Any]) -> None:
    for part in ("config", "custom"):
        (folder / part).mkdir(parents=True)
    (folder / "custom" / "federated.py").write_text(CODE)
    (folder / "config" / f"config_fed_{kind}.json").write_text(json.dumps({"format_version": 2, **config}))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that has ended: what the server received of each site, and each site's log."""
    out = tmp_path_factory.mktemp("nvflare")
    job = out / "job"
    once = {"id": "once", "path": "federated.Server", "args": {"out": str(out)}}
    app(job / "app_server", "server", {"workflows": [once], "components": []})
    for site, policy in POLICIES.items():
        (out / site).mkdir()
        settings = str(guard_file(out / site, policy))
        guard = {"path": "seepage.integrations.nvflare.LeakGuard", "args": {"settings": settings}}
        chain = [{"tasks": ["train"], "filters": [guard]}]
        executor = {"tasks": ["train"], "executor": {"path": "federated.Client", "args": {}}}
        filters = {"task_data_filters": chain, "task_result_filters": chain}
        app(job / f"app_{site}", "client", {"executors": [executor], "components": [], **filters})
    deploy = {"app_server": ["server"], **{f"app_{site}": [site] for site in POLICIES}}
    (job / "meta.json").write_text(json.dumps({"name": "once", "resource_spec": {}, "deploy_map": deploy}))
    program = Path(sys.executable).parent / "nvflare"
    command = [str(program), "simulator", str(job), "-w", str(out / "workspace"), "-n", "2", "-t", "2"]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    with (out / "simulator.txt").open("wb") as told:
        subprocess.run(command, env=environment, stdout=told, stderr=told, cwd=out, check=True, timeout=HANGS)
    return out


def line(run: Path, site: str) -> dict[str, Any]:
    [found] = (run / site / "guard.jsonl").read_text().splitlines()
    return json.loads(found)


@pytest.mark.slow
def test_the_server_gets_nothing_of_a_site_that_blocks(run: Path) -> None:
    assert json.loads((run / "site-1.json").read_text()) == {"code": "TASK_RESULT_FILTER_ERROR"}
    found = line(run, "site-1")
    assert (found["decision"], found["sent"], found["proved_records"]) == ("proved", False, 8)


@pytest.mark.slow
def test_the_server_gets_the_update_of_a_site_that_reports(run: Path) -> None:
    received = json.loads((run / "site-2.json").read_text())
    assert received["code"] == "OK"
    before = dict(network().state_dict())
    after = after_one_step(before)
    for name, tensor in after.items():
        assert torch.equal(torch.tensor(received["weights"][name]), tensor)
    found = line(run, "site-2")
    assert (found["decision"], found["sent"]) == ("proved", True)
    # What the guard compared it with is what the server sent.
    assert found["model"] == state_digest(before)
