"""The negative control of captures: sound attacks read nothing of exchanged messages, and a check names faulty ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from seepage import TranscriptWriter, registry, write_weights
from seepage.attacking.controls import swapped_among
from seepage.attacking.sources import CaptureResult, attack_capture
from seepage.auditing import captured_report
from seepage.captures.captured import Description, encoding_of, save_capture
from seepage.datasets.planted import distinct, telling
from seepage.errors import BadInputError
from seepage.models.deepfm import deepfm
from seepage.models.mlp import nn3
from seepage.models.states import state_digest
from seepage.protocols.split import SplitLearning
from seepage.report.page import page
from seepage.report.report import Report
from seepage.report.sections import audit_document
from seepage.seeds import stream
from seepage.settings.captured import RecordsExposure
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, Knowledge, RecordsGuess
from seepage.wire.split import CutGuess, CutKnowledge, CutView
from tests.parts import register

DATA = distinct(rows=40)
ENCODER = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
CLIENTS, RECORDS = 4, 2
ROWS = telling(rows=200).train.rows(range(60))
PRIVATE = ("cause", "noise_0")


class Peeking:
    """A faulty attack: it knows each client's records from the seeds of its random starts, and reads no message."""

    def __call__(self, view: GradientView, knowledge: Knowledge, seeds: Sequence[int]) -> RecordsGuess:
        place = [stream(0, unit, "starts") for unit in range(CLIENTS)].index(seeds[0])
        return RecordsGuess(DATA.train.cells[None, place * RECORDS : (place + 1) * RECORDS].clone())


def gradient(module: nn.Module, records: slice) -> dict[str, Tensor]:
    rows, labels = ENCODER.encode(DATA.train.cells[records]), DATA.train.labels[records].long()
    parameters = dict(module.named_parameters())
    loss = nn.functional.cross_entropy(module(rows), labels)
    return dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Updates of four clients with two records each, their rows, and the schema."""
    place, module = tmp_path_factory.mktemp("captured"), nn3(DATA.schema, seed=1).module
    save_file(dict(module.state_dict()), place / "model.safetensors")
    (place / "own").mkdir()
    (place / "schema.yaml").write_text(DATA.schema.to_yaml())
    sent, encoding = state_digest(module.state_dict()), encoding_of(DATA.statistics)
    for k in range(CLIENTS):
        records = slice(k * RECORDS, (k + 1) * RECORDS)
        about = Description(batch_size=RECORDS, sent=sent, encoding=encoding, client=f"c{k}", round=1)
        save_capture(place / f"{k}.safetensors", gradient(module, records), about)
        DATA.train.frame.iloc[records].to_csv(place / "own" / f"c{k}.csv", index=False)
    return place


def of_folder(folder: Path, attack: str, path: Path | None = None, **given: object) -> CaptureResult:
    known = {"model": "nn3", "schema_file": folder / "schema.yaml", "truth": folder / "own"}
    return attack_capture(path or folder, **{**known, "attacks": [attack], **given})


@pytest.fixture(scope="module")
def read(folder: Path) -> CaptureResult:
    """What a sound attack reads of all updates."""
    return of_folder(folder, "unmix", proofs_only=True)


def report_of(result: CaptureResult) -> Report:
    assert result.attacked is not None
    return captured_report(result.attacked)


def named(report: Report) -> list[str]:
    """The attacks that the check of the negative control names."""
    assert report.findings is not None
    return [place.attack or "" for finding in report.findings if finding.code == "SEEP021" for place in finding.where]


def lifts(report: Report) -> dict[str, float]:
    """The lift of each attack over the best baseline in the negative control, on cells or else on labels."""
    rows = [row for row in report.negative or () if row.is_attack and row.metric == "accuracy" and row.lift is not None]
    on_labels = {row.attack: row.lift or 0.0 for row in rows if row.column == report.audit.about.label}
    return on_labels | {row.attack: row.lift or 0.0 for row in rows if row.column is None}


def test_a_sound_attack_reads_nothing_of_exchanged_updates(read: CaptureResult) -> None:
    report = report_of(read)
    [row] = [row for row in report.rows if row.is_attack and (row.metric, row.column) == ("accuracy", None)]
    assert (row.mean, row.n) == (1.0, CLIENTS)
    assert lifts(report)["unmix"] <= 0
    assert named(report) == []
    assert "Negative control: the messages carry nothing of what is scored." in page(audit_document(report))


def test_an_attack_that_does_not_read_the_update_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, registry.attacks, "peeking", Peeking, "horizontal")
    report = report_of(of_folder(folder, "peeking", gate={"above": 0.2}))
    assert lifts(report)["peeking"] > 0.5
    assert named(report) == ["peeking"]
    assert "So peeking finds what is not there" in page(audit_document(report))


def test_why_there_is_no_control_is_said(folder: Path, tmp_path: Path) -> None:
    off = report_of(of_folder(folder, "single_activation", control=False))
    assert off.negative is None
    assert "Negative control: none was run. It was switched off." in page(audit_document(off))
    for name in ("0.safetensors", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    truth = folder / "own" / "c0.csv"
    alone = report_of(of_folder(folder, "single_activation", tmp_path, truth=truth))
    assert "Messages are exchanged among clients" in page(audit_document(alone))
    given = {"truth": truth, "weights": folder / "model.safetensors"}
    update = report_of(of_folder(folder, "single_activation", folder / "0.safetensors", **given))
    assert "These files are one message" in page(audit_document(update))


def test_messages_are_exchanged_and_what_is_known_stays(read: CaptureResult) -> None:
    """Of two messages of the same records none is given to the other."""
    assert read.attacked is not None
    assert read.attacked.negative is not None
    first, exposure = read.attacked.audit.exposure, read.attacked.negative.audit.exposure
    assert isinstance(first, RecordsExposure)
    assert isinstance(exposure, RecordsExposure)
    assert exposure.view is not first.view
    assert exposure.truth is first.truth
    assert exposure.starts == first.starts
    with pytest.raises(BadInputError, match="there are 0 such clients"):
        swapped_among({"a": exposure, "b": exposure})


def with_ids(names: list[str]) -> pd.DataFrame:
    return ROWS.frame[names].assign(id=[f"p{i}" for i in range(len(ROWS))])


@pytest.fixture(scope="module")
def transcript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A transcript of split training beside the truth; the server has columns of its own."""
    place = tmp_path_factory.mktemp("split")
    learning = SplitLearning(epochs=3, batch_size=60)
    trained = learning.train(deepfm(ROWS.schema, PRIVATE, 0, hidden=(8,)), ROWS, 1)
    own = with_ids([name for name in ROWS.schema.names if name not in PRIVATE])
    writer = TranscriptWriter(place / "read", ROWS.schema, PRIVATE, own=own, model="deepfm", options={"hidden": [8]})
    for number, stage in enumerate(trained.stages[-2:]):
        view = learning.observe(stage, ROWS, seed=number).view
        write_weights(view.model.client, place / "read", number)
        writer.exchange([f"p{i}" for i in range(60)], view.cut, view.gradient, number=number)
    with_ids([*ROWS.schema.names, ROWS.schema.target.name]).to_csv(place / "truth.csv", index=False)
    return place


class InOrder:
    """A faulty attack: it knows the records by their places, and reads no message."""

    def __call__(self, view: CutView, knowledge: CutKnowledge, seeds: Sequence[int]) -> CutGuess:
        private = [ROWS.schema.names.index(name) for name in PRIVATE]
        return CutGuess(ROWS.cells[:, private].clone(), ROWS.labels.clone())


def test_of_a_transcript_messages_are_exchanged_among_records(
    transcript: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records whose label is known keep their messages, from which an attack on labels learns, and are not scored."""
    register(monkeypatch, registry.attacks, "in_order", InOrder, "split")
    known, attacks = tmp_path / "known.csv", ["exact", "label_direction", "in_order"]
    with_ids([ROWS.schema.target.name]).iloc[:20].to_csv(known, index=False)
    given = {"truth": transcript / "truth.csv", "known": known}
    report = report_of(attack_capture(transcript / "read", attacks=attacks, **given))
    labels = ROWS.schema.target.name
    read = {(row.attack, row.column): row.mean for row in report.rows if row.is_attack and row.metric == "accuracy"}
    assert read["exact", None] == read["label_direction", labels] == 1.0
    assert {row.n for row in report.negative or () if row.is_attack and row.column in (None, labels)} == {40}
    control = lifts(report)
    assert set(control) == set(attacks)
    assert max(control["exact"], control["label_direction"]) < 0.1
    assert named(report) == ["in_order"]
