"""Records from all sums at once, where no bin holds few of them: how many have each pattern of values.

Which leaves a record reaches, and with them its derivatives in every tree, follow from its cells in the columns of the
splits and from its label. So every sum is linear in the numbers of records of each pattern, whatever a bin holds.

With ``c_q`` the number of records of pattern and label q, and ``(g_q, h_q)`` their derivatives in a tree, the sums of
a node and a group of bins (those of a column that no split tells apart) are

    S = sum of c_q (g_q, h_q) over all q in the group that reach the node.

The derivatives are known round by round: the leaves of a pattern give its margin in the next one. A regression's first
derivative holds the unknown target; there the second ones alone are used, which count records.

**Fewer unknowns.** A group without records at a node, of which h sums to 0, excludes all patterns that come through it.
Patterns grow column by column, and those excluded are not grown.

**Fewer equations.** There are as many sums as nodes times bins, far more than are needed. Each is added to one of a few
equations, chosen at random and with a random sign (a sparse random projection, as in the count sketch of Charikar, Chen
and Farach-Colton 2002). The true numbers solve these, too. Since they are sparse and not negative, a few equations for
each record suffice as a rule; they are taken only where they have the total and the equations once made whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float, Float32, Int
from scipy.optimize import nnls

from seepage.attacks.trees.cells import LEFT, Solved, solve
from seepage.attacks.trees.paths import Path
from seepage.tabular.schema import Schema
from seepage.wire.sums import Sent, Values

# Patterns that are followed column by column, and patterns with labels that are solved for.
_FOLLOWED, _MOST = 250_000, 8_000
_PRUNING = 50  # trees whose empty bins exclude patterns
_EMPTY = 1e-5  # sum of second derivatives below which a bin has no record
_OFF = 1e-2  # distance from the sums up to which whole numbers have them
_STEPS = 30  # steps of least squares for each record
_EQUATIONS = 5  # random combinations of sums for each record, at most twice as many as there are unknowns


def read_patterns(sent: Sent, values: Sequence[Values], schema: Schema, records: int, seed: int) -> Solved | None:
    """Return all records where whole numbers of patterns have all sums; None where none were found.

    Source: our own. Patterns that an empty bin of a node on their way excludes are left out. Least squares without
    negatives (Lawson and Hanson 1974), on random combinations of the sums, gives the numbers of the others. Columns
    without a split follow from the paths, as in ``cells``. By the seed, what is open there is dealt out.
    """
    return _Patterns(sent, values, schema).read(records, seed)


class _Patterns:
    """A message with the columns whose cells tell where a record goes, their values in groups that no split separates.

    Attributes:
        columns: the columns, those that the first splits use first.
        members: for each of them, the values of each group.
        first: number of the first group of each of them, over all.
        sums: sums of each group, for each tree.
    """

    def __init__(self, sent: Sent, values: Sequence[Values], schema: Schema) -> None:
        self.sent, self.values, self.schema = sent, values, schema
        widths = [block.stop - block.start for block in schema.blocks]
        self.column_of = np.repeat(np.arange(len(values)), widths)
        weights = np.zeros(len(values))
        splits: dict[int, set[float]] = {}
        for tree in sent.forest.trees:
            inner = np.flatnonzero(tree.left >= 0)
            np.add.at(weights, self.column_of[tree.column[inner]], 0.5 ** tree.depth[inner])
            for node in inner:
                splits.setdefault(int(tree.column[node]), set()).add(float(tree.condition[node]))
        # A regression's targets are open, so that no path's derivatives follow: all cells are read at once.
        columns = np.argsort(-weights, kind="stable")
        self.columns: list[int] = (columns if sent.forest.labels is None else columns[weights[columns] > 0]).tolist()
        self.members = [self._groups(column, splits) for column in self.columns]
        self.first = np.cumsum([0, *map(len, self.members)])
        group = np.full(sent.cuts.bins, -1)
        for column, first, members in zip(self.columns, self.first, self.members, strict=False):
            for i, cells in enumerate(members):
                group[values[column].bins[cells]] = first + i
        used = np.flatnonzero(group >= 0)
        self.sums = []
        for sums in sent.message.sums:
            together = np.zeros((int(self.first[-1]), len(sums), 2))
            np.add.at(together, group[used], sums[:, used].swapaxes(0, 1))
            self.sums.append(together.swapaxes(0, 1))

    def _groups(self, column: int, splits: Mapping[int, set[float]]) -> list[Int[np.ndarray, " value"]]:
        """Return the values of a column that some record has, in groups that no split tells apart."""
        value, block = self.values[column], self.schema.blocks[column]
        there = np.flatnonzero(self.sent.counts[value.bins] > 0.5)
        if self.sent.forest.labels is None:
            return [there[[i]] for i in range(len(there))]
        if block.stop - block.start > 1:
            encoded = self.sent.cuts.column_of(value.bins)
            keys = [int(number) if int(number) in splits else -1 for number in encoded[there]]
        else:
            lows = [self.sent.cuts.interval(int(number))[0] for number in value.bins[there]]
            keys = np.searchsorted(np.sort(list(splits.get(block.start, ()))), lows, side="right").tolist()
        return [there[np.array(keys) == key] for key in dict.fromkeys(keys)]

    def read(self, records: int, seed: int) -> Solved | None:
        """Return the records."""
        forest = self.sent.forest
        labels = forest.labels or 1
        places = self._possible()
        if places is None or not len(places) or not len(self.columns) or len(places) * labels > _MOST:
            return None
        matrix, sums, nodes, derivatives = self._equations(places, records, np.random.default_rng([seed, 3]))
        try:
            numbers, _ = nnls(matrix, sums, maxiter=_STEPS * records)
        except RuntimeError:
            return None
        whole = np.rint(numbers).astype(np.int64)
        if int(whole.sum()) != records or np.abs(matrix @ whole - sums).max() > _OFF:
            return None
        which = np.repeat(np.arange(len(whole)), whole)
        drawn, classes = places[which % len(places)], which // len(places)
        if forest.labels is None:
            guess = Solved(np.empty((records, len(self.values))), np.full(records, np.nan), None, records)
        else:
            paths = [
                Path(float(label), nodes[k % len(places)], derivatives[k], LEFT, alone=False)
                for k, label in zip(which, classes, strict=True)
            ]
            guess = solve(self.sent, paths, {}, self.values, seed)
        for i, (column, members) in enumerate(zip(self.columns, self.members, strict=True)):
            single = np.array([cells[0] if len(cells) == 1 else -1 for cells in members])[drawn[:, i]]
            guess.cells[single >= 0, column] = self.values[column].cells[single[single >= 0]]
        return guess

    def _rows(self, places: Int[np.ndarray, "pattern some"]) -> Float32[np.ndarray, "pattern encoded"]:
        """Return encoded rows of patterns of the first columns; others hold anything."""
        rows = np.zeros((len(places), self.sent.cuts.columns), dtype=np.float32)
        for i in range(places.shape[1]):
            value, block = self.values[self.columns[i]], self.schema.blocks[self.columns[i]]
            shown = value.bins[[cells[0] for cells in self.members[i]]]
            if block.stop - block.start > 1:
                encoded = self.sent.cuts.column_of(shown)
                rows[np.arange(len(rows)), encoded[places[:, i]]] = 1
                continue
            below = np.float32(-np.inf)
            ends = [self.sent.cuts.interval(int(number)) for number in shown]
            inside = [low if np.isfinite(low) else np.nextafter(np.float32(high), below) for low, high in ends]
            rows[:, block.start] = np.array(inside, dtype=np.float32)[places[:, i]]
        return rows

    def _possible(self) -> Int[np.ndarray, "pattern some"] | None:
        """Return the patterns that no empty group of a node on their way excludes; None where they are too many."""
        places = np.zeros((1, 0), dtype=np.int64)
        known = np.zeros(len(self.values), dtype=bool)
        for column, members in zip(self.columns, self.members, strict=True):
            if len(places) * len(members) > _FOLLOWED:
                return None
            added = np.tile(np.arange(len(members)), len(places))
            places = np.concatenate([np.repeat(places, len(members), axis=0), added[:, None]], axis=1)
            known[column] = True
            rows = self._rows(places)
            for t in range(min(_PRUNING, len(self.sent.forest.trees))):
                filled = self._filled(rows, places + self.first[: places.shape[1]], known, t)
                places, rows = places[filled], rows[filled]
        return places

    def _filled(
        self,
        rows: Float32[np.ndarray, "pattern encoded"],
        groups: Int[np.ndarray, "pattern some"],
        known: Bool[np.ndarray, " column"],
        t: int,
    ) -> Bool[np.ndarray, " pattern"]:
        """Return the patterns whose known cells lie in groups with records in all nodes that a tree leads them to."""
        tree = self.sent.forest.trees[t]
        filled = self.sums[t][:, :, 1] > _EMPTY
        place = self._places(t)
        node = np.zeros(len(rows), dtype=np.int64)
        possible = np.ones(len(rows), dtype=bool)
        going = np.arange(len(rows))
        while len(going):
            fits = filled[place[node[going]][:, None], groups[going]].all(1)
            possible[going] = fits
            going = going[fits]
            parents = node[going]
            child = np.where(
                rows[going, tree.column[parents]] < tree.condition[parents], tree.left[parents], tree.right[parents]
            )
            goes = (tree.left[parents] >= 0) & known[self.column_of[tree.column[parents]]]
            goes &= place[np.maximum(child, 0)] >= 0
            going = going[goes]
            node[going] = child[goes]
        return possible

    def _places(self, t: int) -> Int[np.ndarray, " node"]:
        """Return the place of each node's sums in a tree, -1 where none were sent."""
        place = np.full(self.sent.forest.trees[t].nodes, -1)
        place[self.sent.message.nodes[t]] = np.arange(len(self.sent.message.nodes[t]))
        return place

    def _equations(
        self, places: Int[np.ndarray, "pattern some"], records: int, generator: np.random.Generator
    ) -> tuple[
        Float[np.ndarray, "equation unknown"],
        Float[np.ndarray, " equation"],
        Int[np.ndarray, "pattern tree"],
        Float[np.ndarray, "unknown tree 2"],
    ]:
        """Return combinations of the sums of finest nodes, equations in the numbers of each label and pattern.

        Beside them are the leaves of each pattern, and the derivatives of each label and pattern.
        """
        forest, message = self.sent.forest, self.sent.message
        labels, trees = forest.labels or 1, len(forest.trees)
        rows, groups = self._rows(places), np.tile(places + self.first[:-1], (labels, 1))
        unknowns = len(places) * labels
        equations = min(2 * unknowns, _EQUATIONS * records) + _EQUATIONS
        matrix, sums = np.zeros((equations, unknowns)), np.zeros(equations)
        nodes, shown = np.empty((len(places), trees), dtype=np.int64), np.empty((unknowns, trees, 2))
        margins = np.tile(forest.intercept, (len(places), 1))
        classes = np.repeat(np.arange(labels), len(places))
        for round_number in range(len(forest.rounds)):
            derivatives = forest.gradients(np.tile(margins, (labels, 1)), classes).astype(np.float64)
            for t in forest.of_round(round_number):
                tree = forest.trees[t]
                nodes[:, t], shown[:, t] = tree.leaf_of(rows), derivatives[:, tree.output]
                finest = self._places(t)[self.sent.deepest(t)]
                ends = np.tile(finest[nodes[:, t]], labels)
                size = len(message.nodes[t]), int(self.first[-1])
                leaves = np.unique(finest[tree.leaves])
                # A regression's first derivatives hold targets; its second ones are counts.
                for kind in (1,) if forest.labels is None else (0, 1):
                    equation, sign = generator.integers(0, equations, size), generator.choice([-1.0, 1.0], size)
                    for group in groups.T:
                        matrix[equation[ends, group], np.arange(unknowns)] += sign[ends, group] * shown[:, t, kind]
                    np.add.at(sums, equation[leaves], sign[leaves] * self.sums[t][leaves, :, kind])
                margins[:, tree.output] += tree.condition[nodes[:, t]]
        return matrix, sums, nodes, shown
