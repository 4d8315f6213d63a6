"""``seepage split`` and ``seepage reproduce exact/...`` from the command line."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.split.test_exact import table
from tests.commands import Run, commands


@pytest.fixture
def seepage(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    table(2, rows=300).train.frame.astype({"a": str, "c": str}).to_csv(tmp_path / "rows.csv", index=False)
    return commands(capfd, monkeypatch, tmp_path)


OWN = ("split", "--data", "rows.csv", "--target", "t", "--repetitions", 1, "--epochs", 2)
# For tests that are not about controls, nor about which attacks are the default.
CHEAP = ("--attack", "exact", "--baseline", "marginals", "--attacked-records", 40, "--no-control")
NOISE = ("--defense", "none", "--defense", "cut_noise:{noise_multiplier: 2.0}")


def test_a_table_of_ones_own_is_audited_in_private(seepage: Any, tmp_path: Path) -> None:
    arguments = (*OWN, *CHEAP, "--private-column", "a", "--private-column", "c", *NOISE, "--verbose", "--out", "run")
    code, out, err = seepage(*arguments)
    assert code == 0
    assert "12 configurations" in out
    assert "Private" not in err
    assert "epsilon" in out
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "run").iterdir()} == {0o600}
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["rows"]
    read = {(r["defense"], r["column"]): r for r in rows if (r["attack"], r["metric"]) == ("exact", "accuracy")}
    assert read["none", "a"]["mean"] == 1.0
    assert read["cut_noise", "a"]["mean"] < 0.8
    again = seepage(*arguments)
    assert again[:2] == (0, out)
    assert "everything is measured already" in again[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--private-column", "aa"), "unknown private column 'aa'"),
        (("--private-column", "t"), "labels are private anyway"),
        (("--private-column", "a", "--defense", "label_flip:{probability: 0.7}"), "use a probability of at most 0.5"),
        (
            ("--private-column", "a", "--defense", "label_flip:{probability: 1.7}"),
            "--defense: .*between 0 and 1, got probability=1.7",
        ),
        (
            ("--private-column", "a", "--defense", "cut_noise:{noise_multiplier: -1}"),
            "--defense: .*got noise_multiplier=-1",
        ),
        (("--private-column", "a", "--repetitions", "0"), "--repetitions: .*got 0"),
        (("--private-column", "a", "--attack", "exact:{search: all}"), "--attack: .*search"),
        (("--private-column", "a", "--stale", "9"), "give at most stale=2"),
        (
            ("--private-column", "a", "--defense", "none+label_flip:{probability: 0.1}"),
            "--defense: 'none.label_flip' combines a defense with none",
        ),
    ],
)
def test_what_cannot_be_audited_is_said_in_a_paragraph(seepage: Any, tmp_path: Path, arguments: Any, said: str) -> None:
    code, out, err = seepage(*OWN, *arguments)
    assert code == 2
    assert out == ""
    told = [line for line in err.splitlines() if line.startswith("seepage: ")]
    assert len(told) == 1
    assert re.search(said, told[0])


def test_published_tables_are_listed_and_refuse_what_they_do_not_have(seepage: Any) -> None:
    code, out, _ = seepage("reproduce", "--list")
    assert code == 0
    assert all(f"exact/table{number}" in out for number in range(1, 9))
    assert "tableak/table17" in out
    code, _, err = seepage("reproduce", "exact/table2", "--batch-size", 8)
    assert code == 2
    assert "no choice of batch size" in err
    code, _, err = seepage("reproduce", "exact/tabel2")
    assert code == 2
    assert "did you mean 'exact/table2'" in err
    code, _, err = seepage("reproduce", "exact/table2", "--only", "defense=nothing", "--out", "run")
    assert code == 2
    assert "unknown defense of exact/table2: 'nothing'. Known: dp_0.01, fsl" in " ".join(err.split())


@pytest.mark.slow
def test_columns_are_dropped_and_kinds_overridden_as_in_an_audit(seepage: Any) -> None:
    code, out, _ = seepage(*OWN, *CHEAP, "--private-column", "c", "--drop", "a", "--auxiliary", 10_000, "--verbose")
    assert code == 0
    assert "all 270 training rows are auxiliary, not 10,000" in " ".join(out.split()).lower()
    code, _, err = seepage(*OWN, "--private-column", "a", "--drop", "a")
    assert code == 2
    assert "unknown private column 'a'" in err


@pytest.mark.slow
def test_spaces_that_are_too_large_are_searched(seepage: Any, tmp_path: Path) -> None:
    private = ("--private-column", "a", "--private-column", "c")
    code, out, _ = seepage(*OWN, *private, "--attack", "exact:{search: meet}", "--no-control", "--out", "run")
    assert code == 0
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["rows"]
    assert {row["attack"] for row in rows if row["is_attack"]} == {"exact"}
    [whole] = [row["mean"] for row in rows if (row["attack"], row["metric"]) == ("exact", "exact_match")]
    assert whole == 1.0
    assert "One training allows no verdict" in " ".join(out.split())


@pytest.mark.parametrize("command", ["audit", "split", "vertical", "pooled"])
def test_all_commands_have_the_same_options(seepage: Any, command: str) -> None:
    code, out, _ = seepage(command, "--help-all")
    assert code == 0
    for option in (
        *("--attack", "--defense", "--baseline", "--workers", "--device", "--time-budget", "--keep-records"),
        *("--control", "--fail-above", "--fail-column", "--seed", "--json", "--quiet", "--out", "--data", "--target"),
    ):
        assert f" {option} " in out
    assert "seepage " + command in out
