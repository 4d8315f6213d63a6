"""A pytest plugin that adds up as another processor may: the order of each sum depends on the layout of its operands.

    python -m pytest -p tests.other_processor tests/attacks/test_engine.py

Each matrix product, sum, mean and norm of PyTorch takes its terms in an order that is drawn for the shapes, strides and
alignment of its operands. The same call gives the same bits twice, while a batch of two rounds otherwise than two
batches of one. A test that asks equal bits of two paths fails under it, on whatever processor it runs.
``OTHER_PROCESSOR`` in the environment is another seed of the orders.
"""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

SEED = os.environ.get("OTHER_PROCESSOR", "0")
aten = torch.ops.aten


@functools.cache
def _order(shapes: tuple[object, ...], terms: int) -> Tensor:
    generator = torch.Generator().manual_seed(zlib.crc32(repr((SEED, shapes)).encode()))
    return torch.randperm(terms, generator=generator)


def _layout(tensor: Tensor) -> tuple[object, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.data_ptr() % 64


def _product(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    if a.shape[-1] != b.shape[max(b.dim() - 2, 0)]:
        # The product itself says what does not fit.
        return a, b
    order = _order((_layout(a), _layout(b)), a.shape[-1]).to(a.device)
    return a.index_select(a.dim() - 1, order), b.index_select(max(b.dim() - 2, 0), order)


def _summed(tensor: Tensor, dims: Any) -> Tensor:
    axes = range(tensor.dim()) if dims is None or dims == [] else dims
    axes = axes if not isinstance(axes, int) else [axes]
    for axis in axes:
        order = _order((_layout(tensor), axis), tensor.shape[axis]).to(tensor.device)
        tensor = tensor.index_select(axis, order)
    return tensor


def _first_two(call: Callable[..., Tensor], a: Tensor, b: Tensor, *rest: Any, **options: Any) -> Tensor:
    return call(*_product(a, b), *rest, **options)


def _after_one(call: Callable[..., Tensor], added: Tensor, a: Tensor, b: Tensor, *rest: Any, **options: Any) -> Tensor:
    return call(added, *_product(a, b), *rest, **options)


def _whole(call: Callable[..., Tensor], tensor: Tensor, **options: Any) -> Tensor:
    return call(_summed(tensor, None), **options)


def _along(call: Callable[..., Tensor], tensor: Tensor, dims: Any, *rest: Any, **options: Any) -> Tensor:
    return call(_summed(tensor, dims), dims, *rest, **options)


def _norm(
    call: Callable[..., Tensor], tensor: Tensor, power: Any = 2, dims: Any = None, *rest: Any, **options: Any
) -> Tensor:
    return call(_summed(tensor, dims), power, dims, *rest, **options)


PATHS: dict[Any, Callable[..., Tensor]] = {
    aten.mm.default: _first_two,
    aten.bmm.default: _first_two,
    aten.mv.default: _first_two,
    aten.dot.default: _first_two,
    aten.addmm.default: _after_one,
    aten.baddbmm.default: _after_one,
    aten.addmv.default: _after_one,
    aten.sum.default: _whole,
    aten.mean.default: _whole,
    aten.sum.dim_IntList: _along,
    aten.mean.dim: _along,
    aten.linalg_vector_norm.default: _norm,
}


class OtherProcessor(TorchDispatchMode):
    """Sends products and sums of floating-point numbers through ``PATHS``."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        path = PATHS.get(func)
        first = next((value for value in args if isinstance(value, Tensor)), None)
        if path is None or first is None or not first.is_floating_point():
            return func(*args, **(kwargs or {}))
        return path(func, *args, **(kwargs or {}))


def pytest_configure() -> None:
    """Take the other processor from here on."""
    OtherProcessor().__enter__()
