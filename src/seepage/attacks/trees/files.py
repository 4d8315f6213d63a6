"""What tree files of one client tell by plain arithmetic: hidden sums, counts of leaves, values of its rows."""

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

    With w the weight of a node before the learning rate, its first derivatives sum up to G = -w (H + lambda), and those
    of two children to those of their parent: one linear equation in the children's H. The gain of a split is a sum of
    G^2 / (H + lambda) = w^2 (H + lambda): another one. So one division a split gives both children's sums from the
    parent's. That of the first root is known: its derivatives are those of the base score, times the number of rows.
    Roots of later trees follow from their own splits: children's sums add up to their parent's, a third equation.
    """

    def __call__(self, view: TreeFilesView, knowledge: TreesKnowledge, seeds: Sequence[int]) -> TreesGuess:
        """Return the sums; no records are guessed."""
        found = tuple(tuple(sums_of(m, knowledge)) for m in view.messages)
        return TreesGuess(no_cells(view, knowledge), hessians=found)


@attacks.register("leaf_counts", "trees")
@dataclass(frozen=True)
class LeafCounts:
    """Counts the rows of each class in every leaf of the client's first trees.

    All second derivatives of the first round are alike, so that a leaf's sum divided by one of them is its number of
    rows. Its first derivatives are those of the base score less the number of rows of each class. Where
    ``sum_hessian`` is hidden the sums of ``hessians`` take its place.
    """

    def __call__(self, view: TreeFilesView, knowledge: TreesKnowledge, seeds: Sequence[int]) -> TreesGuess:
        """Return the counts; no records are guessed."""
        found = tuple(tuple(counts_of(m, knowledge)) for m in view.messages)
        return TreesGuess(no_cells(view, knowledge), leaves=found)


@attacks.register("thresholds", "trees")
@dataclass(frozen=True)
class Thresholds:
    """Lists the values at which a client's trees split numeric columns.

    Where bins are made of the client's own rows, as in bagging, the end of a bin is the value of a row. Values come
    without rows: which record holds one is not known.
    """

    def __call__(self, view: TreeFilesView, knowledge: TreesKnowledge, seeds: Sequence[int]) -> TreesGuess:
        """Return the values by column; no records are guessed."""
        listed = []
        for message in view.messages:
            own = [message.forest.trees[position] for position in message.own]
            by_column = {}
            for column, block in zip(knowledge.schema.columns, knowledge.schema.blocks, strict=True):
                if not isinstance(column, Discrete):
                    values = [t.condition[(t.left >= 0) & (t.column == block.start)] for t in own]
                    found = np.unique(np.concatenate(values)).astype(np.float64)
                    # The end of the last bin lies beyond all values.
                    by_column[column.name] = found[(found >= column.low) & (found <= column.high)]
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
        one = message.forest.gradients(message.forest.intercept[None], np.zeros(1))[0, tree.output, 1]
        root = float(one) * knowledge.batch_size
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
    """Return the root's sum of second derivatives from its own split; NaN where the tree has none.

    Children's sums add up to their parent's, the third equation beside those of first derivatives and gain.
    """
    weight = weights_of(tree, learning_rate)
    if weight is None or tree.gain is None or tree.left[0] < 0:
        return float("nan")
    a, b, w = weight[tree.left[0]], weight[tree.right[0]], weight[0]
    rows = np.array([[a, b, -w], [a * a, b * b, -w * w], [1.0, 1.0, -1.0]])
    if abs(np.linalg.det(rows)) < 1e-12:
        return float("nan")
    return float(np.linalg.solve(rows, np.array([0.0, tree.gain[0], regularisation]))[2]) - regularisation


def recovered(tree: Tree, root: float, regularisation: float, learning_rate: float) -> Float[np.ndarray, " node"]:
    """Return the sum of second derivatives of every node, from weights and gains.

    Args:
        tree: tree without ``sum_hessian``.
        root: sum of the root; NaN where it is not known.
        regularisation: L2 penalty on weights.
        learning_rate: factor of weights.

    Example:
        >>> arrays = (np.array([1, -1, -1]), np.array([2, -1, -1]), np.zeros(3, int))
        >>> weights = np.array([-0.5, 0.3 * -4 / 3, 0.3 * 1 / 2])  # G = 3, 4, -1; H = 5, 2, 1 and lambda = 1
        >>> gain = 4**2 / 3 + 1 / 2 - 3**2 / 6
        >>> tree = Tree(*arrays, weights.astype(np.float32), weight=weights, gain=np.array([gain, 0, 0]))
        >>> recovered(tree, 5.0, 1.0, 0.3).round(3).tolist()
        [5.0, 2.0, 1.0]
    """
    found = np.full(tree.nodes, np.nan)
    weight = weights_of(tree, learning_rate)
    found[0] = root
    if weight is None:
        return found
    for node in np.flatnonzero(tree.left >= 0):
        children = [int(tree.left[node]), int(tree.right[node])]
        a, b = weight[children]
        above, w = found[node] + regularisation, weight[node]
        # Two unknowns: sums with the penalty. First derivatives add up, and so does the gain.
        if tree.gain is None:
            # Children's second derivatives add up to their parent's.
            rows, right = np.array([[a, b], [1.0, 1.0]]), np.array([w * above, above + regularisation])
        else:
            rows, right = np.array([[a, b], [a * a, b * b]]), np.array([w * above, tree.gain[node] + w * w * above])
        if abs(np.linalg.det(rows)) > 1e-12:
            found[children] = np.linalg.solve(rows, right) - regularisation
    return found


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
