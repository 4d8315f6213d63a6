"""Certificates of what unmix proved: the verifier accepts them, and they claim no more than the kernel proves."""

from __future__ import annotations

import copy
import json
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from seepage.attacking.updates import recover
from seepage.attacks import create
from seepage.attacks.horizontal.exact.certifying import write_certificate
from seepage.captures.captured import attacker_statistics, load_capture
from seepage.captures.capturing import capture
from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.kernel import RefusedError
from seepage.learning import LocalTraining
from seepage.models.making import make_model
from seepage.models.mlp import mlp
from seepage.protocols.fedavg import FedAvg
from seepage.protocols.fedsgd import FedSGD
from seepage.seeds import seeded
from seepage.tabular.client_encoder import ClientEncoder
from seepage.tabular.encoder import Encoder
from seepage.tabular.table import frame_of
from seepage.wire.horizontal import Knowledge, RecordsGuess, View
from tests.certificates import checked
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


def check(folder: Path, view: View, records: int = 4) -> tuple[int, int]:
    verdict = checked(folder / "proof.json", view, view.model, DATA.schema, DATA.statistics, records)
    return verdict.verified, verdict.given


@pytest.mark.parametrize("opened", [False, True])
def test_a_certificate_of_a_gradient_is_accepted(tmp_path: Path, sent: tuple[View, RecordsGuess], opened: bool) -> None:
    view, guess = sent
    assert guess.certified is not None
    written = write_certificate(tmp_path / "proof.json", guess, view, DATA.schema, DATA.statistics, opened=opened)
    assert (written.cells, written.given, written.records) == (int(guess.certified.sum()), 0, 4)
    assert str(written) == "24 cells of 4 records are certified"
    assert (written.opened is None) == opened
    assert check(tmp_path, view) == (24, 0)
    with pytest.raises(RefusedError, match=r"declared\.records is 4 in the certificate, and 8"):
        check(tmp_path, view, 8)


def test_what_travels_holds_no_cell_and_no_salt(tmp_path: Path, sent: tuple[View, RecordsGuess]) -> None:
    view, guess = sent
    written = write_certificate(tmp_path / "proof.json", guess, view, DATA.schema, DATA.statistics)
    assert written.opened is not None
    assert stat.S_IMODE(written.opened.stat().st_mode) == 0o600
    text, opened = written.certificate.read_text(), json.loads(written.opened.read_text())
    assert "opened" not in json.loads(text)
    assert all(set(cell) == {"record", "column", "given", "commitment"} for cell in json.loads(text)["cells"])
    assert len(set(opened["salts"])) == len(opened["salts"]) == written.cells
    assert not any(salt in text for salt in opened["salts"])
    again = write_certificate(tmp_path / "again.json", guess, view, DATA.schema, DATA.statistics)
    assert json.loads(again.certificate.read_text())["cells"] != json.loads(text)["cells"]
    written.opened.unlink()
    assert check(tmp_path, view) == (0, 0)


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_certificate_of_local_steps_claims_what_the_kernel_proves(tmp_path: Path, epochs: int) -> None:
    model = mlp(DATA.schema, (256, 48), seed=0)
    view = FedAvg(4, epochs=epochs, learning_rate=0.2).run(model, DATA.train, ENCODER, seeds=[1]).view
    guess = proved(view, 4)
    assert guess.certified is not None
    assert guess.given is not None
    written = write_certificate(tmp_path / "proof.json", guess, view, DATA.schema, DATA.statistics)
    assert (written.cells, written.given) == (int(guess.certified.sum()), int(guess.given.sum()))
    assert written.cells + written.given > 0
    assert check(tmp_path, view) == (written.cells, written.given)


def test_a_captured_update_of_a_real_optimiser_is_certified(tmp_path: Path) -> None:
    trained = copy.deepcopy(MODEL.module)
    rows = DATA.train.cells[:4]
    nn.functional.cross_entropy(trained(ENCODER.encode(rows)), DATA.train.labels[:4].long()).backward()
    torch.optim.SGD(trained.parameters(), lr=0.2).step()
    update, training = tmp_path / "sent.safetensors", LocalTraining(1, 4, 0.2)
    sent, received = MODEL.module.state_dict(), trained.state_dict()
    capture(sent, received, update, training=training, batch_size=4, statistics=DATA.statistics)
    captured = load_capture(update, MODEL, DATA.schema)
    statistics, origin = attacker_statistics(DATA.schema, captured.about, DATA.train)
    found = recover(captured, DATA.schema, statistics, origin, options={"restarts": 1, "iterations": 1})
    written = write_certificate(tmp_path / "proof.json", found.guess, captured.view, DATA.schema, statistics)
    verdict = checked(tmp_path / "proof.json", update, MODEL, DATA.schema, DATA.statistics, 4)
    assert verdict.verified == written.cells > 0
    opened = json.loads((tmp_path / "proof.opened.json").read_text())
    assert sorted(one["cells"] for one in opened["records"]) == sorted(
        [list(row) for row in frame_of(DATA.schema, rows).itertuples(index=False)]
    )


def test_what_is_not_proved_gets_no_certificate_and_leaves_no_file(
    tmp_path: Path, sent: tuple[View, RecordsGuess]
) -> None:
    view, guess = sent
    with pytest.raises(BadInputError, match="no cell is certified"):
        write_certificate(tmp_path / "proof.json", replace(guess, proofs=None), view, DATA.schema, DATA.statistics)
    view = FedAvg(4, local_batch_size=2).run(MODEL, DATA.train, ENCODER, seeds=[1]).view
    with pytest.raises(BadInputError, match="no cell is certified"):
        write_certificate(tmp_path / "proof.json", proved(view, 4), view, DATA.schema, DATA.statistics)
    assert list(tmp_path.iterdir()) == []


def test_of_a_network_that_ends_in_a_sigmoid_the_logits_are_checked(tmp_path: Path) -> None:
    def build() -> nn.Sequential:
        width = DATA.schema.width
        return nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 48), nn.Tanh(), nn.Linear(48, 1))

    model, _ = make_model(nn.Sequential(*seeded(build, 0), nn.Sigmoid()), DATA.schema, DATA.statistics)
    view = FedSGD(4).run(model, DATA.train, ENCODER, seeds=[1]).view
    written = write_certificate(tmp_path / "proof.json", proved(view, 4), view, DATA.schema, DATA.statistics)
    assert check(tmp_path, view) == (written.cells, 0)


def test_no_file_is_replaced(tmp_path: Path, sent: tuple[View, RecordsGuess]) -> None:
    view, guess = sent
    (tmp_path / "proof.opened.json").write_text("{}")
    with pytest.raises(BadInputError, match="is there already"):
        write_certificate(tmp_path / "proof.json", guess, view, DATA.schema, DATA.statistics)
    assert (tmp_path / "proof.opened.json").read_text() == "{}"


NETWORK = """
import torch
from torch import nn

class Network(nn.Sequential):
    def forward(self, rows):
        return super().forward({rows})

def build():
    return Network(nn.Linear({width}, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 2))
"""


def test_the_commands_write_and_check_a_certificate(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seepage = commands(capfd, monkeypatch, tmp_path)
    assert seepage("capture", "example", "--dataset", "german", "--batch-size", 4, "--out", "client")[0] == 0
    update = "client/update.safetensors"
    model = ["--model", "nn3", "--weights", "client/model.safetensors", "--schema", "client/schema.yaml"]
    given = [update, *model, "--restarts", "1", "--iterations", "1"]
    status, _, errors = seepage("attack", *given, "--open", "--out", "read")
    assert status == 2
    assert "--certificate" in errors
    status, text, _ = seepage("attack", *given, "--certificate", "proof.json", "--out", "read")
    assert status == 0
    assert "80 cells of 4 records are certified" in text
    own = ["proof.json", "--update", update, *model, "--encoder", "client/encoder.json"]
    status, text, _ = seepage("verify", *own, "--records", 4)
    assert (status, text.startswith("NOT VERIFIED, FORM ONLY")) == (4, True)
    opened = [*own, "--opened", "proof.opened.json"]
    status, text, _ = seepage("verify", *opened, "--records", 4)
    assert (status, text.startswith("VERIFIED: 80 of 80 cells")) == (0, True)
    words = " ".join(text.split())
    assert "exactly 4 records, each of the same weight, in float32" in words
    assert "age (19 to 75, within" in words
    status, text, _ = seepage("verify", *opened, "--records", 400)
    assert (status, "declared.records is 4 in the certificate, and 400" in text) == (1, True)
    status, _, errors = seepage("verify", *opened)
    assert (status, "--records" in errors) == (2, True)
    assert seepage("verify", "nowhere.json", *opened[1:], "--records", 4)[0] == 2
    # What the verifier's files say wins over what the prover's say: of the encoder,
    encoder = json.loads(Path("client/encoder.json").read_text())
    [age] = [column for column in encoder["columns"] if column["name"] == "age"]
    age["mean"] += 20
    Path("other.json").write_text(json.dumps(encoder))
    changed = [x if x != "client/encoder.json" else "other.json" for x in opened]
    status, text, _ = seepage("verify", *changed, "--records", 4)
    assert (status, text.startswith("REFUSED: declared.columns.age.mean")) == (1, True)
    # of the recipe,
    Path("noisy.json").write_text(json.dumps({"defense": {"clipping": {"norm": 1.0}}, "batch_size": 4}))
    status, text, _ = seepage("verify", *opened, "--declaration", "noisy.json")
    assert (status, "declared.defense" in text) == (1, True)
    assert seepage("verify", *opened, "--declaration", "noisy.json", "--records", 8)[0] == 2
    Path("mixed.json").write_text(json.dumps({"precision": "mixed"}))
    status, text, _ = seepage("verify", *opened, "--declaration", "mixed.json", "--records", 4)
    assert (status, "declared.precision" in text) == (1, True)
    # and of the network.
    status, text, _ = seepage(
        "verify", *[x for x in opened if x not in model[2:4]], "--records", 4, "--head", "softmax"
    )
    assert status == 0
    status, _, errors = seepage("attack", *given, "--certificate", "proof.json", "--out", "again")
    assert status == 2
    assert "there already" in errors


def test_a_certificate_that_the_truth_contradicts_is_an_error_of_the_program(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seepage = commands(capfd, monkeypatch, tmp_path)
    for seed in (0, 1):
        example = ["--dataset", "german", "--batch-size", 4, "--seed", seed, "--out", f"client{seed}"]
        assert seepage("capture", "example", *example)[0] == 0
    given = ["client0/update.safetensors", "--model", "nn3", "--weights", "client0/model.safetensors"]
    given += ["--schema", "client0/schema.yaml", "--proofs-only"]
    assert seepage("attack", *given, "--truth", "client0/truth.csv", "--out", "read")[0] == 0
    status, _, errors = seepage("attack", *given, "--truth", "client1/truth.csv", "--out", "wrong")
    assert status == 71
    assert "certified cells are wrong" in errors
    assert not (tmp_path / "wrong").exists()
    # Of a folder, too, where other errors leave out one update.
    place = Path("captured/client-a/round-1")
    place.mkdir(parents=True)
    for name in ("update.safetensors", "model.safetensors"):
        shutil.copy(f"client0/{name}", place)
    folder = ["captured", "--model", "nn3", "--schema", "client0/schema.yaml", "--proofs-only", "--truth"]
    for seed, expected in ((0, 0), (1, 71)):
        assert seepage("attack", *folder, f"client{seed}/truth.csv", "--out", f"all{seed}")[0] == expected


@pytest.mark.slow
def test_what_a_network_of_ones_own_cuts_off_is_not_certified(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network cuts off what no record of the batch reaches, so that its update is that of the plain one."""
    seepage = commands(capfd, monkeypatch, tmp_path)
    example = ["--dataset", "german", "--batch-size", 4, "--model"]
    assert seepage("capture", "example", *example, "nn3", "--out", "first")[0] == 0
    width = ClientEncoder.load("first/encoder.json").width
    for name, rows in (("plain", "rows"), ("clipped", "torch.minimum(rows, torch.full_like(rows, 50.0))")):
        Path(f"{name}.py").write_text(NETWORK.format(width=width, rows=rows))
    assert seepage("capture", "example", *example, "plain.py:build", "--out", "client")[0] == 0
    given = ["--schema", "client/schema.yaml", "--weights", "client/model.safetensors"]
    for name, expected in (("plain", 0), ("clipped", 2)):
        attacked = ["client/update.safetensors", *given, "--model", f"{name}.py:build", "--proofs-only"]
        status, _, errors = seepage("attack", *attacked, "--certificate", f"{name}.json", "--out", f"read-{name}")
        assert status == expected
        assert ("no cell is certified" in errors) == (expected == 2)
    given += ["--update", "client/update.safetensors", "--encoder", "client/encoder.json", "--records", "4"]
    for name, expected in (("plain", 0), ("clipped", 1)):
        files = ["plain.json", "--opened", "plain.opened.json"]
        assert seepage("verify", *files, *given, "--model", f"{name}.py:build")[0] == expected
