"""Attacks on the tree files of one client by plain arithmetic: hidden sums, counts of leaves, values of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from seepage.registry import attacks
from seepage.tabular.schema import Discrete
from seepage.wire.forest import Tree
from seepage.wire.trees import FileMessage, TreeFilesView, TreesGuess, TreesKnowledge


@attacks.register("hessians", "trees")
@dataclass(frozen=True)
class Hessians:
    """Recovers ``sum_hessian`` where it is hidden, from ``base_weights`` and ``loss_changes``.

    Source: our own.

    With w the weight of a node before the learning rate, its first derivatives sum up to G = -w (H + lambda). Those of
    two children add up to their parent's, and so do second derivatives: two equations a split. The first root's are
    those of the base score; later roots follow from the gains of all splits, which are sums of w^2 (H + lambda).
    """

    def __call__(self, view: TreeFilesView, knowledge: TreesKnowledge, seeds: Sequence[int]) -> TreesGuess:
        """Return the sums; no records are guessed."""
        sums = tuple(tuple(sums_of(m, knowledge)) for m in view.messages)
        return TreesGuess(no_cells(view, knowledge), hessians=sums)


@attacks.register("leaf_counts", "trees")
@dataclass(frozen=True)
class LeafCounts:
    """Counts the rows of each class in every leaf of the client's first trees.

    Source: our own.

    All second derivatives of the first round are alike, so that a leaf's sum divided by one of them is its number of
    rows, or the sum of their weights. Its first derivatives are those of the base score less the number of rows of
    each class. Where ``sum_hessian`` is hidden the sums of ``hessians`` take its place.
    """

    def __call__(self, view: TreeFilesView, knowledge: TreesKnowledge, seeds: Sequence[int]) -> TreesGuess:
        """Return the counts; no records are guessed."""
        counts = tuple(tuple(counts_of(m, knowledge)) for m in view.messages)
        return TreesGuess(no_cells(view, knowledge), leaves=counts)


@attacks.register("thresholds", "trees")
@dataclass(frozen=True)
class Thresholds:
    """Lists the values at which a client's trees split numeric columns.

    Source: our own.

    Where bins are made of the client's own rows, as in bagging, the end of a bin is the value of a row; without bins
    (``tree_method`` ``exact``) a split lies between two. Values come without rows: which record holds one is not known.
    """

    def __call__(self, view: TreeFilesView, knowledge: TreesKnowledge, seeds: Sequence[int]) -> TreesGuess:
        """Return the values by column; no records are guessed."""
        listed = []
        for message in view.messages:
            trees = [message.forest.trees[position] for position in message.own]
            by_column = {}
            for column, block in zip(knowledge.schema.columns, knowledge.schema.blocks, strict=True):
                if not isinstance(column, Discrete):
                    values = [t.condition[(t.left >= 0) & (t.column == block.start)] for t in trees]
                    thresholds = np.unique(np.concatenate(values)).astype(np.float64)
                    # The end of the last bin lies beyond all values.
                    low, high = np.float32(column.low), np.float32(column.high)
                    by_column[column.name] = thresholds[(thresholds >= low) & (thresholds <= high)]
            listed.append(by_column)
        return TreesGuess(no_cells(view, knowledge), values=tuple(listed))


def no_cells(view: TreeFilesView, knowledge: TreesKnowledge) -> torch.Tensor:
    """Return cells of which none is guessed."""
    shape = (view.victims, knowledge.batch_size, len(knowledge.schema.columns))
    return torch.full(shape, torch.nan, dtype=torch.float64)


def sums_of(message: FileMessage, knowledge: TreesKnowledge) -> list[Float[np.ndarray, " _node"]]:
    """Return the sum of second derivatives of every node of a client's trees; NaN where it does not follow."""
    return [_sums(message, number, knowledge) for number in range(len(message.own))]


def _sums(message: FileMessage, number: int, knowledge: TreesKnowledge) -> Float[np.ndarray, " _node"]:
    tree = message.forest.trees[message.own[number]]
    if tree.hessian is not None:
        return tree.hessian
    if message.before[number] == message.before[0] and not message.before[0]:
        hessian = message.forest.gradients(message.forest.intercept[None], np.zeros(1))[0, tree.output, 1]
        root = float(hessian) * knowledge.batch_size
    else:
        root = root_of(tree, knowledge.regularisation, knowledge.learning_rate)
    return recovered(tree, root, knowledge.regularisation, knowledge.learning_rate)


def weights_of(tree: Tree, learning_rate: float) -> Float[np.ndarray, " node"] | None:
    """Return the weight of every node before the learning rate; leaves give theirs even where others are hidden."""
    leaf = tree.left < 0
    scaled = tree.condition.astype(np.float64) / learning_rate
    if tree.weight is None:
        return None
    # xgboost writes the weights of leaves after the learning rate.
    return np.where(leaf, scaled, tree.weight)


def root_of(tree: Tree, regularisation: float, learning_rate: float) -> float:
    """Return the root's sum of second derivatives from the gains of all splits; NaN where these do not tell it."""
    # All sums follow from the root's by linear equations, so that each gain is linear in it: one unknown.
    weight = weights_of(tree, learning_rate)
    inner = np.flatnonzero(tree.left >= 0)
    if weight is None or tree.gain is None or not len(inner):
        return float("nan")
    at_zero, at_unit = (recovered(tree, root, regularisation, learning_rate) for root in (0.0, 1.0))
    square = np.square(weight)
    left, right = tree.left[inner], tree.right[inner]

    def gains(sums: Float[np.ndarray, " node"]) -> Float[np.ndarray, " split"]:
        with_penalty = square * (sums + regularisation)
        gain: Float[np.ndarray, " split"] = with_penalty[left] + with_penalty[right] - with_penalty[inner]
        return gain

    slope = gains(at_unit) - gains(at_zero)
    rest = tree.gain[inner] - gains(at_zero)
    finite = np.isfinite(slope) & np.isfinite(rest)
    if not slope[finite].any():
        return float("nan")
    return float(slope[finite] @ rest[finite] / (slope[finite] @ slope[finite]))


def recovered(tree: Tree, root: float, regularisation: float, learning_rate: float) -> Float[np.ndarray, " node"]:
    """Return the sum of second derivatives of every node, from weights and the root's sum (NaN if unknown)."""
    # First derivatives of two children add up to their parent's, and so do second derivatives: two equations.
    sums = np.full(tree.nodes, np.nan)
    weight = weights_of(tree, learning_rate)
    sums[0] = root
    if weight is None:
        return sums
    for node in np.flatnonzero(tree.left >= 0):
        left, right = int(tree.left[node]), int(tree.right[node])
        a, b, w = weight[left], weight[right], weight[node]
        above = sums[node] + regularisation
        if abs(a - b) > 1e-9:
            # Sums with the penalty: a L + b R = w P and L + R = P + lambda.
            with_penalty = (w * above - b * (above + regularisation)) / (a - b)
            sums[left] = with_penalty - regularisation
            sums[right] = sums[node] - sums[left]
    return sums


def counts_of(message: FileMessage, knowledge: TreesKnowledge) -> list[Float[np.ndarray, "_leaf _class"]]:
    """Return the number of rows of each class in every leaf of a client's first round."""
    forest = message.forest
    if message.before[0]:
        # The first trees of this client build on others', so that its derivatives differ from row to row.
        return []
    start = forest.gradients(forest.intercept[None], np.zeros(1))[0].astype(np.float64)
    first = [n for n in range(len(message.own)) if message.before[n] == 0]
    columns = []
    for number in first:
        tree = forest.trees[message.own[number]]
        sums = _sums(message, number, knowledge)[tree.leaves]
        weights = tree.condition[tree.leaves].astype(np.float64) / knowledge.learning_rate
        rows = sums / start[tree.output, 1]
        slopes = -weights * (sums + knowledge.regularisation)
        columns.append((rows, slopes, tree.output))
    if forest.labels is None:
        return [rows[:, None] for rows, _, _ in columns]
    if forest.outputs == 1:
        [(rows, slopes, _)] = columns
        ones = rows * start[0, 0] - slopes
        return [np.stack([rows - ones, ones], axis=1)]
    # A class's own tree tells its rows from all others; leaves differ from class to class.
    return []
