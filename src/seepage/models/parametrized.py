"""Layers with parametrizations, such as weight normalisation, on their way to worker processes."""

from __future__ import annotations

import copyreg

from torch import nn
from torch.nn.utils import parametrize


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
