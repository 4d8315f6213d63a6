"""Copies of modules, in this process and on their way to others, whatever they keep as attributes."""

from __future__ import annotations

import copy
import copyreg
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

M = TypeVar("M", bound=nn.Module)


def copied(module: M) -> M:
    """Return a deep copy of a module; ``copy.deepcopy`` refuses computed tensors, such as ``weight_norm`` keeps."""
    computed = [
        value
        for part in module.modules()
        for value in vars(part).values()
        if isinstance(value, Tensor) and not value.is_leaf
    ]
    return copy.deepcopy(module, {id(value): _values(value) for value in computed})


def _values(computed: Tensor) -> Tensor:
    try:
        return computed.detach().clone()
    except RuntimeError:  # Of a run under vmap or grad that is over.
        return torch.empty(0)


def make_sendable(module: nn.Module) -> None:
    """Make layers with parametrizations picklable, whose class PyTorch creates anew for each layer."""
    for part in module.modules():
        if parametrize.is_parametrized(part):
            copyreg.pickle(type(part), _reduced)  # pyright: ignore[reportArgumentType]


def _reduced(part: nn.Module) -> tuple[object, ...]:
    [base] = type(part).__bases__
    # The state comes last, since a layer may hold itself.
    return _empty, (base,), vars(part), None, None, _fill


def _empty(base: type[nn.Module]) -> nn.Module:
    instance = base.__new__(base)
    parametrize._inject_new_class(instance)  # pyright: ignore[reportPrivateUsage]
    return instance


def _fill(part: nn.Module, state: dict[str, object]) -> None:
    vars(part).update(state)
    for name in part.parametrizations:  # pyright: ignore
        parametrize._inject_property(part, name)  # pyright: ignore[reportPrivateUsage]
    make_sendable(part)
