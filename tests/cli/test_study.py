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
setting: split
data: rows.csv
target: t
private_columns: [a, c]
defenses: [none, {name: cut_noise, noise_multiplier: 2.0}]
epochs: 2
attacked_records: 20
auxiliary: 100
repetitions: 3
"""
# For tests that are not about controls, nor about which attacks are the default.
CHEAP = "attacks: exact\nbaselines: marginals\ncontrol: false\n"


@pytest.fixture
def seepage(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    table(2, rows=600).train.frame.astype({"a": str, "c": str}).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "split.yaml").write_text(TEXT)
    return commands(capfd, monkeypatch, tmp_path)


@pytest.mark.slow
def test_a_document_is_what_the_options_are(seepage: Any, tmp_path: Path) -> None:
    code, out, _ = seepage("spec", "check", "split.yaml")
    assert code == 0
    assert all(told in " ".join(out.split()) for told in ("cut_noise", "exact, posterior", "imputer"))
    # Both defenses, the positive and the negative control, each with two attacks and three baselines.
    assert "8 attacks and 12 baselines in their configurations, controls included" in " ".join(out.split())
    text = TEXT.replace("repetitions: 3", "repetitions: 2") + CHEAP
    (tmp_path / "split.yaml").write_text(text)
    code, _, err = seepage("audit", "split.yaml", "--out", "one", "--fail-above", 0.2)
    # Two trainings show no small leakage.
    assert code == 4
    assert "gate undecided: incomplete: exact: on 2 trainings" in err
    options = ("--data", "rows.csv", "--target", "t", "--private-column", "a", "--private-column", "c", "--epochs", 2)
    noise = ("--defense", "none", "--defense", "cut_noise:{noise_multiplier: 2.0}")
    cheap = ("--attack", "exact", "--baseline", "marginals", "--no-control")
    cheap = (*cheap, "--attacked-records", 20, "--auxiliary", 100)
    assert seepage("split", *options, *noise, *cheap, "--repetitions", 2, "--out", "two")[0] == 0
    one, two = (json.loads((tmp_path / name / "results.json").read_text())["rows"] for name in ("one", "two"))
    timeless = [[{**row, "seconds_per_victim": None} for row in rows] for rows in (one, two)]
    assert timeless[0] == timeless[1]
    copy = tmp_path / "one" / "audit.yaml"
    assert copy.read_text() == text
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--victims", 3), "No such option"),
        (("--repetitons", 3), "--repetitions"),
        (("--repetitions", 0), "--repetitions: must be greater than or equal to 1"),
        (("--time-budget", "3"), "written like 90s, 30m or 2h, got '3'"),
        (("--fail-above", 0.1, "--fail-column", "b"), "unknown column of the gate 'b'. Known: a, c, t"),
        (("--fail-column", "a"), "needs --fail-above"),
        (("--preset", "quick"), "either a document or a preset"),
    ],
)
def test_options_that_do_not_fit_are_refused(seepage: Any, tmp_path: Path, arguments: Any, said: str) -> None:
    code, out, err = seepage("audit", "split.yaml", *arguments, "--out", "run")
    assert (code, out) == (2, "")
    assert said in err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("above", "left_out", "more", "code", "told"),
    [
        (0.2, ", {name: cut_noise, noise_multiplier: 2.0}", CHEAP, 1, "gate failed"),
        # What passes has all default attacks and their controls.
        pytest.param(
            *(0.99, "none, ", "", 0, "for these 5 trainings"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_gate_of_the_document_decides(
    seepage: Any, tmp_path: Path, above: float, left_out: str, more: str, code: int, told: str
) -> None:
    text = TEXT.replace(left_out, "").replace("repetitions: 3", "repetitions: 5")
    (tmp_path / "gate.yaml").write_text(f"{text}{more}gate: {{above: {above}, column: a}}\n")
    assert f"The gate at {100 * above:.1f} points in column a needs at least" in " ".join(
        seepage("spec", "check", "gate.yaml")[1].split()
    )
    found, _, err = seepage("audit", "gate.yaml", "--out", "run")
    assert (found, told in err) == (code, True)


def test_a_gate_on_no_attacked_column_is_refused_first(seepage: Any, tmp_path: Path) -> None:
    (tmp_path / "gate.yaml").write_text(TEXT + "gate: {above: 0.2, column: b}\n")
    for command in (("spec", "check", "gate.yaml"), ("audit", "gate.yaml", "--out", "run")):
        code, _, err = seepage(*command)
        assert code == 2
        assert "unknown column of the gate 'b'. Known: a, c, t" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "added"),
    [
        ("split", "private_columns: [a]\ncontrol: false"),
        ("vertical", ""),
        ("pooled", "value: 1\nrows: 60\nauxiliary: 120\nqueries: 50"),
    ],
)
def test_a_draft_can_be_completed_and_checked(seepage: Any, tmp_path: Path, study: str, added: str) -> None:
    arguments = ("--data", "rows.csv", "--target", "t", "--out", "draft.yaml")
    assert seepage("spec", "new", "--setting", study, *arguments)[0] == 0
    draft = tmp_path / "draft.yaml"
    draft.write_text(f"{draft.read_text()}\n{added}\n")
    code, out, err = seepage("spec", "check", "draft.yaml")
    assert (code, err) == (0, "")
    assert "none" in out


def test_a_draft_of_no_setting_names_the_nearest(seepage: Any) -> None:
    assert (
        "unknown setting 'spilt'; did you mean 'split'?"
        in seepage("spec", "new", "--setting", "spilt", "--out", "x")[2]
    )


@pytest.mark.slow
def test_options_take_precedence_over_a_document_of_any_setting(seepage: Any, tmp_path: Path) -> None:
    arguments = (
        "--repetitions",
        1,
        "--private-column",
        "a",
        "--defense",
        "none",
        "--attack",
        "exact",
        "--baseline",
        "marginals",
        "--no-control",
        "--quiet",
    )
    code, out, err = seepage("audit", *arguments, "split.yaml", "--workers", 1, "--out", "run")
    assert (code, out, err) == (0, "", "")
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["rows"]
    assert {row["defense"] for row in rows} == {"none"}
    assert {row["attack"] for row in rows if row["is_attack"]} == {"exact"}
    assert {row["n"] for row in rows} == {1}
    assert seepage("split", "split.yaml", *arguments, "--out", "run")[0] == 0
    assert "is about split learning, not vertical learning" in seepage("vertical", "split.yaml")[2]
