"""Number formats of messages: the cast of a client's message before it is sent, and the noise that this adds."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

Precision = Literal["full", "float16", "bfloat16", "int8"]
"""A number format of messages; ``full`` is that of the network."""

# Steps of an 8-bit number on each side of zero.
_STEPS = 127


def cast(entries: Tensor, precision: Precision) -> Tensor:
    """Return a tensor of a message as it arrives, in its own type.

    Sixteen bits are rounded to nearest. Eight bits are whole multiples of the tensor's largest entry over 127.

    Example:
        >>> cast(torch.tensor([1.0, 0.1]), "bfloat16").tolist(), cast(torch.tensor([1.27, 0.014]), "int8").tolist()
        ([1.0, 0.10009765625], [1.2699999809265137, 0.009999999776482582])
    """
    if precision == "full":
        return entries
    if precision != "int8":
        return entries.to(getattr(torch, precision)).to(entries.dtype)
    step = entries.abs().max() / _STEPS
    return entries if step == 0 else (entries / step).round() * step


def cast_noise(entries: Tensor, precision: Precision) -> float:
    """Return the standard deviation of the rounding error that a cast added to a tensor, from what arrived.

    The error of a rounding is spread evenly over the last place of its number, which for floats is the power of two at
    or below it times their precision, and no less than the distance of the smallest numbers.
    """
    if precision == "full" or not entries.numel():
        return 0.0
    if precision == "int8":
        return float(entries.double().abs().max()) / _STEPS / math.sqrt(12)
    return float(last_place(entries, getattr(torch, precision)).square().mean().sqrt()) / math.sqrt(12)


def last_place(entries: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the value of the last place of each number in a type of floats, in double precision."""
    info, size = torch.finfo(dtype), entries.double().abs()
    place = torch.ldexp(torch.full_like(size, info.eps), torch.frexp(size).exponent - 1)
    # Below the smallest normal number places do not become smaller; zero has no power of two below it.
    return torch.where(size < info.smallest_normal, info.smallest_normal * info.eps, place)
