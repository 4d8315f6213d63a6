"""A real SuperLink and three real SuperNodes on loopback run the example app."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.processes import HANGS

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "flower-adult"
RECORDS = 8
# The mod and the strategy that run there have fast tests, with Flower's own messages, in test_flower.py.
pytestmark = pytest.mark.slow
# What each client's guard does.
POLICIES = ("report", "block", "noise")


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    # Annotations are looked up where the module is registered.
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Status and folder of a run of one round, in which each client has a policy of its own."""
    out = tmp_path_factory.mktemp("federation")
    config = {
        **{"rounds": 1, "clients": len(POLICIES), "records": RECORDS},
        **{"captured": str(out / "captured"), "logs": str(out / "logs")},
    }
    with module("federate").Federation(out, POLICIES, seconds=HANGS) as federation:
        return federation.run(config), out


def logged(folder: Path, policy: str) -> dict[str, Any]:
    [line] = (folder / "logs" / f"client-{POLICIES.index(policy)}.jsonl").read_text().splitlines()
    return json.loads(line)


def test_the_run_is_completed(run: tuple[str, Path]) -> None:
    assert run[0] == "finished:completed"


def test_a_guard_passes_blocks_and_noises(run: tuple[str, Path]) -> None:
    found = {policy: logged(run[1], policy) for policy in POLICIES}
    assert [(line["decision"], line["sent"], line["proved_records"]) for line in found.values()] == [
        ("proved", True, RECORDS),
        ("proved", False, RECORDS),
        ("pass", True, 0),
    ]
    assert found["noise"]["epsilon"] > 0
    assert "epsilon" not in found["block"]


def test_the_server_captures_what_was_sent_and_proves_as_much(
    run: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three clients one is blocked; the reported update gives all its records away, the noised one none."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    found = module("audit").audit(run[1] / "captured")
    assert sorted((update.records, update.proved_records) for update in found.updates) == [
        (RECORDS, 0),
        (RECORDS, RECORDS),
    ]
    assert [update.round for update in found.updates] == [1, 1]


def test_flowers_simulation_engine_runs_the_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Flower's simulation engine needs Ray, which is the user's choice")
    config = {
        **{"rounds": 1, "clients": 2, "records": RECORDS, "policy": "report"},
        **{"captured": str(tmp_path / "captured"), "logs": str(tmp_path / "logs")},
    }
    with module("federate").Federation(tmp_path, (), seconds=HANGS, simulated=True) as federation:
        assert federation.run(config) == "finished:completed"
    monkeypatch.syspath_prepend(str(EXAMPLE))
    found = module("audit").audit(tmp_path / "captured")
    assert [(update.records, update.proved_records) for update in found.updates] == [(RECORDS, RECORDS)] * 2
