"""``seepage correlate`` from the command line."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.commands import Run, commands


@pytest.fixture
def seepage(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    return commands(capfd, monkeypatch, tmp_path, "correlate")


def test_a_betraying_column_is_named_and_figures_are_written_in_private(seepage: Any, tmp_path: Path) -> None:
    rows = [
        {
            "id": f"P{i:05}",
            "sex": "fm"[i % 2],
            "title\x1b[31m": ["Ms", "Mr"][i % 2],
            "age": i * 7 % 50,
            "ill": i // 2 % 2,
        }
        for i in range(60)
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "rows.csv", index=False)
    code, out, err = seepage("--data", "rows.csv", "--target", "ill", "--sensitive", "sex", "--out", "found.json")
    assert code == 0
    assert "id left out" in " ".join(err.split())
    assert "\x1b" not in err
    assert "Notably associated with sex: 1 of 2 columns;" in out
    assert "\x1b" not in out
    held = json.loads((tmp_path / "found.json").read_text())["sex"]
    assert (held[0]["value"], held[0]["notable"], {one["column"] for one in held[1:]}) == (
        *(1.0, True),
        {"age", "ill", None},
    )
    assert (held[-1]["measure"], held[-1]["notable"], held[-1]["rows"]) == ("auc", True, 60)
    assert "all others together" in out
    assert stat.S_IMODE((tmp_path / "found.json").stat().st_mode) == 0o600


def test_where_the_target_is_the_secret_all_others_are_counted(seepage: Any, tmp_path: Path) -> None:
    rows = [{"a": i % 2, "b": i // 2 % 2, "ill": i % 2} for i in range(40)]
    pd.DataFrame(rows).astype(str).to_csv(tmp_path / "rows.csv", index=False)
    code, out, _ = seepage("--data", "rows.csv", "--target", "ill", "--sensitive", "ill")
    assert code == 0
    assert "Notably associated with ill: 1 of 2 columns;" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--sensitive", "sexx"), "did you mean 'sex'"),
        (("--sensitive", "sex", "--dataset-option", "missing=some"), "missing must be"),
        (("--sensitive", "sex", "--dataset-option", "missing"), "NAME=VALUE"),
    ],
)
def test_mistakes_are_one_paragraph(seepage: Any, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = seepage(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_columns_that_betray_together_are_told_where_none_does_alone(seepage: Any, tmp_path: Path) -> None:
    rows = [{"a": i % 2, "b": i // 2 % 2, "both": (i % 2) ^ (i // 2 % 2), "ill": i // 4 % 2} for i in range(160)]
    pd.DataFrame(rows).astype(str).to_csv(tmp_path / "rows.csv", index=False)
    code, out, _ = seepage("--data", "rows.csv", "--target", "ill", "--sensitive", "both")
    assert code == 0
    assert "0 of 2 columns; no single column betrays it, but all together do." in out
    code, out, _ = seepage("--data", "rows.csv", "--target", "ill", "--sensitive", "ill")
    assert "nothing shows that several together do" in out
