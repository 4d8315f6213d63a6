"""Which messages of a transcript of split learning are used, and what is said of those that fit nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from seepage import TranscriptWriter, write_weights
from seepage.attacking.sources import CaptureResult
from seepage.defenses.cut_noise import CutNoise
from seepage.models.deepfm import deepfm
from seepage.protocols.split import SplitLearning, TrainedSplit
from seepage.settings.split.read import _misfit  # pyright: ignore[reportPrivateUsage]
from seepage.tabular.table import Table as Rows
from tests.attacks.split.test_numbers import table as numbers
from tests.captures.attacked import answers, attacked, notes, reasons, words
from tests.captures.test_transcripts import PRIVATE, ROWS, trained, value, with_ids
from tests.captures.test_transcripts import table as csv

NOISE = {"cut_noise": {"noise_multiplier": 1.0}}


def shuffled(
    folder: Path, learning: SplitLearning, result: TrainedSplit, rows: Rows, stages: int, parts: int, **about: Any
) -> Path:
    """Return the folder of a transcript in which each of the last stages sees the rows in shuffled rounds."""
    names = [result.model.schema.columns[i].name for i in result.model.private]
    ids = [f"p{i}" for i in range(len(rows))]
    own = rows.frame[[name for name in rows.schema.names if name not in names]].assign(id=ids)
    writer = TranscriptWriter(folder, rows.schema, names, own=own, model="deepfm", loss="sum", **about)
    number, order = 0, torch.Generator().manual_seed(5)
    for k, stage in enumerate(result.stages[-stages:]):
        view = learning.observe(stage, rows, seed=k).view
        for some in torch.randperm(len(rows), generator=order).chunk(parts):
            write_weights(view.model.client, folder, number)
            held = [ids[i] for i in some.tolist()]
            writer.exchange(held, view.cut[some], view.own_gradient[some], number=number, clip=view.clip)
            number += 1
    return folder


def read(folder: Path, *attacks: str, truth: Path | None = None) -> CaptureResult:
    return attacked(folder, attacks=attacks, truth=truth)


def silenced(folder: Path, ids: set[str], rounds: str = "*") -> None:
    """Write zeros as the gradients of some records."""
    for file in folder.glob(f"round-{rounds}.safetensors"):
        held = load_file(str(file))
        names = [bytes(one).rstrip(b"\0").decode() for one in held["ids"].tolist()]
        held["gradients"][torch.tensor([name in ids for name in names])] = 0
        save_file(held, str(file))


def test_shuffled_rounds_tell_as_much_as_rounds_of_all_records(tmp_path: Path) -> None:
    learning, result = trained(CutNoise(1.0))
    about = {"options": {"hidden": [8]}, "defense": NOISE}
    truth = csv(tmp_path / "truth.csv", with_ids())
    found = {
        parts: read(
            shuffled(tmp_path / str(parts), learning, result, ROWS, 4, parts, **about), "posterior", truth=truth
        )
        for parts in (1, 4)
    }
    # Records of each round in one order or the other.
    one, other = (answers(some, "posterior").sort_values("id", ignore_index=True) for some in found.values())
    pd.testing.assert_frame_equal(one, other)
    assert not notes(found[4])
    alone = read(shuffled(tmp_path / "alone", learning, result, ROWS, 1, 4, **about), "posterior", truth=truth)
    assert value(found[4], "posterior", "accuracy", "label") > value(alone, "posterior", "accuracy", "label")


def test_numbers_are_read_from_as_many_messages_as_groups_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = numbers().train.rows(range(4))
    learning = SplitLearning(epochs=3, batch_size=4)
    result = learning.train(deepfm(rows.schema, ("a", "n"), 0, hidden=(8,)), rows, 1)
    folder = shuffled(tmp_path / "transcript", learning, result, rows, 2, 2, options={"hidden": [8]})
    every = read(folder, "posterior")
    assert not notes(every)
    monkeypatch.setattr("seepage.settings.split.read._FEW_GROUPS", 1)
    some = read(folder, "posterior")
    assert [note[:53] for note in notes(some)] == ["the newest 1 of up to 2 messages of each record are u"]
    possible = [value(each, "posterior", "still_possible", "n") for each in (every, some)]
    assert possible[0] <= possible[1]


@pytest.mark.slow
def test_records_without_a_gradient_are_answered_by_the_prior_alone(tmp_path: Path) -> None:
    folder = shuffled(tmp_path / "transcript", *trained(), ROWS, 2, 3, options={"hidden": [8]})
    silent = {f"p{i}" for i in range(7)}
    silenced(folder, silent)
    # Of these an older message is left.
    silenced(folder, {f"p{i}" for i in range(20, 30)}, "00000[345]")
    found = read(folder, "exact", "posterior", truth=csv(tmp_path / "truth.csv", with_ids()))
    assert set(reasons(found)).isdisjoint({"exact", "posterior"})
    assert any("7 of 60 records have a gradient of zero in all of their messages" in note for note in notes(found))
    exact, posterior = (answers(found, attack).set_index("id") for attack in ("exact", "posterior"))
    certified = exact["cause certified"]
    assert set(certified.index[~certified]) == silent
    true = with_ids().set_index("id")
    heard = sorted(set(true.index) - silent)
    assert (exact.loc[heard, list(PRIVATE)].astype(str) == true.loc[heard, list(PRIVATE)].astype(str)).all(axis=None)
    assert (posterior.loc[heard, "cause"] == exact.loc[heard, "cause"]).all()
    assert value(found, "exact", "certified_cells", None) == pytest.approx(53 / 60)
    silenced(folder, {f"p{i}" for i in range(60)})
    assert "the gradients of all 60 records are zero" in reasons(read(folder, "exact"))["exact"]


@pytest.mark.slow
def test_a_transcript_that_does_not_fit_is_said(tmp_path: Path) -> None:
    folder = shuffled(tmp_path / "transcript", *trained(), ROWS, 2, 3, options={"hidden": [8]})
    good = read(folder, "exact")
    assert (len(words(good)), value(good, "exact", "replayed", None)) == (2, 1.0)
    generator = torch.Generator().manual_seed(0)
    for file in folder.glob("client-*.safetensors"):
        held = load_file(str(file))
        save_file({name: torch.randn(one.shape, generator=generator) for name, one in held.items()}, str(file))
    found = read(folder, "exact")
    assert words(found)[1].startswith("Under any loss, weights of classes, smoothing, scale and number format")
    assert "replay 0% of the messages" in words(found)[1]
    assert value(found, "exact", "replayed", None) == 0.0
    for file in folder.glob("round-*.safetensors"):
        held = load_file(str(file))
        save_file(held | {"gradients": torch.full_like(held["gradients"], 1e30)}, str(file))
    found = read(folder, "exact")
    assert "says nothing of what leaked" in words(found)[1] or "More may leak" in words(found)[1]
    assert value(found, "exact", "ties", None) == 0.0


def test_layers_that_are_random_in_training_are_named() -> None:
    client = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1), nn.BatchNorm1d(2))
    said = _misfit("exact", 7, 9, client)
    assert "replays the message of 7 of 9 records within rounding" in said
    assert "BatchNorm1d and Dropout of the client part computed something else" in said


def test_messages_under_weights_that_are_there_are_preferred(tmp_path: Path) -> None:
    folder = shuffled(tmp_path / "transcript", *trained(), ROWS, 2, 1, options={"hidden": [8]})
    (folder / "client-000001.safetensors").unlink()
    found = read(folder, "exact")
    assert value(found, "exact", "certified_cells", None) == 1.0
    assert any("others are left out" in note for note in notes(found))
