"""Boosted trees over columns that two parties hold (SecureBoost): what the active party decrypts, and what is told.

Source: Cheng et al., SecureBoost (arXiv 1901.08755), algorithms 1 and 2. The active party holds labels and columns, and
sends encrypted derivatives. A passive party adds them up by node, column and bin; the active one decrypts the sums,
chooses splits, and tells who follows the tree which rows go left. Deviations: encryption is left out, since what is
decrypted is what counts, and sums are doubles of derivatives in single precision, as in xgboost, where implementations
round to fixed point. Categories are columns of 0 and 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from seepage.protocols.trees import Boosting, Labels, PassiveColumns, Rows, Sums, grow_together
from seepage.tabular.schema import Discrete, Schema
from seepage.wire.forest import Forest, Tree
from seepage.wire.secureboost import ColumnSplit, SumsMessage, TreeSums
from seepage.wire.trees import Cuts, HistogramMessage

# In place of a bin: a category that no row has.
_NO_BIN = -1


@dataclass(frozen=True)
class SecureBoost:
    """Trees of two parties.

    Attributes:
        recipe: recipe of the trees.
        passive: positions of the passive party's columns in the schema.
        without: number of first rounds that grow on the active party's columns alone.
        noise: defense of sums on their way to the active party.
        shuffled: generator of the numbers that the passive party gives its bins; None where they are in order.
        anew: whether shuffled bins get new numbers in every node.
        observer: positions of the columns of the passive party whose view is recorded, where several share the passive
            ones: each is told of the nodes that all send sums for, and knows the sides of its own splits; all if None.
    """

    recipe: Boosting
    passive: tuple[int, ...]
    without: int = 0
    noise: Callable[[Sums], Sums] | None = None
    shuffled: np.random.Generator | None = None
    anew: bool = False
    observer: tuple[int, ...] | None = None

    def grow(self, schema: Schema, rows: Rows, labels: Labels) -> GrownTrees:
        """Return the trees, and what crosses the wire meanwhile."""
        columns = PassiveColumns(_encoded_of(schema, self.passive), self.without)
        forest, message = grow_together([rows], [labels], self.recipe, self.noise or _plain, (0,), columns)
        decrypted = self._decrypted(schema, message, rows, labels)
        observer = _encoded_of(schema, self.passive if self.observer is None else self.observer)
        return GrownTrees(forest, message, decrypted, *self._reported(forest, observer, rows))

    def _decrypted(self, schema: Schema, message: HistogramMessage, rows: Rows, labels: Labels) -> SumsMessage:
        """Return what the active party decrypts and follows, with its own derivatives of each row."""
        forest, cuts = message.forest, message.cuts
        bins, owners = self._bins(schema, cuts)
        starts = np.concatenate([[0], np.cumsum([len(column_bins) for column_bins in bins])]).astype(np.int64)
        together = np.concatenate(bins)
        margins = np.tile(forest.intercept, (len(rows), 1))
        trees = []
        for number in range(len(forest.rounds)):
            gradients = forest.gradients(margins, labels).astype(np.float64)
            for position in forest.of_round(number):
                tree = forest.trees[position]
                members = tree.members(rows)
                for leaf in tree.leaves:
                    margins[members[leaf], tree.output] += tree.condition[leaf]
                if number < self.without:
                    continue
                sums = message.sums[position][:, together].copy()
                sums[:, together == _NO_BIN] = 0.0
                nodes = message.nodes[position]
                place = {int(node): i for i, node in enumerate(nodes)}
                orders = np.stack([self._order(starts) for _ in nodes])
                trees.append(
                    TreeSums(
                        gradients[:, tree.output],
                        tuple(members[node] for node in nodes),
                        _parents(tree, nodes),
                        np.take_along_axis(sums, orders[:, :, None], axis=1),
                        tuple(
                            ColumnSplit(
                                column,
                                left[orders[place[node], starts[column] : starts[column + 1]] - starts[column]],
                                members[tree.left[node]],
                                members[tree.right[node]],
                                place[node],
                            )
                            for node in map(int, np.flatnonzero(tree.left >= 0))
                            for column, left in _split_bins(tree, node, owners, bins, cuts)
                        ),
                    )
                )
        return SumsMessage(tuple(trees), starts)

    def _order(self, starts: Int[np.ndarray, " ends"]) -> Int[np.ndarray, " bin"]:
        """Return the bins in the order in which a node sends them: as they are numbered, or by new numbers."""
        if not self.anew or self.shuffled is None:
            return np.arange(starts[-1])
        pairs = itertools.pairwise(starts)
        return np.concatenate([self.shuffled.permutation(np.arange(start, end)) for start, end in pairs])

    def _bins(self, schema: Schema, cuts: Cuts) -> tuple[list[Int[np.ndarray, " _bin"]], dict[int, int]]:
        """Return the bins of each passive column as they are numbered, and the column of each encoded one."""
        bins: list[Int[np.ndarray, " _bin"]] = []
        owners: dict[int, int] = {}
        for column, position in enumerate(self.passive):
            block = schema.blocks[position]
            owners.update(dict.fromkeys(range(block.start, block.stop), column))
            if isinstance(schema.columns[position], Discrete):
                column_bins = np.array([_bin_of_category(cuts, encoded) for encoded in range(block.start, block.stop)])
            else:
                column_bins = np.arange(cuts.of(block.start).start, cuts.of(block.start).stop)
            bins.append(column_bins if self.shuffled is None else self.shuffled.permutation(column_bins))
        return bins, owners

    def _reported(
        self, forest: Forest, observer: Bool[np.ndarray, " encoded"], rows: Rows
    ) -> tuple[Bool[Tensor, "record node"], Int[Tensor, " node"]]:
        """Return the rows in each node that the passive party is told of, or knows by its own splits, and its tree."""
        columns, trees = [], []
        for number in range(self.without, len(forest.rounds)):
            for position in forest.of_round(number):
                tree = forest.trees[position]
                depth, members = tree.depth, tree.members(rows)
                for node in np.flatnonzero(tree.left >= 0):
                    for child in (tree.left[node], tree.right[node]):
                        reported = depth[child] < self.recipe.depth or observer[tree.column[node]]
                        if reported and len(members[child]):
                            inside = np.zeros(len(rows), dtype=bool)
                            inside[members[child]] = True
                            columns.append(inside)
                            trees.append(position)
        nodes = np.stack(columns, axis=1) if columns else np.zeros((len(rows), 0), dtype=bool)
        return torch.from_numpy(nodes), torch.tensor(trees, dtype=torch.int64)


@dataclass(frozen=True)
class GrownTrees:
    """Trees of two parties, the sums of all columns, what the active party decrypts and what the passive one is told.

    ``nodes`` are the rows in each node, ``tree_of`` is the number of a node's tree.
    """

    forest: Forest
    histograms: HistogramMessage
    decrypted: SumsMessage
    nodes: Bool[Tensor, "record node"]
    tree_of: Int[Tensor, " node"]


def _encoded_of(schema: Schema, positions: Sequence[int]) -> Bool[np.ndarray, " encoded"]:
    """Return which encoded columns are those of some columns."""
    chosen = np.zeros(schema.width, dtype=bool)
    for position in positions:
        chosen[schema.blocks[position].start : schema.blocks[position].stop] = True
    return chosen


def _plain(sums: Sums) -> Sums:
    return sums


def _bin_of_category(cuts: Cuts, encoded: int) -> int:
    """Return the bin of rows that have a category; ``_NO_BIN`` where none has it, so that all are in the bin of 0."""
    ends = cuts.values[cuts.of(encoded)]
    place = int(np.searchsorted(ends, np.float32(1), side="right"))
    return int(cuts.start[encoded]) + place if place < len(ends) else _NO_BIN


def _parents(tree: Tree, nodes: Int[np.ndarray, " node"]) -> Int[np.ndarray, " node"]:
    above = {int(child): int(node) for node in nodes for child in (tree.left[node], tree.right[node]) if child >= 0}
    place = {int(node): i for i, node in enumerate(nodes)}
    return np.array([place[above[int(node)]] if int(node) in above else -1 for node in nodes], dtype=np.int64)


def _split_bins(
    tree: Tree, node: int, owners: dict[int, int], bins: Sequence[Int[np.ndarray, " _bin"]], cuts: Cuts
) -> list[tuple[int, Bool[np.ndarray, " bin"]]]:
    """Return the passive column of a split and which of its bins go left, as the only item; else nothing."""
    encoded = int(tree.column[node])
    if encoded not in owners:
        return []
    column = owners[encoded]
    column_bins, entry_cuts = bins[column], cuts.of(encoded)
    # All bins of numbers are of this encoded column; of categories only its own, of which the rows with it go right.
    inside = (column_bins >= entry_cuts.start) & (column_bins < entry_cuts.stop)
    return [(column, ~inside | (inside & (cuts.values[column_bins] <= tree.condition[node])))]
