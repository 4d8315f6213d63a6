"""All rows of the declared columns that lie in what a message spans: categories by search, numbers as boxes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from seepage.kernel.boxes import Boxes
from seepage.kernel.clients import Bounds
from seepage.kernel.operations import Ball
from seepage.kernel.spans import Design, LayerSpan
from seepage.kernel.statement import SAME, Declaration, RefusedError

# Effort: partial choices of categories, boxes, numbers of all boxes together, halvings of a box.
_NODES, _BOXES, _NUMBERS, _HALVED = 3_000_000, 60_000, 60_000 * 64, 20
# Smallest singular value of independent steps, as a share of the largest, and multiplications of a search among others.
_CLEAR, _PRODUCTS = 1e-4, 10**10
# Length above which an axis of what numbers may be is cut into pieces.
_LONG = 0.02
# Distances from a row, each half of the last, at which slices of its box are tried.
_SLICES = 6
# Boxes of one search that deeper layers are asked of, and how many are asked at once, at least; share of a tolerance,
# or of the step between whole numbers, below which shorter pieces change little of what is proved.
_ASKED, _MANY, _FINE = 6_000, 128, 1 / 8
# Pieces that are kept apart where asking ended; more are taken together by their categories.
_APART = 1_000
# Boxes whose errors are bounded one by one, and the distance within which more are taken together, at first.
_BOUNDED, _CLOSE = 128, 1 / 64


def _beside(vectors: Tensor, basis: Tensor) -> Tensor:
    """Return an orthonormal basis of one and what vectors (entry, vector) add to it, but for what is almost nothing."""
    for _ in range(2):
        vectors = vectors - basis @ (basis.T @ vectors)
    left, sizes, _ = torch.linalg.svd(vectors, full_matrices=False)
    added = left[:, sizes > SAME]
    return torch.cat([basis, added - basis @ (basis.T @ added)], 1)


def _apart(base: Tensor, parts: list[Tensor], open_: list[Tensor], numbers: Tensor) -> Iterator[Tensor]:
    """Yield for each column how far its open categories are from what any values of the other columns add up to.

    What is orthogonal to the steps V between values of all columns but one is what is orthogonal to all of them, and
    the column's own part of the dual basis V (V^T V)^+.
    """
    own = [part[rows[1:]] - part[rows[:1]] for part, rows in zip(parts, open_, strict=True)]
    start = base + sum((part[rows[0]] for part, rows in zip(parts, open_, strict=True)), torch.zeros(()))
    steps = torch.cat([*own, numbers.T]).T
    left, sizes, right = torch.linalg.svd(steps, full_matrices=False)
    seen = sizes > SAME
    if seen.any() and float(sizes[seen][-1]) > _CLEAR * float(sizes[0]):
        left, right = left[:, seen], right[seen]
        dual, off = left / sizes[seen] @ right, start - left @ (left.T @ start)
        widths = [*map(len, own), numbers.shape[1]]
        for mine, by, (part, rows) in zip(
            dual.split(widths, 1), right.split(widths, 1), zip(parts, open_, strict=True), strict=False
        ):
            # What other steps add up to, too, is no column's own.
            shared, turned = torch.linalg.eigh(torch.eye(by.shape[1]).double() - by.T @ by)
            axes = torch.linalg.qr(mine @ turned[:, shared <= SAME**2]).Q
            yield ((start + part[rows] - part[rows[:1]]) @ axes).norm(dim=1).hypot(off.norm())
        return
    if len(parts) * steps.numel() * min(steps.shape) > _PRODUCTS:
        raise RefusedError("too many columns depend on each other for all of their categories to be tried")
    for c, (part, rows) in enumerate(zip(parts, open_, strict=True)):
        span = _beside(torch.cat([*own[:c], *own[c + 1 :], numbers.T]).T, numbers.new_zeros(len(base), 0))
        apart = start - part[rows[:1]] + part[rows]
        yield (apart - apart @ span @ span.T).norm(dim=1)


def choices(design: Design, outside: Tensor, within: float) -> Tensor:
    """Return all choices of a category a column (choice, column) for which some numbers may lie within a distance.

    A partial choice is cut off where no values of the open columns, mixtures of categories and numbers out of bounds
    among them, bring it back. Too many are refused, and none.
    """
    if not design.categories:
        return torch.zeros(1, 0, dtype=torch.long)
    parts, numbers = [part @ outside for part in design.categories], (design.numbers @ outside).T
    base, within = design.base @ outside, within + 2 * SAME * (len(design.categories) + len(design.numbers))
    free = _beside(numbers, numbers.new_zeros(len(base), 0))
    open_ = [torch.arange(len(part)) for part in parts]
    count = 0
    while count != (count := sum(map(len, open_))):
        open_ = [open_[c][~(far > within)] for c, far in enumerate(_apart(base, parts, open_, numbers))]
        if not all(map(len, open_)):
            raise RefusedError("no row of the declared columns lies in what the message spans")
    order = sorted(range(len(parts)), key=lambda c: -len(open_[c]))
    spans = [free]
    for c in reversed(order):
        spans.append(_beside((parts[c][open_[c][1:]] - parts[c][open_[c][:1]]).T, spans[-1]))
    spans.reverse()
    start = base + sum((parts[c][open_[c][0]] for c in order), torch.zeros(()))
    squares = (start - start @ spans[0] @ spans[0].T).square().sum()[None]
    nodes = torch.zeros(1, 0, dtype=torch.long)
    for depth, c in enumerate(order):
        frame = spans[depth][:, spans[depth + 1].shape[1] :]
        steps = [(parts[j][open_[j]] - parts[j][open_[j][:1]]) @ frame for j in order[: depth + 1]]
        if len(nodes) * len(open_[c]) * max(1, frame.shape[1]) > _NODES * 8:
            raise RefusedError("too many combinations of categories fit for all to be tried")
        here = start @ frame + sum((steps[j][nodes[:, j]] for j in range(depth)), torch.zeros(len(nodes), 1))
        sizes = squares[:, None] + (here[:, None] + steps[depth]).square().sum(2)
        # What is not finite excludes nothing.
        kept = (~(sizes > within**2)).nonzero()
        nodes, squares = torch.cat([nodes[kept[:, 0]], kept[:, 1:]], 1), sizes[kept[:, 0], kept[:, 1]]
    found = torch.empty(len(nodes), len(parts), dtype=torch.long)
    for depth, c in enumerate(order):
        found[:, c] = open_[c][nodes[:, depth]]
    return found


def most_boxes(declared: Declaration) -> int:
    """Return how many boxes are gone through; what they leave open is not proved."""
    return min(_BOXES, _NUMBERS // max(1, len(declared.layout.low)))


def _clipped(declared: Declaration, codes: Tensor, low: Tensor, high: Tensor) -> tuple[Boxes, Tensor]:
    """Return boxes within the bounds of numbers, whole ones at whole numbers, and which of them hold a row."""
    # What is not finite is no bound.
    low = torch.where(low.isfinite(), low, 0.0).clamp(min=0.0)
    high = torch.where(high.isfinite(), high, 1.0).clamp(max=1.0)
    for k, column in enumerate(declared.numbers):
        span = column.high - column.low
        if column.integer and span:
            low[:, k] = (torch.ceil(low[:, k] * span - SAME) / span).clamp(min=0)
            high[:, k] = (torch.floor(high[:, k] * span + SAME) / span).clamp(max=1)
    there = (low <= high).all(1)
    low, high = low[there], high[there]
    return Boxes(codes[there], (low + high) / 2, (high - low) / 2), there


class _Numbers(NamedTuple):
    """What the span leaves the numbers of each choice of categories: an ellipsoid, in units of their ranges.

    Attributes:
        middle: its middle (choice, number).
        narrow: half width of a box around its short axes (number).
        axes: directions of its long ones (axis, number), which are cut into pieces.
        at, half: middle and half length along these (choice, axis), (axis).
    """

    middle: Tensor
    narrow: Tensor
    axes: Tensor
    at: Tensor
    half: Tensor

    def pieces(
        self, declared: Declaration, codes: Tensor, which: Tensor, at: Tensor, half: Tensor
    ) -> tuple[Boxes, Tensor]:
        """Return the boxes around pieces of the axes of some choices, and which of them hold a row."""
        mid, wide = self.middle[which] + at @ self.axes, half @ self.axes.abs() + self.narrow
        return _clipped(declared, codes[which], mid - wide, mid + wide)


def _numbers(design: Design, span: LayerSpan, codes: Tensor, cut: int) -> _Numbers:
    """Return where the numbers of choices of categories may be, at most ``cut`` axes long.

    With M what the numbers' ranges add outside of the span and r the rest, |r + M t| <= eta |v| leaves the numbers t
    an ellipsoid around the least-squares solution.
    """
    nowhere = torch.zeros(len(codes), len(design.numbers)).double()
    rest = design.rows(Boxes(codes, nowhere, nowhere)) @ span.outside
    left, sizes, right = torch.linalg.svd((design.numbers @ span.outside).T, full_matrices=True)
    count = len(right)
    sizes = functional.pad(sizes, (0, count - len(sizes)))
    left = functional.pad(left, (0, max(0, count - left.shape[1])))[:, :count]
    length = ((span.share * span.length + SAME) / sizes.clamp(min=1e-300)).clamp(max=math.sqrt(max(1, count)))
    long = torch.zeros(count, dtype=torch.bool)
    long[length.argsort(descending=True)[:cut]] = True
    long &= length > _LONG
    # Where an axis is as long as the box, all of it is within.
    whole = length >= math.sqrt(max(1, count))
    middle = -(rest @ left / sizes.clamp(min=1e-300) * ~whole) @ right
    narrow = (torch.where(whole, 2.0, 1.0)[:, None] * length[:, None] * right.abs())[~long].sum(0)
    axes = right[long]
    # In units of ranges all numbers lie within a cube of side 1; an axis that is shorter than it is cut to its length.
    at = torch.where(whole[long], 0.5 * axes.sum(1) - middle @ axes.T, torch.zeros(()).double())
    half = torch.where(whole[long], axes.abs().sum(1) / 2 + SAME, length[long])
    return _Numbers(middle, narrow, axes, at, half)


def boxes_in(
    declared: Declaration, design: Design, span: LayerSpan, codes: Tensor, excluded: Callable[[Boxes], Tensor], cut: int
) -> Boxes:
    """Return boxes that hold all rows with these categories whose input lies in a span, and that are not excluded.

    The longest axes of what numbers may be are cut into pieces, which are excluded one by one. Each halving doubles
    what there is to ask. It ends where slices without any length are not excluded either, where many pieces are left
    that are shorter by far than what is to be told apart, and where too many were asked. What was not asked is not
    excluded, and too many pieces are not kept apart.
    """
    if len(codes) > most_boxes(declared):
        raise RefusedError("too many combinations of categories fit for all to be tried")
    numbers, which = _numbers(design, span, codes, cut), torch.arange(len(codes))
    at, half = numbers.at, numbers.half
    size, whole = declared.of("high") - declared.of("low"), declared.of("integer") > 0
    near, next_to = declared.of("tolerance") / size, torch.where(whole, 1 / size, 0.0)
    asked, asking, most, rounds = 0, True, most_boxes(declared), _HALVED * len(half)
    for round_ in range(rounds + 1):
        boxes, kept = numbers.pieces(declared, codes, which, at, half)
        which, at, wide = which[kept], at[kept], half @ numbers.axes.abs()
        last = round_ == rounds or not bool(boxes.reach.any())
        # Few are split once more instead, which takes less time than to ask.
        if asking and (last or len(which) >= _MANY):
            asked, out = asked + len(which), excluded(boxes)
            which, at, boxes = which[~out], at[~out], boxes.some(~out)
            asking = asked + 2 * len(which) <= _ASKED
            asking &= len(which) < _MANY or bool((wide > _FINE * near).any())
            if asking and len(which) and not bool(out.any()):
                some = torch.linspace(0, len(which) - 1, min(_MANY, len(which))).long()
                slices, _ = numbers.pieces(declared, codes, which[some], at[some], torch.zeros_like(half))
                asking = not len(slices.codes) or bool(excluded(slices).any())
        if last or 2 * len(which) > most or not len(which):
            return boxes if len(boxes.codes) <= most / 6 else _hulls(boxes, *chosen(boxes))
        # Shorter pieces hold fewer whole numbers, down to what the short axes leave.
        if not asking and not bool(((wide > _FINE * next_to) & (wide > _FINE * numbers.narrow) & whole).any()):
            return boxes if len(boxes.codes) <= _APART else _hulls(boxes, *chosen(boxes))
        axis = int(half.argmax())
        half = torch.where(torch.arange(len(half)) == axis, half / 2, half)
        step = half * (torch.arange(len(half)) == axis)
        which, at = torch.cat([which, which]), torch.cat([at - step, at + step])
    raise AssertionError


def boxes_around(
    declared: Declaration, design: Design, span: LayerSpan, own: Boxes, excluded: Callable[[Boxes], Tensor], cut: int
) -> Boxes:
    """Return a box around each of some rows that lie in a span, within those of ``boxes_in``, however far it cuts.

    It is the hull of slices without any length along the axes that are cut, at the row and at some distances from it. A
    slice that is not excluded lies in a piece that is not.
    """
    numbers, count = _numbers(design, span, own.codes, cut), len(own.codes)
    here = (own.center - numbers.middle) @ numbers.axes.T
    steps = torch.cat([0.5**k * torch.tensor([-1.0, 1.0]).double() for k in range(_SLICES)])
    moves = (steps[:, None, None] * torch.diag(numbers.half)).flatten(0, 1)[:, None]
    which = torch.arange(count).repeat(1 + len(moves))
    at = torch.cat([here, (here + moves).flatten(0, 1)])
    # Beyond its ends there is nothing to an axis.
    at = at.clamp(numbers.at[which] - numbers.half, numbers.at[which] + numbers.half)
    boxes, kept = numbers.pieces(declared, own.codes, which, at, torch.zeros_like(numbers.half))
    there = kept.nonzero()[:, 0]
    far = (boxes.center[:, None] - own.center).abs().sum(2)
    far = far.masked_fill((boxes.codes[:, None] != own.codes).any(2), torch.inf)
    # Between rows of the same categories, what is nearer to the other is not this one's.
    left = (~excluded(boxes) & (far.argmin(1) == which[there])) | (there < count)
    rows, place = which[there][left].unique(return_inverse=True)
    return _hulls(boxes.some(left), own.codes[rows], place)


def narrowed(declared: Declaration, boxes: Boxes, bounds: Bounds, taps: Mapping[str, LayerSpan]) -> Boxes:
    """Return boxes without the numbers whose inputs of deeper layers lie outside of what these span.

    With b the middle's input outside and A + E its derivatives there, |b + A t + E t| is at most what may lie outside.
    For any X this leaves t = -X b + X (b + A t) + (1 - X A) t, of which all but the first term is bounded.
    """
    low, high = boxes.center - boxes.reach, boxes.center + boxes.reach
    for name, tap in taps.items():
        slope = bounds.slopes[name]
        middle = Ball(bounds.inputs[name].mid, (slope.rad * boxes.reach.T[:, :, None]).sum(0))
        outside, within = tap.off(middle)
        # The length of any input in the box.
        within = within + tap.share * (bounds.inputs[name].rad / tap.entering).norm(dim=1)
        within = within + (bounds.blurs[name] / tap.entering).norm(dim=1)
        by = torch.einsum("nse,er->srn", slope.mid / tap.entering, tap.outside)
        back = torch.linalg.pinv(by)
        rest = (torch.eye(by.shape[2]).double() - back @ by).abs() @ boxes.reach[:, :, None]
        move, far = -(back @ outside[:, :, None])[:, :, 0], back.norm(dim=2) * within[:, None] + rest[:, :, 0]
        low = torch.maximum(low, boxes.center + move - far)
        high = torch.minimum(high, boxes.center + move + far)
    return _clipped(declared, boxes.codes, low, high)[0]


def chosen(boxes: Boxes) -> tuple[Tensor, Tensor]:
    """Return each choice of categories among boxes once, and which of them is that of each box."""
    # PyTorch refuses rows without entries, as of tables without categories.
    padded, which = functional.pad(boxes.codes, (0, 1)).unique(dim=0, return_inverse=True)
    return padded[:, :-1], which


def grouped(boxes: Boxes) -> tuple[Boxes, Tensor]:
    """Return boxes that hold all of some, as few as are soon bounded, and which of them holds each.

    Those of the same categories that are close to each other are taken together.
    """
    which, width = torch.arange(len(boxes.codes)), _CLOSE
    codes = boxes.codes
    while len(codes) > _BOUNDED and width <= 1:
        place = torch.cat([boxes.codes, (boxes.center / width).floor().long()], 1)
        places, which = place.unique(dim=0, return_inverse=True)
        codes, width = places[:, : boxes.codes.shape[1]], 2 * width
    return (boxes, which) if len(codes) == len(boxes.codes) else (_hulls(boxes, codes, which), which)


def _hulls(boxes: Boxes, codes: Tensor, which: Tensor) -> Boxes:
    """Return one box with these categories for each group of boxes, that holds them all."""
    none = torch.zeros(len(codes), boxes.center.shape[1]).double()
    at = which[:, None].expand(boxes.center.shape)
    low = none.scatter_reduce(0, at, boxes.center - boxes.reach, "amin", include_self=False)
    high = none.scatter_reduce(0, at, boxes.center + boxes.reach, "amax", include_self=False)
    return Boxes(codes, (low + high) / 2, (high - low) / 2)
