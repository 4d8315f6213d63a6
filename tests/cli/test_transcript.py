"""``seepage attack`` on the folder of a transcript, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from tests.captures.test_transcripts import table, trained, with_ids, written
from tests.commands import Run, commands


@pytest.fixture
def seepage(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    written(tmp_path / "transcript", *trained())
    table(tmp_path / "truth.csv", with_ids())
    save_file({"weight": torch.ones(2)}, tmp_path / "u.safetensors")
    return commands(capfd, monkeypatch, tmp_path)


def test_a_transcript_is_attacked(seepage: Run, tmp_path: Path) -> None:
    some = ("attack", "transcript", "--attack", "exact", "--out", "read")
    status, out, _ = seepage(*some, "--truth", "truth.csv")
    assert status == 0
    assert "60 records in 1 round of split learning, private: cause, noise_0." in out
    assert "exact certifies 100.0%" in out
    read = pd.read_csv(tmp_path / "read" / "reconstruction.csv")
    assert (read["cause"].to_numpy() == with_ids()["cause"].to_numpy()).all()
    assert read["cause certified"].all()
    found = json.loads((tmp_path / "read" / "results.json").read_text())
    accuracy = next(row for row in found["rows"] if row["attack"] == "exact" and row["metric"] == "accuracy")
    assert accuracy["baseline_name"] is not None
    assert "certified_wrong" not in {row["metric"] for row in found["rows"]}
    status, _, err = seepage(*some)
    assert (status, "holds results.json already" in err) == (2, True)


def test_every_named_attack_runs(seepage: Run, tmp_path: Path) -> None:
    status, out, _ = seepage(
        "attack", "transcript", "--attack", "exact", "--attack", "label_norm", "--truth", "truth.csv", "--out", "read"
    )
    assert (status, "Attacks that ran: exact, label_norm." in out) == (0, True)
    read = pd.read_csv(tmp_path / "read" / "reconstruction.csv")
    assert read["attack"].value_counts().to_dict() == {"exact": 60, "label_norm": 60}
    again = ("--attack", "exact", "--attack", "exact:{keep: 3}", "--attack", "exact", "--out", "again")
    _, out, _ = seepage("attack", "transcript", *again)
    assert "Attacks that ran: exact, exact(keep=3)." in out
    _, out, _ = seepage("attack", "--help")
    assert "Several of a transcript, one of updates. Repeatable." in " ".join(out.replace("│", " ").split())
    status, _, err = seepage(
        *("attack", "u.safetensors", "--model", "nn3", "--schema", "transcript/schema.yaml", "--out", "other"),
        *("--attack", "unmix", "--attack", "tableak"),
    )
    assert (status, "are read by one attack, got unmix and tableak" in err) == (2, True)


@pytest.mark.parametrize("option", ["--truth", "--known", "--data"])
def test_missing_cells_are_refused_with_what_helps(seepage: Run, tmp_path: Path, option: str) -> None:
    rows = with_ids().astype(object)
    rows.loc[3, "cause"] = None
    table(tmp_path / "gaps.csv", rows)
    status, _, err = seepage("attack", "transcript", option, "gaps.csv", "--out", "read")
    said = " ".join(err.split())
    assert status == 2
    assert "1 in 'cause' (first in data row 4); fill them as in training, or leave out the rows that have one" in said
    assert "--missing" not in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--weights", "model.safetensors"], "--weights is of a folder of updates and one update"),
        (["--attack", "exakt"], "did you mean 'exact'"),
        (["--attack", "exact:{votes: 0}"], "votes"),
        (["--truth", "none.csv"], "none.csv"),
        (["--model", "none.py:Net"], "which does not exist"),
        (["--schema", "none.yaml"], "none.yaml"),
    ],
)
def test_bad_options_are_one_sentence(seepage: Run, options: list[str], said: str) -> None:
    status, out, err = seepage("attack", "transcript", "--attack", "exact", *options, "--out", "read")
    assert said in out + err
    assert "Traceback" not in err
    assert status == (0 if "votes" in said else 2)


def test_what_is_of_transcripts_alone_is_refused_of_updates(seepage: Run) -> None:
    status, _, err = seepage("attack", "u.safetensors", "--known", "k.csv", "--out", "read")
    assert (status, "--known is of a transcript" in err) == (2, True)
    status, _, err = seepage("attack", "u.safetensors", "--out", "read")
    assert (status, "Missing options '--model', '--schema': captured" in err) == (2, True)
