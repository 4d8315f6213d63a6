"""``seepage membership`` from the command line."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from seepage.assessment import Estimate
from seepage.cli.membership import _summary
from seepage.settings.training_membership import RIGHT, MembershipFigure
from tests.commands import Run, commands

_FEW = ("--rows", "40", "--shadows", "6", "--repetitions", "3", "--hidden", "16", "--epochs", "10")


@pytest.fixture
def seepage(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    return commands(capfd, monkeypatch, tmp_path, "membership")


def test_figures_stand_beside_control_and_baselines_and_are_written_in_private(seepage: Any, tmp_path: Path) -> None:
    rows = [{"sex": "fm"[i % 2], "title\x1b[31m": i % 7, "age": i * 7 % 50, "ill": i * 31 % 97 % 2} for i in range(200)]
    pd.DataFrame(rows).to_csv(tmp_path / "rows.csv", index=False)
    code, out, err = seepage("--data", "rows.csv", "--target", "ill", *_FEW, "--out", "who.json")
    assert code == 0
    # What the columns were taken for is said, as in an audit.
    assert "Columns as inferred from 200 rows" in err
    assert "\x1b" not in out + err
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


def test_an_attack_that_is_above_chance_on_the_control_puts_the_figures_in_doubt() -> None:
    def figure(target: str, area: float, attack: str = "lira", metric: str = "membership_auc") -> MembershipFigure:
        kind = "attack" if attack == "lira" else "about"
        return MembershipFigure(attack, kind, "final", target, metric, Estimate(area, 0.2, 0.95, 5, 0.01))

    right = [figure("deployed", 0.9, "none", name) for name in RIGHT]
    # Intervals that hold for any distribution are too wide at five repetitions to tell anything from chance.
    for control, doubted in ((0.58, True), (0.505, False)):
        said = _summary([figure("deployed", 0.7), figure("control", control), *right])
        assert ("these figures are in doubt" in said) == doubted
