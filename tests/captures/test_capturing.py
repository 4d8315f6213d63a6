"""What ``seepage.capture`` writes is what is sent: after Opacus' noise, in every form in which states are handed on."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import seepage
from seepage import TranscriptWriter, write_weights
from seepage.attacking.updates import recover
from seepage.attacks.split import Exact
from seepage.captures.captured import Description, attacker_statistics, client_schema, load_capture, read_description
from seepage.captures.transcripts import read_transcript
from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.learning import LocalTraining, batch_statistics
from seepage.models.message import MessageForm
from seepage.models.model import Model
from seepage.models.states import state_digest
from seepage.protocols.recipe import Arithmetic
from seepage.protocols.split import SplitLearning
from seepage.tabular.client_encoder import ClientEncoder
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Discrete
from seepage.tabular.statistics import uniform_statistics
from seepage.tabular.table import Table
from seepage.wire.horizontal import KnownDefense, UpdateView
from seepage.wire.split import CutKnowledge
from tests.captures import two_parties as job
from tests.captures.attacked import answers, attacked, notes, ran, reasons, value
from tests.processes import HANGS
from tests.roundings import assert_rounded_alike

DATA = distinct(rows=40)
WIDTH = DATA.schema.width
TRAINING = LocalTraining(epochs=1, batch_size=8, learning_rate=0.1)
QUICK = {"restarts": 1, "iterations": 1}


def network(seed: int = 0, hidden: int = 48, normalised: bool = False) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # noqa: TID251  initialisers of torch.nn take no generator
        norm = [nn.BatchNorm1d(hidden)] if normalised else []
        return nn.Sequential(
            nn.Linear(WIDTH, hidden), *norm, nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2)
        )


def batch(records: int = 8) -> tuple[Tensor, Tensor]:
    rows = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32).encode(DATA.train.cells[:records])
    return rows, DATA.train.labels[:records].long()


def trained(net: nn.Module, steps: int = 1, rate: float = 0.1) -> dict[str, Tensor]:
    """Return the state before, and train."""
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    rows, labels = batch()
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(rows), labels).backward()
        optimizer.step()
    return before


def content(path: Path) -> dict[str, Tensor]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no mapping


def private(noise: float = 1.0) -> tuple[nn.Module, DPOptimizer]:
    wrapped = GradSampleModule(network())
    optimizer = DPOptimizer(
        torch.optim.SGD(wrapped.parameters(), lr=0.1),
        noise_multiplier=noise,
        max_grad_norm=0.5,
        expected_batch_size=8,
        generator=torch.Generator().manual_seed(1),
    )
    return wrapped, optimizer


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_with_opacus_the_gradient_that_is_sent_is_captured_and_not_the_clean_one(tmp_path: Path) -> None:
    wrapped, optimizer = private()
    rows, labels = batch()
    nn.functional.cross_entropy(wrapped(rows), labels).backward()
    clean = {name: p.grad.clone() for name, p in wrapped.named_parameters() if p.grad is not None}
    before = {name: p.detach().clone() for name, p in wrapped.named_parameters()}
    seepage.capture(wrapped.named_parameters(), tmp_path / "u.safetensors", optimizer=optimizer, batch_size=8)
    assert not (tmp_path / "u.safetensors").exists()
    optimizer.step()
    sent = content(tmp_path / "u.safetensors")
    assert sorted(sent) == sorted(network().state_dict())
    for name, p in wrapped.named_parameters():
        short = name.removeprefix("_module.")
        assert not torch.allclose(sent[short], clean[name], atol=1e-3)
        # The plain step went along what was captured.
        torch.testing.assert_close(before[name] - 0.1 * sent[short], p.detach())


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_the_clean_gradient_under_opacus_is_refused(tmp_path: Path) -> None:
    wrapped, optimizer = private()
    rows, labels = batch()
    nn.functional.cross_entropy(wrapped(rows), labels).backward()
    with pytest.raises(BadInputError, match="neither clipped nor noised yet"):
        seepage.capture(wrapped.named_parameters(), tmp_path / "u.safetensors")
    assert optimizer.pre_step()
    seepage.capture(wrapped.named_parameters(), tmp_path / "u.safetensors")
    assert (tmp_path / "u.safetensors").exists()


def test_a_plain_optimiser_is_captured_once_at_its_next_step(tmp_path: Path) -> None:
    net = network()
    optimizer = torch.optim.Adam(net.parameters())
    path = tmp_path / "u.safetensors"
    seepage.capture(net.named_parameters(), path, optimizer=optimizer)
    rows, labels = batch()
    nn.functional.cross_entropy(net(rows), labels).backward()
    expected = {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
    optimizer.step()
    found = content(path)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    path.unlink()
    optimizer.step()
    assert not path.exists()
    handle = seepage.capture(net.named_parameters(), path, optimizer=optimizer)
    assert handle is not None
    handle.remove()
    optimizer.step()
    assert not path.exists()


def forms(before: dict[str, Tensor], after: dict[str, Tensor], folder: Path) -> dict[str, tuple[Any, Any, Any]]:
    save_file(before, folder / "before.safetensors")
    save_file(after, folder / "after.safetensors")
    first, second = ([tensor.numpy() for tensor in state.values()] for state in (before, after))
    opacus = [{f"_module.{name}": tensor for name, tensor in state.items()} for state in (before, after)]
    return {
        "states": (before, after, None),
        "arrays": (first, second, before),
        "arrays after a state": (before, second, None),
        "files": (folder / "before.safetensors", str(folder / "after.safetensors"), None),
        "opacus": (opacus[0], opacus[1], None),
        "opacus after plain": (before, opacus[1], None),
    }


@pytest.mark.parametrize("form", ["states", "arrays", "arrays after a state", "files", "opacus", "opacus after plain"])
def test_every_form_of_two_states_gives_the_same_update(tmp_path: Path, form: str) -> None:
    net = network()
    before = trained(net)
    one, other, names = forms(before, net.state_dict(), tmp_path)[form]
    path = tmp_path / "u.safetensors"
    seepage.capture(one, other, path, training=TRAINING, names=names, batch_size=8, clients=1, precision="float32")
    found = load_capture(path, Model(network(), "softmax", "own"), DATA.schema)
    assert isinstance(found.view, UpdateView)
    assert found.view.training == TRAINING
    assert found.notes == ()
    for name, tensor in found.view.update.items():
        assert torch.equal(tensor[0], before[name] - net.state_dict()[name].detach())
    assert found.about.sent == state_digest(before)


def test_an_update_of_two_states_proves_its_records(tmp_path: Path) -> None:
    """One plain step: what the server gets is rate times the gradient, in the parameters' rounding."""
    net = network()
    before = trained(net)
    path = tmp_path / "u.safetensors"
    seepage.capture(before, net.state_dict(), path, training=TRAINING, batch_size=8, statistics=DATA.statistics)
    capture = load_capture(path, Model(network(), "softmax", "own"), DATA.schema)
    statistics, origin = attacker_statistics(DATA.schema, capture.about)
    options = {"restarts": 1, "iterations": 1}
    found = recover(capture, DATA.schema, statistics, origin, options=options)
    assert found.guess.certified is not None
    assert found.guess.certified.all()
    read = {tuple(row) for row in found.guess.cells[0].tolist()}
    assert read == {tuple(row) for row in DATA.train.cells[:8].tolist()}
    half = replace(capture, about=capture.about.model_copy(update={"precision": "mixed"}))
    found = recover(half, DATA.schema, statistics, origin, options=options)
    assert found.guess.certified is None or not found.guess.certified.any()


@pytest.mark.parametrize(
    ("facts", "form"),
    [
        ({"loss": "sum"}, MessageForm(reduction="sum")),
        ({"weights": [1, 9], "scale": 1024}, MessageForm(weights=(1.0, 9.0), scale=1024.0)),
        ({"loss": {"smoothing": 0.1, "reduction": "sum"}}, MessageForm(reduction="sum", smoothing=0.1)),
    ],
)
def test_a_loss_is_declared_and_used(tmp_path: Path, facts: dict[str, Any], form: MessageForm) -> None:
    net, (rows, labels) = network(), batch()
    form.loss_of("softmax", net(rows), labels.double()).backward()
    path = tmp_path / "u.safetensors"
    seepage.capture(net.named_parameters(), path, batch_size=8, statistics=DATA.statistics, **facts)
    about = read_description(path)
    assert about.loss is not None
    assert about.loss.form == form
    assert form.describe() in about.describe()
    capture = load_capture(path, Model(network(), "softmax", "own"), DATA.schema)
    assert capture.view.model.form == form
    found = recover(capture, DATA.schema, *attacker_statistics(DATA.schema, about), options=QUICK)
    assert found.guess.regime is not None
    assert "explains the whole message" in found.guess.regime[0]
    assert "fitted" not in found.guess.regime[0]
    assert_all_read(found.guess.cells[0])


def test_a_factor_that_nobody_declared_is_fitted_and_said(tmp_path: Path) -> None:
    net, (rows, labels) = network(), batch()
    (1024 * nn.functional.cross_entropy(net(rows), labels)).backward()
    path = tmp_path / "u.safetensors"
    seepage.capture(net.named_parameters(), path, statistics=DATA.statistics)
    capture = load_capture(path, Model(network(), "softmax", "own"), DATA.schema)
    statistics, origin = attacker_statistics(DATA.schema, capture.about)
    # The number of records is not in the file, and cannot be told from the factor of one record.
    found = recover(capture, DATA.schema, statistics, origin, options=QUICK)
    assert found.number == 8
    assert found.guess.regime is not None
    assert "fitted, not declared: a factor of 1024" in found.guess.regime[0]
    assert_all_read(found.guess.cells[0])
    assert found.guess.certified is None or not found.guess.certified.any()


def assert_all_read(cells: Tensor) -> None:
    true, read = (torch.tensor(sorted(map(tuple, part.tolist()))) for part in (DATA.train.cells[:8], cells))
    torch.testing.assert_close(read, true.to(read), rtol=0, atol=1e-3)


def test_another_model_than_the_one_sent_is_noted(tmp_path: Path) -> None:
    net = network()
    before = trained(net)
    seepage.capture(before, net.state_dict(), tmp_path / "u.safetensors", training=TRAINING)
    found = load_capture(tmp_path / "u.safetensors", Model(network(seed=1), "softmax", "own"))
    assert "not the one that the server sent" in found.notes[0]


@pytest.mark.parametrize(("precision", "noted"), [("mixed", 1), ("float16", 1), ("float32", 0), ("float64", 0)])
def test_a_narrower_computation_than_the_models_is_noted(tmp_path: Path, precision: Arithmetic, noted: int) -> None:
    net = network()
    before = trained(net)
    seepage.capture(before, net.state_dict(), tmp_path / "u.safetensors", training=TRAINING, precision=precision)
    found = load_capture(tmp_path / "u.safetensors", Model(network(), "softmax", "own"))
    assert len([note for note in found.notes if "computed in" in note]) == noted


def test_running_statistics_of_one_step_give_the_batchs_moments_away(tmp_path: Path) -> None:
    net = network(normalised=True)
    before = trained(net)
    path = tmp_path / "u.safetensors"
    seepage.capture(before, net.state_dict(), path, training=TRAINING, batch_size=8)
    assert "1.running_mean" in content(path)
    assert content(path)["1.num_batches_tracked"].dtype == torch.int64
    model = Model(network(normalised=True), "softmax", "own")
    found = load_capture(path, model).batch_statistics
    assert found is not None
    expected = batch_statistics(model, batch()[0])["1"]
    torch.testing.assert_close(found["1"].mean[0], expected.mean, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found["1"].variance[0], expected.variance, atol=1e-5, rtol=1e-4)


def test_running_statistics_of_several_steps_are_those_of_no_batch(tmp_path: Path) -> None:
    net = network(normalised=True)
    before = trained(net, steps=2)
    training = LocalTraining(epochs=2, batch_size=8, learning_rate=0.1)
    seepage.capture(before, net.state_dict(), tmp_path / "u.safetensors", training=training, batch_size=8)
    found = load_capture(tmp_path / "u.safetensors", Model(network(normalised=True), "softmax", "own"))
    assert found.running
    assert found.batch_statistics is None


def test_a_defense_and_an_average_are_known_to_the_attack(tmp_path: Path) -> None:
    net = network()
    before = trained(net)
    path = tmp_path / "u.safetensors"
    seepage.capture(
        before, net.state_dict(), path, training=TRAINING, clients=4, defense={"gaussian_noise": {"scale": 0.5}}
    )
    about = read_description(path)
    assert about.known(8) == KnownDefense("gaussian_noise", {"scale": 0.5}, noise=0.25)
    view = load_capture(path, Model(network(), "softmax", "own")).view
    assert isinstance(view, UpdateView)
    assert view.clients == 4


def test_noise_of_single_records_is_that_of_the_whole_training() -> None:
    training = LocalTraining(epochs=2, batch_size=4, learning_rate=0.5)
    about = Description(
        protocol="fedavg", training=training, defense={"dp_sgd": {"clip_norm": 2.0, "noise_multiplier": 3.0}}
    )
    # Four steps, each with noise 2 * 3 / 4 on its mean gradient.
    assert about.known(8).noise == pytest.approx(0.5 * 1.5 * 2)


def test_a_file_of_format_one_is_read_on(tmp_path: Path) -> None:
    gradient = {name: torch.randn(p.shape) for name, p in network().named_parameters()}
    about = {"format": 1, "protocol": "fedsgd", "batch_size": 3}
    save_file(gradient, tmp_path / "u.safetensors", metadata={"seepage": json.dumps(about)})
    found = load_capture(tmp_path / "u.safetensors", Model(network(), "softmax", "own"))
    assert found.about == Description(batch_size=3)
    assert found.running == {}


STATE = network().state_dict()
OTHER = nn.Linear(2, 2).state_dict()


@pytest.mark.parametrize(
    ("given", "keywords", "message"),
    [
        ((STATE, "u"), {}, "give model.named_parameters()"),
        ((network(), "u"), {}, "give model.named_parameters()"),
        (([torch.zeros(2)], "u"), {}, "of type list of Tensor where pairs of name and parameter"),
        ((3, "u"), {}, "of type int where pairs"),
        ((network().named_parameters(), STATE), {}, "the path is of type OrderedDict"),
        ((), {}, "got 0 of them"),
        ((STATE, STATE, "u"), {}, "captured with training=LocalTraining"),
        ((STATE, STATE, "u"), {"training": {"epochs": 1}}, "training is of type dict"),
        ((STATE, OTHER, "u"), {"training": TRAINING}, "holds 'weight', 'bias', which the model has not"),
        ((OTHER, STATE, "u"), {"training": TRAINING}, "Expected: 'weight' (2, 2), 'bias' (2,). Came: '0.weight'"),
        ((STATE, 3, "u"), {"training": TRAINING}, "of type int; give a state_dict()"),
        ((STATE, list(network().named_parameters()), "u"), {"training": TRAINING}, "is a list of pairs"),
        (
            ([np.zeros(2)], [np.zeros(3)], "u"),
            {"training": TRAINING},
            "a list of 1 arrays, which are not the model's 1",
        ),
        (
            (STATE, [np.zeros(3)], "u"),
            {"training": TRAINING},
            "a list of 1 arrays, which are not the model's 6 tensors",
        ),
        ((STATE, [np.zeros(48)], "u"), {"training": TRAINING}, "array 0 (48,): '0.bias' or '2.bias'"),
        ((STATE, [np.zeros(2)], "u"), {"training": TRAINING, "names": ["a", "b"]}, "1 arrays for 2 names"),
        ((STATE, STATE, "u"), {"training": TRAINING, "local": "mine"}, "local:"),
        ((STATE, {**STATE, "0.bias": "x"}, "u"), {"training": TRAINING}, "of type str where a tensor"),
        (
            (STATE, {**STATE, "0.bias": torch.zeros(3)}, "u"),
            {"training": TRAINING},
            "of shape (3,) where the model has (48,)",
        ),
        ((STATE, "nowhere.safetensors", "u"), {"training": TRAINING}, "does not exist"),
        (({}, {}, "u"), {"training": TRAINING}, "holds no tensor"),
        ((STATE, STATE, "u"), {"training": TRAINING, "optimizer": 3}, "leave out optimizer"),
        ((STATE, STATE, "u"), {"training": TRAINING, "bacth_size": 3}, "did you mean 'batch_size'"),
        ((network().named_parameters(), "u"), {"optimizer": 3}, "optimizer is of type int"),
        ((network().named_parameters(), "u"), {"training": TRAINING}, "a gradient has none"),
        (
            (network().named_parameters(), "u"),
            {"optimizer": torch.optim.SGD(network().parameters(), lr=0.1)},
            "does not step '0.weight'",
        ),
        ((STATE, STATE, "u"), {"training": TRAINING, "loss": "median"}, "loss.loss: Input should be 'cross_entropy'"),
        ((STATE, STATE, "u"), {"training": TRAINING, "weights": [1, -9]}, "weights of classes are numbers from 0"),
        ((STATE, STATE, "u"), {"training": TRAINING, "scale": 0}, "scale of the messages is a number other than 0"),
        ((STATE, STATE, "u"), {"training": TRAINING}, "tensor.clone() for name, tensor in model.state_dict()"),
        ((STATE, STATE, "u"), {"training": TRAINING, "labels": ["no", "yes"]}, "labels are a list of str; give codes"),
        ((STATE, STATE, "u"), {"training": TRAINING, "labels": pd.Series(["no"])}, "labels are a Series; give codes"),
        ((STATE, STATE, "u"), {"training": TRAINING, "weights": ["a"]}, "weights are a list of str; give one number"),
        ((), {"encoder": 3}, "a fitted scikit-learn ColumnTransformer, got int"),
    ],
)
def test_wrong_arguments_get_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[Any, ...], keywords: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    capture: Any = seepage.capture
    with pytest.raises(BadInputError) as raised:
        capture(*given, **keywords)
    assert message in str(raised.value)
    assert "unpack" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_an_update_with_the_clients_own_encoder_is_read(tmp_path: Path) -> None:
    """Columns in another order, categories too, and numbers scaled otherwise."""
    own = ClientEncoder.of_schema(DATA.schema)
    columns = [
        column.model_copy(update={"categories": tuple(reversed(column.categories))})
        if column.kind != "number"
        else column.model_copy(update={"mean": 3.0, "scale": 2.0})
        for column in reversed(own.columns)
    ]
    declared = own.model_copy(update={"columns": tuple(columns)})
    schema = declared.arranged(DATA.schema)
    about = Description(encoder=declared)
    assert client_schema(DATA.schema, about) == schema
    statistics, _ = attacker_statistics(schema, about)
    client = Encoder(schema, statistics, dtype=torch.float32)
    frame = DATA.train.frame[:8]
    table = Table(schema, frame)
    declared.check_rows(frame, client.encode(table.cells).numpy())
    net = network()
    nn.functional.cross_entropy(net(client.encode(table.cells)), table.labels.long()).backward()
    path = tmp_path / "u.safetensors"
    seepage.capture(net.named_parameters(), path, batch_size=8, encoder=declared)
    capture = load_capture(path, Model(network(), "softmax", "own"), DATA.schema)
    options = {"restarts": 1, "iterations": 1}
    found = recover(capture, schema, statistics, "encoding", options=options)
    assert found.guess.certified is not None
    assert found.guess.certified.all()
    read = found.records[list(DATA.schema.names)].sort_values(list(DATA.schema.names)).reset_index(drop=True)
    expected = frame[list(DATA.schema.names)].sort_values(list(DATA.schema.names)).reset_index(drop=True)
    assert (read.astype(float).round(3) == expected.astype(float).round(3)).all(axis=None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A transcript of a training in two processes that talk over the loopback interface."""
    folder = tmp_path_factory.mktemp("training")
    root = Path(__file__).parents[2]
    variables = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    variables["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    parties = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.captures.two_parties", str(folder), str(rank)],
            env=variables,
            cwd=root,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    said = [party.communicate(timeout=HANGS)[1] for party in parties]
    assert [party.returncode for party in parties] == [0, 0], said
    return folder / "transcript"


@pytest.mark.slow
def test_messages_of_two_processes_are_those_of_the_simulation(folder: Path) -> None:
    rows, model = job.both()
    learning = SplitLearning(job.EPOCHS, job.ROWS, job.RATE, decay=0)
    trained = SplitLearning(job.EPOCHS, job.BATCH, job.RATE, decay=0).train(model, rows, job.SEED)
    seen = learning.observe(trained, rows, seed=0)
    training = read_transcript(folder)
    last = training.rounds[-1]
    assert last.ids == tuple(map(str, range(job.ROWS)))
    assert last.gradients is not None
    # The networks of two trainings drift apart by a few roundings a step.
    roundings = 16 * job.EPOCHS * math.ceil(job.ROWS / job.BATCH)
    assert_rounded_alike(last.activations, seen.view.cut, roundings)
    assert_rounded_alike(last.gradients, seen.view.gradient, roundings)
    knowledge = CutKnowledge(rows.schema, uniform_statistics(rows.schema))
    expected = Exact()(seen.view, knowledge)
    found = attacked(training.folder, attacks=["exact"])
    assert not reasons(found)
    assert not notes(found)
    read = answers(found, "exact").set_index("id").loc[[str(i) for i in range(job.ROWS)]]
    schema = rows.schema
    for k, name in enumerate(job.PRIVATE):
        column = schema.column(name)
        assert isinstance(column, Discrete)
        assert [column.categories.index(value) for value in read[name]] == expected.cells[:, k].tolist()
    assert value(found, "exact", "certified_cells", None) == 1.0
    # The answers are the truth, too.
    assert torch.equal(expected.cells, seen.cells)
    assert torch.equal(expected.labels, seen.labels)


@pytest.mark.slow
def test_earlier_rounds_of_the_two_processes_count(folder: Path) -> None:
    training = read_transcript(folder)
    # Batches are drawn anew in each epoch, so that records were in rounds of different weights.
    found = attacked(training.folder, attacks=["posterior"])
    assert ran(found) == ["posterior"]
    rows, _ = job.both()
    read = answers(found, "posterior")
    wanted = rows.frame.loc[read["id"].astype(int)]
    for name in job.PRIVATE:
        assert (read[name].to_numpy() == wanted[name].to_numpy()).all()


def test_a_writer_refuses_what_does_not_fit(tmp_path: Path) -> None:
    rows, _ = job.both()
    schema = rows.schema
    with pytest.raises(BadInputError, match="did you mean 'cause'"):
        TranscriptWriter(tmp_path / "a", schema, ["causes"])
    with pytest.raises(BadInputError, match="did you mean 'loss'"):
        TranscriptWriter(tmp_path / "a", schema, ["cause"], los="sum")
    with pytest.raises(BadInputError, match="the attacker's own columns lack 'id'"):
        TranscriptWriter(tmp_path / "a", schema, ["cause"], own=rows.frame)
    writer = TranscriptWriter(tmp_path / "b", schema, ["cause"])
    with pytest.raises(BadInputError, match="holds a transcript already"):
        TranscriptWriter(tmp_path / "b", schema, ["cause"])
    for ids, cut, came, said in (
        ([1], torch.ones(2, 3), None, "has 1 ids for activations of shape"),
        ([1, 2], torch.ones(2, 3), None, "call exchange before the backward pass"),
        ([1, 2], torch.ones(2, 3), torch.ones(2, 2), "gradients of shape"),
        (torch.tensor([1.5, 2.0]), torch.ones(2, 3), torch.ones(2, 3), "ids are whole numbers or texts"),
        ([], torch.ones(0, 3), torch.ones(0, 3), "there is at least one"),
    ):
        with pytest.raises(BadInputError, match=said):
            writer.exchange(ids, cut, came)
    with pytest.raises(BadInputError, match="number of the round"):
        write_weights(torch.nn.Linear(1, 1), tmp_path, -1)


def test_texts_serve_as_ids_and_inference_has_no_gradients(tmp_path: Path) -> None:
    rows, _ = job.both()
    own = pd.DataFrame({"id": ["ä1", "b"], **{name: rows.frame[name][:2] for name in rows.schema.names[1:]}})
    writer = TranscriptWriter(tmp_path / "a", rows.schema, ["cause"], "vertical", own)
    writer.inference(["ä1", "b"], torch.ones(2, 3))
    training = read_transcript(tmp_path / "a")
    assert training.ids == ("ä1", "b")
    assert training.rounds[0].gradients is None
    assert training.own_columns is not None
    assert training.own_columns[0] == {"ä1": 0, "b": 1}
