"""Doubts: signs that a message or its rows are in fewer digits than declared, and what a wrong message would prove."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

# Digits of single precision, exponent of its smallest number, and the most digits of a number of a coarser format.
_DIGITS, _LEAST_EXPONENT, _COARSE = 24, -149, 16
# Bits of evidence from which on numbers count as coarse: the chance that they are so by accident is 2 to minus this.
_EVIDENCE = 11.0
# Digits of numbers such as 0.5, which are short for reasons of their own, and numbers of a part that these never make.
_SHORT, _MANY = 4, 16
# Formats in which rows and parameters are kept to save memory.
_HALVES = (torch.float16, torch.bfloat16)


def coarse(message: Mapping[str, Tensor]) -> bool:
    """Return whether all numbers of a message, however few, lie on a coarser grid than single precision.

    A number of 24 digits that ends in z zeros does so by accident once in 2 to the power of z times.
    """
    return _coarse(_digits(_flat(message.values())))


def coarse_parts(message: Mapping[str, Tensor]) -> bool:
    """Return the same of any tensor of a message, of which numbers of few digits, such as 0.5, do not count."""
    each = (_digits(_flat([part])) for part in message.values())
    return any(_coarse(one if len(one.used) >= _MANY else _long(one)) for one in each)


def coarse_change(message: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> bool:
    """Return whether changes of parameters, or the parameters after them, lie on a coarser grid than single precision.

    Changes lie on the grid of the parameters themselves: digits below these are no digits of a change.
    """
    parts = [([message[name]], [parameters[name]]) for name in message]
    whole = ([message[name] for name in message], [parameters[name] for name in message])
    for k, (changes, begun) in enumerate((whole, *parts)):
        change, begin = _flat(changes), _flat(begun)
        begin, change = begin[change != 0], change[change != 0]
        after = begin - change
        grid = torch.minimum(*(_last_place(torch.where(one == 0, torch.inf, one.abs())) for one in (begin, after)))
        # A change that was not computed as a difference has digits of its own.
        own = _last_place(change.abs())
        grid = torch.where((change / grid) % 1 == 0, torch.maximum(grid, own), own)
        digits = _digits(change, grid)
        if _coarse(digits if not k or len(change) >= _MANY else _long(digits)):
            return True
        lost = (own + _last_place(after.abs())) / 2
        if any(_on_grid(after, lost, kind) for kind in _HALVES):
            return True
    return False


class _Digits(NamedTuple):
    """Binary digits that each number has room for, those that it uses, and which numbers are different ones."""

    room: Tensor
    used: Tensor
    numbers: Tensor


def _flat(parts: Iterable[Tensor]) -> Tensor:
    return torch.cat([part.detach().float().double().flatten().cpu() for part in parts])


def _last_place(size: Tensor) -> Tensor:
    """Return the value of the last digit of numbers of single precision."""
    exponent = torch.frexp(size).exponent.double() - _DIGITS
    return torch.where(size.isfinite(), 2.0 ** exponent.clamp(min=_LEAST_EXPONENT), torch.inf)


def _digits(numbers: Tensor, grid: Tensor | None = None) -> _Digits:
    numbers = numbers[numbers != 0] if grid is None else numbers
    whole = (numbers.abs() / (_last_place(numbers.abs()) if grid is None else grid)).long()
    room = torch.frexp(whole.double()).exponent
    # The last digit that is no zero.
    last = torch.frexp((whole & -whole).double()).exponent - 1
    return _Digits(room, room - last, numbers.abs())


def _long(digits: _Digits) -> _Digits:
    """Return those of different numbers that are not short, such as 0.5 is."""
    kept = digits.used > _SHORT
    first = torch.zeros_like(kept)
    _, which = digits.numbers.unique(return_inverse=True)
    place = torch.full((int(which.max()) + 1 if len(which) else 0,), len(which))
    place.scatter_reduce_(0, which, torch.arange(len(which)), "amin")
    first[place] = True
    return _Digits(*(part[kept & first] for part in digits))


def _coarse(digits: _Digits) -> bool:
    if not len(digits.used):
        return False
    most = int(digits.used.max())
    return most <= _COARSE and float((digits.room - most).clamp(min=0).sum()) >= _EVIDENCE


def _on_grid(numbers: Tensor, lost: Tensor, kind: torch.dtype) -> bool:
    """Return whether all numbers, each of which may be off by what is lost, are those of a coarser type."""
    near, place = _nearest(numbers, kind)
    if not len(numbers) or not bool(((numbers - near).abs() <= lost).all()):
        return False
    return float((place / (2 * lost)).log2().clamp(min=0).sum()) >= _EVIDENCE


def _nearest(numbers: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the nearest numbers of a type, and the values of their last places."""
    info, size = torch.finfo(kind), numbers.abs()
    place = 2.0 ** (torch.frexp(size).exponent.double() - 1) * info.eps
    return numbers.to(kind).double(), torch.where(size < info.smallest_normal, info.smallest_normal * info.eps, place)


class NumberRange(NamedTuple):
    """Between which values a number of each record lies (record, number), and what these are measured in (number).

    Attributes:
        low, high: ends of what is left of each number's range.
        unit: size of a cell's unit.
        least, most: ends of the whole range of each number.
    """

    low: Tensor
    high: Tensor
    unit: Tensor
    least: Tensor
    most: Tensor

    def scaled(self, mean: Tensor, scale: Tensor) -> NumberRange:
        """Return the same of the numbers as the network takes them, in either direction of the scale."""
        ends = [(end - mean) / scale for end in (self.low, self.high, self.least, self.most)]
        (low, high), (least, most) = ((torch.minimum(*pair), torch.maximum(*pair)) for pair in (ends[:2], ends[2:]))
        return NumberRange(low, high, self.unit * scale.abs(), least, most)


def coarse_rows(
    ranges: Iterable[NumberRange], off: Tensor, tolerance: Tensor, whole: Tensor, listed: bool = False
) -> tuple[Tensor, bool]:
    """Return which proved numbers rows of 16 bits would leave as they are (record, number), and whether none shows.

    Rows that a client holds in 16 bits are those of another table, whose numbers lie on a grid. What is proved is then
    near the numbers of that table, not near those of the client's own. Where a number that is proved lies off the grid,
    its column was not held so. At an end of its range a number may have been moved out of it.

    Args:
        ranges: the numbers as a table has them, and as the network takes them.
        off: largest distance of each from the witness, in units of cells.
        tolerance, whole: tolerance of each column, and which numbers are whole, as those of the witness are.
        listed: whether all values are whole and were gone through, so that a number moves by whole ones.
    """
    doubted, silent = torch.zeros_like(off, dtype=torch.bool), False
    for low, high, unit, least, most in ranges:
        for kind in _HALVES:
            moved = _nearest(torch.maximum(low.abs(), high.abs()), kind)[1] / 2
            first, last = torch.where(low <= least, low - moved, low), torch.where(high >= most, high + moved, high)
            middle, half = (first + last) / 2, (last - first) / 2
            near, _ = _nearest(middle, kind)
            on = near.isfinite() & ((near - middle).abs() <= half)
            # Two whole numbers that are less than 1 apart are the same.
            away = off + ((moved * unit).floor() if listed else moved * unit)
            harm = (off <= tolerance) & (away > tolerance) & ~(whole & (away < 1))
            again = harm & on & on.all(0)
            doubted |= again
            silent |= bool(again.any()) and bool(on.all())
    return doubted, silent


# Sizes of what is added to an entry of a placebo, as shares of the message's length; the largest chance of as many
# replays as there are at which they are no chance, and the least of one that is taken.
PLACEBOS = tuple(2.0 ** -(1 + 2 * k) for k in range(7))
_BY_CHANCE, _LEAST_CHANCE = 1e-5, 1e-12


def moved_entries(low: Tensor, high: Tensor, returned: Tensor, factors: tuple[Tensor, Tensor], free: bool) -> Tensor:
    """Return how often a message with one entry moved at random would be replayed (row, entry, size of the move).

    A message is replayed if each entry, times a factor that is the same for all of them, lies between two ends.

    Args:
        low, high: ends of each entry (row, entry).
        returned: message (row, entry).
        factors: least and largest factor that each entry allows (row, entry).
        free: whether the factor may be any number; else it is 1.
    """
    others = []
    for ends, largest in zip(factors, (True, False), strict=True):
        width = ends.shape[1]
        if width == 1:
            others.append(torch.full_like(ends, -math.inf if largest else math.inf))
            continue
        top = ends.topk(2, 1, largest=largest)
        alone = torch.arange(width) == top.indices[:, :1]
        others.append(torch.where(alone, top.values[:, 1:], top.values[:, :1]))
    least, most = others
    if free:
        quotients = torch.stack([low / least, low / most, high / least, high / most])
        through = ((least <= 0) & (most >= 0)) | quotients.isnan().any(0)
        first = quotients.amin(0).masked_fill(through, -math.inf)
        last = quotients.amax(0).masked_fill(through, math.inf)
        there = least <= most
    else:
        first, last, there = low, high, (least <= 1) & (most >= 1)
    move = returned.norm(dim=1)[:, None, None] * torch.tensor(PLACEBOS).to(returned)
    shared = torch.minimum(last[..., None], returned[..., None] + move)
    shared = shared - torch.maximum(first[..., None], returned[..., None] - move)
    # Nothing of a message of zeros can be moved.
    share = (shared.clamp(min=0) / (2 * move)).nan_to_num(1.0).clamp(max=1.0)
    return share * there[..., None]


def moved_wholes(least: Tensor, most: Tensor) -> Tensor:
    """Return how often a message times a random factor would be replayed, as factors between two do (..., size)."""
    move = torch.tensor(PLACEBOS).to(least)
    shared = torch.minimum(most[..., None], 1 + move) - torch.maximum(least[..., None], 1 - move)
    return (shared.clamp(min=0) / (2 * move)).nan_to_num(0.0)


def by_chance(chances: Tensor, replayed: Tensor) -> bool:
    """Return whether wrong messages may be replayed as often as these are, by a binomial bound.

    Args:
        chances: expected replays of a placebo of each message (record, kind of placebo, size of the move).
        replayed: whether each message is replayed.
    """
    number = len(replayed)
    right = int(replayed.sum())
    if not right:
        return False
    # As many replays as there are take that many of the messages, whichever they are.
    each = chances.amax(1).clamp(_LEAST_CHANCE, 1.0).log().sort(0, descending=True).values[:right].sum(0)
    ways = math.lgamma(number + 1) - math.lgamma(right + 1) - math.lgamma(number - right + 1)
    return bool((each + ways > math.log(_BY_CHANCE)).any())
