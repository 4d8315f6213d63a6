"""Running a module with other tensors in place of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel


def plain_attention() -> AbstractContextManager[None]:
    """Have attention computed by its formula: its fast kernels have no second derivative, which attackers need.

    Example:
        >>> import torch
        >>> attention = nn.MultiheadAttention(2, 1, batch_first=True)
        >>> rows = torch.ones(1, 3, 2)
        >>> with plain_attention():
        ...     tuple(attention(rows, rows, rows)[0].shape)
        (1, 3, 2)
    """
    return sdpa_kernel(SDPBackend.MATH)


def call(module: nn.Module, tensors: Mapping[str, Tensor], rows: Tensor) -> Tensor:
    """Return the module's outputs with other parameters and buffers, the module's own untouched.

    ``torch.func.functional_call`` does the same except for a layer that occurs in several places: it removes the
    layer's tensors there and does not restore them. Here each layer gets its tensors once, under whichever name.
    Attention is computed by its formula, so that it can be differentiated as often as one likes.

    Args:
        module: module to run.
        tensors: parameters and buffers by name, as ``named_parameters()`` and ``named_buffers()`` name them; the
            module's own for those left out. A parameter shared by several layers stays shared.
        rows: inputs of the module.

    Example:
        >>> import torch
        >>> layer = nn.Linear(1, 1, bias=False)
        >>> twice = nn.Sequential(layer, layer)
        >>> call(twice, {"0.weight": torch.tensor([[3.0]])}, torch.ones(1, 1)).tolist(), type(layer.weight).__name__
        ([[9.0]], 'Parameter')
    """
    named = [*module.named_parameters(), *module.named_buffers()]
    replaced = {id(own): tensors[name] for name, own in named if name in tensors}
    given = {
        f"{place}.{name}" if place else name: replaced[id(own)]
        for place, part in module.named_modules()
        for name, own in (*part._parameters.items(), *part._buffers.items())
        if id(own) in replaced
    }
    with plain_attention():
        return functional_call(module, given, (rows,), tie_weights=False)
