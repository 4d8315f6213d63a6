from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import nn

from seepage.auditing import audit_document
from seepage.config.document import make_specs
from seepage.datasets import load
from seepage.datasets.planted import telling
from seepage.errors import BadInputError
from seepage.models.mlp import mlp, nn1
from seepage.models.model import Model
from seepage.reproduce.table import load_table
from seepage.seeds import seeded
from seepage.settings.horizontal.audit import HorizontalAudit
from seepage.settings.horizontal.spec import HorizontalSpec, Training, make_spec
from seepage.settings.horizontal.subject import keep_networks, prepare, subject_of
from seepage.settings.horizontal.tasks import learnt_rows
from seepage.settings.horizontal.training import train
from seepage.settings.units import Tables
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, RoundsView
from tests.parts import horizontal


class Remembering(Encoder):
    """Remembers the last rows that it encoded and that were those of clients."""

    seen: torch.Tensor | None = None

    def encode(self, cells: torch.Tensor) -> torch.Tensor:
        encoded = super().encode(cells)
        if encoded.dim() == 3:
            self.seen = encoded
        return encoded


@pytest.mark.parametrize("epochs", [1, 3])
def test_rounds_are_means_of_what_clients_do_by_pytorch(epochs: int) -> None:
    data = load("german")
    encoder = Remembering(data.schema, data.statistics, dtype=torch.float32)
    model = nn1(data.schema, seed=1)
    before = {name: p.clone() for name, p in model.parameters.items()}
    training = Training(rounds=3, clients=4, records=8, epochs=epochs, learning_rate=0.3)
    [trained], learnt = train(model, data, encoder, training, seed=5)
    assert all(torch.equal(p, before[name]) for name, p in model.parameters.items())
    assert encoder.seen is not None
    assert encoder.seen.shape[:2] == (4, 8)
    every = encoder.encode(data.train.cells)
    places = [int((every == row).all(1).nonzero()[0]) for row in encoder.seen.flatten(0, 1)]
    # No row is two clients'.
    assert len(set(places)) == 32
    labels = data.train.labels[places].long().view(4, 8)
    module = nn1(data.schema, seed=1).module
    for _ in range(3):
        sent = []
        for x, y in zip(encoder.seen, labels, strict=True):
            own = nn1(data.schema, seed=1).module
            own.load_state_dict(module.state_dict())
            sgd = torch.optim.SGD(own.parameters(), lr=0.3)
            for _ in range(epochs):
                sgd.zero_grad()
                nn.functional.cross_entropy(own(x), y).backward()
                sgd.step()
            sent.append(own.state_dict())
        module.load_state_dict({name: torch.stack([one[name] for one in sent]).mean(0) for name in sent[0]})
    for name, p in module.named_parameters():
        torch.testing.assert_close(trained.parameters[name], p, rtol=1e-4, atol=1e-6)
    assert data.test is not None
    predicted = module(encoder.encode(data.test.cells)).argmax(1)
    assert learnt.value == pytest.approx(float((predicted == data.test.labels).double().mean()))
    assert learnt.guess == pytest.approx(float((data.test.labels == data.train.labels.mode().values).double().mean()))


def test_running_statistics_follow() -> None:
    data = telling(rows=100)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    module = seeded(lambda: nn.Sequential(nn.BatchNorm1d(encoder.width, momentum=0.5), nn.Linear(encoder.width, 2)), 0)
    [trained], learnt = train(
        Model(module, "softmax", "mine"), data, encoder, Training(rounds=30, clients=4, records=20), seed=0
    )
    assert learnt.value == 1.0
    # The mean of standardised rows is near 0, their variance near 1 except for the columns that never vary.
    held = dict(trained.module.named_buffers())
    assert float(held["0.running_mean"].abs().max()) < 0.5
    assert not torch.equal(held["0.running_mean"], torch.zeros(encoder.width))


def test_a_document_sweeps_over_rounds_and_results_say_how_well_the_network_does() -> None:
    specs = horizontal(make_specs({"dataset": "german", "training": {"rounds": [0, 9], "clients": 20}}))
    assert [spec.variant for spec in specs] == ["rounds=0", "rounds=9"]
    tables = Tables()
    start, later = (subject_of(spec, tables) for spec in specs)
    plain = prepare(make_spec(dataset="german"))
    assert start.model_digest == plain.model_digest != later.model_digest
    assert later.model_digest == prepare(specs[1]).model_digest
    assert later.dataset is start.dataset
    [row] = learnt_rows(specs[1], later)
    assert later.learnt is not None
    assert (row.metric, row.mean, row.baseline) == (*("model_accuracy", later.learnt.value, later.learnt.guess),)
    assert (row.settings["rounds"], row.settings["records"]) == (9, 32)
    assert learnt_rows(make_spec(dataset="german"), plain) == []
    told = [fact for fact in HorizontalAudit(specs[1], later).threat_model() if "trained before" in fact]
    assert len(told) == 1
    assert "9 rounds of 20 clients with 32 records each at a learning rate of 0.5" in told[0]


def test_attacked_rounds_follow_each_other() -> None:
    data = load("german")
    encoder, model = Encoder(data.schema, data.statistics, dtype=torch.float32), nn1(data.schema, seed=1)
    several, learnt = train(model, data, encoder, Training(rounds=2, attacked_rounds=3, clients=4), seed=5)
    alone = [train(model, data, encoder, Training(rounds=rounds, clients=4), seed=5) for rounds in (2, 3, 4)]
    for trained, ([one], _) in zip(several, alone, strict=True):
        assert all(torch.equal(p, one.parameters[name]) for name, p in trained.parameters.items())
    assert learnt.value == alone[-1][1].value


def test_a_document_sweeps_over_attacked_rounds() -> None:
    document = {
        "dataset": "german",
        "training": {"attacked_rounds": [1, 3], "clients": 20},
        "protocol": [
            {"name": "fedsgd", "batch_size": 4},
            {"name": "fedsgd", "batch_size": 4, "holds": 10, "label": "b"},
        ],
        "attacks": {"name": "tableak", "restarts": 2},
        "labels": "true",
        "iterations": 3,
        "victims": 2,
    }
    tables = Tables()
    audits = [HorizontalAudit(spec, subject_of(spec, tables)) for spec in horizontal(make_specs(document))]
    attacks = [(audit, audit.configurations[0], audit.parts[-1]) for audit in audits]
    assert all(part.kind == "attack" for _, _, part in attacks)
    assert len({repr(audit.identity(place, part)) for audit, place, part in attacks}) == 4
    exposures = [audit.expose(place, range(2)) for audit, place, _ in attacks]
    transcripts = [exposure.transcript for exposure in exposures]
    assert isinstance(transcripts[0].view, GradientView)
    rounds = [len(t.view.rounds) for t in transcripts[1:] if isinstance(t.view, RoundsView)]
    assert rounds == [1, 3, 3]
    # The same victims in all of them.
    assert torch.equal(transcripts[0].secret.cells, transcripts[2].secret.cells)
    assert torch.equal(transcripts[1].secret.cells, transcripts[3].secret.cells)
    used = transcripts[3].secret.used
    assert used is not None
    known = exposures[3].knowledge
    assert known.batch_size == 10
    assert known.labels is not None
    assert torch.equal(known.labels[1, 4:8], transcripts[3].secret.labels[1, used[1, 1]])
    assert exposures[2].knowledge.labels is not None
    assert exposures[2].knowledge.labels.shape == (2, 4)
    one, alone, many, _ = [str(audit.granted(place, part)["sees"]) for audit, place, part in attacks]
    assert one == "one client's gradient of one batch"
    assert "in 3 rounds of the same clients" in many
    assert alone.endswith("a batch drawn anew from the 10 that a client holds")
    for audit, place, part in attacks:
        first, again = (audit.expose(place, range(2)).measure(part) for _ in range(2))
        for a, b in zip(first.evidence, again.evidence, strict=True):
            assert a.guess is not None
            assert b.guess is not None
            assert (a.guess == b.guess).all()
    refused = make_spec(
        dataset="german", training={"attacked_rounds": 2, "clients": 5}, model="cnn_bn", batch_statistics="granted"
    )
    with pytest.raises(BadInputError, match="leave them hidden, or attack one round"):
        HorizontalAudit(refused, prepare(refused))


@pytest.mark.long
def test_an_audit_of_several_rounds_has_a_control_and_checks() -> None:
    [report] = audit_document(
        {
            "dataset": "german",
            "training": {"attacked_rounds": 2},
            "protocol": {"batch_size": 2, "holds": 4},
            "attacks": {"name": "tableak", "restarts": 2},
            "iterations": 5,
            "victims": 2,
        }
    )
    assert report.control
    assert report.findings is not None
    assert "in 2 rounds of the same clients" in report.rows[0].knowledge["sees"]


@pytest.mark.parametrize("model", ["nn1", "cnn_bn"])
def test_networks_are_kept_and_not_trained_again(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = make_spec(dataset="german", model=model, training={"rounds": 2, "attacked_rounds": 2, "clients": 4})
    subject = prepare(spec, folder=tmp_path)
    assert not list(tmp_path.iterdir())
    keep_networks(tmp_path, [(spec, subject), (spec, subject)])
    [file] = (tmp_path / "networks").iterdir()
    assert file.suffix == ".safetensors"

    def never(*_: object) -> None:
        raise AssertionError("trained again")

    with monkeypatch.context() as patch:
        patch.setattr(import_module("seepage.settings.horizontal.subject"), "train", never)
        again = subject_of(spec, Tables(tmp_path))
        assert again.model_digest == subject.model_digest
        assert again.learnt == subject.learnt
        for one, other in zip([subject.model, *subject.later], [again.model, *again.later], strict=True):
            held = dict(other.module.named_buffers()) | other.parameters
            assert all(torch.equal(t, held[n]) for n, t in (*one.parameters.items(), *one.module.named_buffers()))
        for other in ({"seed": 1}, {"training": {"rounds": 3, "clients": 4}}, {"model": "nn2"}):
            changed = make_spec(**{**spec.model_dump(exclude_unset=True), **other})
            with pytest.raises(AssertionError, match="trained again"):
                prepare(changed, folder=tmp_path)
    for content in (file.read_bytes()[:-9], b"", b"pickle"):
        file.write_bytes(content)
        assert prepare(spec, folder=tmp_path).model_digest == subject.model_digest


def test_networks_of_own_tables_are_kept_only_with_their_records(tmp_path: Path) -> None:
    dataset = load("german")
    for keep in (False, True):
        spec = make_spec(dataset="german", model="nn1", training={"clients": 4}, keep_records=keep)
        keep_networks(tmp_path, [(spec, prepare(spec, dataset))])
        files = list(tmp_path.rglob("*.safetensors"))
        assert len(files) == keep
        assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    assert (tmp_path / "networks").stat().st_mode & 0o777 == 0o700


def test_what_cannot_be_trained_is_refused() -> None:
    data = telling(rows=20)
    encoder, model = Encoder(data.schema, data.statistics, dtype=torch.float32), mlp(data.schema, [], seed=0)
    with pytest.raises(BadInputError, match="by 50 clients, but there are 16 rows to train on"):
        train(model, data, encoder, Training(rounds=1), seed=0)
    with pytest.raises(BadInputError, match="are not finite; give a smaller learning_rate"):
        train(mlp(data.schema, [9], seed=0), data, encoder, Training(rounds=99, clients=2, learning_rate=1e30), seed=0)
    bias = torch.zeros(2, 2)
    crafted = Model(model.module, model.head, "crafted", each={list(model.parameters)[-1]: bias})
    with pytest.raises(BadInputError, match="another version for every client"):
        train(crafted, data, encoder, Training(clients=2), seed=0)
    for bad, said in ({"round": 1}, "did you mean 'rounds'"), ({"rounds": -1}, "greater than or equal to 0"):
        with pytest.raises(BadInputError, match=said):
            make_specs({"training": bad})
    with pytest.raises(BadInputError, match="expected options, such as"):
        make_specs({"training": 3})


def test_table_15_is_the_attack_before_the_update_of_a_round() -> None:
    table = load_table("tableak/table15")
    for audit in table.planned(victims=2):
        spec = audit.spec
        assert isinstance(spec, HorizontalSpec)
        place = audit.place("tableak", configuration=audit.configurations[0])
        assert table.figure(place) is not None
        assert spec.restarts == 15
        assert spec.batch_sizes == ((16,) if spec.dataset == "german" else (32,))
