"""Names of columns, categories, files and options are shown on a terminal, and never obeyed by it."""

from __future__ import annotations

import io
import json
import unicodedata
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from seepage.report.progress import Bar
from seepage.tabular.schema import Discrete, Schema
from seepage.text import printable_json
from tests.commands import Run, commands

# A title, a colour, an override of the writing direction, a control of eight bits, lines and an isolate.
STEERING = "\x1b]0;title\x07\x1b[31m\u202e\x9b31m\r\n\u2066x"
TABLE = f"people{STEERING}.csv"
ILL, JOB = f"ill{STEERING}", f"job{STEERING}"
QUICK = ["--attack", "dlg:{iterations: 2}", "--batch-size", 2, "--victims", 2, "--no-control", "--workers", 1]
AUDIT = ["audit", "--data", TABLE, "--target", ILL, "--sensitive", JOB, "--defense", "none", *QUICK]


@pytest.fixture
def seepage(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    frame = pd.DataFrame(
        {
            JOB: [f"c{i % 3}{STEERING}" for i in range(60)],
            f"pay{STEERING}": [i * 7 % 50 + 0.5 for i in range(60)],
            ILL: [f"{'yn'[i % 2]}{STEERING}" for i in range(60)],
        }
    )
    frame.to_csv(tmp_path / TABLE, index=False)
    return commands(capfd, monkeypatch, tmp_path)


def steering(text: str) -> set[str]:
    """Return the characters of a text that a terminal obeys, line breaks aside."""
    return {c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}


def test_what_an_audit_prints_steers_nothing(seepage: Run) -> None:
    for out in (f"old{STEERING}", f"new{STEERING}"):
        status, printed, errors = seepage(*AUDIT, "--keep-records", "--out", out)
        assert (status, steering(printed + errors)) == (0, set())
        assert r"Report: " + out.encode("unicode_escape").decode()[:20] in printed
    for more in ([], ["--json"]):
        status, printed, errors = seepage("compare", f"old{STEERING}", f"new{STEERING}", *more)
        assert (status, steering(printed + errors)) == (0, set())
    status, printed, errors = seepage(*AUDIT, "--json", "--out", f"old{STEERING}")
    assert (status, steering(printed + errors)) == (0, set())
    # Escaped for a terminal, and the same names for whoever reads JSON.
    assert JOB in {row["column"] for row in json.loads(printed)["rows"]}


def test_what_other_commands_print_steers_nothing(seepage: Run) -> None:
    example = ["capture", "example", "--data", TABLE, "--target", ILL, "--model", "nn1", "--labels"]
    client = f"client{STEERING}"
    known = ["--model", "nn1", "--weights", f"{client}/model.safetensors", "--schema", f"{client}/schema.yaml"]
    update = f"{client}/update.safetensors"
    for command in (
        ["schema", TABLE, "--target", ILL],
        ["schema", TABLE, "--target", ILL, "--out", f"schema{STEERING}.yaml"],
        ["spec", "new", "--data", TABLE, "--target", ILL, "--out", f"audit{STEERING}.yaml"],
        ["correlate", "--data", TABLE, "--target", ILL, "--sensitive", JOB],
        [*example, "--out", client],
        ["capture", "check", update, *known],
        ["attack", update, *known, "--attack", "dlg", "--iterations", 2, "--out", f"read{STEERING}"],
        ["attack", update, *known, "--attack", "dlg", "--iterations", 2, "--json", "--out", f"more{STEERING}"],
    ):
        status, printed, errors = seepage(*command)
        assert status == 0, errors
        assert steering(printed + errors) == set(), command
    # YAML allows no control characters, so that a draft with some could not be read.
    assert steering(Path(f"audit{STEERING}.yaml").read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize(
    "arguments",
    [
        [STEERING],
        [f"audi{STEERING}"],
        ["audit", f"--{STEERING}"],
        ["audit", f"--victim{STEERING}"],
        ["audit", "--victims", STEERING],
        ["audit", "--device", STEERING],
        ["audit", "--dataset", STEERING],
        ["audit", "--attack", STEERING],
        ["audit", "--data", f"{STEERING}.csv", "--target", "x"],
        ["audit", "--data", TABLE, "--target", STEERING],
        ["audit", "--data", TABLE, "--target", ILL, "--drop", STEERING],
        ["audit", "--dataset", "german", "--cluster", f"tls://{STEERING}"],
        ["audit", f"{STEERING}.yaml"],
        ["audit", "audit.yaml", STEERING],
        ["datasets", STEERING],
        ["compare", STEERING, STEERING],
        ["verify", STEERING, "--update", "x", "--model", STEERING],
        ["attack", STEERING, "--schema", STEERING],
        ["spec", STEERING],
        ["new", STEERING, "x.py"],
        ["new", "attack", f"{STEERING}.py"],
    ],
    ids=lambda arguments: " ".join(map(str, arguments)).encode("unicode_escape").decode()[:40],
)
def test_what_is_refused_steers_nothing(seepage: Run, arguments: list[object]) -> None:
    status, printed, errors = seepage(*arguments)
    assert status == 2
    assert steering(printed + errors) == set()
    assert errors


def test_progress_on_a_terminal_steers_nothing() -> None:
    file = io.StringIO()
    with Bar(Console(file=file, force_terminal=True, width=200)) as bar:
        bar.begin(1.0, jobs=1)
        bar.started(STEERING)
        bar.finished(STEERING, 0.5, 1)
        bar.failed(STEERING, STEERING)
        bar.ended()
    # Colours and movements of the bar itself are escapes, too.
    drawn = file.getvalue()
    assert r"\x1b]0;title" in drawn
    assert not any(c in drawn for c in ("\x1b]", "\x07", "\u202e", "\x9b", "\u2066"))


def test_schemas_and_json_keep_letters_and_escape_what_steers() -> None:
    categories = ("größe", "大", "a b", STEERING, "next\x85line")
    column = Discrete(name="שם", categories=categories)
    schema = Schema(columns=(column,), target=Discrete(name="ill", categories=(0, 1)))
    text = schema.to_yaml()
    assert Schema.from_yaml(text) == schema
    assert steering(text) == set()
    assert all(letters in text for letters in ("größe", "大", "שם"))
    written = printable_json({"größe": ["大", STEERING, "\x7f\ud800"]})
    assert json.loads(written) == {"größe": ["大", STEERING, "\x7f\ud800"]}
    assert steering(written) == set()
    assert "größe" in written
