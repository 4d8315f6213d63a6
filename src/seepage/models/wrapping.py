"""Networks that are run in another way: with other outputs, or from buffers as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from seepage.models.copies import copied

_INNER, _STATEFUL, _LOGITS = "_seepage_inner", "_seepage_stateful", "_seepage_logits"
# Sizes of the rows, standardised, on which outputs are looked at.
_SIZES = (0.1, 1.0, 10.0, 100.0, 1000.0)
_EACH = 64


def as_column(module: nn.Module) -> nn.Module:
    """Return a copy of a module whose outputs (record,) are a column (record, output); parameters keep their names."""
    return _wrapped(module, _INNER, _column)


def within_chances(module: nn.Module, width: int) -> bool:
    """Return whether all outputs of a module are between 0 and 1, and not all alike, on rows of many sizes."""
    first, generator = next(module.parameters()), torch.Generator().manual_seed(0)
    rows = torch.randn(len(_SIZES), _EACH, width, generator=generator) * torch.tensor(_SIZES)[:, None, None]
    with torch.no_grad():
        outputs = copied(module)(rows.flatten(0, 1).to(first))
    return bool((outputs >= 0).all() and (outputs <= 1).all() and (outputs != outputs[:1]).any())


def as_logits(module: nn.Module) -> nn.Module:
    """Return a copy of a module that returns logits instead of chances, with the gradients of ``nn.BCELoss``."""
    return _wrapped(module, _LOGITS, _logits)


def returns_chances(module: nn.Module) -> bool:
    """Return whether a module is one of ``as_logits``."""
    return _LOGITS in vars(module)


def is_its_layers(module: nn.Module) -> bool:
    """Return whether a module runs by its class's forward method and trains all, so that its layers determine it."""
    return "forward" not in vars(module) and all(parameter.requires_grad for parameter in module.parameters())


def from_same_buffers(module: nn.Module, width: int) -> nn.Module:
    """Return the module, or a copy that begins each run with the buffers that it holds, where runs change them.

    So does spectral normalisation in each run of training; a client begins with the buffers that it was sent.
    """
    if _STATEFUL in vars(module) or next(module.buffers(), None) is None:
        return module
    tried, first = copied(module), next(module.parameters())
    # Writing counts a tensor's version up, also where it writes the same.
    before = {name: (buffer, buffer._version) for name, buffer in tried.named_buffers()}
    try:
        with torch.no_grad():
            tried(torch.zeros(2, width, dtype=first.dtype, device=first.device))
    except Exception:  # A user's module may raise anything; ``Model.check`` says what.
        return module
    if all(buffer is before[name][0] and buffer._version == before[name][1] for name, buffer in tried.named_buffers()):
        return module
    return _wrapped(module, _STATEFUL, _from_same_buffers)


@contextmanager
def same_buffers(module: nn.Module) -> Iterator[None]:
    """Have a module run on copies of its buffers, which are gone afterwards."""
    places = [(part, name, buffer) for part in module.modules() for name, buffer in part._buffers.items()]
    copies = {id(buffer): buffer.clone() for _, _, buffer in places if buffer is not None}
    try:
        for part, name, buffer in places:
            part._buffers[name] = None if buffer is None else copies[id(buffer)]
        with _NotInPlace():
            yield
    finally:
        for part, name, buffer in places:
            part._buffers[name] = buffer


class _NotInPlace(TorchFunctionMode):
    """Mode in which ``functional.normalize`` returns a new tensor, as weights of several batches need it."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func is functional.normalize:
            given = {name: value for name, value in given.items() if name != "out"}
        return func(*args, **given)


def _wrapped(module: nn.Module, place: str, forward: Callable[[nn.Module, Tensor], Tensor]) -> nn.Module:
    """Return a copy with a forward method around the one that a module has, which is kept under a name."""
    copy = copied(module)
    vars(copy)[place] = vars(copy).get("forward")
    # Not a bound method, which worker processes would look up in the module by its name.
    copy.forward = partial(forward, copy)
    return copy


def _run(module: nn.Module, place: str, rows: Tensor) -> Tensor:
    inner = vars(module)[place]
    return type(module).forward(module, rows) if inner is None else inner(rows)


def _column(module: nn.Module, rows: Tensor) -> Tensor:
    return _run(module, _INNER, rows)[..., None]


def _logits(module: nn.Module, rows: Tensor) -> Tensor:
    if vars(module)[_LOGITS] is None and type(module) is nn.Sequential and type(module[-1]) is nn.Sigmoid:
        return module[:-1](rows)
    chances = _run(module, _LOGITS, rows)
    # A chance that is rounded to 0 or 1 moves no parameter, as under nn.BCELoss; that has a floor of 1e-12 besides.
    about = torch.finfo(chances.dtype)
    return torch.logit(chances.clamp(about.tiny, 1 - about.eps / 2))


def _from_same_buffers(module: nn.Module, rows: Tensor) -> Tensor:
    with same_buffers(module):
        return _run(module, _STATEFUL, rows)
