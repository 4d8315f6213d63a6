"""The default audit decides, and ``seepage recommend`` searches: what they print and how they end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from seepage import cli
from tests.settings.plugged import plugged_in  # noqa: F401

pytestmark = pytest.mark.usefixtures("plugged_in")


@pytest.fixture
def seepage(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["seepage", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capfd.readouterr()
        code = stopped.value.code
        return code if isinstance(code, int) else 0, captured.out, captured.err

    return run


SEARCH = ("recommend", "--setting", "coins")


def test_a_search_of_any_setting_ends_with_the_status_of_what_it_found(seepage: Any, tmp_path: Path) -> None:
    status, out, err = seepage(*SEARCH, "--below", 0.2, "--out", "run")
    assert status == 0
    assert "recommended: --defense 'gloves:{noise: " in err
    assert "seepage: bent coins are left out" in err
    assert "<li>Bent coins are left out.</li>" in (tmp_path / "run" / "recommendation.html").read_text()
    assert "Page: run/recommendation.html" in out
    assert json.loads((tmp_path / "run" / "recommendation.json").read_text())["outcome"] == "found"
    assert seepage(*SEARCH, "--below", 0.2, "--time-budget", "1s", "--defense", "none")[0] == 2
    status, out, _ = seepage(*SEARCH, "--below", 0.2, "--json", "--out", "run", "--quiet")
    assert (status, json.loads(out)["outcome"]) == (0, "found")


def test_a_document_says_what_is_wished_for(seepage: Any, tmp_path: Path) -> None:
    (tmp_path / "coins.yaml").write_text("setting: coins\nrecommend: {below: 0.2}\n")
    assert seepage("recommend", "coins.yaml", "--below", 0.3, "--out", "run")[0] == 0
    assert (tmp_path / "run" / "recommend.yaml").exists()
    status, _, err = seepage("coins", "coins.yaml")
    assert status == 2
    assert "run it with 'seepage recommend'" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give --below 0.2"),
        (("--below", 3), "between 0 and 1"),
        (("--below", 0.2, "--max-cost", -1), "--max-cost: must be greater than 0"),
        (("--below", 0.2, "--below-column", "top"), "unknown column"),
        (("--below", 0.2, "--setting", "coin"), "unknown setting"),
        (("--below", 0.2, "--fail-above", 0.1), "No such option"),
    ],
)
def test_rubbish_gets_one_sentence(seepage: Any, arguments: tuple[object, ...], said: str) -> None:
    status, _, err = seepage("recommend", "--setting", "coins", *arguments)
    assert status == 2
    assert said in err


@pytest.mark.slow
def test_the_default_audit_leaves_out_what_does_not_fit_a_small_table(seepage: Any, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"age": draw.integers(20, 70, 24), "town": draw.choice(["a", "b"], 24)})
    frame["ill"] = draw.choice(["no", "yes"], 24)
    frame.to_csv(tmp_path / "own.csv", index=False)
    own = ("audit", "--data", "own.csv", "--target", "ill", "--batch-size", 4, "--victims", 1, "--no-control")
    status, _, err = seepage(*own, "--restarts", 1, "--iterations", 2, "--out", "run", "--quiet")
    assert status == 0
    assert "aggregation is not tried: " in err
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["rows"]
    assert {row["defense"] for row in rows} == {"none", *(f"dp_sgd(epsilon={bound})" for bound in (8, 3, 1))}
    assert "What to do" in (tmp_path / "run" / "report.html").read_text()
