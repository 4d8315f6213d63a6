"""Starting points of searches for single records, and conversion of their ends to cells."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seepage.attacks.horizontal.exact.cells_search import SearchEnds
from seepage.tabular.encoder import Encoder
from seepage.tabular.statistics import Statistics

_SAME_RECORD = 0.03  # largest distance between ends of searches that are taken for the same record, standardised
_Cells = Float[Tensor, "row column"]
_Numbers = Float[Tensor, "row continuous"]


class Starts:
    """Draws from the public marginals as starting points of searches, and conversion of numbers to cells."""

    def __init__(
        self, encoder: Encoder, statistics: Statistics, count: int, report: Callable[[float], None] | None = None
    ) -> None:
        schema, device = encoder.schema, encoder.mean.device
        self.encoder, self.count, self.report = encoder, count, report
        self.discrete, self.continuous = list(schema.discrete), list(schema.continuous)
        self.place = torch.tensor([schema.blocks[i].start for i in self.continuous], dtype=torch.long, device=device)
        self._statistics = statistics
        whole = [bool(getattr(schema.columns[i], "integer", False)) for i in self.continuous]
        self._whole = torch.tensor(whole, dtype=torch.bool, device=device)

    def draw(
        self, allowed: Bool[Tensor, " encoded"], generator: torch.Generator
    ) -> tuple[Int[Tensor, "start discrete"], Float[Tensor, "start continuous"]]:
        """Return codes and standardised numbers; categories that are not allowed are replaced by allowed ones."""
        schema = self.encoder.schema
        uniform = torch.rand(self.count, len(schema.columns), generator=generator, dtype=torch.float64)
        again = torch.rand(self.count, len(schema.columns), generator=generator, dtype=torch.float64)
        cells = self._statistics.rows(uniform).to(allowed.device)
        for i in self.discrete:
            occurring = allowed[schema.blocks[i]]
            others = occurring.nonzero()[:, 0]
            if len(others):
                drawn = others[(again[:, i].to(allowed.device) * len(others)).long()]
                cells[:, i] = torch.where(occurring[cells[:, i].long()], cells[:, i], drawn.double())
        return self.of(cells)

    def near(
        self, cells: _Cells, redrawn: float, generator: torch.Generator
    ) -> tuple[Int[Tensor, "start discrete"], Float[Tensor, "start continuous"]]:
        """Return codes and standardised numbers of rows in turn, each cell drawn anew by the chance ``redrawn``."""
        uniform = torch.rand(self.count, cells.shape[1], generator=generator, dtype=torch.float64)
        again = torch.rand(self.count, cells.shape[1], generator=generator, dtype=torch.float64) < redrawn
        of = torch.arange(self.count) % len(cells)
        return self.of(torch.where(again, self._statistics.rows(uniform), cells[of].cpu()).to(self.encoder.mean.device))

    def typical(self, count: int) -> _Cells:
        """Return the row of all medians, then rows of public marginals, the same ones every time."""
        columns = len(self.encoder.schema.columns)
        uniform = torch.rand(count - 1, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        median = torch.tensor([[marginal.median for marginal in self._statistics.marginals]], dtype=torch.float64)
        return torch.cat([median, self._statistics.rows(uniform)]).to(self.encoder.mean.device)

    def of(self, cells: _Cells) -> tuple[Int[Tensor, "row discrete"], _Numbers]:
        """Return the codes of discrete cells, and the continuous ones, standardised."""
        return cells[:, self.discrete].long(), self.numbers(cells)

    def numbers(self, cells: _Cells) -> _Numbers:
        """Return the continuous cells, standardised."""
        return self.encoder.encode(cells)[:, self.place]

    def values(self, numbers: _Numbers) -> _Numbers:
        """Return standardised numbers in their columns' units, rounded for integer columns."""
        values = numbers * self.encoder.std[self.place] + self.encoder.mean[self.place]
        return torch.where(self._whole, values.round(), values)

    def with_numbers(self, cells: _Cells, numbers: _Numbers) -> _Cells:
        """Return cells with other standardised numbers, brought into their columns' bounds."""
        changed = cells.clone()
        low, high = self.encoder.low[self.place], self.encoder.high[self.place]
        changed[:, self.continuous] = self.values(numbers.clamp(low, high))
        return changed

    def spread(self, cells: _Cells, errors: Tensor | float) -> _Cells:
        """Return the standard errors of continuous cells in place; NaN for discrete ones."""
        spread = torch.full_like(cells, torch.nan)
        if self.continuous:
            spread[:, self.continuous] = errors
        return spread

    def cells(self, ends: SearchEnds) -> Float[Tensor, "start column"]:
        """Return the ends of searches as cells."""
        cells = self.encoder.mean.new_empty(len(ends.codes), len(self.encoder.schema.columns))
        cells[:, self.discrete] = ends.codes.double()
        cells[:, self.continuous] = self.values(ends.numbers)
        return cells

    def ends(self, searches: SearchEnds, misfit: float) -> Float[Tensor, "arrived column"]:
        """Return the cells of searches that ended with less than this misfit, the best first."""
        best = searches.misfit.argsort(stable=True)
        best = best[searches.misfit[best] < misfit]
        return self.cells(searches.of(best))

    def apart(self, cells: _Cells, others: Float[Tensor, "other column"], least: float) -> Bool[Tensor, "row other"]:
        """Return which pairs differ in a category, or in a number by more than ``least`` standard deviations."""
        apart = (cells[:, None] != others[None])[..., self.discrete].any(-1)
        if self.continuous:
            apart |= ((self.numbers(cells)[:, None] - self.numbers(others)[None]).abs() > least).any(-1)
        return apart

    def distinct(self, cells: _Cells) -> Float[Tensor, "distinct column"]:
        """Return cells without those that differ from earlier ones by no more than two searches of one record do."""
        apart = self.apart(cells, cells, _SAME_RECORD)
        earlier = torch.ones_like(apart).tril(-1)
        return cells[(apart | ~earlier).all(1)]


def rounds_within(rounds: int, seconds: float | None) -> Iterator[int]:
    """Count rounds until the limit or the time limit is reached; the first one is always run."""
    end = None if seconds is None else time.monotonic() + seconds
    for count in range(rounds):
        if count and end is not None and time.monotonic() >= end:
            return
        yield count
