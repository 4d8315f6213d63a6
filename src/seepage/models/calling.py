"""Running a module with other tensors in place of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode


def plain_attention() -> AbstractContextManager[object]:
    """Compute attention by its formula in the block: its fast kernels have no second derivative."""
    return sdpa_kernel(SDPBackend.MATH)


@contextmanager
def usual_numbers(rows: Tensor) -> Iterator[None]:
    """Create tensors in the rows' precision in the block, such as the first state of a recurrence."""
    before = torch.get_default_dtype()
    if rows.dtype == before:
        yield
        return
    torch.set_default_dtype(rows.dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class _LayerNormByFormula(TorchFunctionMode):
    """Computes layer normalisation by its formula: PyTorch's (2.13) has wrong second derivatives under ``vmap``."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
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
    normalised = away * torch.rsqrt(away.square().mean(last, keepdim=True) + eps)
    normalised = normalised if weight is None else normalised * weight
    return normalised if bias is None else normalised + bias


def call(module: nn.Module, tensors: Mapping[str, Tensor], rows: Tensor) -> Tensor:
    """Return the module's outputs with other parameters and buffers; what is left out is the module's own.

    ``torch.func.functional_call`` does not restore the tensors of a layer that occurs in several places; here each
    layer gets its tensors once. Attention and layer normalisation run by their formulas, to be differentiated again.
    """
    named = [*module.named_parameters(), *module.named_buffers()]
    replaced = {id(tensor): tensors[name] for name, tensor in named if name in tensors}
    given = {
        f"{place}.{name}" if place else name: replaced[id(tensor)]
        for place, part in module.named_modules()
        for name, tensor in (*part._parameters.items(), *part._buffers.items())
        if id(tensor) in replaced
    }
    normalised = any(isinstance(part, nn.LayerNorm) for part in module.modules())
    with plain_attention(), usual_numbers(rows), _LayerNormByFormula() if normalised else nullcontext():
        return functional_call(module, given, (rows,), tie_weights=False)


class LayerRun(NamedTuple):
    """One run of a layer: name in its module, input and output."""

    name: str
    entering: Tensor
    returned: Tensor


class Watched(NamedTuple):
    """Outputs of a module, and the watched runs of its layers in order."""

    outputs: Tensor
    layers: list[LayerRun]


def watched(
    module: nn.Module, names: Iterable[str], rows: Tensor, replaced: Mapping[str, Tensor] | None = None
) -> Watched:
    """Run a module and return inputs and outputs of some layers, which may return other tensors than their own."""
    layers: list[LayerRun] = []
    replaced = replaced or {}

    def record(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
        def hook(_: nn.Module, entering: tuple[Tensor, ...], returned: Tensor) -> Tensor:
            returned = replaced.get(name, returned)
            layers.append(LayerRun(name, entering[0], returned))
            return returned

        return hook

    hooks = [module.get_submodule(name).register_forward_hook(record(name)) for name in names]
    try:
        with torch.no_grad():
            outputs = module(rows)
    finally:
        for hook in hooks:
            hook.remove()
    return Watched(outputs, layers)
