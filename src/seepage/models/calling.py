"""Running a module with other tensors in place of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode


def plain_attention() -> AbstractContextManager[object]:
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


class _LayerNormByFormula(TorchFunctionMode):
    """Has layer normalisation computed by its formula.

    PyTorch's own (2.13) has wrong second derivatives under ``vmap``: some percent off, without a word.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in (functional.layer_norm, torch.layer_norm):
            return _layer_norm(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    last = tuple(range(-len(normalized_shape), 0))
    away = input - input.mean(last, keepdim=True)
    found = away * torch.rsqrt(away.square().mean(last, keepdim=True) + eps)
    found = found if weight is None else found * weight
    return found if bias is None else found + bias


def call(module: nn.Module, tensors: Mapping[str, Tensor], rows: Tensor) -> Tensor:
    """Return the module's outputs with other parameters and buffers, the module's own untouched.

    ``torch.func.functional_call`` does the same except for a layer that occurs in several places: it removes the
    layer's tensors there and does not restore them. Here each layer gets its tensors once, under whichever name.
    Attention is computed by its formula, and so is layer normalisation where the module has a layer of it, so that both
    can be differentiated as often as one likes.

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
    normalised = any(isinstance(part, nn.LayerNorm) for part in module.modules())
    with plain_attention(), _LayerNormByFormula() if normalised else nullcontext():
        return functional_call(module, given, (rows,), tie_weights=False)
