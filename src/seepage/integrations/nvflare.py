"""NVFlare: a filter that checks a site's updates before they leave.

Set in the site's ``local/privacy.json`` it runs before the filters of a job, and no job can opt out of it. It is named
twice: among the filters of task data it keeps the model that the server sent, which NVFlare hands to no filter of task
results, and among those of task results it checks the update.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from seepage.errors import BadInputError
from seepage.guard.beside import check_beside
from seepage.guard.settings import load
from seepage.guard.update_guard import UpdateGuard
from seepage.packages import extra

with extra("nvflare", "NVFlare", "nvflare"):
    from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
    from nvflare.apis.dxo_filter import DXOFilter
    from nvflare.apis.filter import ContentBlockedException, FilterChainType, FilterContextKey
    from nvflare.apis.fl_constant import ReturnCode
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply
    from nvflare.app_common.app_constant import AppConstants

_HEADERS, _DXO = ReservedHeaderKey.HEADERS, "DXO"
_ENCODED = ("kind", "data", "meta")
_PLAIN = (str, int, float)
_NAME_ALONE: dict[str, object] = {}  # in place of a value that is looked at by itself
_KINDS: list[str] = [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF]
# What a site's answers hold besides weights; nothing else leaves.
_HARMLESS = (*_KINDS, DataKind.METRICS, DataKind.COLLECTION)
_ALL_KINDS = [kind.value for kind in DataKind]
_CODES = {code for name, code in vars(ReturnCode).items() if not name.startswith("_")}

# Name under which the received task stands in the context of a task, which both filters see.
_RECEIVED = "seepage_received_task"


@dataclass(frozen=True)
class _Received:
    """What a task came with: the model, None where it has none, and headers and metadata that an answer may repeat."""

    weights: dict[str, np.ndarray | Tensor] | None
    round: int | None
    repeatable: dict[str, object]

    def repeats(self, name: str, value: object) -> bool:
        """Return whether a header or metadata is what the server sent."""
        sent = self.repeatable.get(name)
        return type(value) is type(sent) and value == sent


class LeakGuard(DXOFilter):
    """Filter that runs the leak guard on weights and differences of weights.

    In the site's ``local/privacy.json``, as a filter of task data and of task results::

        {"scopes": [{"name": "guarded",
            "task_data_filters": [{"path": "seepage.integrations.nvflare.LeakGuard",
                                   "args": {"settings": "/site/guard.yaml"}}],
            "task_result_filters": [{"path": "seepage.integrations.nvflare.LeakGuard",
                                     "args": {"settings": "/site/guard.yaml"}}]}],
         "default_scope": "guarded"}

    An update that is blocked, or cannot be checked, ends the task with ``TASK_RESULT_FILTER_ERROR``. So does an answer
    that holds anything but weights and a few numbers under usual names, see ``seepage.guard.beside``; a policy that
    reports and advises sends it, with a warning. Of an answer that says that the task failed, only its code leaves, and
    headers leave only where they are such numbers or repeat those of the task.

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
        if (code := shareable.get_return_code()) != ReturnCode.OK:
            # What failed may have left rows behind.
            bare = shareable.keys() == {_HEADERS} and shareable[_HEADERS].keys() == {ReservedHeaderKey.RC}
            known = code if code in _CODES else ReturnCode.EXECUTION_EXCEPTION
            return shareable if bare and known == code else make_reply(known)
        received = fl_ctx.get_prop(_RECEIVED)
        if not isinstance(received, _Received):
            received = _Received(None, None, {})
        further = self.guard.policy.metrics
        try:
            _check_answer(shareable, received, further)
        except BadInputError as error:
            if not self.guard.policy.sends_unread:
                self.log_error(fl_ctx, f"leak guard: {error}")
                raise ContentBlockedException(f"the leak guard cannot read this answer: {error}") from error
            self.log_warning(fl_ctx, f"leak guard: sent unread, as the policy reports and advises: {error}")
            return super().process(shareable, fl_ctx)
        for name, value in list(shareable[_HEADERS].items()):
            if not _is_plain_header(name, value, received, further):
                self.log_warning(fl_ctx, f"leak guard: header {name!r} is left out")
                del shareable[_HEADERS][name]
        return super().process(shareable, fl_ctx)

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO | None:
        """Return the changed update, or None where it is sent as it is; one that may not be sent is refused."""
        assert self.guard is not None
        received = fl_ctx.get_prop(_RECEIVED)
        if not isinstance(received, _Received) or received.weights is None:
            raise ContentBlockedException(
                "the leak guard does not know the model that the server sent; name it among task_data_filters, too"
            )
        if dxo.get_meta_prop(MetaKey.PROCESSED_ALGORITHM) is not None:
            raise ContentBlockedException("the leak guard cannot read an update that another filter has processed")
        form = "difference" if dxo.data_kind == DataKind.WEIGHT_DIFF else "weights"
        try:
            answer = self.guard(received.weights, dxo.data, form=form, round=received.round)
        except Exception as error:
            self.log_error(fl_ctx, f"leak guard: {error}")
            raise ContentBlockedException("the leak guard cannot check this update") from error
        self.log_info(fl_ctx, f"leak guard: {answer.finding}")
        if answer.message is None:
            raise ContentBlockedException("the leak guard sends no update in this round")
        if not self.guard.policy.changes:
            return None
        data = {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in answer.message.items()}
        return DXO(dxo.data_kind, data, dict(dxo.meta))


def _received(task: Shareable) -> _Received:
    """Return what a task came with, apart from what the job may change in place."""
    current = task.get_header(AppConstants.CURRENT_ROUND)
    round = current if isinstance(current, int) else None
    sent, weights = dict(task.get(_HEADERS, {})), None
    try:
        dxo = from_shareable(task)
    except ValueError:
        pass
    else:
        sent |= dxo.meta
        weights = copy.deepcopy(dxo.data) if dxo.data_kind == DataKind.WEIGHTS and dxo.data else None
    return _Received(weights, round, {name: value for name, value in sent.items() if isinstance(value, _PLAIN)})


def _check_answer(shareable: Shareable, received: _Received, further: Collection[str]) -> None:
    """Refuse an answer that holds anything but weights and numbers under usual names."""
    try:
        pending = [from_shareable(shareable)]
    except ValueError as error:
        raise BadInputError("it is no DXO; return weights or metrics as one") from error
    parts = [*_named({name: value for name, value in shareable.items() if name not in (_HEADERS, _DXO)})]
    parts += _named({name: value for name, value in shareable[_DXO].items() if name not in _ENCODED})
    while pending:
        dxo = pending.pop()
        if dxo.data_kind not in _HARMLESS:
            kind = dxo.data_kind if dxo.data_kind in _ALL_KINDS else "that is unknown"
            raise BadInputError(f"it is of kind {kind}; return weights and metrics alone")
        # Names of filters before this one; NVFlare writes them anew.
        dxo.meta.pop(MetaKey.FILTER_HISTORY, None)
        # Weights that were processed are refused by themselves.
        processed = MetaKey.PROCESSED_ALGORITHM if dxo.data_kind in _KINDS and dxo.data else None
        parts += _named({n: v for n, v in dxo.meta.items() if n != processed and not received.repeats(n, v)})
        if dxo.data_kind == DataKind.METRICS:
            parts += _named(dxo.data)
        elif dxo.data_kind == DataKind.COLLECTION:
            parts += _named(dict.fromkeys(dxo.data, _NAME_ALONE))
            for item in dxo.data.values():
                if not isinstance(item, DXO):
                    raise BadInputError(f"its collection holds a {type(item).__name__} in place of a DXO")
                pending.append(item)
    check_beside(parts, further)


def _named(values: Mapping[str, object]) -> list[tuple[tuple[str, ...], object]]:
    """Return values with their names, and those within others with the names of both."""
    named: list[tuple[tuple[str, ...], object]] = []
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            named += [((str(name), *names), tensor) for names, tensor in _named(value)]
        else:
            named.append(((str(name),), value))
    return named


def _is_plain_header(name: str, value: object, received: _Received, further: Collection[str]) -> bool:
    """Return whether a header is the framework's, repeats one of the task, or is a number under a usual name."""
    if name == ReservedHeaderKey.RC or (name == ReservedHeaderKey.CONTENT_TYPE and value == _DXO):
        return True
    if received.repeats(name, value):
        return True
    try:
        check_beside([((str(name),), value)], further)
    except BadInputError:
        return False
    return True
