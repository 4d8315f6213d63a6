"""The cells of records whose paths are known: which records lie in each bin of each column.

The sums of a bin are those of the derivatives of the records in it, node by node. With the paths known these are linear
equations with whole numbers as unknowns: how many records of each path lie in the bin. Splits on a path bound its
records' cells as well.

For a column, let ``n_pb`` be the number of records of path p in its bin b, and ``(g_pt, h_pt)`` the derivatives of one
of them in tree t. For each tree, each node v below which no sums were sent, and each bin,

    sum of n_pb (g_pt, h_pt) over the paths p that end in v = S_tvb,   up to roundings,
    sum_b n_pb = the records of path p,   sum_p n_pb = the records of bin b.

The matrix of the first line has no b in it: it is the same for all columns and bins, so that its inverse is computed
once (``WholeNumbers`` with a column for each bin). Records of a bin whose paths were not read stand as one further
path, with the mean of their derivatives, which is what the bin's sums are over their number. Paths whose numbers are
all sure leave the equations, and the inverse of the others is taken again, until nothing becomes sure. What is open
then is dealt out by the estimate of the inverse, as many as each value still has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from seepage.attacks.trees.paths import DERIVATIVE_ERROR, Path
from seepage.attacks.trees.transport import assigned
from seepage.solve.remainders import to_total
from seepage.solve.whole_numbers import Elimination, WholeNumbers
from seepage.wire.sums import Sent, Values

LEFT = -1  # in place of a bin: records that are in none of those whose records are known
_TRIED = 2**12  # numbers of records within one node that are tried at most
_Counts = Int[np.ndarray, "path value"]
_OfPath = Int[np.ndarray, " path"]
_OfValue = Int[np.ndarray, " value"]


@dataclass(frozen=True)
class _Paths:
    """Groups of records: those with the same path, and those of a bin whose records' paths are not known."""

    number: _OfPath  # number of records of each path or bin
    of_record: Int[np.ndarray, " record"]  # path or bin of each record
    paths: int  # number of paths; what comes after them are bins
    nodes: Int[np.ndarray, "tree read"]  # for each tree, the deepest node with sums of each path
    low: Float[np.ndarray, "path encoded"]  # bounds of each encoded column from the splits on each path
    high: Float[np.ndarray, "path encoded"]
    gradients: Float[np.ndarray, "read tree 2"]  # derivatives of a record of each path for each tree
    bins: tuple[int, ...]  # bins whose records' paths are not known


def _together(sent: Sent, paths: Sequence[Path], rest: Mapping[int, int]) -> _Paths:
    first: dict[bytes, int] = {}
    of_record = np.array([first.setdefault(path.key, len(first)) for path in paths], dtype=np.int64)
    ones = {int(c): paths[i] for i, c in reversed(list(enumerate(of_record)))}
    chosen = [ones[c] for c in range(len(first))]
    of_bins = np.repeat(np.arange(len(rest)) + len(chosen), list(rest.values()))
    of_record = np.concatenate([of_record, of_bins.astype(np.int64)])
    width, groups = sent.cuts.columns, len(chosen) + len(rest)
    low, high = np.full((groups, width), -np.inf), np.full((groups, width), np.inf)
    deepest = np.empty((len(sent.forest.trees), len(chosen)), dtype=np.int64)
    for t, tree in enumerate(sent.forest.trees):
        boxes = tree.boxes(width)
        reached = np.array([path.nodes[t] for path in chosen], dtype=np.int64)
        read = slice(0, len(chosen))
        low[read] = np.maximum(low[read], boxes[reached, :, 0])
        high[read] = np.minimum(high[read], boxes[reached, :, 1])
        deepest[t] = sent.deepest(t)[reached]
    gradients = np.array([path.gradients for path in chosen]).reshape(len(chosen), len(sent.forest.trees), 2)
    number = np.bincount(of_record, minlength=groups)
    return _Paths(number, of_record, len(chosen), deepest, low, high, gradients, tuple(rest))


@dataclass(frozen=True)
class Solved:
    """Records whose cells were solved for."""

    cells: Float[np.ndarray, "record column"]
    labels: Float[np.ndarray, " record"]  # NaN where a record's path was not read
    # What each record is known to have reached in each tree; None where not all paths were read.
    nodes: Int[np.ndarray, "record tree"] | None
    read: int  # number of records whose paths, or cells in all columns, were read


def solve(
    sent: Sent, paths: Sequence[Path], rest: Mapping[int, int], values: Sequence[Values], seed: int, noise: float = 0.0
) -> Solved:
    """Return the cells of all records."""
    # ``rest`` counts further records in bins whose records' paths are not known, taken as alike; ``LEFT`` stands for
    # all but those whose paths are known. By the seed, cells are dealt out that the message leaves open.
    alike = _together(sent, paths, rest)
    equations = _Equations(sent, alike, noise)
    generator = np.random.default_rng(seed)
    records = len(alike.of_record)
    cells = np.full((records, len(values)), np.nan)
    read_in = [*(path.bin for path in paths), *(alike.bins[c] for c in alike.of_record[len(paths) :] - alike.paths)]
    records_of_paths = np.split(np.argsort(alike.of_record, kind="stable"), np.cumsum(alike.number)[:-1])
    for column, value in enumerate(values):
        counts = _column(sent, alike, equations, value, read_in)
        for places, counted in zip(records_of_paths, counts, strict=True):
            dealt = np.repeat(np.arange(len(counted)), counted)
            generator.shuffle(dealt)
            cells[places, column] = value.cells[dealt]
    labels = np.full(records, np.nan)
    labels[: len(paths)] = [path.label for path in paths]
    nodes = np.array([path.nodes for path in paths]) if len(paths) == records else None
    return Solved(cells, labels, nodes, len(paths))


class _Equations:
    """Sums of every finest node as linear equations in the numbers of records of each path or bin."""

    def __init__(self, sent: Sent, alike: _Paths, noise: float) -> None:
        self.alike, self.noise = alike, noise
        rows, sums, errors = [], [], []
        self.nodes: list[tuple[int, int]] = []
        of_bins = np.array(alike.bins, dtype=np.int64)
        for t, tree in enumerate(sent.forest.trees):
            gradients = alike.gradients[:, t]
            scale = float(np.abs(gradients).max(initial=1.0))
            for node, place in sent.place[t].items():
                if tree.left[node] >= 0 and int(tree.left[node]) in sent.place[t]:
                    continue
                members = np.flatnonzero(alike.nodes[t] == node)
                received = sent.message.sums[t][place]
                row = np.zeros((2, len(alike.number)))
                row[:, members] = gradients[members].T
                sums_of_rest = received[of_bins].T
                if alike.bins == (LEFT,):
                    together = received[sent.cuts.of(0)].sum(0)
                    sums_of_rest = (together - alike.number[members] @ gradients[members])[:, None]
                row[:, alike.paths :] = sums_of_rest / alike.number[alike.paths :]
                rows.append(row)
                sums.append(received.T)
                error = DERIVATIVE_ERROR * scale * max(1, int(alike.number[members].sum()))
                errors += [error, error]
                self.nodes.append((2 * len(rows) - 2, 2 * len(rows) - 1))
        self.matrix = np.concatenate(rows)
        self.sums = np.concatenate(sums)
        self.errors = np.array(errors)
        # As much weight on few records as the noise of all equations has.
        self.ridge = noise**2 * len(self.matrix)
        most = alike.number.astype(float)
        whole = WholeNumbers(self.matrix, np.zeros(len(self.matrix)), self.errors, np.zeros_like(most), most)
        self.whole = Elimination(whole, np.arange(len(most)), self.ridge)


def _column(sent: Sent, alike: _Paths, equations: _Equations, values: Values, read_in: Sequence[int]) -> _Counts:
    """Return how many records of each path have each value.

    The columns of this table have the sums of the bins, and its rows and columns have known totals.
    """
    number = alike.number.astype(float)
    left = to_total(sent.counts[values.bins], len(alike.of_record))
    high = number[:, None] * _possible(sent, alike, values, left)
    low = np.zeros_like(high)
    _fill_from_bins(alike, values, read_in, low, high)
    table = WholeNumbers(equations.matrix, equations.sums[:, values.bins], equations.errors, low, high)
    # Before anything is known, so that all paths have an estimate.
    elimination, estimate = equations.whole, equations.whole.estimate(replace(table, low=np.zeros_like(low)))
    while True:
        table = before = _with_totals(table, number, left)
        open_paths = np.flatnonzero(~table.sure.all(1))
        if len(open_paths) < len(number):
            elimination = Elimination(table, open_paths, equations.ridge)
            estimate[open_paths] = elimination.estimate(table)
        if not equations.noise:
            table = table.eliminated(elimination)
            table = table.searched(equations.nodes, _TRIED) if _same(table, before) else table
        if _same(table, before):
            return _guessed(table, estimate, alike.number, left)


def _with_totals(table: WholeNumbers, number: Float[np.ndarray, " path"], left: _OfValue) -> WholeNumbers:
    """Return a table of records by path and value with what the totals of both say."""
    of_values = WholeNumbers(np.ones((1, len(number))), left[None].astype(float), np.zeros(1), table.low, table.high)
    totals = of_values.bounded(number)
    return replace(table, low=totals.low, high=totals.high)


def _same(table: WholeNumbers, before: WholeNumbers) -> bool:
    """Return whether no further number became sure; bounds that close in on one are not worth another inverse."""
    return int(table.sure.sum()) == int(before.sure.sum())


def _possible(
    sent: Sent, alike: _Paths, values: Values, left: Shaped[np.ndarray, " value"]
) -> Bool[np.ndarray, "path value"]:
    """Return which values the splits on each path leave open."""
    columns = sent.cuts.column_of(values.bins)
    ends = np.array([sent.cuts.interval(int(number)) for number in values.bins])
    return (
        (ends[:, 0] < alike.high[:, columns]) & (ends[:, 1] > alike.low[:, columns]) & (left > 0)
        if len(values.bins)
        else np.zeros((len(alike.number), 0), dtype=bool)
    )


def _fill_from_bins(
    alike: _Paths,
    values: Values,
    read_in: Sequence[int],
    low: Float[np.ndarray, "path value"],
    high: Float[np.ndarray, "path value"],
) -> None:
    """Fill in the column in whose bins all records of a path were read."""
    place = {int(number): i for i, number in enumerate(values.bins)}
    read = np.zeros(low.shape)
    for number, c in zip(read_in, alike.of_record, strict=True):
        if number in place:
            read[c, place[number]] += 1
    complete = read.sum(1) == alike.number
    low[complete] = high[complete] = read[complete]


def _guessed(
    table: WholeNumbers, estimate: Float[np.ndarray, "path value"], number: _OfPath, left: _OfValue
) -> _Counts:
    """Return the numbers with open ones dealt out: the likeliest by the equations, and as many as each value has."""
    settled = table.low.astype(np.int64)
    paths = np.repeat(np.arange(len(settled)), np.maximum(number - settled.sum(1), 0))
    places = np.maximum(left - settled.sum(0), 0)
    free = np.flatnonzero(places)
    dealt = settled.copy()
    if len(paths) and len(free):
        gains = estimate[np.ix_(paths, free)] - 1e3 * table.sure[np.ix_(paths, free)]
        # Where a damaged message has more of one than of the other, some of them stay alone.
        idle = int(places.sum()) - len(paths)
        gains = np.pad(gains, ((0, max(0, idle)), (0, int(idle < 0))))
        chosen = assigned(gains, np.append(places[free], -idle) if idle < 0 else places[free])[: len(paths)]
        given = chosen < len(free)
        np.add.at(dealt, (paths[given], free[chosen[given]]), 1)
    missing = np.repeat(np.arange(len(dealt)), np.maximum(number - dealt.sum(1), 0))
    if len(missing) and dealt.shape[1]:
        np.add.at(dealt, (missing, np.full(len(missing), int(left.argmax()))), 1)
    # A damaged message may count more values than there are records.
    for c in np.flatnonzero(dealt.sum(1) > number):
        surplus = int(dealt[c].sum() - number[c])
        taken = np.repeat(np.arange(dealt.shape[1]), dealt[c])[:surplus]
        np.subtract.at(dealt[c], taken, 1)
    return dealt
