"""Graphs of a network's own run: that a run on other rows, or in another precision, computes the very same."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from seepage.kernel.statement import ROUNDINGS, TINY, UNIT, RefusedError

# Types of numbers of a client's run, and of one that follows it.
_OWN_TYPES = (torch.float32, torch.float64)


class Earlier(NamedTuple):
    """An argument that an earlier operation computed from the rows, or that is the rows, by its place."""

    place: int


class Named(NamedTuple):
    """An argument that is a parameter."""

    name: str


class RowCount(NamedTuple):
    """An argument that is the number of rows, as the first size of a shape."""


class RunGraph(NamedTuple):
    """Operations of a run, each with its name and its arguments, and the number of rows that it was run on."""

    operations: list[tuple[str, object]]
    rows: int


def check_same(one: RunGraph, other: RunGraph, otherwise: str) -> None:
    """Refuse two runs of which operations, order, arguments or constants differ, for the reason given.

    Constants may differ by their roundings. A constant with an entry for each row is the same for all of them.
    """
    same = len(one.operations) == len(other.operations) and all(
        name == again and _alike(arguments, others, one.rows, other.rows)
        for (name, arguments), (again, others) in zip(one.operations, other.operations, strict=True)
    )
    if not same:
        raise RefusedError(otherwise)


def _alike(one: object, other: object, rows: int, others: int) -> bool:
    if one is other:
        return True
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return _alike_tensors(one, other, rows, others)
    if type(one) is not type(other):
        # A number may be a tensor without a shape.
        plain = all(isinstance(x, (int, float)) or (isinstance(x, Tensor) and not x.dim()) for x in (one, other))
        return plain and _alike_tensors(torch.as_tensor(one), torch.as_tensor(other), rows, others)
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_alike(*pair, rows, others) for pair in pairs)
    if isinstance(one, float) and isinstance(other, float):
        return _alike_tensors(torch.tensor(one).double(), torch.tensor(other).double(), rows, others)
    return one == other or (one in _OWN_TYPES and other in _OWN_TYPES)


def _alike_tensors(one: Tensor, other: Tensor, rows: int, others: int) -> bool:
    if one.dim() and one.shape[:1] == (rows,) and other.shape[:1] == (others,) and rows != others:
        if bool((one != one[:1]).any()) or bool((other != other[:1]).any()):
            return False
        one, other = one[:1], other[:1]
    if one.shape != other.shape or one.is_floating_point() != other.is_floating_point():
        return False
    one, other = one.detach().double(), other.detach().double()
    return bool(((one == other) | ((one - other).abs() <= ROUNDINGS * UNIT * one.abs() + TINY)).all())
