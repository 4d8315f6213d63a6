"""Reading of a message of sums: counts of every bin, and the values of a table that the bins stand for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from seepage.tabular.schema import Discrete
from seepage.tabular.statistics import Marginal
from seepage.wire.forest import Tree
from seepage.wire.trees import HistogramMessage, TreesKnowledge


class Sent:
    """A message of sums, with figures that attacks read repeatedly."""

    def __init__(self, message: HistogramMessage) -> None:
        self.message, self.forest, self.cuts = message, message.forest, message.cuts
        self.place = [{int(v): i for i, v in enumerate(nodes)} for nodes in message.nodes]
        start = np.tile(self.forest.intercept, (1, 1))
        root = self.forest.gradients(start, np.zeros(1))[0].astype(np.float64)
        # A second derivative before the first tree is the same for every row.
        self.least = float(root[0, 1])
        self.chances = root[:, 0]
        self.counts: Float[np.ndarray, " bin"] = message.sums[0][self.place[0][0], :, 1] / self.least

    def deepest(self, position: int) -> Int[np.ndarray, " node"]:
        """Return, for each node of a tree, the deepest node at or above it that sums were sent for."""
        tree, place = self.forest.trees[position], self.place[position]
        deepest = np.zeros(tree.nodes, dtype=np.int64)
        for node in range(tree.nodes):
            for child in (tree.left[node], tree.right[node]):
                if child >= 0:
                    deepest[child] = child if int(child) in place else deepest[node]
        return deepest

    def split_by(self, tree: Tree, node: int, number: int) -> bool | None:
        """Return whether all rows of a bin go left at a split on the bin's own column; None at any other split."""
        bins = self.cuts.of(int(tree.column[node]))
        if not bins.start <= number < bins.stop:
            return None
        # Conditions of joint trees are ends of bins; of others, a bin may lie on both sides.
        low, high = self.cuts.interval(number)
        if high <= tree.condition[node]:
            return True
        return False if low >= tree.condition[node] else None


@dataclass(frozen=True)
class Values:
    """Values of one column of the schema: bin over all encoded columns, and the cell that stands for it.

    ``exact`` is whether every number of the bin is within the column's tolerance of the cell.
    """

    bins: Int[np.ndarray, " value"]
    cells: Float[np.ndarray, " value"]
    exact: Bool[np.ndarray, " value"]


def values_of(sent: Sent, knowledge: TreesKnowledge) -> list[Values]:
    """Return the values of each column that a message tells apart."""
    schema, values = knowledge.schema, []
    for column, block, marginal in zip(schema.columns, schema.blocks, knowledge.statistics.marginals, strict=True):
        if isinstance(column, Discrete):
            bins, codes = [], []
            for code, encoded in enumerate(range(block.start, block.stop)):
                ends = sent.cuts.values[sent.cuts.of(encoded)]
                # A category that no client has: all are in the bin of 0, which ends below 1.
                if ends[-1] > 1:
                    bins.append(int(sent.cuts.start[encoded] + np.searchsorted(ends, np.float32(1), side="right")))
                    codes.append(float(code))
            values.append(Values(np.array(bins, np.int64), np.array(codes), np.ones(len(bins), bool)))
            continue
        bins_of = sent.cuts.of(block.start)
        bins, cells, exact = np.arange(bins_of.start, bins_of.stop), [], []
        # With fewer bins than allowed each has mostly one value. One that many rows share has the same effect, so that
        # this is no proof.
        single = knowledge.max_bin is not None and len(bins) < knowledge.max_bin
        for number in bins:
            low, high = sent.cuts.interval(int(number))
            ends = max(low, column.low), min(high, column.high)
            starts = single and number > bins_of.start
            cell, reach = _number(marginal, *ends, column.integer, high, min(ends) if starts else None)
            cells.append(cell)
            exact.append(reach <= column.tolerance)
        values.append(Values(bins, np.array(cells), np.array(exact)))
    return values


def _number(
    marginal: Marginal, low: float, high: float, whole: bool, end: float, start: float | None
) -> tuple[float, float]:
    """Return a number for a bin, or its start where given, and the distance of the farthest number that it may hold."""
    if whole:
        # The upper end is no part of the bin, where it is the bin's own.
        low, high = float(np.ceil(low)), float(np.ceil(high) - 1 if high == end else np.floor(high))
    high = max(low, high)
    if start is not None:
        return start, max(start - low, high - start)
    values, shares = marginal.values.numpy(), marginal.probabilities.numpy()
    inside = (values >= low) & (values <= high)
    if inside.any():
        cumulative = shares[inside].cumsum()
        cell = float(values[inside][np.searchsorted(cumulative, cumulative[-1] / 2)])
    else:
        cell = low
    return cell, max(cell - low, high - cell)
