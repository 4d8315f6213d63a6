"""Copies of modules, including modules that keep a computed tensor as an attribute."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


def copied(module: M) -> M:
    """Return a deep copy of a module, whose attributes that are computed in each run are not copied.

    ``copy.deepcopy`` refuses a tensor that was computed, such as the weight that ``torch.nn.utils.weight_norm`` keeps.
    """
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
