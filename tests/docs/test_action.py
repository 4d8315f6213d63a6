"""The GitHub Action, and the workflow of the tutorial that uses it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from seepage.cli.app import load, settings_by_command
from seepage.cli.exits import Exit
from tests.processes import HANGS

ROOT = Path(__file__).resolve().parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: dict[str, dict[str, Any]] = {step["name"]: step for step in ACTION["runs"]["steps"]}
INPUT = re.compile(r"\binputs\.([\w-]+)")
TUTORIAL = (ROOT / "docs" / "tutorials" / "pipeline.md").read_text(encoding="utf-8")
WORKFLOWS = [yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```", TUTORIAL, re.MULTILINE | re.DOTALL)]
TINY = (
    "--dataset=german\n--model=nn1\n--batch-size=1\n--attack=inverting_gradients\n--victims=4\n--iterations=300\n"
    "--defense=none\n--no-control\n--workers=1\n\n--quiet\n"
)


def options_of(command: str) -> set[str]:
    return {name for parameter in load(command).params for name in parameter.opts + parameter.secondary_opts}


def run(step: str, folder: Path, **variables: str) -> tuple[int, dict[str, str], str]:
    """Run the script of a step as GitHub does, and return its status, its outputs and what it printed."""
    outputs = folder / "outputs"
    outputs.write_text("")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[step]["run"]],
        cwd=folder,
        env={**os.environ, "PATH": path, "GITHUB_OUTPUT": str(outputs), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=HANGS,
    )
    return done.returncode, dict(line.split("=", 1) for line in outputs.read_text().splitlines()), done.stdout


def variables(**inputs: str) -> dict[str, str]:
    """Return the variables of the audit's step, with defaults for inputs that are not given."""
    values = {name: entry["default"] for name, entry in ACTION["inputs"].items()} | inputs
    return {
        name: INPUT.sub(lambda found: values[found.group(1)], text).strip("${ }")
        for name, text in STEPS["Audit"]["env"].items()
    }


def test_every_input_is_described_and_used_and_no_other() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    used = set(INPUT.findall(text.partition("\noutputs:")[2]))
    assert used == set(ACTION["inputs"])
    for name, entry in {**ACTION["inputs"], **ACTION["outputs"]}.items():
        assert entry["description"].endswith("."), name
    assert all(isinstance(entry["default"], str) for entry in ACTION["inputs"].values())


def test_no_value_is_pasted_into_a_script() -> None:
    for step in STEPS.values():
        assert "${{" not in step.get("run", "")


def test_what_it_runs_are_options_of_seepage() -> None:
    options = set(re.findall(r"(?<= )--[a-z-]+", STEPS["Audit"]["run"].split("seepage ")[1].splitlines()[0]))
    assert options == {"--out", "--sarif", "--junit"}
    for command in settings_by_command():
        assert options <= options_of(command)
    for status in Exit:
        if status < Exit.CRASH:
            assert f"{status.value} " in ACTION["outputs"]["status"]["description"]


@pytest.mark.slow
def test_its_script_audits_and_hands_the_status_on(tmp_path: Path) -> None:
    status, outputs, printed = run("Audit", tmp_path, **variables(options=TINY + "--fail-above=0.1\n"))
    assert status == Exit.GATE_FAILED, printed
    assert outputs == {"status": "1", "sarif": "seepage.sarif"}
    assert json.loads((tmp_path / "seepage.sarif").read_text())["runs"][0]["invocations"][0]["exitCode"] == 1
    assert (tmp_path / "seepage.xml").exists()
    assert (tmp_path / "seepage-run" / "report.html").exists()


def test_a_value_is_an_argument_whatever_it_holds_and_old_files_are_not_uploaded(tmp_path: Path) -> None:
    (tmp_path / "seepage.sarif").write_text("{}")
    bad = '$(touch hacked); `touch hacked` "'
    status, outputs, printed = run("Audit", tmp_path, **variables(document=bad, options=f"--dataset={bad}"))
    assert (status, outputs) == (Exit.BAD_INPUT, {"status": "2"}), printed
    assert not (tmp_path / "hacked").exists()


def test_workflows_of_the_tutorial_use_what_there_is() -> None:
    uses = [
        step["with"]
        for workflow in WORKFLOWS
        if "jobs" in workflow
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if "seepage" in step.get("uses", "")
    ]
    assert uses
    for given in uses:
        assert given.keys() <= ACTION["inputs"].keys()
        options = {line.partition("=")[0] for line in given.get("options", "").splitlines()}
        assert options <= options_of(given.get("command", "audit"))


@pytest.mark.parametrize("workflow", [one for one in WORKFLOWS if "jobs" in one], ids=lambda one: str(one["name"]))
def test_workflows_of_the_tutorial_may_upload(workflow: dict[str, Any]) -> None:
    [job] = workflow["jobs"].values()
    assert job["permissions"] == {"contents": "read", "security-events": "write"}
    assert any("actions/checkout" in step.get("uses", "") for step in job["steps"])
