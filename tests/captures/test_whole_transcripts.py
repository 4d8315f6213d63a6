"""Transcripts of split training with a client that holds all columns, by plain PyTorch loops of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from seepage import TranscriptWriter, write_weights
from seepage.captures.transcripts import TRANSCRIPT, read_transcript
from seepage.datasets.planted import telling
from seepage.errors import BadInputError
from seepage.models.vertical import encoder_of
from seepage.protocols.whole_client import WholeClientModel
from seepage.seeds import seeded
from tests.captures.attacked import attacked, notes, reasons, value, words

DATA = telling(rows=200)
ROWS = DATA.train.rows(range(80))
NAMES, TARGET = ROWS.schema.names, ROWS.schema.target.name
IDS = list(range(80))
OURS = """
from torch import nn


class Ours(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.client = nn.Sequential(nn.Linear(inputs, 14, bias=False), nn.BatchNorm1d(14), nn.ELU())
        self.hop = nn.Sequential(nn.Linear(14, 15), nn.Tanh())
        self.server = nn.Sequential(nn.Linear(14, 6), nn.LayerNorm(6), nn.Dropout(0.3), nn.ReLU())
        self.last = nn.Linear(6, outputs)


class Hopped(Ours):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.server = nn.Linear(15, outputs)


class Wider(Ours):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.client = nn.Linear(inputs, 20)
"""
scope: dict[str, Any] = {}
exec(OURS, scope)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ours.py"
    path.write_text(OURS)
    return path


def trained(folder: Path, topology: str, attacker: str = "server", epochs: int = 3, **about: Any) -> Path:
    """Train by a loop of one's own, as parties do, and return the folder that the attacker writes."""
    inputs = encoder_of(ROWS.schema).encode(ROWS.cells)
    made = scope["Hopped" if topology == "multi_hop" else "Ours"]
    network = seeded(lambda: made(inputs.shape[1], 1).eval(), 0)
    parts = [network.client, *((network.hop,) if topology == "multi_hop" else ()), network.server]
    parts += [network.last] if topology == "u_shaped" else []
    whole = nn.Sequential(*parts)
    if topology == "vanilla":
        parts[1:] = [nn.Sequential(network.server, network.last)]
        whole = nn.Sequential(*parts)
    steps = torch.optim.Adam(whole.parameters(), lr=0.01)
    writer = TranscriptWriter(folder, ROWS.schema, NAMES, topology=topology, attacker=attacker, **about)
    behind = topology == "multi_hop" and attacker == "server"
    for number in range(epochs):
        write_weights(nn.Sequential(*parts[:2]) if behind else parts[0], folder, number)
        sent = [inputs]
        for part in parts:
            sent.append(part(sent[-1].detach().requires_grad_(True)))
        received = [one.detach().requires_grad_(True) for one in sent[1:-1]]
        # What a part returns is an input of the next one: gradients cross one after the other.
        outputs = [part(one) for part, one in zip(parts[1:], received, strict=True)]
        at = 1 if behind else 0
        second = {"outputs": outputs[0]} if topology == "u_shaped" or attacker == "hop" else {}
        writer.exchange(IDS, received[at], **second)
        loss = nn.functional.binary_cross_entropy_with_logits(outputs[-1][:, 0], ROWS.labels.float())
        loss.backward()
        for k in reversed(range(len(received))):
            back = received[k].grad
            assert back is not None
            (sent[1] if k == 0 else outputs[k - 1]).backward(back)
        steps.step()
        steps.zero_grad()
    return folder


def tables(tmp_path: Path) -> dict[str, Any]:
    frame = ROWS.frame.assign(id=IDS)
    paths = {"truth": tmp_path / "truth.csv", "known": tmp_path / "known.csv"}
    frame.to_csv(paths["truth"], index=False)
    frame.head(40).to_csv(paths["known"], index=False)
    return paths


@pytest.mark.parametrize(
    ("topology", "attacker", "factory", "labels"),
    [
        ("vanilla", "server", "Ours", False),
        ("u_shaped", "server", "Ours", True),
        ("multi_hop", "hop", "Hopped", True),
        ("multi_hop", "server", "Hopped", False),
    ],
)
def test_what_clients_with_all_columns_send_is_read(
    tmp_path: Path, file: Path, topology: str, attacker: str, factory: str, labels: bool
) -> None:
    folder = trained(tmp_path / "written", topology, attacker)
    attacks = ["layer_inversion", "ridge_sa", "label_direction", "exact"]
    training = read_transcript(folder)
    found = attacked(training.folder, f"{file}:{factory}", attacks, **tables(tmp_path))
    assert value(found, "layer_inversion", "accuracy", None) == 1.0
    assert value(found, "ridge_sa", "accuracy", None) > 0.8
    assert "can be inverted layer by layer" in " ".join(words(found))
    assert ("those of the hop" in " ".join(words(found))) == (topology == "multi_hop" and attacker == "server")
    no_view = f"; the topology '{topology}' has no such view"
    assert f"gradients that come back{no_view}" in reasons(found)["exact"]
    if labels:
        assert value(found, "label_direction", "accuracy", TARGET) == 1.0
    else:
        assert no_view in reasons(found)["label_direction"]
    # Code that a transcript names is not run, and no weights tell of a network that is not known.
    unnamed = attacked(training.folder, None, ["layer_inversion"])
    assert "name it with --model" in notes(unnamed)[-1]
    assert "client-N.safetensors" in reasons(unnamed)["layer_inversion"]


def test_networks_that_are_not_those_of_the_transcript_are_refused(tmp_path: Path, file: Path) -> None:
    training = read_transcript(trained(tmp_path / "written", "vanilla", epochs=1))
    with pytest.raises(BadInputError, match=r"the part 'client' of .* returns 20 numbers a record where 14 are needed"):
        attacked(training.folder, f"{file}:Wider")
    (training.folder / "client-000000.safetensors").write_bytes(b"rubbish")
    with pytest.raises(BadInputError, match="client-000000"):
        attacked(training.folder, f"{file}:Ours")


def test_all_records_may_leak_but_one(tmp_path: Path) -> None:
    folder = trained(tmp_path / "written", "vanilla", epochs=1)
    paths = tables(tmp_path)
    with pytest.raises(BadInputError, match="all records of the transcript are known"):
        attacked(folder, attacks=["ridge_sa"], known=paths["truth"])


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"private": NAMES[:2]}, "the client holds all columns, but 'noise_1' is not named as private"),
        ({"attacker": "hop"}, "no topology 'u_shaped' with the attacker 'hop'"),
        ({"topology": "columns", "attacker": "hop"}, "no topology 'columns' with the attacker 'hop'"),
        ({"topology": "ring"}, "topology"),
        ({"setting": "vertical"}, "vertical learning has no topology 'u_shaped'"),
        ({"topology": "vanilla"}, "hold outputs; what is sent on at a second cut is in transcripts of"),
    ],
)
def test_topologies_that_a_transcript_contradicts_are_refused(tmp_path: Path, about: dict[str, Any], said: str) -> None:
    folder = trained(tmp_path / "written", "u_shaped", epochs=1)
    held = json.loads((folder / TRANSCRIPT).read_text()) | about
    (folder / TRANSCRIPT).write_text(json.dumps(held))
    with pytest.raises(BadInputError) as refused:
        read_transcript(folder)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"outputs": None}, "hold output_gradients alone"),
        ({"output_gradients": torch.ones(80, 2)}, "output_gradients of shape (80, 2) for outputs of shape (80, 6)"),
        ({"outputs": torch.full((80, 6), torch.nan)}, "480 outputs that are not finite"),
        ({"outputs": torch.ones(3, 6)}, "outputs of shape (3, 6) for 80 ids"),
    ],
)
def test_damaged_second_messages_are_refused(
    tmp_path: Path, tensors: dict[str, torch.Tensor | None], said: str
) -> None:
    folder = trained(tmp_path / "written", "u_shaped", epochs=1)
    path = str(folder / "round-000000.safetensors")
    held = {**load_file(path), **tensors}
    save_file({name: one for name, one in held.items() if one is not None}, path)
    with pytest.raises(BadInputError) as refused:
        read_transcript(folder)
    assert said in str(refused.value)


def test_a_writer_refuses_what_its_party_does_not_send(tmp_path: Path) -> None:
    cut = torch.ones(2, 3, requires_grad=True)
    vanilla = TranscriptWriter(tmp_path / "a", ROWS.schema, NAMES, topology="vanilla")
    with pytest.raises(BadInputError, match="the attacker sends no outputs on in the topology 'vanilla'"):
        vanilla.exchange([1, 2], cut, outputs=cut)
    u_shaped = TranscriptWriter(tmp_path / "b", ROWS.schema, NAMES, topology="u_shaped")
    with pytest.raises(BadInputError, match="round 0 has no output_gradients"):
        u_shaped.exchange([1, 2], cut, outputs=torch.ones(2, 2))
    with pytest.raises(BadInputError, match="output_gradients of shape"):
        u_shaped.exchange([1, 2], cut.detach(), outputs=torch.ones(2, 2), output_gradients=torch.ones(2, 3))


def test_our_own_network_needs_no_file(tmp_path: Path) -> None:

    inputs = encoder_of(ROWS.schema).encode(ROWS.cells)[None]
    model = WholeClientModel.of(ROWS.schema, 0, (), 40, (), "multi_hop", (41,))
    about = {"topology": "multi_hop", "model": "mlp", "options": {"cut": 40, "hop": [41]}}
    writer = TranscriptWriter(tmp_path / "hop", ROWS.schema, NAMES, **about)
    with torch.no_grad():
        writer.inference(IDS, model.behind_hop(inputs)[0])
    write_weights(nn.Sequential(model.client, model.middle), tmp_path / "hop", 0)
    found = attacked(tmp_path / "hop", None, ["layer_inversion"], **tables(tmp_path))
    assert value(found, "layer_inversion", "accuracy", None) == 1.0
    held = json.loads((tmp_path / "hop" / TRANSCRIPT).read_text())
    (tmp_path / "hop" / TRANSCRIPT).write_text(json.dumps({**held, "options": {"hop": [7]}}))
    with pytest.raises(BadInputError, match="what the hop sends on has 41 entries"):
        attacked(tmp_path / "hop", None, ["layer_inversion"])
