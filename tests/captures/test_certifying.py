"""Certificates of what unmix proved: the verifier accepts them, and they claim no more than it checks."""

from __future__ import annotations

import copy
import json
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from seepage import verify
from seepage.attacks import create
from seepage.captures.captured import load_capture
from seepage.captures.capturing import capture
from seepage.captures.certifying import certificate_files, write_certificate
from seepage.captures.recovery import known_statistics, recover
from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.learning import LocalTraining
from seepage.models.mlp import mlp
from seepage.models.model import Model, seeded
from seepage.protocols.fedavg import FedAvg
from seepage.protocols.fedsgd import FedSGD
from seepage.settings.network import make_model
from seepage.tabular.encoder import Encoder
from seepage.tabular.table import frame_of
from seepage.wire.horizontal import Knowledge, RecordsGuess, View
from tests.commands import commands

DATA = distinct(rows=40)
ENCODER = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
MODEL = mlp(DATA.schema, (64, 48), seed=0)


def proved(view: View, records: int) -> RecordsGuess:
    return create("unmix", restarts=1, iterations=1)(view, Knowledge(DATA.schema, DATA.statistics, records), [0])


@pytest.fixture(scope="module")
def sent() -> tuple[View, RecordsGuess]:
    view = FedSGD(4).run(MODEL, DATA.train, ENCODER, seeds=[1]).view
    return view, proved(view, 4)


def check(folder: Path, view: View, options: Sequence[str] = ()) -> int:
    update = folder / "update.safetensors"
    save_file({f"module.{name}": part[0].contiguous() for name, part in view.message.items()}, update)
    file, opened, model, _ = certificate_files(folder / "proof.json")
    given = ["--opened", str(opened)] if opened.exists() else []
    return verify.main([str(file), str(update), str(model), *given, *options])


@pytest.mark.parametrize("opened", [False, True])
def test_a_certificate_of_a_gradient_is_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sent: tuple[View, RecordsGuess], opened: bool
) -> None:
    view, guess = sent
    assert guess.certified is not None
    written = write_certificate(tmp_path / "proof.json", guess, view, DATA.schema, DATA.statistics, opened=opened)
    assert written.whole
    assert (written.cells, written.records, written.batch_size) == (int(guess.certified.sum()), 4, 4)
    assert (written.opened is None) == opened
    assert check(tmp_path, view) == 0
    assert capsys.readouterr().out.startswith("VERIFIED: replay of 4 records")


def test_what_travels_holds_no_cell_and_no_salt(tmp_path: Path, sent: tuple[View, RecordsGuess]) -> None:
    view, guess = sent
    written = write_certificate(tmp_path / "proof.json", guess, view, DATA.schema, DATA.statistics)
    assert written.opened is not None
    assert stat.S_IMODE(written.opened.stat().st_mode) == 0o600
    text, opened = written.certificate.read_text(), json.loads(written.opened.read_text())
    assert "opened" not in json.loads(text)
    assert all(set(cell) == {"record", "column", "commitment"} for cell in json.loads(text)["cells"])
    assert len(set(opened["salts"])) == len(opened["salts"]) == written.cells
    assert not any(salt in text for salt in opened["salts"])
    again = write_certificate(tmp_path / "again.json", guess, view, DATA.schema, DATA.statistics)
    assert json.loads(again.certificate.read_text())["cells"] != json.loads(text)["cells"]


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_certificate_of_local_steps_is_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], epochs: int
) -> None:
    view = FedAvg(4, epochs=epochs, learning_rate=0.2).run(MODEL, DATA.train, ENCODER, seeds=[1]).view
    guess = proved(view, 4)
    assert guess.certified is not None
    written = write_certificate(tmp_path / "proof.json", guess, view, DATA.schema, DATA.statistics)
    # The verifier counts the rounding of parameters more carefully, and claims less.
    assert 0 < written.cells <= int(guess.certified.sum())
    assert check(tmp_path, view) == 0
    assert capsys.readouterr().out.startswith("VERIFIED: replay of 4 records")


def test_a_captured_update_of_a_real_optimiser_is_certified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained = copy.deepcopy(MODEL.module)
    rows = DATA.train.cells[:4]
    nn.functional.cross_entropy(trained(ENCODER.encode(rows)), DATA.train.labels[:4].long()).backward()
    torch.optim.SGD(trained.parameters(), lr=0.2).step()
    update, training = tmp_path / "sent.safetensors", LocalTraining(1, 4, 0.2)
    capture(
        *(MODEL.module.state_dict(), trained.state_dict(), update),
        **{"training": training, "batch_size": 4, "statistics": DATA.statistics},
    )
    captured = load_capture(update, MODEL, DATA.schema)
    statistics, origin = known_statistics(DATA.schema, captured.about, DATA.train)
    found = recover(captured, DATA.schema, statistics, origin, options={"restarts": 1, "iterations": 1})
    written = write_certificate(tmp_path / "proof.json", found.guess, captured.view, DATA.schema, statistics)
    assert written.whole
    files = [str(written.certificate), str(update), str(written.model), "--opened", str(written.opened)]
    assert verify.main(files) == 0
    assert capsys.readouterr().out.startswith("VERIFIED: replay of 4 records")
    opened = json.loads((tmp_path / "proof.opened.json").read_text())
    assert sorted(one["cells"] for one in opened["records"]) == sorted(
        [list(row) for row in frame_of(DATA.schema, rows).itertuples(index=False)]
    )


def test_of_a_multiple_of_the_batch_one_copy_is_certified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sent: tuple[View, RecordsGuess]
) -> None:
    view, _ = sent
    written = write_certificate(tmp_path / "proof.json", proved(view, 8), view, DATA.schema, DATA.statistics)
    assert (written.records, written.batch_size) == (4, 4)
    conditions = json.loads(written.certificate.read_text())["conditions"]
    assert (conditions["batch_size"], conditions["multiple_of"]) == (8, 4)
    assert check(tmp_path, view) == 0
    assert '"batch_size": 8, "multiple_of": 4' in capsys.readouterr().out


def test_estimated_records_are_not_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sent: tuple[View, RecordsGuess]
) -> None:
    view, guess = sent
    assert guess.certified is not None
    cells, certified = guess.cells.clone(), guess.certified.clone()
    cells[0, 2], certified[0, 2] = cells[0, 1], False
    partly = replace(guess, cells=cells, certified=certified)
    written = write_certificate(tmp_path / "proof.json", partly, view, DATA.schema, DATA.statistics)
    assert not written.whole
    assert written.records == 3
    assert "none is verified" in str(written)
    assert check(tmp_path, view) == 1
    assert "only 3 of 4 records were read" in capsys.readouterr().out


def test_what_the_verifier_does_not_replay_is_refused_and_leaves_no_file(
    tmp_path: Path, sent: tuple[View, RecordsGuess]
) -> None:
    view, guess = sent
    assert guess.certificates is not None
    assert guess.certificates[0] is not None
    stated = guess.certificates[0]
    for refused, why in [
        (replace(guess, certificates=(None,)), "certified no cell"),
        (replace(guess, certificates=(replace(stated, others_fixed=True),)), "batch normalisation"),
        (replace(guess, certificates=(replace(stated, unit="standard deviations of its noise"),)), "noise"),
        (replace(guess, certificates=(replace(stated, precision="float64"),)), "float64"),
        (replace(guess, cells=guess.cells.roll(1, 1)), "roundings of the message"),
    ]:
        with pytest.raises(BadInputError, match=why):
            write_certificate(tmp_path / "proof.json", refused, view, DATA.schema, DATA.statistics)
        assert list(tmp_path.iterdir()) == []
    view = FedAvg(4, local_batch_size=2).run(MODEL, DATA.train, ENCODER, seeds=[1]).view
    with pytest.raises(BadInputError, match="over all its records"):
        write_certificate(tmp_path / "proof.json", guess, view, DATA.schema, DATA.statistics)


class Chances(nn.Module):
    """A network that ends in a sigmoid of its own."""

    def __init__(self, layers: nn.Sequential) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, rows: Tensor) -> Tensor:
        return self.layers(rows).sigmoid()


def test_of_a_network_that_ends_in_a_sigmoid_the_logits_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def build() -> nn.Sequential:
        width = DATA.schema.width
        return nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 48), nn.Tanh(), nn.Linear(48, 1))

    layers = seeded(build, 0)
    model, _ = make_model(nn.Sequential(*layers, nn.Sigmoid()), DATA.schema, DATA.statistics)
    view = FedSGD(4).run(model, DATA.train, ENCODER, seeds=[1]).view
    guess = proved(view, 4)
    written = write_certificate(tmp_path / "proof.json", guess, view, DATA.schema, DATA.statistics)
    assert written.whole
    assert [*json.loads(written.model.read_text())["layers"][1::2]] == ["tanh", "tanh"]
    assert check(tmp_path, view) == 0
    assert capsys.readouterr().out
    model, _ = make_model(Chances(layers), DATA.schema, DATA.statistics)
    view = FedSGD(4).run(model, DATA.train, ENCODER, seeds=[1]).view
    with pytest.raises(BadInputError, match=r"ends in a sigmoid that is no nn.Sigmoid"):
        write_certificate(tmp_path / "own.json", guess, view, DATA.schema, DATA.statistics)


def test_no_file_is_replaced(tmp_path: Path, sent: tuple[View, RecordsGuess]) -> None:
    view, guess = sent
    (tmp_path / "proof.model.json").write_text("{}")
    with pytest.raises(BadInputError, match="is there already"):
        write_certificate(tmp_path / "proof.json", guess, view, DATA.schema, DATA.statistics)
    assert (tmp_path / "proof.model.json").read_text() == "{}"


NETWORK = """
import torch
from torch import nn

class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear({width}, 64), nn.Linear(64, 64), nn.Linear(64, {outputs})

    def forward(self, rows):
        hidden = torch.relu(self.first(rows))
        return self.last(hidden + torch.relu(self.middle(hidden)))
"""


def test_a_network_that_is_no_list_of_layers_is_checked_as_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = DATA.schema.target
    source = NETWORK.format(width=DATA.schema.width, outputs=getattr(target, "width", 1))
    (tmp_path / "net.py").write_text(source)
    scope: dict[str, type[nn.Module]] = {}
    exec(source, scope)
    view = FedSGD(4).run(Model(seeded(scope["Residual"], 0), "softmax", "mine"), DATA.train, ENCODER, seeds=[1]).view
    guess = proved(view, 4)
    assert guess.certificates is not None
    # Nothing is normalised in it, so that the proof holds whatever the other cells are.
    assert guess.certificates[0] is not None
    assert not guess.certificates[0].others_fixed
    assert guess.certificates[0].recipe == "the mean gradient of the batch"
    with pytest.raises(BadInputError, match="factory="):
        write_certificate(tmp_path / "proof.json", guess, view, DATA.schema, DATA.statistics)
    factory = f"{tmp_path / 'net.py'}:Residual"
    write_certificate(tmp_path / "proof.json", guess, view, DATA.schema, DATA.statistics, factory=factory)
    assert check(tmp_path, view) == 2
    assert check(tmp_path, view, ["--allow-code"]) == 0
    assert "VERIFIED: replay of 4 records" in capsys.readouterr().out


def test_the_commands_write_and_check_a_certificate(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seepage = commands(capfd, monkeypatch, tmp_path)
    assert seepage("capture", "example", "--dataset", "german", "--batch-size", 4, "--out", "client")[0] == 0
    update = "client/update.safetensors"
    given = [update, "--model", "nn3", "--weights", "client/model.safetensors", "--schema", "client/schema.yaml"]
    given += ["--restarts", "1", "--iterations", "1"]
    status, _, errors = seepage("attack", *given, "--open", "--out", "read")
    assert status == 2
    assert "--certificate" in errors
    status, text, _ = seepage("attack", *given, "--certificate", "proof.json", "--out", "read")
    assert status == 0
    assert "80 cells of 4 of 4 records are in the certificate" in text
    files = ["proof.json", update, "proof.model.json"]
    status, text, _ = seepage("verify", *files)
    assert (status, text.startswith("NOT VERIFIED, FORM ONLY")) == (0, True)
    status, text, _ = seepage("verify", *files, "--opened", "proof.opened.json")
    assert (status, text.startswith("VERIFIED")) == (0, True)
    assert seepage("verify", "proof.model.json", *files[1:])[0] == 1
    assert seepage("verify", "nowhere.json", *files[1:])[0] == 2
    status, _, errors = seepage("attack", *given, "--certificate", "proof.json", "--out", "again")
    assert status == 2
    assert "there already" in errors
