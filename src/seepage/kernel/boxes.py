"""Sets of rows: boxes of categories and intervals of numbers, and rows as the network takes them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from seepage.kernel.operations import Ball
from seepage.kernel.statement import ROUNDINGS, UNIT, Declaration


class Boxes(NamedTuple):
    """Sets of rows: a category of each column with categories, -1 for any, and an interval of each number.

    Intervals are middles and half widths in units of the number's range.
    """

    codes: Tensor
    center: Tensor
    reach: Tensor

    def some(self, which: Tensor) -> Boxes:
        """Return some of the boxes."""
        return Boxes(self.codes[which], self.center[which], self.reach[which])

    def encoded(self, declared: Declaration, rounded: bool = True) -> Ball:
        """Return the rows as the network takes them, with the roundings of numbers in their radius or without."""
        at, own = declared.layout, self.codes[:, declared.layout.column]
        mid, rad = torch.empty(2, len(self.codes), len(at.mean)).double()
        mid[:, at.number] = at.low + self.center * at.span
        mid[:, ~at.number] = torch.where(own < 0, 0.5, (own == at.category).double())
        # Entries and what they are standardised by are rounded, too.
        size = (self.center * at.span + at.low).abs() + self.reach * at.span + at.mean[at.number].abs()
        rad[:, at.number] = self.reach * at.span + rounded * ROUNDINGS * UNIT * size
        most = torch.where(own < 0, 1.0, mid[:, ~at.number]) + at.mean[~at.number].abs()
        rad[:, ~at.number] = torch.where(own < 0, 0.5, 0.0) + rounded * ROUNDINGS * UNIT * most
        return Ball((mid - at.mean) / at.scale, rad / at.scale)


def everything(declared: Declaration) -> Boxes:
    """Return the box of all rows."""
    half = torch.full((1, len(declared.numbers)), 0.5, dtype=torch.float64)
    return Boxes(torch.full((1, len(declared.columns) - len(declared.numbers)), -1), half, half)


def single_rows(declared: Declaration, cells: Tensor) -> Boxes:
    """Return a box for each record (record, column) that holds it alone."""
    number = torch.tensor([column.categories is None for column in declared.columns], dtype=torch.bool)
    span = declared.layout.span
    center = (cells[:, number] - declared.layout.low) / torch.where(span > 0, span, 1.0)
    return Boxes(cells[:, ~number].long(), center, torch.zeros_like(center))
