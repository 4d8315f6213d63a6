"""Vertical learning with Flower's own apps and messages, in one process: what the server's capture writes.

Clients and server do what those of Flower's example ``vertical-fl`` do. Only the network between them is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from torch import Tensor, nn

from seepage.captures.transcripts import read_transcript
from seepage.datasets.planted import telling
from seepage.errors import BadInputError
from seepage.integrations.flower import CaptureGrid
from seepage.tabular.encoder import Encoder
from tests.captures.attacked import attacked

DATA = telling(rows=60)
SHARED = 40
PARTIES = {0: ["cause"], 1: ["noise_0", "noise_1"], 2: ["noise_2"]}
ROWS, LABELS = DATA.train.cells[:SHARED], DATA.train.labels[:SHARED].float()[:, None]
WIDTH, ROUNDS, RATE = 4, 3, 0.01
# The server's own customers: ids and labels alone, also those that no other party has.
OWN = DATA.train.frame[["label"]].assign(id=[f"p{i}" for i in range(60)])
IDS = [f"p{i}" for i in range(SHARED)]


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say which task this process runs, as Flower's processes are told."""
    for name, value in (("_task_id", 1), ("_run_id", 1), ("_node_id", 1)):
        monkeypatch.setattr(TaskIdentity, name, value)


def rows_of(party: int) -> Tensor:
    encoder = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
    encoded = encoder.encode(ROWS)
    return torch.cat([encoded[:, DATA.schema.blocks[DATA.schema.names.index(n)]] for n in PARTIES[party]], dim=1)


def bottom(party: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(party)  # noqa: TID251  initialisers of torch.nn take no generator
        return nn.Sequential(nn.Linear(rows_of(party).shape[1], 8), nn.ReLU(), nn.Linear(8, WIDTH))


def top() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(9)  # noqa: TID251  initialisers of torch.nn take no generator
        return nn.Linear(WIDTH * len(PARTIES), 1)


app = ClientApp()


def part_of(context: Context) -> tuple[int, nn.Module]:
    party = int(context.node_config["partition-id"])
    model = bottom(party)
    if "model" in context.state:
        model.load_state_dict(context.state.array_records["model"].to_torch_state_dict())
    return party, model


@app.query("generate_embeddings")
def embeddings(message: Message, context: Context) -> Message:
    party, model = part_of(context)
    features = Array(model(rows_of(party)).detach().numpy())
    content = {"arrays": ArrayRecord({"embedding": features}), "config": ConfigRecord({"pos": party})}
    return Message(RecordDict(content), reply_to=message)  # pyright: ignore[reportArgumentType]


@app.train("apply_gradients")
def apply(message: Message, context: Context) -> Message:
    party, model = part_of(context)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    gradient = message.content.array_records["gradients"]["local-gradients"].numpy()
    model(rows_of(party)).backward(torch.from_numpy(gradient))
    optimizer.step()
    context.state["model"] = ArrayRecord(model.state_dict())  # pyright: ignore[reportArgumentType]
    return Message(RecordDict(), reply_to=message)


class Nodes(Grid):
    """A node for each client, which answers at once."""

    def __init__(self) -> None:
        self.contexts = {
            100 + party: Context(1, 100 + party, {"partition-id": party}, RecordDict(), {}) for party in PARTIES
        }

    def set_run(self, run: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise NotImplementedError

    @property
    def run(self) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise NotImplementedError

    def create_message(self, *_: object, **__: object) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return [str(len(list(self.send_and_receive([message])))) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterator[Message]:
        for message in messages:
            yield app(message, self.contexts[message.metadata.dst_node_id])


def serve(grid: Grid) -> list[tuple[Tensor, Tensor]]:
    """Train as the server of the example does, and return features and gradients of all clients, round by round."""
    head = top()
    optimizer = torch.optim.SGD(head.parameters(), lr=RATE)
    seen = []
    for _ in range(ROUNDS):
        asked = [
            Message(RecordDict(), dst_node_id=node, message_type="query.generate_embeddings")
            for node in grid.get_node_ids()
        ]
        features, places = torch.zeros(SHARED, WIDTH * len(PARTIES)), {}
        for reply in grid.send_and_receive(asked):
            place = reply.content.config_records["config"]["pos"]
            assert isinstance(place, int)
            places[reply.metadata.src_node_id] = place
            array = reply.content.array_records["arrays"]["embedding"].numpy()
            features[:, place * WIDTH : (place + 1) * WIDTH] = torch.from_numpy(array)
        features.requires_grad_()
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(head(features), LABELS).backward()
        optimizer.step()
        assert features.grad is not None
        parts = features.grad.split(WIDTH, dim=1)
        gradients = [
            Message(
                RecordDict({"gradients": ArrayRecord({"local-gradients": Array(parts[place].numpy())})}),  # pyright: ignore[reportArgumentType]
                dst_node_id=node,
                message_type="train.apply_gradients",
            )
            for node, place in places.items()
        ]
        grid.push_messages(gradients)
        seen.append((features.detach().clone(), features.grad.clone()))
    return seen


def alone() -> list[tuple[Tensor, Tensor]]:
    """Return what the same training in plain PyTorch computes, without Flower."""
    bottoms, head = [bottom(party) for party in PARTIES], top()
    optimizer = torch.optim.SGD([*head.parameters(), *(p for part in bottoms for p in part.parameters())], lr=RATE)
    seen = []
    for _ in range(ROUNDS):
        optimizer.zero_grad()
        features = torch.cat([part(rows_of(party)) for party, part in enumerate(bottoms)], dim=1)
        features.retain_grad()
        nn.functional.binary_cross_entropy_with_logits(head(features), LABELS).backward()
        assert features.grad is not None
        seen.append((features.detach().clone(), features.grad.clone()))
        optimizer.step()
    return seen


def captured(folder: Path, **options: Any) -> Path:
    serve(CaptureGrid(Nodes(), folder, DATA.schema, PARTIES, OWN, **{"ids": IDS, **options}))
    return folder


def test_each_client_becomes_a_transcript_of_what_crossed_the_wire(tmp_path: Path) -> None:
    captured(tmp_path)
    expected = alone()
    for party, columns in PARTIES.items():
        training = read_transcript(tmp_path / str(party))
        assert training.about.private == tuple(columns)
        assert training.ids == tuple(IDS)
        assert len(training.rounds) == ROUNDS
        part = slice(party * WIDTH, (party + 1) * WIDTH)
        for messages, (features, gradients) in zip(training.rounds, expected, strict=True):
            torch.testing.assert_close(messages.activations, features[:, part], atol=1e-6, rtol=1e-5)
            assert messages.gradients is not None
            torch.testing.assert_close(messages.gradients, gradients[:, part], atol=1e-7, rtol=1e-4)


def test_the_server_with_labels_alone_attacks_a_client_and_reads_what_alignment_tells(tmp_path: Path) -> None:
    training = read_transcript(captured(tmp_path) / "0")
    truth = tmp_path / "truth.csv"
    DATA.train.frame[["cause", "label"]].iloc[:SHARED].assign(id=IDS).to_csv(truth, index=False)
    known = tmp_path / "known.csv"
    DATA.train.frame[["cause", "label"]].iloc[:20].assign(id=IDS[:20]).to_csv(known, index=False)
    found = attacked(training.folder, truth=truth, known=known)
    assert found.attacked is not None
    of_cells = [row for row in found.attacked.rows if row.is_attack and (row.metric, row.column) == ("accuracy", None)]
    best = max(row.mean or 0.0 for row in of_cells)
    # A client with one column of two categories sends two different rows of features.
    assert best == 1.0
    alignment = found.findings.figures["alignment"]
    assert isinstance(alignment, dict)
    assert (alignment["records"], alignment["shared"]) == (60, SHARED)


def test_features_of_other_records_than_ids_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="has 60 ids for activations of shape"):
        captured(tmp_path, ids=None)


def test_a_grid_is_otherwise_the_one_that_it_wraps(tmp_path: Path) -> None:
    grid = CaptureGrid(Nodes(), tmp_path, DATA.schema, PARTIES, OWN)
    assert grid.get_node_ids() == [100, 101, 102]
    for call in (lambda: grid.run, lambda: grid.set_run(None), grid.create_message):  # pyright: ignore[reportArgumentType]
        with pytest.raises(NotImplementedError):
            call()
    with pytest.raises(NotImplementedError):
        grid.pull_messages([])
