"""Layers with parametrizations, such as weight normalisation, on their way to worker processes."""

from __future__ import annotations

import copyreg

from torch import nn
from torch.nn.utils import parametrize


def make_sendable(module: nn.Module) -> None:
    """Make layers with parametrizations picklable, which PyTorch refuses.

    PyTorch creates their class anew for each layer; the process that receives one creates it again.

    Example:
        >>> import pickle
        >>> layer = nn.utils.parametrizations.spectral_norm(nn.Linear(2, 3))
        >>> make_sendable(layer)
        >>> sorted(name for name, _ in pickle.loads(pickle.dumps(layer)).named_parameters())
        ['bias', 'parametrizations.weight.original']
    """
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
