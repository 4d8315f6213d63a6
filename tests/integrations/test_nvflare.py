"""The filter in NVFlare's own filter chain, from a site's privacy.json."""

from __future__ import annotations

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
from tests.integrations.updates import RECIPE, after_one_step, guard_file, guarded, network

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
