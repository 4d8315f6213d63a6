"""Documents of split, vertical and pooled learning from the command line."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.split.test_exact import table
from tests.commands import Run, commands

TEXT = """\
study: split
data: rows.csv
target: t
private: [a, c]
defenses: [none, {label: noise_2, name: cut_noise, noise_multiplier: 2}]
epochs: 2
units: 3
"""


@pytest.fixture
def seepage(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    table(2, rows=600).train.frame.astype({"a": str, "c": str}).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "split.yaml").write_text(TEXT)
    return commands(capfd, monkeypatch, tmp_path)


def test_a_document_is_what_the_options_are(seepage: Any, tmp_path: Path) -> None:
    code, out, _ = seepage("spec", "check", "split.yaml")
    assert code == 0
    assert all(told in out for told in ("noise_2", "exact, posterior", "knn_features", "3 training(s)"))
    code, _, err = seepage("audit", "split.yaml", "--out", "one", "--fail-above", 0.2)
    assert code == 1
    assert "gate failed" in err
    options = ("--data", "rows.csv", "--target", "t", "--private", "a", "--private", "c", "--noise", 2, "--epochs", 2)
    assert seepage("split", *options, "--out", "two")[0] == 0
    one, two = (json.loads((tmp_path / name / "results.json").read_text())["rows"] for name in ("one", "two"))
    timeless = [[{**row, "seconds_per_victim": None} for row in rows] for rows in (one, two)]
    assert timeless[0] == timeless[1]
    copy = tmp_path / "one" / "audit.yaml"
    assert copy.read_text() == TEXT
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--victims", 3), "say in the document what --victims says"),
        (("--override", "a=discrete"), "say in the document what --override says"),
        (("--time-budget", "3m"), "say in the document what --time-budget says"),
        (("--fail-above", 0.1, "--fail-column", "b"), "unknown column of the gate 'b'. Known: a, c, t"),
        (("--fail-column", "a"), "add --fail-above LIFT"),
        (("--preset", "quick"), "either a document or a preset"),
    ],
)
def test_options_that_do_not_fit_are_refused(seepage: Any, tmp_path: Path, arguments: Any, said: str) -> None:
    code, out, err = seepage("audit", "split.yaml", *arguments, "--out", "run")
    assert (code, out) == (2, "")
    assert said in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("above", "code", "told"), [(0.0, 1, "gate failed"), (0.99, 0, "gate passed")])
def test_a_gate_of_the_document_decides(seepage: Any, tmp_path: Path, above: float, code: int, told: str) -> None:
    (tmp_path / "gate.yaml").write_text(
        TEXT.replace(", {label: noise_2, name: cut_noise, noise_multiplier: 2}", "")
        + f"gate: {{above: {above}, column: a}}\n"
    )
    assert f"above a lift of {above:g} in column a" in " ".join(seepage("spec", "check", "gate.yaml")[1].split())
    found, _, err = seepage("audit", "gate.yaml", "--out", "run")
    assert (found, told in err) == (code, True)
    assert "column a" in err


def test_a_gate_on_no_attacked_column_is_refused_first(seepage: Any, tmp_path: Path) -> None:
    (tmp_path / "gate.yaml").write_text(TEXT + "gate: {above: 0.2, column: b}\n")
    for command in (("spec", "check", "gate.yaml"), ("audit", "gate.yaml", "--out", "run")):
        code, _, err = seepage(*command)
        assert code == 2
        assert "unknown column of the gate 'b'. Known: a, c, t" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("study", "added"),
    [
        ("split", "private: [a]"),
        ("vertical", ""),
        ("pooled", "sensitive: a\nvalue: 1\nrows: 60\nauxiliary: 120\nqueries: 50"),
    ],
)
def test_a_draft_can_be_completed_and_checked(seepage: Any, tmp_path: Path, study: str, added: str) -> None:
    arguments = ("--data", "rows.csv", "--target", "t", "--out", "draft.yaml")
    assert seepage("spec", "new", "--study", study, *arguments)[0] == 0
    draft = tmp_path / "draft.yaml"
    draft.write_text(f"{draft.read_text()}\n{added}\n")
    code, out, err = seepage("spec", "check", "draft.yaml")
    assert (code, err) == (0, "")
    assert "none" in out


def test_a_draft_of_no_study_names_the_nearest(seepage: Any) -> None:
    assert "unknown study 'spilt'; did you mean 'split'?" in seepage("spec", "new", "--study", "spilt", "--out", "x")[2]
