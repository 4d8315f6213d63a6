"""Likeliest paths of the records in bins whose sums have noise of known size."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Int

from seepage.attacks.trees.cells import LEFT
from seepage.attacks.trees.paths import Path
from seepage.solve.remainders import to_total
from seepage.wire.forest import Tree
from seepage.wire.sums import Sent

_READINGS = 300  # readings of a bin that are followed side by side
_MOST = 6  # records of a bin that are told apart
_DEVIATIONS = 3.0  # by which the number of a bin's records may be off the one that its sums count


@dataclass(frozen=True)
class _Readings:
    """Readings of the records of a bin so far, the likeliest first."""

    labels: Int[np.ndarray, "reading record"]
    margins: Float32[np.ndarray, "reading record output"]
    nodes: Int[np.ndarray, "reading record tree"]
    gradients: Float[np.ndarray, "reading record tree 2"]
    twice: Float[np.ndarray, " reading"]  # squared distance to the sums, less that of a bin without records

    def best(self, number: int, alone: bool = False) -> list[Path]:
        """Return the paths of the likeliest reading."""
        return [
            Path(float(label), nodes.copy(), gradients.copy(), number, alone)
            for label, nodes, gradients in zip(self.labels[0], self.nodes[0], self.gradients[0], strict=True)
        ]


@dataclass(frozen=True)
class _Ends:
    """Where a path through a tree may end, and the nodes with sums that each passes."""

    nodes: Int[np.ndarray, " end"]
    weights: Float32[np.ndarray, " end"]
    passed: Float[np.ndarray, "end place"]

    @classmethod
    def of(cls, sent: Sent, position: int, last: bool) -> _Ends:
        """Return the leaves of a tree; where no sums follow it, the deepest nodes that sums were sent for."""
        tree, place = sent.forest.trees[position], sent.place[position]
        parents = np.full(tree.nodes, -1)
        for side in (tree.left, tree.right):
            parents[side[side >= 0]] = np.flatnonzero(side >= 0)
        ends = [int(leaf) for leaf in tree.leaves]
        if last:
            ends = list(dict.fromkeys(leaf if leaf in place else int(parents[leaf]) for leaf in ends))
        passed = np.zeros((len(ends), len(place)))
        for row, node in enumerate(ends):
            while node >= 0:
                if node in place:
                    passed[row, place[node]] = 1
                node = int(parents[node])
        return cls(np.array(ends), tree.condition[ends], passed)


def likely_paths(sent: Sent, column: int, records: int, noise: float) -> tuple[list[Path], dict[int, int]] | None:
    """Return the likeliest paths of the records in a column's bins, and the number of records in bins with too many.

    A reading's sums are off by independent normal noise, so that the squared distance says how likely it is. Bins have
    the numbers of records that together are the likeliest and add up to all.
    None where the target has not two classes, since readings are then too many to be followed (of three classes they
    were read worse than by bins together), or where noise hides the numbers.
    """
    forest, off = sent.forest, _DEVIATIONS * noise / sent.least
    if forest.labels is None or forest.outputs > 1 or off > _MOST:
        return None
    last = len(forest.rounds) - 1
    ends = {p: _Ends.of(sent, p, r == last) for r in range(last + 1) for p in forest.of_round(r)}
    bins = sent.cuts.of(column)
    counts = to_total(sent.counts[bins], records)
    read: dict[int, dict[int, _Readings | None]] = {}
    rest: dict[int, int] = {}
    for number, whole in zip(range(bins.start, bins.stop), counts.tolist(), strict=True):
        low, high = max(0, int(np.ceil(sent.counts[number] - off))), int(sent.counts[number] + off)
        if low > _MOST:
            if whole:
                rest[number] = whole
            continue
        few = range(low, max(low, min(high, _MOST)) + 1)
        read[number] = {count: _readings(sent, ends, number, count) if count else None for count in few}
    chosen = {number: min(by_count) for number, by_count in read.items()}
    # One record more at a time, where it is likeliest.
    for _ in range(records - sum(rest.values()) - sum(chosen.values())):
        gains = {n: _height(read[n][c + 1]) - _height(read[n][c]) for n, c in chosen.items() if c + 1 in read[n]}
        if not gains:
            break
        chosen[min(gains, key=lambda number: gains[number])] += 1
    paths = [path for n, c in chosen.items() if (reading := read[n][c]) is not None for path in reading.best(n)]
    paths = paths[: records - sum(rest.values())]
    left = records - len(paths) - sum(rest.values())
    if left:
        number = max(rest, key=lambda n: rest[n], default=LEFT)
        rest[number] = rest.get(number, 0) + left
    return paths, rest


def _height(readings: _Readings | None) -> float:
    return 0.0 if readings is None else float(readings.twice[0])


def _readings(sent: Sent, ends: dict[int, _Ends], number: int, records: int) -> _Readings:
    """Return the likeliest readings of a number of records in a bin."""
    forest = sent.forest
    labels = np.array(list(itertools.combinations_with_replacement(range(2), records)))
    start = np.broadcast_to(forest.intercept, (len(labels), records, forest.outputs)).astype(np.float32)
    count = len(forest.trees)
    readings = _Readings(
        labels,
        start,
        np.zeros((len(labels), records, count), dtype=np.int64),
        np.zeros((len(labels), records, count, 2)),
        np.zeros(len(labels)),
    )
    # Records that were alike so far may be exchanged, so that only one order of them is followed.
    alike = labels[:, 1:] == labels[:, :-1]
    for round_number in range(len(forest.rounds)):
        margins = readings.margins
        derivatives = (
            forest.gradients(margins.reshape(-1, forest.outputs), readings.labels.reshape(-1).astype(np.float64))
            .astype(np.float64)
            .reshape(*margins.shape, 2)
        )
        origin = np.arange(len(margins))
        for position in forest.of_round(round_number):
            tree = forest.trees[position]
            of_output = derivatives[origin][:, :, tree.output]
            readings, alike, origins = _through(sent, ends[position], position, number, readings, alike, of_output)
            origin = origin[origins]
    return readings


def _through(
    sent: Sent,
    ends: _Ends,
    position: int,
    number: int,
    readings: _Readings,
    alike: np.ndarray,
    derivatives: Float[np.ndarray, "reading record 2"],
) -> tuple[_Readings, np.ndarray, Int[np.ndarray, " chosen"]]:
    """Return the likeliest readings after one more tree, and which reading before each comes from."""
    tree = sent.forest.trees[position]
    shared = ends.passed @ ends.passed.T
    sums = ends.passed @ sent.message.sums[position][:, number]
    barred = _barred(sent, tree, ends, number)
    twice, origins = readings.twice, np.arange(len(derivatives))
    chosen = np.zeros((len(derivatives), 0), dtype=np.int64)
    for i in range(derivatives.shape[1]):
        parents = derivatives[origins]
        added = np.square(parents[:, i]).sum(1)[:, None] * shared.diagonal() - 2 * parents[:, i] @ sums.T
        for j in range(i):
            added += 2 * (parents[:, i] * parents[:, j]).sum(1)[:, None] * shared[chosen[:, j]]
        added[:, barred] = np.inf
        if i:
            again = alike[origins, i - 1]
            added[again[:, None] & (np.arange(len(ends.nodes)) < chosen[:, -1:])] = np.inf
        total = (twice[:, None] + added).ravel()
        most = min(_READINGS * (1 + (i + 1 < derivatives.shape[1])), total.size)
        best = np.argpartition(total, most - 1)[:most]
        best = best[np.isfinite(total[best])]
        best = best[np.argsort(total[best], kind="stable")]
        before, end = np.divmod(best, len(ends.nodes))
        twice, origins = total[best], origins[before]
        chosen = np.concatenate([chosen[before], end[:, None]], axis=1)
    margins, nodes, gradients = readings.margins[origins], readings.nodes[origins], readings.gradients[origins]
    margins[:, :, tree.output] += ends.weights[chosen]
    nodes[:, :, position] = ends.nodes[chosen]
    gradients[:, :, position] = derivatives[origins]
    return (
        _Readings(readings.labels[origins], margins, nodes, gradients, twice),
        alike[origins] & (chosen[:, 1:] == chosen[:, :-1]),
        origins,
    )


def _barred(sent: Sent, tree: Tree, ends: _Ends, number: int) -> Sequence[int]:
    """Return the ends that no record of a bin reaches, by splits on the bin's own column."""
    column = int(np.searchsorted(sent.cuts.start, number, side="right")) - 1
    low, high = sent.cuts.interval(number)
    boxes = tree.boxes(sent.cuts.columns)[ends.nodes, column]
    return np.flatnonzero((boxes[:, 1] <= low) | (boxes[:, 0] >= high)).tolist()
