"""Updates that leave parameters with the client: what was sent is attacked as what was sent, and no more is claimed."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

import seepage
from seepage import kernel
from seepage.attacking.federation import FederationAttack
from seepage.attacking.updates import Recovered
from seepage.attacks.horizontal.exact.certifying import write_certificate
from seepage.attacks.horizontal.exact.unsent import _alone  # pyright: ignore[reportPrivateUsage]
from seepage.captures.captured import Local, load_capture
from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.learning import LocalTraining, local_update
from seepage.models.model import LocalParameters, Model
from seepage.report.captured import captured_sections
from seepage.seeds import seeded
from seepage.tabular.client_encoder import ClientEncoder
from seepage.tabular.encoder import Encoder
from tests.commands import commands

DATA = distinct(rows=12, continuous=2, discrete=2)
WIDTH = DATA.schema.width
ENCODER = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
STEP = LocalTraining(epochs=1, batch_size=4, learning_rate=0.1)
QUICK = {"restarts": 2, "iterations": 5}


def chain(normalised: bool = False, seed: int = 0) -> nn.Sequential:
    def made() -> nn.Sequential:
        behind: list[nn.Module] = [nn.BatchNorm1d(40)] if normalised else []
        ends = nn.Linear(WIDTH, 40), *behind, nn.ReLU(), nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 2)
        return nn.Sequential(*ends)

    return seeded(made, seed)


def personal(network: nn.Sequential, seed: int) -> nn.Sequential:
    """A client's network: the server's body, a head of its own."""
    own = copy.deepcopy(network)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in own[-1].parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 3)
    return own


def rows_of(records: slice) -> tuple[Tensor, Tensor]:
    return ENCODER.encode(DATA.train.cells[records]), DATA.train.labels[records].long()


def captured(
    folder: Path, client: nn.Module, server: nn.Module, left_out: str, records: int = 4, local: Local | None = None
) -> tuple[Path, Path]:
    """The gradient of a batch without what begins like this, and the server's weights, as files."""
    rows, labels = rows_of(slice(records))
    client.zero_grad()
    nn.functional.cross_entropy(client(rows), labels).backward()
    named = [(name, p) for name, p in client.named_parameters() if not (left_out and name.startswith(left_out))]
    about = {"batch_size": records, "statistics": DATA.statistics, "local": local}
    seepage.capture(named, folder / "u.safetensors", **about)
    save_file(dict(server.state_dict()), folder / "model.safetensors")
    return folder / "u.safetensors", folder / "model.safetensors"


def attacked(network: nn.Module, path: Path, weights: Path) -> Recovered:
    return FederationAttack.of(network, DATA.schema, DATA.all, attacks=[{"name": "unmix", "options": QUICK}]).update(
        path, weights
    )


def cells_read(recovered: Recovered) -> set[tuple[float, ...]]:
    return {tuple(row) for row in recovered.guess.cells[0].round().tolist()}


TRUE = [tuple(row) for row in DATA.train.cells.tolist()]


@pytest.mark.parametrize("records", [1, 4])
def test_an_unknown_personal_head_hides_no_record_and_proves_none(tmp_path: Path, records: int) -> None:
    server = chain()
    found = attacked(server, *captured(tmp_path, personal(server, 1), server, "4", records))
    assert cells_read(found) == set(TRUE[:records])
    assert found.guess.regime is not None
    assert "read in the spans of the layers before what stayed with the client" in found.guess.regime[0]
    assert found.guess.proofs is not None
    assert not bool((found.guess.proofs[0].cells | found.guess.proofs[0].given).any())
    [section] = captured_sections(found.findings)
    words = str(section.blocks[1])
    assert "Not sent: 2 of 6 parameters: '4.weight', '4.bias' stayed with the client, values unknown" in words
    assert "is weaker and proves nothing" in words


@pytest.mark.parametrize(
    ("local", "certified"), [(None, False), ("unknown", False), ("as_sent", True), ("frozen", True)]
)
def test_a_head_with_the_servers_values_is_proved_only_where_that_is_declared(
    tmp_path: Path, local: Local | None, certified: bool
) -> None:
    server = chain()
    found = attacked(server, *captured(tmp_path, copy.deepcopy(server), server, "4", local=local))
    assert found.guess.proofs is not None
    [proof] = found.guess.proofs
    assert bool(proof.cells.any()) == certified
    assert bool(proof.given.all()) != certified
    assert cells_read(found) == set(TRUE[:4])
    if not certified:
        assert "the parameters that stayed with the client have the model's values" in proof.fixed


@pytest.mark.parametrize(("declared", "verdict"), [(None, "REFUSED"), ("unknown", "REFUSED"), ("as_sent", "VERIFIED")])
def test_who_verifies_a_certificate_declares_what_stayed(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    declared: str | None,
    verdict: str,
) -> None:
    """Whatever the update says of it."""
    server = chain()
    path, weights = captured(tmp_path, copy.deepcopy(server), server, "4", local="frozen")
    found = attacked(server, path, weights)
    view, schema, statistics = found.capture.view, DATA.schema, found.statistics
    write_certificate(tmp_path / "proof.json", found.guess, view, schema, statistics, opened=True)
    (tmp_path / "schema.yaml").write_text(schema.to_yaml())
    encoder = ClientEncoder.of_schema(schema, statistics.mean.tolist(), statistics.std.tolist())
    (tmp_path / "encoder.json").write_text(encoder.to_json())
    (tmp_path / "about.json").write_text(json.dumps({} if declared is None else {"local": declared}))
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n\ndef build(inputs):\n    return nn.Sequential(nn.Linear(inputs, 40), nn.ReLU(), "
        "nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 2))\n"
    )
    run = commands(capfd, monkeypatch, tmp_path)
    files = ["--update", path, "--model", "nets.py:build", "--weights", weights, "--schema", "schema.yaml"]
    about = ["--encoder", "encoder.json", "--records", 4, "--declaration", "about.json"]
    status, text, _ = run("verify", "proof.json", *files, *about)
    assert text.startswith(verdict)
    assert (status == 0) == (verdict == "VERIFIED")


def test_a_declared_head_that_is_another_one_proves_nothing(tmp_path: Path) -> None:
    server = chain()
    found = attacked(server, *captured(tmp_path, personal(server, 2), server, "4", local="as_sent"))
    assert found.guess.certified is not None
    assert not bool(found.guess.certified.any())


@pytest.mark.parametrize("left_out", ["0", "4"])
def test_weights_may_lack_what_the_update_lacks_and_nothing_else(tmp_path: Path, left_out: str) -> None:
    server = chain()
    path, weights = captured(tmp_path, personal(server, 3), server, left_out)
    state = load_file(weights)
    save_file({name: tensor for name, tensor in state.items() if not name.startswith(left_out)}, weights)
    assert attacked(server, path, weights).number == 4
    save_file({name: tensor for name, tensor in state.items() if not name.startswith("2")}, weights)
    with pytest.raises(BadInputError, match=r"holds '2.weight', '2.bias', which the weights of the model lack"):
        attacked(server, path, weights)
    path, weights = captured(tmp_path, personal(server, 3), server, left_out, local="frozen")
    save_file({name: tensor for name, tensor in state.items() if not name.startswith(left_out)}, weights)
    with pytest.raises(BadInputError, match="are frozen, but the weights of the model lack"):
        attacked(server, path, weights)


@pytest.mark.parametrize("kept", [("1.running", "1.num"), ("1.",)])
def test_a_state_without_its_batch_normalisation_is_captured(tmp_path: Path, kept: tuple[str, ...]) -> None:
    """FedBN, with all of it at the client or with its running statistics alone."""
    network, (rows, labels) = chain(normalised=True), rows_of(slice(4))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    nn.functional.cross_entropy(network(rows), labels).backward()
    torch.optim.SGD(network.parameters(), lr=0.1).step()
    after = {name: tensor for name, tensor in network.state_dict().items() if not name.startswith(kept)}
    path, weights = tmp_path / "u.safetensors", tmp_path / "model.safetensors"
    seepage.capture(before, after, path, training=STEP, batch_size=4, statistics=DATA.statistics)
    assert set(load_file(path)) == set(after)
    save_file(before, weights)
    found = attacked(chain(normalised=True), path, weights)
    local = found.capture.view.model.local
    assert (local is None) == (kept != ("1.",))
    assert local is None or local.names == ("1.weight", "1.bias")
    assert found.capture.batch_statistics is None
    assert any("not sent: running statistics" in note for note in found.notes)
    assert not any("not the one that the server sent" in note for note in found.notes)
    assert found.guess.certified is None or not bool(found.guess.certified.any())


@given(seed=st.integers(0, 2**20), steps=st.integers(1, 4), momentum=st.sampled_from([0.0, 0.9]))
def test_what_is_trained_and_not_sent_moves_what_is_sent_as_in_pytorch(seed: int, steps: int, momentum: float) -> None:
    network, (rows, labels) = chain(seed=seed).double(), rows_of(slice(4))
    training = LocalTraining(epochs=steps, batch_size=4, learning_rate=0.3, momentum=momentum)
    client = copy.deepcopy(network)
    optimiser = torch.optim.SGD(client.parameters(), lr=0.3, momentum=momentum)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(client(rows.double()), labels).backward()
        optimiser.step()
    names = ("4.weight", "4.bias")
    whole = Model(network, "softmax", "own")
    each = rows.double().expand(1, steps, -1, -1), labels.double().expand(1, steps, -1)
    trained = local_update(whole.keeping(LocalParameters(names)), *each, training)
    assert list(trained) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    moved = dict(client.named_parameters())
    for name, part in trained.items():
        torch.testing.assert_close(part[0], whole.parameters[name] - moved[name].detach())
    frozen = local_update(whole.keeping(LocalParameters(names, trained=False)), *each, training)
    alike = all(torch.allclose(frozen[name], trained[name], rtol=1e-9, atol=1e-12) for name in trained)
    assert alike == (steps == 1)


def test_lists_without_names_and_with_a_part_alone_are_read(tmp_path: Path) -> None:
    network, (rows, labels) = chain(), rows_of(slice(4))
    before = [p.detach().numpy().copy() for p in network.parameters()]
    nn.functional.cross_entropy(network(rows), labels).backward()
    torch.optim.SGD(network.parameters(), lr=0.1).step()
    after = [p.detach().numpy() for p in network.parameters()]
    path, about = tmp_path / "u.safetensors", {"training": STEP, "batch_size": 4}
    seepage.capture(before, after[:4], path, **about)
    own = load_capture(path, Model(chain(), "softmax", "own"))
    assert list(own.view.message) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    for i, tensor in enumerate(own.view.message.values()):
        assert np.array_equal(tensor[0].numpy(), before[i] - after[i])
    # The digest is of the numbered arrays that the server sent, and known again by the model's values.
    seepage.capture(before, after, path, **about)
    assert not any("not the one" in note for note in load_capture(path, Model(chain(), "softmax", "own")).notes)
    others = Model(chain(seed=1), "softmax", "own")
    assert any("not the one" in note for note in load_capture(path, others).notes)
    with pytest.raises(BadInputError, match="SCAFFOLD"):
        seepage.capture(before, [*after, *after], path, **about)
    with pytest.raises(BadInputError, match="SCAFFOLD"):
        seepage.capture(network.state_dict(), [*after, *after], path, **about)


class Logistic(nn.Module):
    """A logistic regression, named as a user would."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(WIDTH, 1).double()

    def forward(self, rows: Tensor) -> Tensor:
        return self.out(rows)


@pytest.mark.parametrize("records", [1, 11])
def test_scikit_learns_logistic_regression_is_read_of_one_record_and_sure_of_no_other(
    tmp_path: Path, records: int
) -> None:
    precise = Encoder(DATA.schema, DATA.statistics)
    rows, labels = precise.encode(DATA.train.cells[:records]).numpy(), DATA.train.labels[:records].numpy()
    before, path, weights = [np.zeros((1, WIDTH)), np.zeros(1)], tmp_path / "u.safetensors", tmp_path / "m.safetensors"
    if records == 1:
        slope = 0.5 - labels[0]
        after = [-0.2 * slope * rows, np.array([-0.2 * slope])]
    else:
        fitted = LogisticRegression(max_iter=1, C=1e6)
        with pytest.warns(UserWarning, match="failed to converge"):
            fitted.fit(rows, labels)
        after = [fitted.coef_, fitted.intercept_]
    training = LocalTraining(epochs=1, batch_size=records, learning_rate=0.2)
    seepage.capture(before, after, path, training=training, batch_size=records, statistics=DATA.statistics)
    save_file({"out.weight": torch.zeros(1, WIDTH).double(), "out.bias": torch.zeros(1).double()}, weights)
    options = {"restarts": 3, "iterations": 60}
    found = FederationAttack.of(Logistic(), DATA.schema, DATA.all, **options).update(path, weights)
    assert not any("not the one that the server sent" in note for note in found.notes)
    assert found.guess.certified is None or not bool(found.guess.certified.any())
    if records == 1:
        assert cells_read(found) == {TRUE[0]}
        assert float(found.certainty.min()) > 0.9
    else:
        assert bool(found.certainty.isnan().all())
        assert any("no certainty is given" in note and "unexplained" in note for note in found.notes)
    assert str(found.knowledge["labels"]).startswith("restored" if records == 1 else "estimated, since no counts")


def test_counts_of_labels_that_give_an_update_are_called_restored(tmp_path: Path) -> None:
    rows, labels = Encoder(DATA.schema, DATA.statistics).encode(DATA.train.cells[:10]), DATA.train.labels[:10]
    slopes = (0.5 - labels.double()) / 10
    path, weights = tmp_path / "u.safetensors", tmp_path / "m.safetensors"
    after = [-0.2 * (slopes @ rows.double())[None].numpy(), -0.2 * slopes.sum()[None].numpy()]
    training = LocalTraining(epochs=1, batch_size=10, learning_rate=0.2)
    seepage.capture(
        [np.zeros((1, WIDTH)), np.zeros(1)], after, path, training=training, batch_size=10, statistics=DATA.statistics
    )
    save_file({"out.weight": torch.zeros(1, WIDTH).double(), "out.bias": torch.zeros(1).double()}, weights)
    found = FederationAttack.of(Logistic(), DATA.schema, DATA.all, restarts=1, iterations=20).update(path, weights)
    assert found.knowledge["labels"] == "restored"
    assert found.guess.labels is not None
    assert int(found.guess.labels.sum()) == int(labels.sum())


@given(seed=st.integers(0, 2**20), count=st.integers(1, 6), combined=st.integers(0, 2))
def test_rows_in_a_dependence_are_those_whose_loss_keeps_the_rank(seed: int, count: int, combined: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, 9, generator=generator, dtype=torch.float64)
    for _ in range(combined if count > 2 else 0):
        rows = torch.cat([rows, rows[:1] + rows[1:2] - rows[2:3] * (len(rows) - count + 1)])
    rank = torch.linalg.matrix_rank(rows)
    needed = [
        int(torch.linalg.matrix_rank(rows[[j for j in range(len(rows)) if j != i]])) < rank for i in range(len(rows))
    ]
    assert _alone(rows).tolist() == needed


def test_a_statement_is_weakened_and_never_strengthened() -> None:
    cells, given_ = torch.tensor([[True, False, False]]), torch.tensor([[False, True, False]])
    proof = kernel.Certified(cells, given_, ("a",), ("b",)).given_that("c")
    assert (proof.cells.tolist(), proof.given.tolist()) == ([[False] * 3], [[True, True, False]])
    assert (proof.conditions, proof.fixed) == (("a",), ("b", "c"))
