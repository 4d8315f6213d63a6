"""Baseline: typical rows of a tree of columns that is learnt from public rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from torch import Tensor

from seepage.baselines.stereotypes import Draw, RowSource, complete_rows, drawn, mixed, stereotypes
from seepage.registry import baselines
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.wire.horizontal import AnyView, Knowledge, RecordsGuess

# Levels of a column in the tree: quantiles of a number, the most frequent categories and all others together.
_BINS, _LEVELS = 16, 32
# Cells of all pairs of columns that are counted for the tree: two seconds.
_COUNTED = 5 * 10**8


@baselines.register("chow_liu", "horizontal", needs=("auxiliary",))
@dataclass(frozen=True)
class ChowLiu:
    """Typical rows of a tree of columns that is learnt from public rows, in which each column depends on one other.

    Source: Chow and Liu (1968). The tree joins the columns that tell most of each other, and rows are drawn along it:
    each cell is that of a public row with the same level of the parent. The guess is the stereotypes of such rows,
    which are right more often than the rows. It suits few public rows, whose columns the tree combines anew.

    Args:
        seed: seed of the drawn batches.

    Raises:
        BadInputError: the attacker holds no public rows; marginals alone have no tree.
    """

    seed: int = 0

    def __call__(self, view: AnyView, knowledge: Knowledge, seeds: Sequence[int]) -> RecordsGuess:
        """Return the guess, the same for all victims; their ``seeds`` are not used."""
        schema, statistics = knowledge.schema, knowledge.statistics
        rows = knowledge.granted_auxiliary("the guess by a tree of columns")
        source = RowSource.of(knowledge).with_draw("tree", lambda: _along_tree(schema, rows, statistics))
        guess = stereotypes(source, knowledge.batch_size, self.seed)
        return RecordsGuess(guess.repeat(view.victims, 1, 1))


def levels_of(schema: Schema, rows: Float[Tensor, "row column"]) -> Int[Tensor, "row column"]:
    """Return the level of each cell: its quantile of a number, or its category's place by frequency."""
    levels = []
    for column, cells in zip(schema.columns, rows.unbind(1), strict=True):
        if isinstance(column, Discrete):
            counts = torch.bincount(cells.long(), minlength=column.width)
            place = counts.argsort(descending=True, stable=True).argsort()
            levels.append(place[cells.long()].clamp(max=_LEVELS - 1))
        else:
            shares = torch.linspace(0, 1, _BINS + 1, dtype=torch.float64)[1:-1]
            # By position: quantiles between values would be no cells.
            ends = cells.sort().values[(shares * (len(cells) - 1)).long()].unique()
            levels.append(torch.searchsorted(ends, cells.contiguous()))
    return torch.stack(levels, dim=1)


def chow_liu_tree(levels: Int[Tensor, "row column"]) -> Int[np.ndarray, " column"]:
    """Return the parent of each column in the tree that shares most information; -1 for the first column.

    Mutual information is corrected for the number of rows (Miller 1955): columns with many levels would otherwise seem
    to tell of all others.

    Example:
        >>> coin = torch.arange(8) % 2
        >>> chow_liu_tree(torch.stack([coin, torch.arange(8) // 4, 1 - coin], dim=1)).tolist()
        [-1, 0, 0]
    """
    columns = levels.shape[1]
    # Some of the rows tell the tree where columns are many.
    most = max(1_000, _COUNTED // max(1, columns * columns // 2))
    shared = _shared(levels[:: -(-len(levels) // most)])
    # Weights of zero would be no edges.
    least = 1 + float(shared.max(initial=0.0))
    tree = minimum_spanning_tree(np.where(np.tri(columns, k=-1) > 0, least - shared, 0)).toarray()
    _, parents = breadth_first_order(tree + tree.T, 0, directed=False)
    return np.where(parents < 0, -1, parents).astype(np.int64)


def _shared(levels: Int[Tensor, "row column"]) -> Float[np.ndarray, "column column"]:
    """Return the mutual information of each column with those before it, in nats, corrected for the number of rows."""
    rows, columns = levels.shape
    widths = levels.amax(dim=0) + 1
    starts = widths.cumsum(0) - widths
    numbered = levels + starts
    share = torch.bincount(numbered.flatten(), minlength=int(widths.sum())).double() / rows
    column_of = torch.arange(columns).repeat_interleave(widths)
    # Levels that occur, less one: what independent columns share by chance is their product by twice the rows.
    free = torch.zeros(columns, dtype=torch.float64).index_add_(0, column_of, (share > 0).double()) - 1
    shared = torch.zeros(columns, columns, dtype=torch.float64)
    for i in range(1, columns):
        width, before = int(widths[i]), int(starts[i])
        # Counts of this column with all before it, at once.
        place = levels[:, i, None] * before + numbered[:, :i]
        joint = torch.bincount(place.flatten(), minlength=width * before).view(width, before).double() / rows
        apart = share[before : before + width, None] * share[:before]
        nats = torch.special.xlogy(joint, joint / apart.clamp(min=1e-300)).sum(dim=0)
        shared[i, :i] = shared[i, :i].index_add_(0, column_of[:before], nats) - free[i] * free[:i] / (2 * rows)
    return shared.numpy()


def _along_tree(schema: Schema, public: Float[Tensor, "public column"], statistics: Statistics) -> Draw:
    rows = complete_rows(public)
    if not len(rows) or not rows.shape[1]:
        return mixed(lambda count, _: rows[:count], 0, statistics)
    levels = levels_of(schema, rows)
    parents = chow_liu_tree(levels)
    depth = _depths(parents)
    order = sorted(range(len(parents)), key=lambda column: depth[column])
    # Public rows by the level of each parent, so that those of one level are a range.
    by_level = {int(p): levels[:, p].argsort(stable=True) for p in set(parents.tolist()) if p >= 0}
    ends = {p: torch.bincount(levels[:, p]).cumsum(0) for p in by_level}

    def draw(count: int, generator: torch.Generator) -> Float[Tensor, "row column"]:
        cells, place = torch.empty(count, rows.shape[1], dtype=torch.float64), {}
        for column in order:
            parent = int(parents[column])
            if parent < 0:
                place[column] = drawn(len(rows), count, generator)
            else:
                level = levels[place[parent], parent]
                last = ends[parent][level]
                first = torch.where(level > 0, ends[parent][(level - 1).clamp(min=0)], 0)
                share = torch.rand(count, generator=generator, dtype=torch.float64)
                # Rounding may take a share to the end of its range.
                place[column] = by_level[parent][torch.minimum(first + (share * (last - first)).long(), last - 1)]
            cells[:, column] = rows[place[column], column]
        return cells

    return mixed(draw, len(rows), statistics)


def _depths(parents: Int[np.ndarray, " column"]) -> list[int]:
    depths = [0] * len(parents)
    for column in range(len(parents)):
        above = int(parents[column])
        while above >= 0:
            depths[column], above = depths[column] + 1, int(parents[above])
    return depths
