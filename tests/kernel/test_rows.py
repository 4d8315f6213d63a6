"""Boxes that hold all rows that may be there, against a search of which it is known what it excludes."""

from __future__ import annotations

import torch
from torch import Tensor

from seepage.kernel.boxes import Boxes
from seepage.kernel.rows import boxes_in, grouped
from seepage.kernel.spans import Design, LayerSpan
from seepage.kernel.statement import Declaration, EncodedColumn

KEPT = torch.tensor([[0.2, 0.7], [0.8, 0.75], [0.55, 0.1]]).double()


class Discs:
    """Excludes boxes that meet no disc around a point, and counts what it was asked of."""

    def __init__(self, points: Tensor, radius: float) -> None:
        self.points, self.radius, self.asked = points, radius, 0

    def __call__(self, boxes: Boxes) -> Tensor:
        self.asked += len(boxes.codes)
        away = (boxes.center[:, None] - self.points).abs() - boxes.reach[:, None]
        return (away.clamp(min=0).norm(dim=2) > self.radius).all(1)


def searched(discs: Discs, tolerance: float, integer: bool = False, top: float = 1.0) -> Boxes:
    """Return boxes of two numbers of which the span says nothing."""
    column = EncodedColumn("x", (0.0,), (1.0,), None, 0.0, top, tolerance, integer)
    declared, empty = Declaration((column, column), 4, "softmax"), torch.zeros(3, 0).double()
    design = Design(torch.tensor([0.0, 0.0, 1.0]).double(), [], torch.eye(2, 3).double(), 2.0)
    span = LayerSpan(empty, torch.ones(0, dtype=torch.bool), torch.ones(3).double(), torch.eye(3).double(), empty, 0.01,
                     empty, 3, 2.0)  # fmt: skip
    return boxes_in(declared, design, span, torch.zeros(1, 0, dtype=torch.long), discs, 2)


def held(boxes: Boxes, points: Tensor) -> Tensor:
    return ((points[:, None] - boxes.center).abs() <= boxes.reach + 1e-9).all(2).any(1)


def within(points: Tensor, radius: float) -> Tensor:
    """Return points of the discs, their rims among them."""
    turn = torch.linspace(0, 6.28, 60).double()
    rim = radius * torch.stack([turn.cos(), turn.sin()], 1)
    return torch.cat([points, (points[:, None] + rim).flatten(0, 1)])


def test_no_row_that_is_not_excluded_is_left_out_however_early_a_search_ends() -> None:
    for radius in (0.0, 1e-4, 0.01, 0.2, 3.0):
        discs = Discs(KEPT, radius)
        boxes, rows = searched(discs, tolerance=0.01), within(KEPT, radius)
        rows = rows[((rows >= 0) & (rows <= 1)).all(1)]
        assert bool(held(boxes, rows).all())
        assert discs.asked <= 8_000
        # Points are told apart.
        assert radius > 0 or bool((boxes.reach <= 0.01).all())


def test_nothing_more_is_asked_where_nothing_is_excluded() -> None:
    discs = Discs(KEPT, 10.0)
    boxes = searched(discs, tolerance=1e-4)
    assert discs.asked <= 300
    assert bool(held(boxes, torch.rand(50, 2, generator=torch.Generator().manual_seed(0)).double()).all())


def test_whole_numbers_are_told_apart_without_further_halvings() -> None:
    points = torch.tensor([[3.0, 40.0], [77.0, 8.0]]).double() / 100
    discs = Discs(points, 1e-3)
    boxes = searched(discs, tolerance=1.0, integer=True, top=100.0)
    assert not bool(boxes.reach.any())
    assert set(map(tuple, (boxes.center * 100).round().tolist())) == {(3.0, 40.0), (77.0, 8.0)}
    assert discs.asked < 3_000


def test_boxes_that_are_bounded_together_hold_each_of_their_own() -> None:
    draw = torch.Generator().manual_seed(1)
    center, codes = torch.rand(900, 2, generator=draw).double(), torch.randint(3, (900, 1), generator=draw)
    boxes = Boxes(codes, center, 0.01 * torch.rand(900, 2, generator=draw).double())
    few, of = grouped(boxes)
    assert len(few.codes) <= 128
    assert bool((few.codes[of] == codes).all())
    assert bool(((few.center[of] - center).abs() + boxes.reach <= few.reach[of] + 1e-12).all())
    alone, of = grouped(boxes.some(torch.arange(100)))
    assert bool((alone.center[of] == center[:100]).all())
