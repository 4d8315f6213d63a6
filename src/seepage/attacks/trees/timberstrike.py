"""TimberStrike: records from a client's tree files, by integer programs over leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import csr_array

from seepage.attacks.trees.files import counts_of, sums_of
from seepage.errors import check_count
from seepage.registry import attacks
from seepage.solve.programs import cheapest
from seepage.solve.remainders import to_total
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Marginal, Statistics
from seepage.wire.forest import Tree
from seepage.wire.trees import FileMessage, TreeFilesView, TreesGuess, TreesKnowledge


@attacks.register("timberstrike", "trees")
@dataclass(frozen=True)
class TimberStrike:
    """Guesses records from split values and leaf statistics of a client's trees.

    Source: Di Gennaro et al., TimberStrike (arXiv 2506.07605), section 5. The first tree gives the number of rows of
    each class in every leaf, and the path to a leaf bounds their cells. For each later tree an integer program assigns
    these rows to leaves that their bounds allow, so that their derivatives add up to those of the leaf as nearly as
    possible; the path to the leaf narrows the bounds. Trees of other clients in between move a row's margin by the mean
    of the leaves that it may be in, weighted by their second derivatives.

    Deviations: rows that are alike so far share one whole number; HiGHS stops at a number of nodes, so that the same
    message gives the same guess, where the paper stops Gurobi by time. Cells are drawn from the public marginals within
    their bounds, where the paper fills them in from the attacker's own rows. With a margin for each class and in
    a regression, for which the paper has no rule, the first tree alone is read.

    Attributes:
        trees: number of the client's trees that are read.
        nodes: number of nodes of the search for each tree.

    Raises:
        BadInputError: a number is none from 1 up.
    """

    trees: int = 10
    nodes: int = 50

    def __post_init__(self) -> None:
        check_count("trees", self.trees)
        check_count("nodes", self.nodes)

    def __call__(self, view: TreeFilesView, knowledge: TreesKnowledge, seeds: Sequence[int]) -> TreesGuess:
        """Return the guess; by a victim's seed, cells are drawn within their bounds."""
        cells, labels = [], []
        for message, seed in zip(view.messages, seeds, strict=True):
            rows = self._rows(message, knowledge)
            generator = np.random.default_rng([seed, 2])
            cells.append(drawn(knowledge.schema, knowledge.statistics, rows.boxes, generator))
            labels.append(rows.labels)
        return TreesGuess(torch.from_numpy(np.stack(cells)), labels=torch.from_numpy(np.stack(labels)))

    def _rows(self, message: FileMessage, knowledge: TreesKnowledge) -> _Rows:
        forest = message.forest
        trees = [forest.trees[position] for position in message.own]
        sums = sums_of(message, knowledge)
        rows = _first(message, trees[0], sums[0], knowledge)
        # Two classes may have a margin each (multi:softprob), whose trees the paper has no rule for.
        if forest.labels is None or forest.outputs > 1:
            return rows
        for number in range(1, min(self.trees, len(trees))):
            for position in range(message.own[number - 1] + 1, message.before[number]):
                rows = rows.moved(forest.trees[position])
            tree, hessian = trees[number], sums[number][trees[number].leaves]
            if not np.isfinite(hessian).all():
                break
            weight = tree.condition[tree.leaves].astype(np.float64) / knowledge.learning_rate
            leaves = np.stack([-weight * (hessian + knowledge.regularisation), hessian], axis=1)
            gradients = forest.gradients(rows.margins[:, None].astype(np.float32), rows.labels)[:, 0]
            chosen = self._assigned(rows, tree, gradients.astype(np.float64), leaves)
            if chosen is None:
                break
            rows = rows.narrowed(tree, chosen)
        return rows

    def _assigned(
        self,
        rows: _Rows,
        tree: Tree,
        gradients: Float[np.ndarray, "row 2"],
        leaves: Float[np.ndarray, "leaf 2"],
    ) -> Int[np.ndarray, " row"] | None:
        """Return the leaf of each row, by position among the leaves; None where the search finds none."""
        possible = rows.possible(tree)
        keys = np.concatenate([gradients, possible], axis=1)
        _, first, alike = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        alike = alike.ravel()
        number = np.bincount(alike)
        kinds, targets = np.nonzero(possible[first])
        if not possible[first].any(1).all():
            return None
        variables = np.arange(len(kinds))
        by_kind = csr_array((np.ones(len(kinds)), (kinds, variables)), shape=(len(first), len(kinds)))
        derivatives, shape = gradients[first][kinds], (len(leaves), len(kinds))
        sums = [(csr_array((derivatives[:, s], (targets, variables)), shape=shape), leaves[:, s]) for s in range(2)]
        limits, options = [(by_kind, number, number)], {"node_limit": self.nodes, "mip_rel_gap": 1e-3}
        solved = cheapest(np.zeros(len(kinds)), number[kinds].astype(float), limits, sums, options)
        if solved is None:
            return None
        numbers = solved.astype(np.int64)
        assigned = np.full(len(alike), -1)
        for kind in range(len(first)):
            members = np.flatnonzero(alike == kind)
            same = kinds == kind
            dealt = np.repeat(targets[same], numbers[same])[: len(members)]
            assigned[members[: len(dealt)]] = dealt
            assigned[members[len(dealt) :]] = targets[same][0]
        return assigned


@dataclass(frozen=True)
class _Rows:
    """Guessed rows."""

    boxes: Float[np.ndarray, "row encoded 2"]  # interval of each encoded column, lower end included
    labels: Float[np.ndarray, " row"]
    margins: Float[np.ndarray, " row"]

    def possible(self, tree: Tree) -> np.ndarray:
        """Return which leaves each row may be in."""
        leaves = tree.boxes(self.boxes.shape[1])[tree.leaves]
        allowed = np.ones((len(self.boxes), len(leaves)), dtype=bool)
        for column in np.unique(tree.column[tree.left >= 0]):
            low = np.maximum(self.boxes[:, column, 0][:, None], leaves[:, column, 0][None])
            high = np.minimum(self.boxes[:, column, 1][:, None], leaves[:, column, 1][None])
            allowed &= low < high
        return allowed

    def moved(self, tree: Tree) -> _Rows:
        """Return the rows after a tree of another client."""
        allowed = self.possible(tree).astype(np.float64)
        weight = allowed if tree.hessian is None else allowed * tree.hessian[tree.leaves]
        total = weight.sum(1)
        mean = np.divide(weight @ tree.condition[tree.leaves], total, out=np.zeros(len(total)), where=total > 0)
        return _Rows(self.boxes, self.labels, self.margins + mean)

    def narrowed(self, tree: Tree, chosen: Int[np.ndarray, " row"]) -> _Rows:
        """Return the rows with the bounds of their leaves."""
        leaf = tree.leaves[chosen]
        boxes = tree.boxes(self.boxes.shape[1])[leaf]
        both = np.stack(
            [np.maximum(self.boxes[..., 0], boxes[..., 0]), np.minimum(self.boxes[..., 1], boxes[..., 1])], axis=-1
        )
        return _Rows(both, self.labels, self.margins + tree.condition[leaf])


def _first(message: FileMessage, tree: Tree, sums: Float[np.ndarray, " node"], knowledge: TreesKnowledge) -> _Rows:
    """Return the rows that the client's first tree counts."""
    forest, columns = message.forest, message.forest.columns
    start = float(forest.intercept[tree.output])
    counted = counts_of(message, knowledge)
    if counted and np.isfinite(counted[0]).all():
        counts = to_total(counted[0].ravel(), knowledge.batch_size).reshape(counted[0].shape)
    else:
        # Without counts rows are shared out by the leaves' second derivatives, or evenly.
        in_leaves = sums[tree.leaves]
        shares = in_leaves if np.isfinite(in_leaves).all() else np.ones(len(tree.leaves))
        counts = to_total(shares / shares.sum() * knowledge.batch_size, knowledge.batch_size)[:, None]
    places, labels = np.nonzero(np.ones_like(counts))
    number = counts.ravel()
    leaf = tree.leaves[np.repeat(places, number)]
    boxes = tree.boxes(columns)[leaf]
    margins = start + tree.condition[leaf].astype(np.float64)
    return _Rows(boxes, np.repeat(labels, number).astype(np.float64), margins)


def drawn(
    schema: Schema, statistics: Statistics, boxes: Float[np.ndarray, "row encoded 2"], generator: np.random.Generator
) -> Float[np.ndarray, "row column"]:
    """Return cells that are drawn from the public marginals within their bounds."""
    cells = np.empty((len(boxes), len(schema.columns)))
    for i, (column, block, marginal) in enumerate(
        zip(schema.columns, schema.blocks, statistics.marginals, strict=True)
    ):
        shares = _within(column, marginal, boxes[:, block])
        running = shares.cumsum(1)
        place = (running < generator.random(len(boxes))[:, None] * running[:, -1:]).sum(1)
        cells[:, i] = marginal.values.numpy()[np.minimum(place, shares.shape[1] - 1)]
        if not isinstance(column, Discrete):
            low, high = boxes[:, block.start, 0], boxes[:, block.start, 1]
            narrow = ~shares.any(1)
            cells[narrow, i] = np.where(np.isfinite(low), low, high)[narrow]
            cells[:, i] = np.clip(cells[:, i], column.low, column.high)
    return cells


def _within(
    column: object, marginal: Marginal, boxes: Float[np.ndarray, "row some 2"]
) -> Float[np.ndarray, "row value"]:
    """Return the probability of each value for each row, 0 outside of its bounds."""
    shares = np.tile(marginal.probabilities.numpy(), (len(boxes), 1))
    if isinstance(column, Discrete):
        # An interval that has no 1 excludes the category, one that has no 0 demands it.
        without = boxes[..., 1] <= 1
        demanded = boxes[..., 0] > 0
        shares[without] = 0
        mask = demanded.any(1)
        shares[mask] *= demanded[mask]
        empty = shares.sum(1) <= 0
        shares[empty] = np.where(without[empty], 0.0, 1.0) + 1e-9
        return shares
    values = marginal.values.numpy()
    return shares * ((values >= boxes[:, :, 0]) & (values < boxes[:, :, 1]))
