"""The mod and the capturing strategy, with Flower's own messages."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity
from safetensors.torch import load_file
from torch import Tensor

from seepage.captures.captured import load_capture
from seepage.captures.federation import FederationAttack
from seepage.captures.recovery import attacker_statistics, recover
from seepage.errors import BadInputError
from seepage.guard.policy import GuardPolicy
from seepage.integrations.flower import CaptureReplies, leak_guard_mod
from seepage.models.model import Model
from seepage.models.states import state_digest
from tests.integrations.updates import DATA, NOISE, RECIPE, after_one_step, guard_file, guarded, network


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say which task this process runs, as Flower's processes are told."""
    for name, value in (("_task_id", 1), ("_run_id", 1), ("_node_id", 7)):
        monkeypatch.setattr(TaskIdentity, name, value)


CONTEXT = Context(run_id=1, node_id=7, node_config={}, state=RecordDict(), run_config={})


def order(kind: str = MessageType.TRAIN) -> Message:
    content = RecordDict(
        {"arrays": ArrayRecord(network().state_dict()), "config": ConfigRecord({"server-round": 3})}  # pyright: ignore[reportArgumentType]
    )
    return Message(content, dst_node_id=7, message_type=kind)


def train(message: Message, _: Context) -> Message:
    """Answer as an app does, and change the received arrays, as one may."""
    state = message.content.array_records["arrays"].to_torch_state_dict()
    trained = ArrayRecord(after_one_step(dict(state)))  # pyright: ignore[reportArgumentType]
    message.content.array_records["arrays"] = trained
    return Message(RecordDict({"arrays": trained, "metrics": MetricRecord({"num-examples": 8})}), reply_to=message)


def state_of(message: Message) -> dict[str, Tensor]:
    return dict(message.content.array_records["arrays"].to_torch_state_dict())


EXPECTED = after_one_step(dict(network().state_dict()))


def test_a_blocked_reply_is_an_error_and_the_log_has_its_round(tmp_path: Path) -> None:
    mod = leak_guard_mod(guarded(GuardPolicy("block"), log=tmp_path / "log"))
    reply = mod(order(), CONTEXT, train)
    assert reply.has_error()
    assert reply.error.reason == "the leak guard sends no update in this round"
    [line] = (tmp_path / "log").read_text().splitlines()
    found = json.loads(line)
    assert (found["round"], found["decision"], found["proved_records"], found["sent"]) == (3, "proved", 8, False)


def test_what_is_reported_is_sent_as_it_is() -> None:
    sent = state_of(leak_guard_mod(guarded(GuardPolicy("report")))(order(), CONTEXT, train))
    assert all(torch.equal(sent[name], EXPECTED[name]) for name in EXPECTED)


def test_noise_is_on_what_is_sent() -> None:
    reply = leak_guard_mod(guarded(NOISE))(order(), CONTEXT, train)
    sent = state_of(reply)
    assert list(sent) == list(EXPECTED)
    assert float(torch.cat([(sent[n] - EXPECTED[n]).flatten() for n in sent]).std()) == pytest.approx(2.0, rel=0.02)
    assert reply.content.metric_records["metrics"]["num-examples"] == 8


def test_a_guard_file_is_enough(tmp_path: Path) -> None:
    mod = leak_guard_mod(guard_file(tmp_path, "policy: block\nmode: strict\n"))
    assert mod(order(), CONTEXT, train).has_error()


def test_each_client_may_have_a_guard_of_its_own() -> None:
    asked: list[int] = []

    def of(context: Context) -> object:
        asked.append(context.node_id)
        return guarded(GuardPolicy("block"))

    assert leak_guard_mod(of)(order(), CONTEXT, train).has_error()  # pyright: ignore[reportArgumentType]
    assert asked == [7]


def test_only_training_is_checked() -> None:
    mod = leak_guard_mod(guarded(GuardPolicy("block", "strict")))
    reply = mod(order(MessageType.EVALUATE), CONTEXT, train)
    assert not reply.has_error()


def test_an_error_of_the_app_stays_its_own() -> None:
    def fails(message: Message, _: Context) -> Message:
        return Message(Error(code=99, reason="out of memory"), reply_to=message)

    assert leak_guard_mod(guarded(GuardPolicy()))(order(), CONTEXT, fails).error.reason == "out of memory"


@pytest.mark.parametrize("arrays", [0, 2])
def test_a_reply_that_cannot_be_checked_is_not_sent(arrays: int) -> None:
    def odd(message: Message, _: Context) -> Message:
        content = RecordDict({f"arrays-{i}": ArrayRecord(EXPECTED) for i in range(arrays)})  # pyright: ignore[reportArgumentType]
        return Message(content, reply_to=message)

    assert leak_guard_mod(guarded(GuardPolicy()))(order(), CONTEXT, odd).has_error()


def test_a_reply_of_another_network_is_not_sent() -> None:
    def odd(message: Message, _: Context) -> Message:
        content = RecordDict({"arrays": ArrayRecord({"other": torch.zeros(3)})})  # pyright: ignore[reportArgumentType]
        return Message(content, reply_to=message)

    assert leak_guard_mod(guarded(GuardPolicy()))(order(), CONTEXT, odd).has_error()


def test_a_client_app_runs_the_mod() -> None:
    app = ClientApp()
    app.train(mods=[leak_guard_mod(guarded(GuardPolicy("block")))])(train)
    assert app(order(), CONTEXT).has_error()


@pytest.mark.parametrize("everywhere", [True, False])
def test_the_first_mod_sees_what_leaves(tmp_path: Path, everywhere: bool) -> None:
    """A mod behind the guard changes the update; the guard checks what that one returns."""

    def doubles(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        twice = {name: 2 * tensor for name, tensor in state_of(reply).items()}
        reply.content.array_records["arrays"] = ArrayRecord(twice)  # pyright: ignore[reportArgumentType]
        return reply

    mod = leak_guard_mod(guarded(GuardPolicy("report"), log=tmp_path / "log"))
    app = ClientApp(mods=[mod]) if everywhere else ClientApp()
    app.train(mods=[doubles] if everywhere else [mod, doubles])(train)
    assert not app(order(), CONTEXT).has_error()
    found = json.loads((tmp_path / "log").read_text())
    leaves = {name: tensor - 2 * EXPECTED[name] for name, tensor in network().state_dict().items()}
    assert found["update"] == state_digest(leaves)


class Nodes(Grid):
    """Two nodes that answer at once."""

    def set_run(self, run: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise NotImplementedError

    @property
    def run(self) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise NotImplementedError

    def create_message(self, *_: object, **__: object) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return [7, 8]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        for message in messages:
            if message.metadata.dst_node_id == 8:
                yield Message(Error(code=6, reason="the leak guard sends no update in this round"), reply_to=message)
            else:
                yield train(message, CONTEXT)


class Captured(CaptureReplies, FedAvg):
    """FedAvg whose replies are captured."""


def test_the_server_captures_what_it_receives(tmp_path: Path) -> None:
    strategy = Captured(fraction_evaluate=0.0).capture_to(tmp_path / "captured", RECIPE, head="softmax")
    initial = ArrayRecord(network().state_dict())  # pyright: ignore[reportArgumentType]
    result = strategy.start(Nodes(), initial, num_rounds=2)
    assert result.arrays is not None
    names = sorted(str(path.relative_to(tmp_path / "captured")) for path in (tmp_path / "captured").rglob("*.*"))
    each = [f"round-000{i}/{name}" for i in (1, 2) for name in ("client-7.safetensors", "model.safetensors")]
    assert names == each
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "captured").rglob("*.*")} == {0o600}
    model = Model(network(), "softmax", "own")
    model.module.load_state_dict(load_file(tmp_path / "captured" / "round-0001" / "model.safetensors"))
    capture = load_capture(tmp_path / "captured" / each[0], model, DATA.schema)
    assert capture.notes == ()
    assert capture.about.batch_size == 8
    statistics, origin = attacker_statistics(DATA.schema, capture.about, DATA.train)
    found = recover(capture, DATA.schema, statistics, origin, options={"restarts": 1, "iterations": 1})
    assert found.guess.certified is not None
    # As many as the guard proves at the client.
    assert int(found.guess.certified.any(2).sum()) == 8


@pytest.mark.parametrize("named", [True, False])
def test_a_reply_without_a_personal_head_is_captured_as_what_was_sent(tmp_path: Path, named: bool) -> None:
    """FedPer: the server sends a body and receives one, by names or as a list."""

    def arrays(state: dict[str, Tensor]) -> ArrayRecord:
        body = dict(list(state.items())[:-2])
        return ArrayRecord(body if named else [tensor.numpy() for tensor in body.values()])  # pyright: ignore

    class Personal(Nodes):
        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
            for message in messages:
                trained = arrays(after_one_step(dict(network().state_dict())))
                metrics = MetricRecord({"num-examples": 8})
                yield Message(RecordDict({"arrays": trained, "metrics": metrics}), reply_to=message)

    strategy = Captured(fraction_evaluate=0.0).capture_to(tmp_path / "captured", RECIPE, head="softmax")
    strategy.start(Personal(), arrays(dict(network().state_dict())), num_rounds=1)
    folder = tmp_path / "captured" / "round-0001"
    attack = FederationAttack(network(), DATA.schema, options={"restarts": 1, "iterations": 1}, reference=DATA.train)
    finding, _ = attack.run(tmp_path / "captured").updates
    assert finding.records == 8
    assert any("'4.weight', '4.bias' stayed with the client, values unknown" in note for note in finding.notes)
    assert not any("not the one that the server sent" in note for note in finding.notes)
    assert finding.proved_records == 0
    assert len(load_file(folder / "client-7.safetensors")) == len(load_file(folder / "model.safetensors")) == 4


def test_a_strategy_without_a_folder_is_told_so() -> None:
    with pytest.raises(BadInputError, match="call capture_to"):
        Captured().configure_train(1, ArrayRecord(), ConfigRecord(), Nodes())
