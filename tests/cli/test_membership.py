"""``seepage membership`` from the command line."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.commands import Run, commands

_FEW = ("--rows", "40", "--shadows", "6", "--repetitions", "3", "--hidden", "16", "--epochs", "10")


@pytest.fixture
def seepage(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    return commands(capfd, monkeypatch, tmp_path, "membership")


def test_figures_stand_beside_control_and_baselines_and_are_written_in_private(seepage: Any, tmp_path: Path) -> None:
    rows = [{"sex": "fm"[i % 2], "title\x1b[31m": i % 7, "age": i * 7 % 50, "ill": i * 31 % 97 % 2} for i in range(200)]
    pd.DataFrame(rows).to_csv(tmp_path / "rows.csv", index=False)
    code, out, err = seepage("--data", "rows.csv", "--target", "ill", *_FEW, "--out", "who.json")
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    for word in ("lira", "rmia", "loss", "random", "the trained model", "models of all rounds", "a site's updates"):
        assert word in out
    assert "A low figure is no proof" in out
    content = json.loads((tmp_path / "who.json").read_text())
    figures = {(f["attack"], f["sees"], f["target"], f["metric"]): f["estimate"] for f in content["figures"]}
    assert figures["lira", "final", "deployed", "membership_auc"]["n"] == 3
    assert {target for _, _, target, _ in figures} == {"deployed", "control"}
    assert content["recipe"]["network"]["hidden"] == [16]
    assert (content["recipe"]["sites"], content["recipe"]["rounds"]) == (5, 10)
    assert stat.S_IMODE((tmp_path / "who.json").stat().st_mode) == 0o600


def test_what_cannot_be_tested_is_one_line(seepage: Any) -> None:
    code, _, err = seepage("--dataset", "german", "--shadows", "5")
    assert code == 2
    assert "got shadows=5, give an even number from 6 up" in err
    code, _, err = seepage("--dataset", "german", "--rows", "42")
    assert code == 2
    assert "5 sites have equal shares of the rows of a training, got 42" in err
    code, _, err = seepage("--dataset", "german", "--noise", "1")
    assert code == 2
    assert "give a bound (clip=1.0)" in err
    code, _, err = seepage("--dataset", "german", "--trees", "5", "--clip", "1")
    assert code == 2
    assert "--hidden, --clip and --noise are those of networks; leave them or --trees out" in err


def test_boosted_trees_stand_in_place_of_networks(seepage: Any, tmp_path: Path) -> None:
    few = ("--rows", "40", "--shadows", "6", "--repetitions", "2", "--trees", "8", "--depth", "3")
    code, out, err = seepage("--dataset", "german", *few, "--out", "who.json")
    assert (code, err) == (0, "")
    assert "a site's updates" not in out
    recipe = json.loads((tmp_path / "who.json").read_text())["recipe"]
    assert (recipe["rounds"], recipe["depth"], recipe["learning_rate"]) == (8, 3, 0.3)
