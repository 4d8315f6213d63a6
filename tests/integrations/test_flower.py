"""The mod and the capturing strategy, with Flower's own messages."""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity
from safetensors.torch import load_file
from torch import Tensor

from seepage.attacking.federation import FederationAttack
from seepage.attacking.updates import recover
from seepage.captures.captured import attacker_statistics, load_capture
from seepage.errors import BadInputError
from seepage.guard.policy import GuardPolicy
from seepage.integrations.flower import CaptureReplies, leak_guard_mod
from seepage.models.model import Model
from seepage.models.states import state_digest
from tests.integrations.updates import DATA, ENCODER, NOISE, RECIPE, after_one_step, guard_file, guarded, network


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


OF_EIGHT = RECIPE.model_copy(update={"batch_size": 8})
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


EVERYTHING = GuardPolicy("report")
POLICIES = (GuardPolicy("block"), GuardPolicy("block", "strict"), GuardPolicy("report", "strict"), NOISE)
ENCODED = ENCODER.encode(DATA.train.cells[:3])
ROWS = ENCODED.flatten().tolist()
# Replies that hold rows beside the model.
CARRIES: dict[str, RecordDict] = {
    "config of bytes": RecordDict({"config": ConfigRecord({"data": ENCODED.numpy().tobytes()})}),
    "config of lists": RecordDict({"config": ConfigRecord({"data": ROWS})}),
    "config of text": RecordDict({"config": ConfigRecord({"message": DATA.train.frame.iloc[0].to_json()})}),
    "config of texts": RecordDict({"config": ConfigRecord({"message": ["a", "b"]})}),
    "metrics of lists": RecordDict({"metrics": MetricRecord({"loss": ROWS})}),
    "a short list": RecordDict({"metrics": MetricRecord({"loss": [0.5]})}),
    "many metrics": RecordDict({"metrics": MetricRecord({f"cell-{i}": cell for i, cell in enumerate(ROWS)})}),
    "many records": RecordDict({f"metrics.p{i}": MetricRecord({"loss": cell}) for i, cell in enumerate(ROWS)}),
    "a name": RecordDict({"metrics": MetricRecord({"age 39": 1})}),
    "a name of a record": RecordDict({"age 39": MetricRecord({"loss": 1.0})}),
    "a name of an empty record": RecordDict({"age 39": ConfigRecord()}),
}


def with_update(content: RecordDict, update: ArrayRecord | None = None) -> RecordDict:
    """Return a reply's content with the update of eight records."""
    arrays = update or ArrayRecord(EXPECTED)  # pyright: ignore[reportArgumentType]
    return RecordDict({"arrays": arrays, "count": MetricRecord({"num-examples": 8}), **content})


def answered(policy: GuardPolicy, content: RecordDict, kind: str = MessageType.TRAIN, metrics: int = 0) -> Message:
    recipe = RECIPE if metrics else OF_EIGHT
    mod = leak_guard_mod(guarded(policy, recipe))
    return mod(order(kind), CONTEXT, lambda message, _: Message(content, reply_to=message))


@pytest.mark.parametrize("carries", CARRIES)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", ["train", "train.twice", "evaluate", "evaluate.twice", "query", "query.columns"])
def test_rows_beside_the_model_leave_in_no_reply(carries: str, policy: GuardPolicy, kind: str) -> None:
    content = CARRIES[carries]
    reply = answered(policy, with_update(content) if kind.startswith("train") else content, kind)
    assert reply.has_error()
    assert reply.error.reason == "the leak guard withholds this reply; the client's own log says why"


def test_a_policy_that_reports_and_advises_sends_them_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    reply = answered(EVERYTHING, CARRIES["metrics of lists"], "query")
    assert reply.content.metric_records["metrics"]["loss"] == ROWS
    assert "sent unread" in caplog.text
    sent = answered(EVERYTHING, with_update(CARRIES["config of lists"]))
    assert sent.content.config_records["config"]["data"] == ROWS


@pytest.mark.parametrize("kind", [MessageType.EVALUATE, MessageType.QUERY])
def test_arrays_leave_in_training_replies_alone(kind: str) -> None:
    for content in (with_update(RecordDict()), RecordDict({"arrays": ArrayRecord([ENCODED.numpy()])})):
        assert answered(GuardPolicy("block"), content, kind).has_error()
    assert not answered(EVERYTHING, with_update(RecordDict()), kind).has_error()


@pytest.mark.parametrize("kind", [MessageType.EVALUATE, MessageType.QUERY])
@pytest.mark.parametrize("policy", [*POLICIES, EVERYTHING])
def test_usual_metrics_leave(kind: str, policy: GuardPolicy) -> None:
    metrics = {"eval_loss": 0.7, "accuracy": 0.5, "eval_acc": 0.5, "num-examples": 120, "f1": math.nan}
    reply = answered(policy, RecordDict({"metrics": MetricRecord(metrics)}), kind)  # pyright: ignore[reportArgumentType]
    assert dict(reply.content.metric_records["metrics"])["accuracy"] == 0.5
    assert reply.metadata.message_type == kind
    # As clients of the older interface answer.
    older = {
        "evaluateres.loss": MetricRecord({"loss": 0.7}),
        "evaluateres.num_examples": MetricRecord({"num_examples": 120}),
        "evaluateres.metrics": ConfigRecord({"accuracy": 0.5}),
        "evaluateres.status": ConfigRecord({"code": 0, "message": "Success"}),
    }
    reply = answered(policy, RecordDict(older), kind)  # pyright: ignore[reportArgumentType]
    assert reply.content.config_records["evaluateres.status"]["message"] == "Success"


def test_metrics_of_a_training_leave_with_it_and_other_names_where_the_policy_lists_them() -> None:
    metrics = {"train_loss": 0.7, "train-accuracy": 0.5, "epochs": 3}
    sent = answered(NOISE, with_update(RecordDict({"metrics": MetricRecord(metrics)})))  # pyright: ignore[reportArgumentType]
    assert dict(sent.content.metric_records["metrics"]) == metrics
    assert list(sent.content) == ["arrays", "count", "metrics"]
    named = RecordDict({"metrics": MetricRecord({"tumours": 3})})
    assert answered(GuardPolicy("block"), named, "query").has_error()
    assert not answered(GuardPolicy("block", metrics=("tumours",)), named, "query").has_error()


@pytest.mark.parametrize("count", [0, -8, 10**12, 8.5, math.nan, math.inf, [8], "8"])
@pytest.mark.parametrize("policy", [*POLICIES, EVERYTHING])
def test_a_number_of_records_that_cannot_be_withholds_the_update(count: Any, policy: GuardPolicy) -> None:
    record = ConfigRecord if isinstance(count, str) else MetricRecord
    content = RecordDict({"arrays": ArrayRecord(EXPECTED), "metrics": record({"num-examples": count})})  # pyright: ignore[reportArgumentType]
    reply = answered(policy, content, metrics=1)
    assert reply.error.reason == "the leak guard withholds this reply; the client's own log says why"


def test_a_number_of_records_is_counted_where_it_is_absent_and_refused_where_it_is_said_twice() -> None:
    content = RecordDict({"arrays": ArrayRecord(EXPECTED)})  # pyright: ignore[reportArgumentType]
    assert not answered(EVERYTHING, content, metrics=1).has_error()
    assert answered(GuardPolicy("block", "strict"), content, metrics=1).has_error()
    twice = RecordDict({"metrics": MetricRecord({"num-examples": 9})})
    assert answered(EVERYTHING, with_update(twice), metrics=1).has_error()


CELL = "Tim from Ely"


def parses_a_cell(message: Message, _: Context) -> Message:
    """Fail as pandas does, with a cell in the text."""
    pd.Series([CELL]).astype(float)
    raise AssertionError(message)


@pytest.mark.parametrize("kind", ["train", "evaluate", "query.columns"])
@pytest.mark.parametrize("policy", [GuardPolicy("block", "strict"), EVERYTHING])
def test_the_text_of_an_exception_stays_in_the_clients_log(
    kind: str, policy: GuardPolicy, caplog: pytest.LogCaptureFixture
) -> None:
    app = ClientApp(mods=[leak_guard_mod(guarded(policy))])
    for register in (app.train(), app.evaluate(), app.query("columns")):
        register(parses_a_cell)
    reply = app(order(kind), CONTEXT)
    assert reply.error.code == ErrorCode.CLIENT_APP_RAISED_EXCEPTION
    assert str(reply.error.reason).startswith("ValueError was raised at the client")
    assert CELL not in str(reply.error.reason)
    assert CELL in caplog.text


def test_the_text_of_an_exception_of_the_guard_stays_there_too() -> None:
    def none(_: Context) -> Any:
        raise ValueError(CELL)

    reply = leak_guard_mod(none)(order(), CONTEXT, train)
    assert (CELL in str(reply.error.reason), reply.has_error()) == (False, True)
    # A reply that is none.
    assert leak_guard_mod(guarded(EVERYTHING))(order(), CONTEXT, lambda *_: CELL).has_error()  # pyright: ignore[reportArgumentType, reportReturnType]


@pytest.mark.parametrize(("code", "sent"), [(99, 99), (2, 2), (10**12, ErrorCode.UNKNOWN)])
def test_an_error_of_the_app_keeps_its_code_and_loses_its_text(code: int, sent: int) -> None:
    def fails(message: Message, _: Context) -> Message:
        return Message(Error(code=code, reason=CELL), reply_to=message)

    reply = leak_guard_mod(guarded(EVERYTHING))(order(), CONTEXT, fails)
    assert reply.error.code == sent
    assert CELL not in str(reply.error.reason)


def test_nothing_leaves_behind_an_array_or_in_metadata() -> None:
    def hides(message: Message, _: Context) -> Message:
        arrays = ArrayRecord(EXPECTED)  # pyright: ignore[reportArgumentType]
        name, array = next(iter(arrays.items()))
        arrays[name] = Array(CELL, array.shape, array.stype, array.data + CELL.encode())
        reply = Message(with_update(RecordDict(), arrays), reply_to=message)
        reply.metadata.group_id = CELL
        return reply

    reply = leak_guard_mod(guarded(EVERYTHING))(order(), CONTEXT, hides)
    assert all(torch.equal(part, EXPECTED[name]) for name, part in state_of(reply).items())
    for array in reply.content.array_records["arrays"].values():
        assert CELL.encode() not in array.data
        assert array.dtype == "float32"
    assert reply.metadata.group_id != CELL


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


@pytest.mark.slow
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
    attack = FederationAttack.of(network(), DATA.schema, DATA.train, restarts=1, iterations=1)
    finding, _ = attack.run(tmp_path / "captured").updates
    assert finding.records == 8
    assert any("'4.weight', '4.bias' stayed with the client, values unknown" in note for note in finding.notes)
    assert not any("not the one that the server sent" in note for note in finding.notes)
    assert finding.proved_records == 0
    assert len(load_file(folder / "client-7.safetensors")) == len(load_file(folder / "model.safetensors")) == 4


def test_a_strategy_without_a_folder_is_told_so() -> None:
    with pytest.raises(BadInputError, match="call capture_to"):
        Captured().configure_train(1, ArrayRecord(), ConfigRecord(), Nodes())
