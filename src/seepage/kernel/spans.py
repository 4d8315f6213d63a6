"""What the message of a layer says of its inputs, and how inputs come from columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from seepage.kernel.boxes import Boxes
from seepage.kernel.clients import Bounds
from seepage.kernel.operations import Ball
from seepage.kernel.roundings import roundings_of_records
from seepage.kernel.statement import LEAST, ROUNDINGS, SMALLEST, UNIT, Declaration, RefusedError

# Times its rounding from which a singular value of a message is taken for a record.
_SEEN = 4.0


class LayerSpan(NamedTuple):
    """What the message of a layer says of the inputs of every record, in units of their largest magnitudes.

    Attributes:
        matrix: message divided by the largest inputs, for the units that react, ``alive``.
        entering: unit of each entry of the input: its largest magnitude in any row; infinite where there is none.
        inside, outside: directions (entry, rank) that inputs lie in, and their complement.
        share: largest part of an input, of its length, that lies outside.
        slack: largest error of each entry of the matrix.
        length: largest length of an input.
    """

    matrix: Tensor
    alive: Tensor
    entering: Tensor
    inside: Tensor
    outside: Tensor
    share: float
    slack: Tensor
    rank: int
    length: float

    def off(self, inputs: Ball) -> tuple[Tensor, Tensor]:
        """Return how far the middles of inputs lie outside, as coordinates, and how far a record's may."""
        mid, moved = inputs.mid / self.entering, (inputs.rad / self.entering).norm(dim=1)
        blur = ROUNDINGS * UNIT * math.sqrt(mid.shape[1])
        return mid @ self.outside, moved + self.share * (mid.norm(dim=1) + moved) + blur


def spanned(
    name: str, bounds: Bounds, at: Mapping[str, Tensor], message: Mapping[str, Tensor], declared: Declaration,
    entering: Tensor, times: float, length: float = math.inf,
) -> LayerSpan:  # fmt: skip
    """Return what a layer's message spans; refuse a rank that so many records do not leave."""
    inputs, both = bounds.inputs[name], [one for one in (name, bounds.bias[name]) if one is not None]
    wide = lambda held: torch.cat([held[one].double().reshape(len(held[name]), -1) for one in both], 1)  # noqa: E731
    scale, errors = declared.rate or 1.0, bounds.errors[name].amax(0) * times
    # Numbers of a message that are smaller by far lose digits: those of units with such errors are not used.
    alive = errors > LEAST
    # Units are weighed by their largest errors, so that roundings are alike.
    weight = errors[alive, None]
    matrix = (wide(message) / scale)[alive] / entering
    extra = rounded_steps(declared, wide(at), wide(message) / scale)[alive] / entering * ROUNDINGS * UNIT
    extra = extra + SMALLEST * (declared.records + 1) / abs(scale) / entering
    by_entry, by_length = roundings_of_records(declared.records)
    slack = by_entry * weight * (inputs.most / entering).amax(0) + extra
    # The largest inputs are not all in one row.
    longest = min(length, float((inputs.most / entering).norm(dim=1).max()))
    reacting = float((bounds.errors[name][:, alive] * times / weight.T).norm(dim=1).max())
    blur = by_length * reacting * longest + float((extra / weight).norm())
    _, values, right = torch.linalg.svd(matrix / weight, full_matrices=True)
    rank = int((values > _SEEN * blur).sum())
    if not rank:
        raise RefusedError("nothing of a layer's message stands above its rounding")
    if rank > declared.records or (rank == declared.records < len(values) and float(values[rank]) > blur):
        raise RefusedError(f"the message has a rank above {declared.records}, which so many records do not leave")
    # Records too few to be seen together count as rounding.
    blur *= 1.0 if rank == declared.records else _SEEN + 1
    if float(values[rank - 1]) <= 2 * blur:
        raise RefusedError("a layer's message does not stand above what records that are not seen may add")
    share = blur / (float(values[rank - 1]) - blur)
    return LayerSpan(matrix, alive, entering, right[:rank].T, right[rank:].T, share, slack, rank, longest)


def rounded_steps(declared: Declaration, parameter: Tensor, total: Tensor) -> Tensor:
    """Return what rounding of the parameters in local steps adds to a message as a gradient, in units of rounding."""
    if declared.rate is None:
        return torch.zeros_like(total)
    return (declared.steps + 1) * (parameter.abs() / declared.rate + total.abs())


class Design(NamedTuple):
    """Inputs of the first layer as sums over columns, in the units of a span.

    Parts are a constant, those of each category (category, entry), and what the whole range of each number adds;
    ``length`` is the largest of an input.
    """

    base: Tensor
    categories: list[Tensor]
    numbers: Tensor
    length: float

    def rows(self, boxes: Boxes) -> Tensor:
        """Return the inputs in the middle of boxes."""
        parts = (part[codes] for part, codes in zip(self.categories, boxes.codes.T, strict=True))
        return self.base + sum(parts, torch.zeros(len(boxes.codes), 1)) + boxes.center @ self.numbers


def designed(declared: Declaration, affine: Tensor, entering: Tensor) -> Design:
    """Return how inputs that are affine in the row come from columns."""
    base, slope, at = affine[0] / entering, affine[1:] / entering, 0
    categories, numbers, parts = [], [base[None, :] * 0], []
    for column in declared.columns:
        mean, scale = torch.tensor(column.mean).double(), torch.tensor(column.scale).double()
        block = slope[at : at + len(scale)] / scale[:, None]
        at, base = at + len(scale), base - mean @ block
        parts.append((block != 0).any(0))
        if column.categories is None:
            base = base + column.low * block[0]
            numbers.append((column.high - column.low) * block)
        else:
            categories.append(block)
    # Where each entry depends on one column, lengths add up column by column.
    squares = torch.tensor(float(len(base))).double()
    if int(torch.stack(parts).sum(0).max()) <= 1:
        squares, of = base[~torch.stack(parts).any(0)].square().sum(), iter(categories)
        for column, part in zip(declared.columns, parts, strict=True):
            squares = squares + (
                part.sum() if column.categories is None else (base + next(of))[:, part].square().sum(1).max()
            )
    return Design(base, categories, torch.cat(numbers)[1:], float(squares.sqrt()))
