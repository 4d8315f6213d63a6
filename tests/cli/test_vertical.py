"""``seepage vertical`` and ``seepage reproduce uifv/...`` from the command line."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.vertical.parts import table
from tests.commands import Run, commands


@pytest.fixture
def seepage(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    table(rows=500).train.frame.astype({"a": str, "b": str, "alone": str}).to_csv(tmp_path / "rows.csv", index=False)
    return commands(capfd, monkeypatch, tmp_path)


CHEAP = "uifv_sa:{epochs: 8, steps: 100}"
OWN = ("vertical", "--data", "rows.csv", "--target", "t", "--repetitions", 1, "--epochs", 2, "--attack", CHEAP)


@pytest.mark.slow
def test_a_table_of_ones_own_is_audited_in_private(seepage: Any, tmp_path: Path) -> None:
    arguments = (
        *OWN,
        "--passive",
        "a, b",
        "--defense",
        "none",
        "--defense",
        "feature_noise:{scale: 2}",
        "--leaked",
        40,
        "--no-control",
        "--out",
        "run",
    )
    code, out, _ = seepage(*arguments)
    assert code == 0
    assert "all cells of the passive party" in out
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "run").iterdir()} == {0o600}
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["rows"]
    read = {(r["defense"], r["column"]): r for r in rows if (r["attack"], r["metric"]) == ("uifv_sa", "accuracy")}
    assert read["none", None]["mean"] > read["feature_noise", None]["mean"]
    assert read["none", None]["knowledge"]["leaked"] == 40
    page = (tmp_path / "run" / "report.html").read_text()
    assert "active party" in page
    again = seepage(*arguments)
    assert again[:2] == (0, out)
    assert "everything is measured already" in again[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--passive", "aa"), "unknown column 'aa'"),
        (("--passive", "t"), "labels are the active party's"),
        (("--passive", "a", "--passive", "a,b"), "'a' is held 2 times, by parties 1 and 2"),
        (("--passive", "a", "--victim", "0"), "attacker itself"),
        (("--passive", "a", "--share", "0.5"), "not both"),
        (("--passive", "a,a"), "'a' is named 2 times by party 1"),
        (("--leaked", "100"), "100 records of the target are to leak"),
        (("--attack", "uifv_iqa", "--queries", "0"), "budget|needs answers to its queries"),
        (("--attack", "uifv_sb"), "did you mean"),
        (("--parties", "7"), "holds no column"),
        (("--defense", "pa_imfk"), "--defense: unknown .*'pa_imfk'; did you mean 'pa_imfl'"),
        (("--defense", "bottleneck:{width: 0}"), "--defense: .*from 1 up, got width=0"),
        (("--defense", "feature_noise:{scale: -1}"), "--defense: scale is a number above 0, got scale=-1"),
    ],
)
def test_what_cannot_be_audited_is_said_in_a_paragraph(seepage: Any, tmp_path: Path, arguments: Any, said: str) -> None:
    code, out, err = seepage(*OWN, *arguments, "--out", "run")
    assert code == 2
    assert out == ""
    assert not (tmp_path / "run").exists()
    told = [line for line in err.splitlines() if line.startswith("seepage: ")]
    assert len(told) == 1
    assert re.search(said, told[0])


def test_published_tables_are_listed(seepage: Any) -> None:
    code, out, _ = seepage("reproduce", "--list")
    assert code == 0
    assert all(f"uifv/table{number}" in out for number in (3, 5, 6, 8, 9, 10, 11, 12, 14))
