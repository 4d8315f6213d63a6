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
defenses: [{}, {label: noise_2, noise_multiplier: 2}]
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
    one, two = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("one", "two"))
    timeless = [[{**row, "seconds_per_victim": None} for row in rows] for rows in (one, two)]
    assert timeless[0] == timeless[1]
    copy = tmp_path / "one" / "audit.yaml"
    assert copy.read_text() == TEXT
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--victims", 3), "--victims is of audits of horizontal learning"),
        (("--batch-size", 8), "--batch-size is of audits"),
        (("--time-budget", "3m"), "--time-budget is of audits"),
        (("--fail-column", "a"), "add --fail-above LIFT"),
        (("--preset", "quick"), "either a document or a preset"),
    ],
)
def test_options_that_do_not_fit_are_refused(seepage: Any, tmp_path: Path, arguments: Any, said: str) -> None:
    code, out, err = seepage("audit", "split.yaml", *arguments, "--out", "run")
    assert (code, out) == (2, "")
    assert said in err
    assert not (tmp_path / "run").exists()


def test_a_gate_of_the_document_decides(seepage: Any, tmp_path: Path) -> None:
    (tmp_path / "gate.yaml").write_text(TEXT.replace("units: 3", "units: 2") + "gate: {above: 0.9, column: a}\n")
    code, _, err = seepage("audit", "gate.yaml", "--out", "run")
    assert "column a" in err
    assert (code == 0) == ("gate passed" in err)


@pytest.mark.parametrize("study", ["split", "vertical", "pooled"])
def test_a_draft_can_be_checked(seepage: Any, study: str) -> None:
    arguments = () if study == "pooled" else ("--data", "rows.csv", "--target", "t")
    assert seepage("spec", "new", "--study", study, *arguments, "--out", "draft.yaml")[0] == 0
    code, out, err = seepage("spec", "check", "draft.yaml")
    # Which columns of one's own are private nobody can know.
    assert code == (2 if study == "split" else 0), err
    assert "no private columns were named" in err if study == "split" else "none" in out
    assert "unknown study 'spilt'; did you mean 'split'?" in seepage("spec", "new", "--study", "spilt", "--out", "x")[2]
