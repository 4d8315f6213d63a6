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
    """Bins of every encoded column: first bins, with the number of all at the end, and ends, which are not in them."""

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

    def column_of(self, numbers: Int[np.ndarray, " _number"]) -> Int[np.ndarray, " _number"]:
        """Return the encoded column of each bin, numbered over all columns."""
        return np.searchsorted(self.start, numbers, side="right") - 1

    def interval(self, number: int) -> tuple[float, float]:
        """Return the lower end of a bin, which is in it, and the upper one; the first bin of a column is open below."""
        low = -np.inf if number in self.start else float(self.values[number - 1])
        return low, float(self.values[number])


@dataclass(frozen=True)
class HistogramMessage:
    """Histograms that a client sends while the trees of all clients are grown together.

    ``sums`` are those of both derivatives of its rows in each bin, for each tree and each of its ``nodes``.
    """

    forest: Forest
    cuts: Cuts
    nodes: tuple[Int[np.ndarray, " _node"], ...]
    sums: tuple[Float[np.ndarray, "_node bin 2"], ...] = field(repr=False)


@dataclass(frozen=True)
class HistogramsView:
    """Sums of derivatives by tree, node, column and bin, of one client or added up over several."""

    messages: tuple[HistogramMessage, ...]
    clients: int = 1

    @property
    def victims(self) -> int:
        """Number of victims."""
        return len(self.messages)


@dataclass(frozen=True)
class FileMessage:
    """Tree files of a client, over all rounds: the global ensemble at the end, with the fields that are sent.

    ``own`` are the positions of the client's trees in it, ``before`` numbers of trees that each of these started from.
    """

    forest: Forest
    own: tuple[int, ...]
    before: tuple[int, ...]

    def start(self, tree: int) -> Forest:
        """Return the ensemble whose margins one of the client's trees, by its position in ``own``, was grown on."""
        # Trees before are whole rounds.
        return replace(self.forest, trees=self.forest.trees[: self.before[tree]])


@dataclass(frozen=True)
class TreeFilesView:
    """Trees that clients grew on their own rows, as xgboost writes them to JSON."""

    messages: tuple[FileMessage, ...]

    @property
    def victims(self) -> int:
        """Number of victims."""
        return len(self.messages)


@dataclass(frozen=True)
class TreesKnowledge(Knowledge):
    """Side information about federated trees: what the parties agreed on before training, lambda and eta among it.

    ``max_bin`` is None where numbers were rounded before: otherwise, with fewer bins, each but the first mostly stands
    for the value of its lower end. ``noise`` is the standard deviation of normal noise on each sum.
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
    """Guessed records of each victim, and other values that were read from trees; None is what an attack does not give.

    Attributes:
        leaves: for each victim and tree, rows of each class in every leaf (leaf, class), one class for a regression.
        hessians: for each victim and tree, sum of second derivatives of every node; NaN where it is not known.
        values: for each victim, values of each numeric column by its name, without rows.
    """

    leaves: tuple[tuple[Float[np.ndarray, "_leaf _class"], ...], ...] | None = None
    hessians: tuple[tuple[Float[np.ndarray, " _node"], ...], ...] | None = None
    values: tuple[Mapping[str, Float[np.ndarray, " _value"]], ...] | None = None
