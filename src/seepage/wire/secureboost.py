"""Views of boosted trees over columns (SecureBoost): decrypted sums, and what a passive party is told."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class ColumnSplit:
    """A split on a column of the passive party, as the active party follows it.

    Attributes:
        column: position among the passive party's columns.
        bins: which bins of that column go left.
        left, right: rows that go to either side.
        node: position of the node that is split among the tree's nodes with sums.
    """

    column: int
    bins: Bool[np.ndarray, " bin"]
    left: Int[np.ndarray, " _left"]
    right: Int[np.ndarray, " _right"]
    node: int


@dataclass(frozen=True)
class TreeSums:
    """Sums of one tree over the bins of a passive party's columns, as the active party decrypts them.

    Attributes:
        gradients: first and second derivative of each row, which the active party computed itself.
        members: rows of each node whose sums were sent.
        parents: position of each node's parent among these nodes, -1 for the root.
        sums: sums of both derivatives by node and bin.
        splits: splits of the tree on the passive party's columns.
    """

    gradients: Float[np.ndarray, "row 2"]
    members: tuple[Int[np.ndarray, " _member"], ...]
    parents: Int[np.ndarray, " node"]
    sums: Float[np.ndarray, "node bin 2"] = field(repr=False)
    splits: tuple[ColumnSplit, ...]


@dataclass(frozen=True)
class SumsMessage:
    """Sums that the active party decrypts in one training; ``starts`` are each column's first bin, and their end."""

    trees: tuple[TreeSums, ...]
    starts: Int[np.ndarray, " ends"]

    def of(self, column: int) -> slice:
        """Return the bins of a column."""
        return slice(int(self.starts[column]), int(self.starts[column + 1]))


@dataclass(frozen=True)
class ColumnSumsView:
    """Decrypted sums by node, column and bin of a passive party, and the rows on either side of its splits.

    Records are those that were trained on. ``own`` are the active party's columns and labels, as inputs of a network.
    """

    messages: tuple[SumsMessage, ...]
    own: Float[Tensor, "training record encoded"]

    @property
    def trainings(self) -> int:
        """Number of trainings."""
        return len(self.messages)

    @property
    def records(self) -> int:
        """Number of records in each training."""
        return self.own.shape[1]


@dataclass(frozen=True)
class NodesView:
    """The rows of every node that a passive party is told of, and its own columns as inputs of a network.

    It is told the rows of each node that it sends sums for, and knows those on either side of its own splits. Roots,
    where all rows are, are left out. ``trees`` are the numbers of the trees that the nodes are of.
    """

    nodes: Bool[Tensor, "training record node"]
    trees: Int[Tensor, " node"]
    own: Float[Tensor, "training record encoded"]

    @property
    def records(self) -> int:
        """Number of records in each training."""
        return self.own.shape[1]
