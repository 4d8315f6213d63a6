"""View, knowledge and guess of federated boosted trees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float, Float32, Int

from seepage.wire.forest import Forest
from seepage.wire.horizontal import Knowledge, RecordsGuess


@dataclass(frozen=True)
class Cuts:
    """Bins of every encoded column, as the parties agreed on them before training.

    Attributes:
        start: position of each column's first bin, and the number of all bins at the end.
        values: upper end of each bin, which is not in it.
    """

    start: Int[np.ndarray, " ends"]
    values: Float32[np.ndarray, " bin"]

    @property
    def columns(self) -> int:
        """Number of encoded columns."""
        return len(self.start) - 1

    @property
    def bins(self) -> int:
        """Number of bins of all columns."""
        return len(self.values)

    def of(self, column: int) -> slice:
        """Return the bins of a column."""
        return slice(int(self.start[column]), int(self.start[column + 1]))

    def binned(self, rows: Float32[np.ndarray, "row encoded"]) -> Int[np.ndarray, "row encoded"]:
        """Return the bin of each cell, numbered over all columns; values above all cuts are in the last bin."""
        bins = np.empty(rows.shape, dtype=np.int64)
        for column in range(self.columns):
            ends = self.values[self.of(column)]
            bins[:, column] = np.minimum(np.searchsorted(ends, rows[:, column], side="right"), len(ends) - 1)
        return bins + self.start[:-1]

    def interval(self, number: int) -> tuple[float, float]:
        """Return the lower end of a bin, which is in it, and the upper one; the first bin of a column is open below.

        Example:
            >>> cuts = Cuts(np.array([0, 2]), np.array([1, 5], dtype=np.float32))
            >>> cuts.interval(0), cuts.interval(1)
            ((-inf, 1.0), (1.0, 5.0))
        """
        low = -np.inf if number in self.start else float(self.values[number - 1])
        return low, float(self.values[number])


@dataclass(frozen=True)
class HistogramMessage:
    """Histograms that a client sends while the trees of all clients are grown together.

    Attributes:
        forest: the joint ensemble, which every party holds.
        cuts: bins of all clients.
        nodes: nodes of each tree that sums were sent for, in order.
        sums: sums of first and second derivatives of the client's rows in each bin, for each tree.
    """

    forest: Forest
    cuts: Cuts
    nodes: tuple[Int[np.ndarray, " _node"], ...]
    sums: tuple[Float[np.ndarray, "_node bin 2"], ...] = field(repr=False)


@dataclass(frozen=True)
class HistogramsView:
    """Sums of derivatives by tree, node, column and bin, of one client or added up over several.

    Attributes:
        messages: one for each victim.
    """

    messages: tuple[HistogramMessage, ...]
    clients: int = 1

    @property
    def victims(self) -> int:
        """Number of victims."""
        return len(self.messages)


@dataclass(frozen=True)
class FileMessage:
    """Tree files of a client, over all rounds.

    Attributes:
        forest: the global ensemble at the end, with the fields that are sent.
        own: positions of the client's trees in it.
        before: number of trees that the client started from, for each of these.
    """

    forest: Forest
    own: tuple[int, ...]
    before: tuple[int, ...]

    def start(self, tree: int) -> Forest:
        """Return the ensemble whose margins one of the client's trees was grown on.

        Args:
            tree: position in ``own``.
        """
        # Trees before are whole rounds.
        return replace(self.forest, trees=self.forest.trees[: self.before[tree]])


@dataclass(frozen=True)
class TreeFilesView:
    """Trees that clients grew on their own rows, as xgboost writes them to JSON.

    Attributes:
        messages: one for each victim.
    """

    messages: tuple[FileMessage, ...]

    @property
    def victims(self) -> int:
        """Number of victims."""
        return len(self.messages)


@dataclass(frozen=True)
class TreesKnowledge(Knowledge):
    """Side information about federated trees: what the parties agreed on before training.

    Attributes:
        regularisation: L2 penalty on leaf weights (lambda).
        learning_rate: factor of each tree's weights (eta).
        max_bin: largest number of bins of a column: with fewer, each bin but the first mostly stands for the value of
            its lower end; None where numbers were rounded before, so that a bin holds a range of them.
        noise: standard deviation of normal noise on each sum, as the attacker knows it.
    """

    regularisation: float = 1.0
    learning_rate: float = 0.3
    max_bin: int | None = None
    noise: float = 0.0

    def describe(self) -> dict[str, object]:
        """Return what is granted, as plain values for a result or report."""
        described = super().describe()
        del described["labels"]
        return {**described, "lambda": self.regularisation, "eta": self.learning_rate, "noise": self.noise}


@dataclass(frozen=True)
class TreesGuess(RecordsGuess):
    """Guessed records of each victim, and other values that were read from trees.

    Attributes:
        leaves: for each victim and each of its trees, number of rows of each class in every leaf (leaf, class), a
            single class for a regression; None where the attack gives none.
        hessians: for each victim and each of its trees, sum of second derivatives of every node; NaN where it is not
            known; None where the attack gives none.
        values: for each victim, values of each numeric column by its name, without rows; None where the attack gives
            none.
    """

    leaves: tuple[tuple[Float[np.ndarray, "_leaf _class"], ...], ...] | None = None
    hessians: tuple[tuple[Float[np.ndarray, " _node"], ...], ...] | None = None
    values: tuple[Mapping[str, Float[np.ndarray, " _value"]], ...] | None = None
