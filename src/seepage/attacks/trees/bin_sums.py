"""Reading of passive columns from decrypted sums of boosted trees over columns: which rows lie in each bin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array

from seepage.attacks.trees.bin_links import linked
from seepage.errors import check_count
from seepage.registry import attacks
from seepage.tabular.schema import Column, Discrete
from seepage.tabular.statistics import Marginal
from seepage.wire.secureboost import ColumnSumsView, SumsMessage
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge

# Penalty of the equations without noise, as a share of their mean square: far above rounding.
_RIDGE = 1e-9
# Bins of a number beyond which neighbours are taken together.
_MOST_BINS = 64
# Steps after which it is tried whether the rows' bins have the sums, within this error of a sum of its norm.
_CHECKED_AFTER, _EXACT = 10, 1e-5
# In place of minus infinity for a bin that a row cannot be in.
_NEVER = -1e6
_Shares = Float[np.ndarray, "row bin"]
_Allowed = Bool[np.ndarray, "row bin"]
_Sums = Float[np.ndarray, "equation bin"]


@attacks.register("bin_sums", "trees")
@dataclass(frozen=True)
class BinSums:
    """Solves for the rows in each bin of a passive column, whose sums of known derivatives are decrypted.

    Source: our own. The active party knows every row's derivatives, so that a bin's sums over the rows of a node are
    linear equations in the unknown bins of these rows. Weng et al. (arXiv 2011.09290, reverse sum attack) read rows
    from them by numbers that they write into the derivatives. Each row is in one bin, and splits on the column say on
    which side. A point between these facts is sought by Douglas-Rachford splitting: in turn the nearest one that has
    the sums, and the nearest one whose rows are shares of bins. Under noise on the sums, one step of ridge regression
    from the bins' shares takes its place. A bin of a number stands for the public quantile in its middle. Bins that are
    numbered at random are put in the order in which splits send them left, and categories in that of frequency; where
    they get new numbers in every node, these are linked first, see ``bin_links``.

    Attributes:
        steps: largest number of steps.

    Raises:
        BadInputError: the number of steps is below 1.
    """

    steps: int = 200

    def __post_init__(self) -> None:
        check_count("steps", self.steps)

    def __call__(self, view: ColumnSumsView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess; nothing is random, so ``seeds`` are not used."""
        cells = [self._read(message, view.records, knowledge) for message in view.messages]
        return FeatureGuess(torch.from_numpy(np.stack(cells)))

    def _read(self, message: SumsMessage, records: int, knowledge: FeatureKnowledge) -> Float[np.ndarray, "row column"]:
        names = knowledge.defense.names
        noise = float(names.get("histogram_noise", {}).get("deviation", 0.0))
        shuffled = "shuffled_bins" in names
        if names.get("shuffled_bins", {}).get("renumbered", False):
            message = linked(message, lambda sent: self._shares(sent, records, noise))
        equations = _BinEquations(message, records, noise)
        columns = []
        for position, (column, marginal) in enumerate(zip(knowledge.schema.columns, knowledge.marginals, strict=True)):
            bins = message.of(position)
            sums, allowed = equations.sums[:, bins], _allowed(message, position, records)
            if not isinstance(column, Discrete):
                if shuffled:
                    order = _order(message, position)
                    sums, allowed = sums[:, order], allowed[:, order]
                sums, allowed = _coarser(sums, allowed)
            chosen = self._bins(equations, sums, allowed)
            columns.append(_cells(chosen, sums.shape[1], column, marginal, shuffled))
        return np.stack(columns, axis=1)

    def _shares(self, message: SumsMessage, records: int, noise: float) -> _Shares:
        """Return each row's share of each bin of all columns, by the equations and splits of some trees."""
        equations = _BinEquations(message, records, noise)
        points = []
        for position in range(len(message.starts) - 1):
            sums, allowed = equations.sums[:, message.of(position)], _allowed(message, position, records)
            points.append(equations.nearest(_first_shares(equations, sums, allowed), sums))
        return np.concatenate(points, axis=1)

    def _bins(self, equations: _BinEquations, sums: _Sums, allowed: _Allowed) -> Int[np.ndarray, " row"]:
        """Return the bin of each row."""
        point = equations.nearest(_first_shares(equations, sums, allowed), sums)
        if equations.noise or not equations.number:
            return np.where(allowed, point, _NEVER).argmax(axis=1)
        shares, offset = point, np.zeros_like(point)
        for step in range(self.steps):
            shares = _as_shares(point + offset, allowed)
            if step % _CHECKED_AFTER == 0 and equations.have(shares.argmax(axis=1), sums):
                break
            point = equations.nearest(shares - offset, sums)
            offset += point - shares
        return shares.argmax(axis=1)


class _BinEquations:
    """Sums of nodes as linear equations in the rows' bins, each divided by the norm of its derivatives."""

    def __init__(self, message: SumsMessage, records: int, noise: float) -> None:
        rows, places, values, sums = [], [], [], []
        for tree in message.trees:
            children = np.bincount(tree.parents[tree.parents >= 0], minlength=len(tree.parents))
            for node, members in enumerate(tree.members):
                # Sums of a parent follow from those of its children, unless these have noise of their own.
                if (children[node] == 2 and not noise) or not len(members):
                    continue
                for derivative in range(2):
                    factors = tree.gradients[members, derivative]
                    norm = 1.0 if noise else max(float(np.linalg.norm(factors)), 1e-12)
                    rows.append(np.full(len(members), len(sums)))
                    places.append(members)
                    values.append(factors / norm)
                    sums.append(tree.sums[node, :, derivative] / norm)
        self.noise, self.number = noise, len(sums)
        self.sums = np.stack(sums) if sums else np.zeros((0, int(message.starts[-1])))
        index = (np.concatenate(rows), np.concatenate(places)) if rows else (np.zeros(0, int), np.zeros(0, int))
        self.matrix = csr_array((np.concatenate(values) if values else np.zeros(0), index), shape=(len(sums), records))
        # The smaller of the two matrices of products.
        self.wide = len(sums) <= records
        if sums:
            products = (self.matrix @ self.matrix.T if self.wide else self.matrix.T @ self.matrix).toarray()
            mean = float(np.trace(products)) / len(products)
            # Shares of bins have a variance of about a tenth, whatever the column.
            penalty = 10 * noise**2 if noise else _RIDGE * mean
            self.factor = cho_factor(products + penalty * np.eye(len(products)))

    def shares(self, sums: _Sums) -> Float[np.ndarray, " bin"]:
        """Return the share of rows in each bin: what fits noisy sums best, were nodes alike; without noise even."""
        even = np.full(sums.shape[1], 1 / sums.shape[1])
        fitted = np.maximum(self.matrix.sum(axis=1) @ sums, 0.0)
        # A little of each bin is left to all rows.
        return fitted / fitted.sum() + 1e-2 * even if self.noise and fitted.sum() > 0 else even

    def nearest(self, point: _Shares, sums: _Sums) -> _Shares:
        """Return the point nearest to another one that has the sums."""
        if not self.number:
            return point
        left = sums - self.matrix @ point
        if self.wide:
            return point + self.matrix.T @ cho_solve(self.factor, left)
        return point + cho_solve(self.factor, self.matrix.T @ left)

    def have(self, bins: Int[np.ndarray, " row"], sums: _Sums) -> bool:
        """Return whether rows that lie in some bins have the sums."""
        ones = np.zeros((len(bins), sums.shape[1]))
        ones[np.arange(len(bins)), bins] = 1.0
        return bool(np.abs(self.matrix @ ones - sums).max() < _EXACT)


def _first_shares(equations: _BinEquations, sums: _Sums, allowed: _Allowed) -> _Shares:
    """Return shares of the bins that splits leave each row, the same for all rows of a kind."""
    start = allowed * equations.shares(sums)
    return start / np.maximum(start.sum(axis=1, keepdims=True), 1e-3)


def _allowed(message: SumsMessage, position: int, records: int) -> _Allowed:
    """Return the bins that the splits on a column leave each row."""
    bins = message.of(position)
    allowed = np.ones((records, bins.stop - bins.start), dtype=bool)
    for tree in message.trees:
        for split in tree.splits:
            if split.column == position:
                allowed[split.left] &= split.bins
                allowed[split.right] &= ~split.bins
    return allowed


def _order(message: SumsMessage, position: int) -> Int[np.ndarray, " bin"]:
    """Return the bins of a number in their order: the lower, the more splits send them left."""
    bins = message.of(position)
    lefts = np.zeros(bins.stop - bins.start)
    for tree in message.trees:
        for split in tree.splits:
            if split.column == position:
                lefts += split.bins
    return np.argsort(-lefts, kind="stable")


def _coarser(sums: _Sums, allowed: _Allowed) -> tuple[_Sums, _Allowed]:
    bins = sums.shape[1]
    if bins <= _MOST_BINS:
        return sums, allowed
    starts = np.arange(_MOST_BINS) * bins // _MOST_BINS
    return np.add.reduceat(sums, starts, axis=1), np.logical_or.reduceat(allowed, starts, axis=1)


def _as_shares(point: _Shares, allowed: _Allowed) -> _Shares:
    """Return the nearest shares of allowed bins, which are not negative and add up to 1 in each row."""
    barred = np.where(allowed, point, _NEVER)
    descending = -np.sort(-barred, axis=1)
    excess = (np.cumsum(descending, axis=1) - 1) / np.arange(1, point.shape[1] + 1)
    last = (descending > excess).sum(axis=1) - 1
    return np.maximum(barred - excess[np.arange(len(point)), last][:, None], 0.0)


def _cells(
    chosen: Int[np.ndarray, " row"], bins: int, column: Column, marginal: Marginal, shuffled: bool
) -> Float[np.ndarray, " row"]:
    """Return the values that bins stand for, by the public distribution of the column."""
    counts = np.bincount(chosen, minlength=bins)
    values, chances = marginal.values.numpy(), marginal.probabilities.numpy()
    if isinstance(column, Discrete):
        if not shuffled:
            return chosen.astype(np.float64)
        public = np.zeros(bins)
        public[values.astype(np.int64)] = chances
        _, codes = linear_sum_assignment(np.abs(counts[:, None] / len(chosen) - public))
        return codes[chosen].astype(np.float64)
    middles = (np.cumsum(counts) - counts / 2) / len(chosen)
    place = np.minimum(np.searchsorted(np.cumsum(chances), middles), len(values) - 1)
    return values[place][chosen].astype(np.float64)
