"""Links of bins that a passive party of boosted trees over columns numbers anew in every node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from scipy.spatial import KDTree

from seepage.wire.secureboost import SumsMessage, TreeSums

# Difference up to which sums are the same, and the cost of one that is not, in numbers of rows.
_SAME, _OTHER = 1e-6, 1e6
# Times that each tree is linked anew by all others.
_PASSES = 2
Predict = Callable[[SumsMessage], Float[np.ndarray, "row every"]]
"""Returns each row's share of each bin, as far as a message tells it."""
_Sums = Float[np.ndarray, "bin 2"]


def linked(message: SumsMessage, predict: Predict) -> SumsMessage:
    """Return the message with one number for each bin, in all nodes that could be linked.

    Source: our own. The sums of a bin in a node are those of it in the node's two children together, and few pairs of
    the children's bins have them. The rows that trees read so far have in a bin predict its sums in another tree, which
    tells the bins of its root, and of children whose sums fit in several ways. Trees are linked from the last one,
    whose derivatives differ most from row to row, to the first, whose derivatives are two numbers; then each is linked
    again by what all others tell.
    """
    done: list[TreeSums] = []
    for tree in reversed(message.trees):
        shares = predict(replace(message, trees=tuple(done))) if done else None
        done.insert(0, _renumbered(message, tree, _orders(message, tree, shares)))
    for _ in range(_PASSES if len(done) > 1 else 0):
        for i, tree in enumerate(done):
            shares = predict(replace(message, trees=tuple(done[:i] + done[i + 1 :])))
            done[i] = _renumbered(message, tree, _orders(message, tree, shares))
    return replace(message, trees=tuple(done))


def _orders(
    message: SumsMessage, tree: TreeSums, shares: Float[np.ndarray, "row every"] | None
) -> Int[np.ndarray, "node every"]:
    """Return the place of each bin among those of each node of a tree; the root is the measure if nothing predicts."""
    orders = np.tile(np.arange(int(message.starts[-1])), (len(tree.parents), 1))
    for column in range(len(message.starts) - 1):
        bins = message.of(column)
        sums = tree.sums[:, bins]
        predicted = [_predicted(tree, node, shares, bins) for node in range(len(tree.parents))]
        numbering = np.tile(np.arange(bins.stop - bins.start), (len(tree.parents), 1))
        for node, parent in enumerate(tree.parents):
            hint = predicted[node]
            if parent < 0 and hint is not None:
                numbering[node] = linear_sum_assignment(_distances(hint, sums[node]))[1]
            children = np.flatnonzero(tree.parents == node)
            if len(children) == 2:
                left, right = (int(child) for child in children)
                pair = _children(sums[node][numbering[node]], sums[left], sums[right], predicted[left])
                numbering[left], numbering[right] = pair
        orders[:, bins] = numbering + bins.start
    return orders


def _predicted(tree: TreeSums, node: int, shares: Float[np.ndarray, "row every"] | None, bins: slice) -> _Sums | None:
    if shares is None:
        return None
    members = tree.members[node]
    return shares[members, bins].T @ tree.gradients[members]


def _children(
    parent: _Sums, left: _Sums, right: _Sums, hint: _Sums | None
) -> tuple[Int[np.ndarray, " bin"], Int[np.ndarray, " bin"]]:
    """Return which bin of either child is each of the parent's."""
    rest = parent[:, None] - left
    miss = KDTree(right).query(rest.reshape(-1, 2))[0].reshape(len(parent), len(left))
    cost = np.where(miss > _SAME, _OTHER + miss, 0.0)
    if hint is not None:
        cost = cost + _distances(hint, left)
    matched = linear_sum_assignment(cost)[1]
    return matched, linear_sum_assignment(_distances(parent - left[matched], right))[1]


def _distances(sums: _Sums, others: Float[np.ndarray, "other 2"]) -> Float[np.ndarray, "bin other"]:
    return np.linalg.norm(sums[:, None] - others, axis=-1)


def _renumbered(message: SumsMessage, tree: TreeSums, orders: Int[np.ndarray, "node every"]) -> TreeSums:
    starts = message.starts
    return replace(
        tree,
        sums=np.take_along_axis(tree.sums, orders[:, :, None], axis=1),
        splits=tuple(
            replace(split, bins=split.bins[orders[split.node, message.of(split.column)] - starts[split.column]])
            for split in tree.splits
        ),
    )
