"""``seepage pooled`` from the command line."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Run, commands
from tests.settings.test_pooled import people


@pytest.fixture
def seepage(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    people(0.8, rows=2000).train.frame.assign(country="DE").to_csv(tmp_path / "rows.csv", index=False)
    return commands(capfd, monkeypatch, tmp_path, "pooled")


OWN = ("--data", "rows.csv", "--target", "ill", "--rows", 100)
SMOKER = ("--sensitive", "smoker", "--value", "yes")
LIMIT = ("--defense", "none", "--defense", "query_limit:{queries: 5}")
SMALL = (*OWN, "--auxiliary", 500, "--queries", 30, "--targets", 10, "--shadows", 12, "--repetitions", 2, "--epochs", 4)


def test_a_table_of_ones_own_is_audited_in_private_and_gated(seepage: Any, tmp_path: Path) -> None:
    code, out, err = seepage(*SMALL, *SMOKER, "--attack", "meta", *LIMIT, "--fail-above", 0.1, "--out", "run")
    # Thirty target models of two attack seeds, of which an attack that reads half more is shown in neither.
    assert code in (1, 4)
    assert "gate failed" in err or "gate undecided" in err
    assert "query_limit" in out
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "run").iterdir()} == {0o600}
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["rows"]
    asked = {row["defense"]: row["knowledge"]["queries"] for row in rows if row["attack"] == "meta"}
    assert asked == {"none": 30, "query_limit": 5}
    page = (tmp_path / "run" / "report.html").read_text()
    assert "The secret is the share of" in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--sensitive", "smokr"), "did you mean 'smoker'"),
        (("--sensitive", "country"), "'country' is sensitive, but it holds one value only"),
        (("--value", "maybe"), "category of 'smoker'"),
        (("--sensitive", "age", "--value", "old"), "--value of the column of numbers 'age'"),
        (("--rows", "1900"), "do not fit into 2000 rows"),
        (("--share", "0.5"), "seepage: shares are at least two numbers in [0, 1], in increasing order; got [0.5]."),
        (("--protocol", "updat"), "protocol"),
        (("--attack", "dominant"), "takes answers before and after new data"),
        (("--defense", "without_columns:{columns: agee}"), "did you mean 'age'"),
        (("--rows", "400", "--share", "0.05", "--share", "0.95"), "shares nearer to"),
        (("--auxiliary-from", "guesses"), "--auxiliary-from: "),
        (("--auxiliary-from", "answers", *LIMIT), "take many queries"),
        (("--attack", "melis", *LIMIT), "federated training of two parties"),
    ],
)
def test_mistakes_are_one_paragraph_and_leave_nothing_behind(
    seepage: Any, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    sensitive = () if "--sensitive" in arguments else SMOKER[:2]
    value = () if "--value" in arguments else SMOKER[2:]
    code, out, err = seepage(*SMALL, *sensitive, *value, *arguments, "--out", "run")
    assert (code, out) == (2, "")
    told = [line for line in err.splitlines() if line.startswith("seepage: ")]
    assert len(told) == 1
    assert said in told[0]
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()
