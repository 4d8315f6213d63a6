"""Transcripts of split and vertical training: what is read of them, and what is refused."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file

from seepage import TranscriptWriter, write_weights
from seepage.captures.capturing import Ids
from seepage.captures.transcripts import TRANSCRIPT, read_transcript
from seepage.datasets.dataset import Dataset
from seepage.datasets.planted import telling
from seepage.defenses.cut_noise import CutNoise
from seepage.errors import BadInputError
from seepage.models.deepfm import deepfm
from seepage.models.message import MessageForm
from seepage.models.vertical import vertical_mlp
from seepage.protocols.split import SplitLearning, TrainedSplit
from seepage.protocols.vertical import Rows, VerticalLearning
from seepage.report.captured import read_document
from seepage.report.terminal import show
from seepage.results.verdict import verdict
from seepage.tabular.partition import by_names
from tests.captures.attacked import answers, attacked, granted, notes, ran, reasons, value, words

DATA: Dataset = telling(rows=200)
ROWS = DATA.train.rows(range(60))
PRIVATE = ("cause", "noise_0")
TARGET = ROWS.schema.target.name
OWN = [name for name in ROWS.schema.names if name not in PRIVATE]


def with_ids(names: list[str] | None = None, ids: range = range(60)) -> pd.DataFrame:
    frame = ROWS.frame if names is None else ROWS.frame[names]
    return frame.iloc[list(ids)].assign(id=[f"p{i}" for i in ids])


def trained(noise: CutNoise | None = None) -> tuple[SplitLearning, TrainedSplit]:
    learning = SplitLearning(epochs=3, batch_size=60, noise=noise)
    return learning, learning.train(deepfm(ROWS.schema, PRIVATE, 0, hidden=(8,)), ROWS, 1)


def written(folder: Path, learning: SplitLearning, result: TrainedSplit, exchanges: int = 1, **about: Any) -> Path:
    """Return the folder of a transcript of the last exchanges of a training."""
    about = {"model": "deepfm", "options": {"hidden": [8]}, **about}
    own = with_ids(OWN) if about.pop("with_own", True) else None
    writer = TranscriptWriter(folder, ROWS.schema, PRIVATE, own=own, **about)
    for number, stage in enumerate(result.stages[-exchanges:]):
        view = learning.observe(stage, ROWS, seed=number).view
        write_weights(view.model.client, folder, number)
        ids = [f"p{i}" for i in range(60)]
        writer.exchange(ids, view.cut, view.gradient, number=number, clip=view.clip)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path / "transcript", *trained())


def table(path: Path, frame: pd.DataFrame) -> Path:
    frame.to_csv(path, index=False)
    return path


def test_a_transcript_is_read_without_raw_data_and_scored_with_the_truth(folder: Path, tmp_path: Path) -> None:
    training = read_transcript(folder)
    found = attacked(training.folder, attacks=["exact"])
    assert found.attacked is not None
    assert found.attacked.row("accuracy", None, "exact") is None
    assert value(found, "exact", "certified_cells", None) == 1.0
    truth = table(tmp_path / "truth.csv", with_ids(ids=range(10, 40)))
    known = table(tmp_path / "known.csv", with_ids([TARGET], range(20)))
    some = ["exact", "fsha", "label_direction"]
    found = attacked(training.folder, attacks=some, truth=truth, known=known)
    assert found.findings.figures["scored"] == 30
    assert value(found, "exact", "accuracy", None) == 1.0
    assert value(found, "exact", "accuracy", None, "lift") > 0
    assert value(found, "label_direction", "accuracy", TARGET) == 1.0
    assert set(reasons(found)) == {"fsha"}
    assert "Not tried: fsha." in words(found)[-1]
    assert granted(found)["labels"] == 20


def test_public_rows_give_auxiliary_rows_to_attacks(folder: Path, tmp_path: Path) -> None:
    public = table(tmp_path / "public.csv", DATA.train.rows(range(60, 200)).frame)
    truth = table(tmp_path / "truth.csv", with_ids())
    training = read_transcript(folder)
    lacking = attacked(training.folder, attacks=["fsha"], data=public)
    assert "server.safetensors" in reasons(lacking)["fsha"]
    _, result = trained()
    TranscriptWriter(tmp_path / "other", ROWS.schema, PRIVATE).own_weights(result.model.server)
    (tmp_path / "other" / "server.safetensors").rename(folder / "server.safetensors")
    found = attacked(folder, attacks=["fsha:{epochs: 200}"], data=public, truth=truth)
    assert value(found, "fsha", "accuracy", TARGET) > 0.9


def test_several_noisy_messages_tell_more_than_one(tmp_path: Path) -> None:
    learning, result = trained(CutNoise(1.0))
    defense = {"cut_noise": {"noise_multiplier": 1.0}}
    truth = table(tmp_path / "truth.csv", with_ids())
    read = []
    for exchanges in (1, 4):
        folder = written(tmp_path / str(exchanges), learning, result, exchanges, defense=defense)
        found = attacked(folder, attacks=["posterior"], truth=truth)
        read.append(value(found, "posterior", "accuracy", TARGET))
    assert read[1] > read[0]


def test_weights_of_other_rounds_are_said_and_fitted(folder: Path) -> None:
    (folder / "client-000000.safetensors").rename(folder / "client-7.safetensors")
    found = attacked(folder)
    assert "client weights are up to 7 rounds away" in notes(found)[0]
    assert "posterior_about" in ran(found)
    (folder / "client-7.safetensors").unlink()
    found = attacked(folder, attacks=["exact", "label_norm"])
    assert "client-N.safetensors" in reasons(found)["exact"]
    assert ran(found) == ["label_norm"]


def test_without_a_name_the_defaults_of_the_setting_run_and_the_others_are_named(folder: Path, tmp_path: Path) -> None:
    truth = table(tmp_path / "truth.csv", with_ids())
    found = attacked(folder, truth=truth)
    assert ran(found) == ["exact", "posterior"]
    assert found.findings.figures["left_out"] == ["unsplit", "label_norm"]
    assert any("Not run: unsplit, label_norm." in line and "--attack NAME" in line for line in words(found))
    points, why = found.findings.sections[-1].points, reasons(found)
    assert len(points) == len(set(why.values())) < len(why)
    # All was read, of a training that is the whole of what was captured.
    assert found.attacked is not None
    row = found.attacked.row("accuracy", None, "exact")
    assert row is not None
    assert verdict(row).tier == "mostly read"
    # Without the client's weights no default attack applies, so that the others run.
    for path in folder.glob("client-*"):
        path.unlink()
    found = attacked(folder)
    assert ran(found) == ["unsplit", "label_norm"]
    assert found.findings.figures["left_out"] == []


@pytest.fixture
def vertical(tmp_path: Path) -> Path:
    """A transcript of vertical learning, with the passive party's bottom model, which is linear."""
    partition = by_names(ROWS.schema, [(), PRIVATE])
    rows = Rows(ROWS.cells[None], ROWS.labels[None])
    model = vertical_mlp(partition, [0], bottom=(), features=9, top=(8,))
    learning = VerticalLearning(epochs=2, batch_size=16)
    result = learning.train(model, rows, [0])
    own, about = with_ids([*OWN, TARGET]), {"loss": "sum", "model": "vertical_mlp"}
    writer = TranscriptWriter(tmp_path / "vertical", ROWS.schema, PRIVATE, "vertical", own, **about)
    writer.exchange([f"p{i}" for i in range(60)], result.sent[1][0], result.back[1][0], number=3)
    # The weights after the last step: those of the last messages moved within the epoch.
    write_weights(result.model.bottoms[1], tmp_path / "vertical", 3)
    sent = learning.send(result, rows, torch.Generator())
    writer.inference([f"p{i}" for i in range(60)], sent[1][0], number=4)
    return tmp_path / "vertical"


def test_vertical_attacks_run_that_need_no_live_party(vertical: Path, tmp_path: Path) -> None:
    truth = table(tmp_path / "truth.csv", with_ids())
    known = table(tmp_path / "known.csv", with_ids(ids=range(20)))
    public = table(tmp_path / "public.csv", DATA.train.rows(range(60, 200)).frame)
    training = read_transcript(vertical)
    found = attacked(training.folder, attacks=["ridge_sa"], truth=truth, known=known, data=public)
    assert value(found, "ridge_sa", "accuracy", None) == 1.0
    assert len(answers(found, "ridge_sa")) == 40
    some = ["ridge_sa", "layer_inversion"]
    exchanged = attacked(training.folder, attacks=some, truth=truth, known=known, data=public, control=True).attacked
    assert exchanged is not None
    assert exchanged.negative is not None
    for name in some:
        row = exchanged.negative.row(attack=name)
        assert row is not None
        assert row.n == 40
        assert (row.lift or 0) < 0.05
    live = attacked(training.folder, attacks=["informed_qa"], known=known, data=public)
    assert "live party" in reasons(live)["informed_qa"]
    equal = attacked(training.folder, attacks=["esa:{match: features}"], truth=truth)
    assert value(equal, "esa", "accuracy", None) == 1.0
    inverse = attacked(training.folder, attacks=["layer_inversion"], truth=truth)
    assert value(inverse, "layer_inversion", "accuracy", None) == 1.0
    assert "can be inverted layer by layer" in words(inverse)[-1]
    published = attacked(training.folder, attacks=["esa", "gia"], truth=truth)
    assert all("top model" in reason for reason in reasons(published).values())
    changed(model="ours")(vertical)
    unnamed = attacked(vertical, attacks=["layer_inversion"])
    assert "known by name alone; name it with --model" in notes(unnamed)[-1]
    assert "bottom model" in reasons(unnamed)["layer_inversion"]
    (vertical / "own.csv").unlink()
    columns = attacked(vertical, attacks=["uifv_dpa"], data=public)
    assert "own columns (own.csv) beside public rows" in reasons(columns)["uifv_dpa"]


@pytest.mark.parametrize("ids", [np.arange(60), pd.Series(range(60)), list(np.arange(60)), torch.arange(60)])
def test_a_server_that_holds_labels_alone_attacks_one_party_of_three(tmp_path: Path, ids: Ids) -> None:
    others = [name for name in ROWS.schema.names if name not in PRIVATE]
    partition = by_names(ROWS.schema, [(), PRIVATE, others])
    model = vertical_mlp(partition, [0], bottom=(), features=9, top=(8,))
    result = VerticalLearning(epochs=2, batch_size=16).train(model, Rows(ROWS.cells[None], ROWS.labels[None]), [0])
    labels = with_ids([TARGET]).assign(id=range(60))
    writer = TranscriptWriter(tmp_path / "labels", ROWS.schema, PRIVATE, "vertical", labels, loss="sum")
    writer.exchange(ids, result.sent[1][0], result.back[1][0])
    training = read_transcript(tmp_path / "labels")
    assert training.schema.names == PRIVATE
    assert training.own_columns is not None
    assert training.own_columns[2]
    truth = table(tmp_path / "truth.csv", with_ids().assign(id=range(60)))
    known = table(tmp_path / "known.csv", with_ids(ids=range(20)).assign(id=range(20)))
    found = attacked(training.folder, attacks=["ridge_sa"], truth=truth, known=known)
    assert value(found, "ridge_sa", "accuracy", None) > value(found, "ridge_sa", "accuracy", None, "baseline")
    assert value(found, "ridge_sa", "accuracy", "cause") == 1.0


def test_the_passive_party_reads_labels_of_a_transcript(vertical: Path, tmp_path: Path) -> None:
    # The newest message of each record is that of the prediction, to which nothing came back.
    known = table(tmp_path / "known.csv", with_ids([TARGET], range(20)))
    found = attacked(vertical, attacks=["label_direction"], known=known)
    assert "which this transcript does not show" in reasons(found)["label_direction"]
    (vertical / "round-000004.safetensors").unlink()
    truth = table(tmp_path / "truth.csv", with_ids())
    attacks = ["label_direction", "label_completion_active", "label_batch"]
    found = attacked(vertical, attacks=attacks, known=known, truth=truth)
    assert value(found, "label_direction", "accuracy", TARGET) > 0.9
    assert "active" in reasons(found)["label_completion_active"]
    assert "which this transcript does not show" in reasons(found)["label_batch"]


def test_baselines_hold_what_the_attacker_knows(vertical: Path, tmp_path: Path) -> None:
    (vertical / "round-000004.safetensors").unlink()
    training, truth = read_transcript(vertical), table(tmp_path / "truth.csv", with_ids())
    attacks = ["label_direction", "ridge_sa"]
    known = table(tmp_path / "known.csv", with_ids(ids=range(20)))
    found = attacked(training.folder, attacks=attacks, known=known, truth=truth)
    mode = ROWS.frame[TARGET][:20].mode()[0]
    assert value(found, "label_direction", "accuracy", TARGET, "baseline") == (ROWS.frame[TARGET][20:] == mode).mean()
    cause = ROWS.frame["cause"][:20].mode()[0]
    assert value(found, "ridge_sa", "accuracy", "cause", "baseline") >= (ROWS.frame["cause"][20:] == cause).mean()
    assert granted(found)["statistics"] == "marginals of the known records"
    labels = table(tmp_path / "labels.csv", with_ids([TARGET], range(20)))
    found = attacked(training.folder, attacks=attacks, known=labels)
    assert str(granted(found)["statistics"]).endswith("assumed: all values likely of cause, noise_0")
    nothing = attacked(training.folder, attacks=["label_norm"], truth=truth)
    assert granted(nothing)["statistics"] == "assumed: all values likely of cause, noise_0, label"
    console = Console(width=300, record=True, file=io.StringIO())
    show(console, read_document(nothing.findings))
    assert "the best baseline, which sees no message and holds no marginals" in " ".join(console.export_text().split())


def changed(**values: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        about = json.loads((folder / TRANSCRIPT).read_text()) | values
        (folder / TRANSCRIPT).write_text(json.dumps(about))

    return change


def message(**tensors: torch.Tensor | None) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "round-000000.safetensors"
        held = load_file(str(file)) | {name: one for name, one in tensors.items() if one is not None}
        save_file({name: one for name, one in held.items() if tensors.get(name, one) is not None}, str(file))

    return change


def cut_short(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / name
        file.write_bytes(file.read_bytes()[:100])

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed(private=["cuase"]), "did you mean 'cause'"),
        (changed(private=[]), "names no private column"),
        (changed(private=ROWS.schema.names), "all 4 columns of the schema are private"),
        (changed(format=9), "is of format 9"),
        (changed(settings="split"), "did you mean 'setting'"),
        (changed(setting="pooled"), "cannot be used: setting"),
        (changed(options={"hidden": [9]}), "of shape"),
        (changed(options={"layers": [8]}), "do not fit deepfm"),
        (changed(options={"dim": 5}), "does not take the transcript's activations of"),
        (changed(model="nets.py:Mine"), "name it yourself with --model"),
        (changed(model="deepfn"), "did you mean 'deepfm'"),
        (changed(id="cause"), "as a column of the schema"),
        (changed(defense={"cut_noize": {}}), "did you mean 'cut_noise'"),
        (lambda f: (f / TRANSCRIPT).write_text("{"), "is not JSON"),
        (lambda f: (f / TRANSCRIPT).write_text("[]"), "a JSON object is expected"),
        (lambda f: (f / "schema.yaml").unlink(), "holds no schema.yaml"),
        (lambda f: (f / "round-000000.safetensors").unlink(), "holds no messages"),
        (lambda f: (f / "round-0.safetensors").write_bytes(b""), "are both of round 0"),
        (cut_short("round-000000.safetensors"), "are no whole safetensors file"),
        (cut_short("client-000000.safetensors"), "is no whole safetensors file"),
        (message(ids=None), "lack the tensor 'ids'"),
        (message(ids=torch.zeros(60, dtype=torch.long)), "hold 59 records twice"),
        (message(ids=torch.zeros(60)), "hold ids of shape (60,) and type float32"),
        (message(ids=torch.full((60, 2), 255, dtype=torch.uint8)), "no text in UTF-8"),
        (message(activations=torch.zeros(3, 9)), "for 60 ids"),
        (message(activations=torch.zeros(60, 9, dtype=torch.long)), "floating-point numbers are expected"),
        (message(gradients=torch.full((60, 9), torch.nan)), "are not finite"),
        (message(gradients=torch.zeros(60, 2)), "gradients of shape (60, 2) for activations"),
        (message(gradients=None), "no round of the transcript holds gradients"),
        (message(clip=torch.zeros(1)), "no single positive number"),
        (message(behind=torch.zeros(60)), "give one number from 1 a record"),
        (message(labels=torch.zeros(60)), "unknown tensor"),
        (lambda f: table(f / "own.csv", with_ids(OWN, range(5))), "lack 55 of the 60 records"),
        (lambda f: table(f / "own.csv", ROWS.frame), "no column 'id' of record ids"),
    ],
)
def test_a_transcript_that_is_not_whole_is_refused(folder: Path, change: Callable[[Path], object], said: str) -> None:
    change(folder)
    with pytest.raises(BadInputError) as refused:
        attacked(folder, attacks=["exact"])
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_gradients_of_zero_and_one_class_are_said(folder: Path, tmp_path: Path) -> None:
    known = table(tmp_path / "known.csv", with_ids([TARGET]).sort_values(TARGET).head(5))
    found = attacked(folder, attacks=["label_direction"], known=known)
    assert "are the same, so that nothing tells others" in reasons(found)["label_direction"]
    message(gradients=torch.zeros(60, load_file(str(folder / "round-000000.safetensors"))["gradients"].shape[1]))(
        folder
    )
    found = attacked(folder, attacks=["exact"])
    assert "the gradients of all 60 records are zero" in reasons(found)["exact"]


@pytest.mark.parametrize(
    ("option", "frame", "said"),
    [
        ("truth", with_ids().assign(id=range(60)), "have no record in common"),
        ("truth", with_ids().drop(columns="noise_0"), "lacks 'noise_0', which its schema has"),
        ("truth", with_ids().assign(id="p1"), "have the id 'p1' twice"),
        ("truth", with_ids().assign(cause="unseen"), "none of its"),
        ("known", with_ids(OWN), "have neither the label 'label' nor all private columns"),
    ],
)
def test_tables_that_do_not_go_with_a_transcript_are_refused(
    folder: Path, tmp_path: Path, option: str, frame: pd.DataFrame, said: str
) -> None:
    given: dict[str, Any] = {option: table(tmp_path / "given.csv", frame)}
    with pytest.raises(BadInputError) as refused:
        attacked(folder, **given)
    assert said in str(refused.value)


def test_an_unknown_format_of_messages_is_refused() -> None:
    with pytest.raises(BadInputError, match="float33"):
        MessageForm(format="float33")  # pyright: ignore[reportArgumentType]
