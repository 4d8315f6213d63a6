"""Baseline: rows that agree best with batches of public rows once they are matched to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import isqrt

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.digests import digest_of, plain
from seepage.registry import baselines
from seepage.tabular.align import match, pairwise_error, reorder, tolerances
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.wire.horizontal import AnyView, Knowledge, RecordsGuess
from seepage.wire.statistics import StatisticsView
from seepage.wire.trees import HistogramsView, TreeFilesView

Draw = Callable[[int, torch.Generator], Tensor]
"""Function that returns so many rows, shape (row, column), from a generator."""

# Batches of each round: few move the rows far, many settle the values of each.
_ROUNDS = (*(4 * (8,)), *(4 * (16,)), *(4 * (32,)), 128)
# With fewer rows each round takes more batches, at the same cost as with so many.
_FEW = 32
# Cells that are compared in all rounds, and columns that matching two rows costs as much as: two seconds. With more
# records, stereotypes stand for several of them.
_CELLS, _MATCHING = 8 * 10**8, 60
# Public rows tell less than the marginals of the whole table where they are fewer than this.
_WORTH = 100


@dataclass(frozen=True)
class RowSource:
    """A distribution of rows that an attacker may think of; equal digests draw equal rows.

    Attributes:
        make: function that prepares the drawing, called once.
    """

    digest: str
    schema: Schema = field(compare=False)
    make: Callable[[], Draw] = field(compare=False)

    @classmethod
    def of(cls, knowledge: Knowledge) -> RowSource:
        """Return the public rows of an attacker's knowledge, or rows of its marginals where it has none."""
        schema, statistics, rows = knowledge.schema, knowledge.statistics, knowledge.auxiliary
        facts = {"tolerances": plain(tolerances(schema)), "marginals": plain(statistics.marginals)}
        if rows is None:
            return cls(digest_of(facts), schema, lambda: _of_marginals(statistics))
        return cls(digest_of({**facts, "rows": plain(rows)}), schema, lambda: _of_rows(rows, statistics))

    def with_draw(self, name: str, make: Callable[[], Draw]) -> RowSource:
        """Return the same knowledge drawn from in another way, which has a name."""
        return replace(self, digest=f"{name} {self.digest}", make=make)


@baselines.register("stereotypes", "horizontal")
@baselines.register("stereotypes", "trees")
@baselines.register("stereotypes", "statistics")
@dataclass(frozen=True)
class Stereotypes:
    """Typical rows, as many as there are records: each agrees best with the public rows that are matched to it.

    Batches of as many rows are drawn from the public rows, or from the marginals where the attacker holds none. Each is
    matched to the guessed rows as a score matches a guess to the truth. Each guessed row then takes, in each column,
    the value that is right for most of the rows matched to it. This is clustering with clusters of equal size, in the
    measure of the score. All victims get the same rows.

    Args:
        seed: seed of the drawn batches.

    Example:
        >>> from seepage.datasets.planted import distinct
        >>> data = distinct(rows=8)
        >>> knowledge = Knowledge(data.schema, data.statistics, batch_size=3)
        >>> stereotypes(RowSource.of(knowledge), 3).shape == (3, len(data.schema.columns))
        True
    """

    seed: int = 0

    def __call__(
        self,
        view: AnyView | HistogramsView | TreeFilesView | StatisticsView,
        knowledge: Knowledge,
        seeds: Sequence[int],
    ) -> RecordsGuess:
        """Return the guess; victims' ``seeds`` are not used."""
        rows = stereotypes(RowSource.of(knowledge), knowledge.batch_size, self.seed)
        return RecordsGuess(rows.repeat(view.victims, 1, 1))


def stereotypes(source: RowSource, records: int, seed: int = 0) -> Float[Tensor, "record column"]:
    """Return rows that are expected to have most cells right of so many drawn ones.

    Where records and columns are many, each row stands for several records. The fit is kept for further calls.
    """
    most = max(1, isqrt(_CELLS // (sum(_ROUNDS) * (len(source.schema.columns) + _MATCHING))))
    rows = _fitted(source, min(records, most), seed)
    return rows[torch.arange(records) * len(rows) // max(1, records)]


@lru_cache(maxsize=16)
def _fitted(source: RowSource, records: int, seed: int) -> Float[Tensor, "record column"]:
    draw, generator = source.make(), torch.Generator().manual_seed(seed)
    allowed = tolerances(source.schema)
    rows = draw(records, generator)
    for number in _ROUNDS:
        number *= max(1, _FEW // max(1, records))
        batches = draw(number * records, generator).unflatten(0, (number, records))
        error = pairwise_error(source.schema, rows.expand(number, -1, -1), batches)
        # The matching breaks ties by order: of guessed rows that are alike, the last gets the least typical rows, and
        # no longer stays as it is.
        typical = error.sum(dim=1).argsort(dim=1, stable=True)
        matched = match(error.take_along_dim(typical[:, None], dim=2))
        rows = _most_often_right(reorder(batches, typical), matched, allowed)
    return rows


def _most_often_right(
    batches: Float[Tensor, "batch record column"],
    matched: Int[Tensor, "batch record"],
    allowed: Float[Tensor, " column"],
) -> Float[Tensor, "record column"]:
    """Return for each row and column the value that is right for most of the cells that are matched to it."""
    aligned = torch.empty_like(batches).scatter_(1, matched[..., None].expand_as(batches), batches)
    # One line a row and column, sorted, so that the cells within the tolerance of each are a range.
    cells = aligned.permute(1, 2, 0).sort(dim=-1).values.contiguous()
    above = torch.searchsorted(cells, cells + allowed[:, None], right=True)
    below = torch.searchsorted(cells, cells - allowed[:, None])
    best = (above - below).argmax(dim=-1, keepdim=True)
    return cells.gather(-1, best)[..., 0]


def _of_marginals(statistics: Statistics) -> Draw:
    def draw(count: int, generator: torch.Generator) -> Float[Tensor, "row column"]:
        shape = (count, len(statistics.marginals))
        return statistics.rows(torch.rand(shape, generator=generator, dtype=torch.float64))

    return draw


def _of_rows(rows: Float[Tensor, "public column"], statistics: Statistics) -> Draw:
    complete = complete_rows(rows)
    return mixed(lambda count, generator: complete[drawn(len(complete), count, generator)], len(complete), statistics)


def complete_rows(rows: Float[Tensor, "public column"]) -> Float[Tensor, "row column"]:
    """Return the rows without a missing cell."""
    return rows.double().cpu()[rows.isfinite().all(dim=1).cpu()]


def drawn(number: int, count: int, generator: torch.Generator) -> Int[Tensor, " row"]:
    """Return positions of rows that are drawn with replacement."""
    return torch.randint(max(1, number), (count,), generator=generator)


def mixed(draw: Draw, number: int, statistics: Statistics) -> Draw:
    """Return a draw in which the marginals of the whole table count as much as 100 of the public rows.

    Few public rows repeat each other's cells, and lack values that the marginals have.
    """
    of_marginals = _of_marginals(statistics)

    def draw_either(count: int, generator: torch.Generator) -> Float[Tensor, "row column"]:
        rows = of_marginals(count, generator)
        if not number:
            return rows
        is_public = torch.rand(count, 1, generator=generator) < number / (number + _WORTH)
        return torch.where(is_public, draw(count, generator), rows)

    return draw_either
