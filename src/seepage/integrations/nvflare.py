"""NVFlare: a filter that checks a site's updates before they leave.

Set in the site's ``local/privacy.json`` it runs before the filters of a job, and no job can opt out of it. It is named
twice: among the filters of task data it keeps the model that the server sent, which NVFlare hands to no filter of task
results, and among those of task results it checks the update.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from seepage.errors import BadInputError
from seepage.guard.settings import load
from seepage.guard.update_guard import UpdateGuard
from seepage.packages import extra

with extra("nvflare", "NVFlare", "nvflare"):
    from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
    from nvflare.apis.dxo_filter import DXOFilter
    from nvflare.apis.filter import ContentBlockedException, FilterChainType, FilterContextKey
    from nvflare.apis.fl_constant import ReturnCode
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable
    from nvflare.app_common.app_constant import AppConstants

_KINDS: list[str] = [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF]
# What a site's answers hold besides weights; in strict mode nothing else leaves.
_HARMLESS = (*_KINDS, DataKind.METRICS, DataKind.COLLECTION)


# Name under which the received model stands in the context of a task, which both filters see.
_RECEIVED = "seepage_received_model"


@dataclass(frozen=True)
class _Received:
    weights: dict[str, np.ndarray | Tensor]
    round: int | None


class LeakGuard(DXOFilter):
    """Filter that runs the leak guard on weights and differences of weights.

    In the site's ``local/privacy.json``, as a filter of task data and of task results::

        {"scopes": [{"name": "guarded",
            "task_data_filters": [{"path": "seepage.integrations.nvflare.LeakGuard",
                                   "args": {"settings": "/site/guard.yaml"}}],
            "task_result_filters": [{"path": "seepage.integrations.nvflare.LeakGuard",
                                     "args": {"settings": "/site/guard.yaml"}}]}],
         "default_scope": "guarded"}

    An update that is blocked, or cannot be checked, ends the task with ``TASK_RESULT_FILTER_ERROR``. In ``strict`` mode
    so does an answer that holds anything but weights and metrics, which the guard cannot read.

    Args:
        settings: path of the guard file, see ``seepage.guard.load``.
        allow_code: whether code that the guard file names may run.
        guard: guard, for use in Python, in place of the file.

    Raises:
        BadInputError: the guard file cannot be used, or neither file nor guard is given.
    """

    def __init__(self, settings: str | None = None, allow_code: bool = False, guard: UpdateGuard | None = None) -> None:
        super().__init__(supported_data_kinds=_KINDS, data_kinds_to_filter=_KINDS)
        if (settings is None) == (guard is None):
            raise BadInputError("LeakGuard takes the path of a guard file as settings, or a guard: give one of them.")
        self.guard = load(Path(settings), allow_code=allow_code) if guard is None and settings is not None else guard

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the answer of a task as it may be sent; ``ContentBlockedException`` where it may not."""
        assert self.guard is not None
        if self.get_prop(FilterContextKey.CHAIN_TYPE) == FilterChainType.TASK_DATA_CHAIN:
            fl_ctx.set_prop(_RECEIVED, _received(shareable), private=True, sticky=False)
            return shareable
        if shareable.get_return_code() != ReturnCode.OK:
            return shareable
        if self.guard.policy.mode == "strict" and (kind := _unreadable(shareable)):
            raise ContentBlockedException(f"the leak guard cannot read an answer of kind {kind}")
        return super().process(shareable, fl_ctx)

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO | None:
        """Return the changed update, or None where it is sent as it is; one that may not be sent is refused."""
        assert self.guard is not None
        received = fl_ctx.get_prop(_RECEIVED)
        if not isinstance(received, _Received):
            raise ContentBlockedException(
                "the leak guard does not know the model that the server sent; name it among task_data_filters, too"
            )
        if dxo.get_meta_prop(MetaKey.PROCESSED_ALGORITHM) is not None:
            raise ContentBlockedException("the leak guard cannot read an update that another filter has processed")
        form = "difference" if dxo.data_kind == DataKind.WEIGHT_DIFF else "weights"
        try:
            answer = self.guard(received.weights, dxo.data, form=form, round=received.round)
        except BadInputError as error:
            self.log_error(fl_ctx, f"leak guard: {error}")
            raise ContentBlockedException("the leak guard cannot check this update") from error
        self.log_info(fl_ctx, f"leak guard: {answer.finding}")
        if answer.message is None:
            raise ContentBlockedException("the leak guard sends no update in this round")
        if not self.guard.policy.changes:
            return None
        data = {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in answer.message.items()}
        return DXO(dxo.data_kind, data, dict(dxo.meta))


def _received(task: Shareable) -> _Received | None:
    """Return the model that a task came with, apart from what the job may change in place; None where it has none."""
    try:
        dxo = from_shareable(task)
    except ValueError:
        return None
    if dxo.data_kind != DataKind.WEIGHTS or not dxo.data:
        return None
    current = task.get_header(AppConstants.CURRENT_ROUND)
    return _Received(copy.deepcopy(dxo.data), current if isinstance(current, int) else None)


def _unreadable(shareable: Shareable) -> str | None:
    """Return the kind of a part of an answer that is neither weights nor metrics; None where there is none."""
    try:
        pending = [from_shareable(shareable)]
    except ValueError:
        return "no DXO"
    while pending:
        dxo = pending.pop()
        if dxo.data_kind not in _HARMLESS:
            return str(dxo.data_kind)
        if dxo.data_kind == DataKind.COLLECTION:
            pending += list(dxo.data.values() if isinstance(dxo.data, dict) else dxo.data)
    return None
