"""Linear maps with weights that a module applies to its rows, watched while it runs, however they are written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from seepage.models.calling import usual_numbers

_PRODUCTS = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.mm, torch.Tensor.mm)


class LinearCall(NamedTuple):
    """One application of a weight (unit, input), as a layer of units, to (record, input) or (record, position, input).

    Units lie along the ``last`` axis of the output, or else along axis 1.
    """

    place: int
    entering: Tensor
    weight: Tensor
    bias: Tensor | None
    returned: Tensor
    last: bool

    def by_unit(self, returned: Tensor) -> Tensor:
        """Return a tensor in the output's form as (record, unit) or (record, position, unit)."""
        if self.last:
            return returned
        return returned[..., 0] if self.entering.dim() == 2 else returned.mT

    def as_returned(self, by_unit: Tensor) -> Tensor:
        """Return the inverse of ``by_unit``, of any number of records."""
        if self.last:
            return by_unit
        return by_unit[..., None] if self.entering.dim() == 2 else by_unit.mT


class LinearRun(NamedTuple):
    """A module's outputs, and the linear maps on the way there, in the order of the run."""

    outputs: Tensor
    calls: list[LinearCall]


def linear_calls(
    module: nn.Module,
    rows: Tensor,
    places: Collection[int] | None = None,
    replaced: Mapping[int, Tensor] | None = None,
    graph: bool = False,
    until: Collection[int] = (),
) -> LinearRun:
    """Run a module and return the linear maps that it applies.

    These are the calls of ``functional.linear`` (so of ``nn.Linear``), of products of a tensor with a matrix (``@``,
    ``matmul``, ``mm``, ``addmm``, an ``einsum`` that sums over the last axes of its row) and of ``conv1d`` without
    padding. ``places`` are indices, among all calls that could be such a map, of those to return; ``replaced`` are
    outputs in place of theirs; the run ends after those of ``until``, with the outputs of the last one.
    """
    watching = _WatchingCalls(places, replaced or {}, set(until))
    try:
        with torch.set_grad_enabled(graph), usual_numbers(rows), watching:
            outputs = module(rows)
    except _AllCalledError:
        outputs = watching.calls[-1].returned
    return LinearRun(outputs, watching.calls)


class _AllCalledError(Exception):
    """All calls that were awaited have been made."""


class _WatchingCalls(TorchFunctionMode):
    """Records the linear maps while a module runs."""

    def __init__(self, places: Collection[int] | None, replaced: Mapping[int, Tensor], until: set[int]) -> None:
        super().__init__()
        self.calls: list[LinearCall] = []
        self._places, self._replaced, self._awaited, self._ends = places, replaced, until, bool(until)
        self._next = 0

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        form = _FORMS.get(func)
        if form is None:
            return func(*args, **kwargs)
        place, self._next = self._next, self._next + 1
        if self._places is not None and place not in self._places and place not in self._replaced:
            return func(*args, **kwargs)
        parts = form(*args, **kwargs)
        if parts is None:
            return func(*args, **kwargs)
        entering, weight, bias, last = parts
        call = LinearCall(place, entering, weight, bias, entering, last)
        given = self._replaced.get(place)
        returned = func(*args, **kwargs) if given is None else call.as_returned(given)
        if self._places is None or place in self._places:
            self.calls.append(call._replace(returned=returned))
        self._awaited.discard(place)
        if self._ends and not self._awaited:
            raise _AllCalledError
        return returned


_LinearParts = tuple[Tensor, Tensor, Tensor | None, bool]


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> _LinearParts | None:
    return (input, weight, bias, True) if input.dim() in (2, 3) and weight.dim() == 2 else None


def _product(input: Tensor, other: Tensor, **_: object) -> _LinearParts | None:
    return (input, other.mT, None, True) if input.dim() in (2, 3) and other.dim() == 2 else None


def _added(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1, **_: object
) -> _LinearParts | None:
    return (mat1, mat2.mT, input, True) if (beta, alpha) == (1, 1) and input.dim() == 1 else None


def _einsum(equation: object, *operands: Any) -> _LinearParts | None:
    """Return the map of an equation such as ``bi,io->bo``, which sums the row's last axes over those of the weight."""
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    if not isinstance(equation, str) or len(given) != 2 or "->" not in equation:
        return None
    inputs, _, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    for row, weight in ((0, 1), (1, 0)):
        layout = _contracted(terms[row], terms[weight], output, given[row].dim())
        if layout is not None:
            leading, order = layout
            matrix = given[weight].permute(order)
            return given[row].flatten(leading), matrix.flatten(1), None, True
    return None


def _contracted(row: str, weight: str, output: str, axes: int) -> tuple[int, list[int]] | None:
    """Return how many axes of a row are not summed over, and those of the weight: of its units, then of its inputs."""
    if row.startswith("...") and output.startswith("..."):
        free = "BT"[: axes - len(row) + 3]
        row, output = free + row[3:], free + output[3:]
    leading, unit = output[:-1], output[-1:]
    summed = row[len(leading) :]
    if (
        "." in row + weight + output
        or len(row) != axes
        or not row.startswith(leading)
        or len(leading) not in (1, 2)
        or not summed
        or len({*row, unit}) != len(row) + 1
        or sorted(weight) != sorted(unit + summed)
    ):
        return None
    return len(leading), [weight.index(letter) for letter in unit + summed]


def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> _LinearParts | None:
    steps, gaps = (entry if isinstance(entry, int) else entry[0] for entry in (stride, dilation))
    if input.dim() != 3 or padding not in (0, (0,), "valid") or (groups, gaps) != (1, 1):
        return None
    parts = input.unfold(2, weight.shape[2], steps).transpose(1, 2).flatten(2)
    return parts[:, 0] if parts.shape[1] == 1 else parts, weight.flatten(1), bias, False


_FORMS: dict[Callable[..., object], Callable[..., _LinearParts | None]] = {
    functional.linear: _linear,
    torch.addmm: _added,
    torch.einsum: _einsum,
    functional.conv1d: _convolution,
    torch.conv1d: _convolution,
    **dict.fromkeys(_PRODUCTS, _product),
}
