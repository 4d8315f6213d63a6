"""The filter in NVFlare's own filter chain, from a site's privacy.json."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.filter import ContentBlockedException, FilterChainType, FilterContextKey
from nvflare.apis.fl_constant import FilterKey, FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.utils.task_utils import apply_filters
from nvflare.apis.workspace import Workspace
from nvflare.app_common.app_constant import AppConstants
from nvflare.private.fed.app.fl_conf import create_privacy_manager
from nvflare.private.privacy_manager import Scope

from seepage.errors import BadInputError
from seepage.guard.policy import GuardPolicy
from seepage.integrations.nvflare import LeakGuard
from tests.integrations.updates import DATA, ENCODER, NOISE, RECIPE, after_one_step, guard_file, guarded, network

BEFORE = dict(network().state_dict())
AFTER = after_one_step(BEFORE)
OF_EIGHT = RECIPE.model_copy(update={"batch_size": 8})


def arrays(state: Any) -> dict[str, np.ndarray]:
    return {name: tensor.numpy().copy() for name, tensor in state.items()}


def task(kind: str = DataKind.WEIGHTS) -> Shareable:
    data = DXO(kind, arrays(BEFORE)).to_shareable()
    data.set_header(AppConstants.CURRENT_ROUND, 5)
    return data


def context(kind: str = DataKind.WEIGHTS) -> FLContext:
    """Return the context of a task whose data went through the guard's other filter."""
    found = FLContext()
    keeping = LeakGuard(guard=guarded(GuardPolicy("report")))
    keeping.set_prop(FilterContextKey.CHAIN_TYPE, FilterChainType.TASK_DATA_CHAIN)
    sent = task(kind)
    assert keeping.process(sent, found) is sent
    return found


def reply(kind: str = DataKind.WEIGHTS, meta: dict[str, Any] | None = None) -> Shareable:
    data = arrays(AFTER) if kind == DataKind.WEIGHTS else arrays({n: AFTER[n] - BEFORE[n] for n in AFTER})
    return DXO(kind, data, meta).to_shareable()


def site_scope(folder: Path, policy: str) -> Scope:
    """Return the filters that NVFlare makes from a site's local/privacy.json."""
    (folder / "local").mkdir()
    (folder / "startup").mkdir()
    entry = {
        "path": "seepage.integrations.nvflare.LeakGuard",
        "args": {"settings": str(guard_file(folder, policy))},
    }
    scopes = [{"name": "guarded", "properties": {}, "task_data_filters": [entry], "task_result_filters": [entry]}]
    (folder / "local" / "privacy.json").write_text(json.dumps({"scopes": scopes, "default_scope": "guarded"}))
    manager = create_privacy_manager(Workspace(str(folder), "site-1"), names_only=False)
    assert manager is not None
    scope = manager.get_scope(None)
    assert scope is not None
    return scope


def out(scope: Scope, shareable: Shareable) -> Shareable:
    """Send through the chains that NVFlare's client runs around a task, without any filter of the job."""
    around = FLContext()
    around.set_prop(FLContextKey.SCOPE_OBJECT, value=scope, private=True, sticky=False)
    data = apply_filters(Scope.TASK_DATA_FILTERS_NAME, task(), around, {}, "train", FilterKey.IN)
    assert isinstance(data, Shareable)
    # Training in place changes nothing of what the guard keeps.
    for array in from_shareable(data).data.values():
        array += 1.0
    sent = apply_filters(Scope.TASK_RESULT_FILTERS_NAME, shareable, around, {}, "train", FilterKey.OUT)
    assert isinstance(sent, Shareable)
    return sent


@pytest.mark.parametrize("kind", [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF])
def test_a_site_blocks_what_is_proved(tmp_path: Path, kind: str) -> None:
    scope = site_scope(tmp_path, "policy: block\nmode: strict\n")
    with pytest.raises(ContentBlockedException, match="sends no update"):
        out(scope, reply(kind))
    [line] = (tmp_path / "guard.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert (found["decision"], found["proved_records"], found["round"]) == ("proved", 8, 5)


@pytest.mark.parametrize("kind", [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF])
def test_a_site_adds_noise(tmp_path: Path, kind: str) -> None:
    scope = site_scope(tmp_path, "policy: noise\nclip_norm: 1.0\nnoise_multiplier: 2.0\n")
    sent = from_shareable(out(scope, reply(kind, {MetaKey.NUM_STEPS_CURRENT_ROUND: 1})))
    given = from_shareable(reply(kind))
    assert sent.data_kind == kind
    assert sent.get_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND) == 1
    moved = np.concatenate([(sent.data[name] - given.data[name]).ravel() for name in given.data])
    assert moved.std() == pytest.approx(2.0, rel=0.02)


def test_a_site_passes_and_reports(tmp_path: Path) -> None:
    scope = site_scope(tmp_path, "policy: report\n")
    sent = from_shareable(out(scope, reply()))
    assert all(np.array_equal(sent.data[name], AFTER[name].numpy()) for name in AFTER)


def test_tensors_are_taken_as_arrays_are() -> None:
    shareable = DXO(DataKind.WEIGHTS, AFTER).to_shareable()
    with pytest.raises(ContentBlockedException):
        LeakGuard(guard=guarded(GuardPolicy("block"), OF_EIGHT)).process(shareable, context())


@pytest.mark.parametrize(
    ("shareable", "what"),
    [
        (Shareable({"rows": np.zeros((3, 2))}), "no DXO"),
        (DXO(DataKind.APP_DEFINED, {"rows": np.zeros(3)}).to_shareable(), "APP_DEFINED"),
        (DXO(DataKind.COLLECTION, {"a": DXO(DataKind.ANALYTIC, {"x": 1})}).to_shareable(), "ANALYTIC"),
    ],
)
def test_strict_lets_nothing_out_that_the_guard_cannot_read(shareable: Shareable, what: str) -> None:
    shareable.set_return_code(ReturnCode.OK)
    with pytest.raises(ContentBlockedException, match=what):
        LeakGuard(guard=guarded(GuardPolicy("report", "strict"))).process(shareable, context())
    assert LeakGuard(guard=guarded(GuardPolicy("report"))).process(shareable, context()) is shareable


ROWS = ENCODER.encode(DATA.train.cells[:3]).numpy()
BLOCKING = (GuardPolicy("block"), GuardPolicy("block", "strict"), GuardPolicy("report", "strict"), NOISE)


def metrics(**values: Any) -> DXO:
    return DXO(DataKind.METRICS, values)


# Answers that hold rows beside the model, some next to an update.
CARRIES: dict[str, Shareable] = {
    "an array": metrics(loss=ROWS).to_shareable(),
    "a list": metrics(loss=ROWS.ravel().tolist()).to_shareable(),
    "text": metrics(message=DATA.train.frame.iloc[0].to_json()).to_shareable(),
    "bytes": metrics(loss=ROWS.tobytes()).to_shareable(),
    "nested": metrics(train={"loss": {"mean": ROWS.tolist()}}).to_shareable(),
    "many": metrics(train={f"cell-{i}": float(cell) for i, cell in enumerate(ROWS.ravel())}).to_shareable(),
    "a name": metrics(**{"age 39": 1.0}).to_shareable(),
    "an empty name": metrics(**{"age 39": {}}).to_shareable(),
    "a name of a collection": DXO(DataKind.COLLECTION, {"age 39": metrics(loss=1.0)}).to_shareable(),
    "in a collection": DXO(DataKind.COLLECTION, {"metrics": metrics(loss=ROWS)}).to_shareable(),
    "metadata": DXO(DataKind.METRICS, {"loss": 0.5}, {MetaKey.INITIAL_METRICS: {"loss": ROWS}}).to_shareable(),
    "processed": DXO(DataKind.METRICS, {"loss": 0.5}, {MetaKey.PROCESSED_ALGORITHM: "39"}).to_shareable(),
    "metadata of weights": reply(meta={MetaKey.CONFIGS: {"rows": ROWS.tolist()}}),
    "statistics": DXO(DataKind.STATISTICS, {"age": {"mean": 39.0}}).to_shareable(),
    "beside a DXO": Shareable({**reply(), "rows": ROWS}),
    "in a DXO": reply(),
}
CARRIES["beside a DXO"].set_header("__content_type__", "DXO")
CARRIES["in a DXO"]["DXO"]["rows"] = ROWS


@pytest.mark.parametrize("carries", CARRIES)
@pytest.mark.parametrize("policy", BLOCKING)
def test_rows_beside_the_model_leave_in_no_answer(carries: str, policy: GuardPolicy) -> None:
    with pytest.raises(ContentBlockedException, match="the leak guard cannot read this answer"):
        LeakGuard(guard=guarded(policy, OF_EIGHT)).process(copy.deepcopy(CARRIES[carries]), context())


@pytest.mark.parametrize("policy", BLOCKING)
def test_usual_metrics_leave(policy: GuardPolicy) -> None:
    usual = {"val_accuracy": 0.5, "loss": np.float32(0.7), "train": {"auc": 0.6}}
    sent = LeakGuard(guard=guarded(policy)).process(metrics(**usual).to_shareable(), context())
    assert from_shareable(sent).data == usual
    named = metrics(tumours=3).to_shareable()
    allowing = GuardPolicy("block", metrics=("tumours",))
    assert from_shareable(LeakGuard(guard=guarded(allowing)).process(named, context())).data == {"tumours": 3}


def test_headers_leave_where_they_are_numbers_or_what_the_server_sent() -> None:
    answer = metrics(loss=0.5).to_shareable()
    for name, value in ((AppConstants.CURRENT_ROUND, 5), ("owner", "site-3"), ("rows", ROWS), ("note", "age 39")):
        answer.set_header(name, value)
    found = context()
    keeping = LeakGuard(guard=guarded(GuardPolicy("block")))
    keeping.set_prop(FilterContextKey.CHAIN_TYPE, FilterChainType.TASK_DATA_CHAIN)
    sent_task = task()
    sent_task.set_header("owner", "site-3")
    keeping.process(sent_task, found)
    sent = LeakGuard(guard=guarded(GuardPolicy("block"))).process(answer, found)
    assert sent["__headers__"] == {"__content_type__": "DXO", AppConstants.CURRENT_ROUND: 5, "owner": "site-3"}


@pytest.mark.parametrize(("code", "sent"), [(ReturnCode.EXECUTION_EXCEPTION,) * 2, ("age 39", "EXECUTION_EXCEPTION")])
@pytest.mark.parametrize("policy", [GuardPolicy("report"), *BLOCKING])
def test_of_a_failure_its_code_alone_leaves(code: str, sent: str, policy: GuardPolicy) -> None:
    failed = make_reply(code, {"__error__": "could not convert string to float: 'Tim'"})
    failed["rows"] = ROWS
    assert LeakGuard(guard=guarded(policy)).process(failed, context()) == make_reply(sent)


def test_metrics_and_failures_pass() -> None:
    strict = LeakGuard(guard=guarded(GuardPolicy("block", "strict")))
    metrics = DXO(DataKind.METRICS, {"accuracy": 0.5}).to_shareable()
    assert from_shareable(strict.process(metrics, context())).data == {"accuracy": 0.5}
    failed = make_reply(ReturnCode.EXECUTION_EXCEPTION)
    assert strict.process(failed, context()) is failed


@pytest.mark.parametrize("policy", [GuardPolicy("report"), GuardPolicy("block", "strict")])
def test_an_update_that_cannot_be_checked_is_not_sent(policy: GuardPolicy) -> None:
    checks = LeakGuard(guard=guarded(policy))
    with pytest.raises(ContentBlockedException, match="does not know the model"):
        checks.process(reply(), FLContext())
    with pytest.raises(ContentBlockedException, match="does not know the model"):
        checks.process(reply(), context(DataKind.METRICS))
    with pytest.raises(ContentBlockedException, match="another filter has processed"):
        checks.process(reply(meta={MetaKey.PROCESSED_ALGORITHM: "HE"}), context())
    other = DXO(DataKind.WEIGHTS, {"other": torch.zeros(3).numpy()}).to_shareable()
    with pytest.raises(ContentBlockedException, match="cannot check this update"):
        checks.process(other, context())


def test_a_filter_needs_one_guard() -> None:
    with pytest.raises(BadInputError, match="give one of them"):
        LeakGuard()
