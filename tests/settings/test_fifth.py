"""A setting is a plug-in: an invented one goes through everything that seepage's own settings go through."""

from __future__ import annotations

import ast
import io
import json
import os
import signal
import subprocess
import sys
import time
import tokenize
from dataclasses import replace
from pathlib import Path

import pytest

import seepage
from seepage import registry
from seepage.auditing import audit_document, run_all
from seepage.config.document import make_specs
from seepage.errors import BadInputError
from seepage.run import runner
from seepage.run.runner import Listener
from seepage.settings import catalogue
from tests.commands import commands
from tests.processes import HANGS
from tests.settings import fifth
from tests.settings.plugged import plugged_in  # noqa: F401

pytestmark = pytest.mark.usefixtures("plugged_in")
PLUGIN = Path(fifth.__file__)
PROGRAM = [sys.executable, "-c", "import tests.settings.fifth; from seepage.cli import main; main()"]
GLOVES = "gloves:{noise: 6.0}"


def test_the_plug_in_is_one_short_file() -> None:
    text = PLUGIN.read_text()
    docstrings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    code = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
        for line in range(token.start[0], token.end[0] + 1)
    }
    assert len(code - docstrings) <= 150


def test_one_call_declares_all_parts_of_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (registry.attacks, registry.baselines, registry.defenses):
        monkeypatch.setattr(kind, "_entries", dict(kind._entries))
    monkeypatch.setattr(catalogue, "_SETTINGS", dict(catalogue._SETTINGS))
    parts = {"attacks": {"listen": "no.such.module"}, "defenses": {"mute": "no.such.module"}}
    catalogue.add_setting(
        catalogue.Setting("radio", "radio: waves", fifth.CoinSpec, print, order=2, views={"WaveView": "waves"}, **parts)  # pyright: ignore[reportArgumentType]
    )
    assert registry.attacks.of("radio").names() == ["listen"]
    assert registry.defenses.of("radio").names() == ["none", "mute"]
    assert catalogue.view_in_words("WaveView") == "waves"
    assert list(catalogue.settings())[2:4] == ["radio", "vertical"]


def test_no_list_outside_their_folders_names_the_settings() -> None:
    names, source = set(catalogue.settings()) - {fifth.CoinSpec.setting}, Path(seepage.__file__).parent
    assert len(names) == 6
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            items = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
            assert len({getattr(item, "value", None) for item in items if isinstance(item, ast.Constant)} & names) < 4


def test_python_takes_it_with_controls_checks_gate_and_report(tmp_path: Path) -> None:
    report = seepage.audit(
        "adult", setting="coins", repetitions=8, defenses=["none", {"name": "gloves", "noise": 6.0}], out=tmp_path,
        gate=0.05,
    )  # fmt: skip
    score = {row.defense: row for row in report.rows if row.is_attack and row.column is None}
    assert score["none"].mean == 1.0
    assert score["none"].baseline_name == "heads"
    assert (score["gloves"].mean or 0) < 0.8
    assert {row.setting for row in report.rows} == {"coins"}
    assert report.findings is not None
    codes = {one.code for one in report.findings}
    assert not codes & {"SEEP004", "SEEP005", "SEEP021"}
    assert report.control is not None
    assert report.negative is not None
    assert "SEEP012" in report.not_applicable
    assert report.decision is not None
    # The gloves are what is deployed, and eight tosses show too little.
    assert report.decision.outcome in ("undecided", "failed")
    assert "8 toss" in report.decision.line
    assert "With no defense a listener reads 100.0% of all coins" in report.summary()
    page = (tmp_path / "report.html").read_text()
    assert "The attacker listens." in page
    assert json.loads((tmp_path / "results.json").read_text())["rows"][0]["setting"] == "coins"
    # Again from the same folder: nothing is measured again.
    again = seepage.audit(
        "adult", setting="coins", repetitions=8, defenses=["none", {"name": "gloves", "noise": 6.0}], out=tmp_path,
        gate=0.05,
    )  # fmt: skip
    assert again.rows == report.rows


def test_a_document_takes_it() -> None:
    [report] = audit_document({"setting": "coins", "repetitions": 5, "coins": 10})
    assert {row.n for row in report.rows} == {5}
    with pytest.raises(BadInputError, match="did you mean 'coins'"):
        make_specs({"setting": "coins", "coin": 3})


class Interrupting(Listener):
    def __init__(self, after: int) -> None:
        self.left = after

    def started(self, what: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_a_stopped_run_continues_and_workers_change_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = fifth.CoinAudit(fifth.CoinSpec(repetitions=7, workers=2))
    [whole] = run_all([audit])
    with pytest.raises(KeyboardInterrupt):
        run_all([audit], tmp_path, Interrupting(4))
    [resumed] = run_all([audit], tmp_path)
    assert resumed.rows == whole.rows
    monkeypatch.setattr(runner, "_WORTH_WORKERS_SECONDS", 0.0)
    [apart] = run_all([audit])
    assert [replace(row, seconds_per_victim=None) for row in apart.rows] == [
        replace(row, seconds_per_victim=None) for row in whole.rows
    ]


@pytest.mark.long
def test_the_command_line_takes_it_and_a_kill_loses_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = commands(capfd, monkeypatch, tmp_path)
    status, shown, _ = run("coins", "--help-all")
    assert status == 0
    for option in ("--repetitions", "--coins", "--attack", "--workers", "--fail-above", "--keep-records"):
        assert option in shown
    arguments = ["coins", "--repetitions", "60", "--defense", "none", "--defense", GLOVES, "--workers", "1", "--quiet"]
    killed = tmp_path / "killed"
    running = subprocess.Popen(
        [*PROGRAM, *arguments, "--out", str(killed)], cwd=Path(__file__).parents[2], start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until = time.monotonic() + HANGS
    while not (killed / "audit.sqlite").exists() and running.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.2)
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    # The share of the worst is decided at the end of the budget, so that all is measured.
    gate = ("--fail-above", "0.2", "--fail-worst", "0.5:0.5", "--deployed", "none", "--deployed", "gloves")
    status, _, errors = run(*arguments, "--out", killed, *gate)
    assert status == 1, errors
    assert "listen" in errors
    status, _, errors = run(*arguments, "--out", "whole")
    assert status == 0, errors
    assert (killed / "results.csv").read_text().splitlines()[1:]
    rows = [json.loads((place / "results.json").read_text())["rows"] for place in (killed, tmp_path / "whole")]
    assert rows[0] == rows[1]
