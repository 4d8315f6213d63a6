"""The cells of records whose paths are known: which records lie in each bin of each column.

The sums of a bin are those of the derivatives of the records in it, node by node. With the paths known these are linear
equations with whole numbers as unknowns: how many records of each path lie in the bin. Splits on a path bound its
records' cells as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy.linalg import get_lapack_funcs

from seepage.attacks.trees.choices import only_choices
from seepage.attacks.trees.paths import DERIVATIVE_ERROR, Path
from seepage.attacks.trees.transport import assigned
from seepage.wire.sums import Sent, Values, whole_counts

# Singular values below this share of the largest are taken as zero: far above what rounding leaves.
_LEAST_SINGULAR = 1e-5
# Equations or paths up to which singular values are computed. Beyond, a small penalty takes their place, as a share of
# the sum of all squares.
_DECOMPOSED, _RIDGE = 1_000, 1e-11
_SAFE = 0.25  # bound on the error of a solved number of records, below which rounding to a whole number is safe
LEFT = -1  # in place of a bin: records that are in none of those whose records are known
_TRIED = 2**12  # choices within one node that are tried at most
_Counts = Int[np.ndarray, "path value"]
_OfPath = Int[np.ndarray, " path"]
_OfValue = Int[np.ndarray, " value"]
_Some = Int[np.ndarray, " some"]


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
        for here, counted in zip(records_of_paths, counts, strict=True):
            dealt = np.repeat(np.arange(len(counted)), counted)
            generator.shuffle(dealt)
            cells[here, column] = value.cells[dealt]
    labels = np.full(records, np.nan)
    labels[: len(paths)] = [path.label for path in paths]
    nodes = np.array([path.nodes for path in paths]) if len(paths) == records else None
    return Solved(cells, labels, nodes, len(paths))


class _Equations:
    """Sums of every finest node as linear equations in the numbers of records of each path or bin."""

    def __init__(self, sent: Sent, alike: _Paths, noise: float) -> None:
        self.alike, self.noise = alike, noise
        rows, sums, errors = [], [], []
        self.nodes: list[tuple[int, Int[np.ndarray, " _path"]]] = []
        of_bins = np.array(alike.bins, dtype=np.int64)
        for t, tree in enumerate(sent.forest.trees):
            gradients = alike.gradients[:, t]
            scale = float(np.abs(gradients).max(initial=1.0))
            for node, place in sent.place[t].items():
                if tree.left[node] >= 0 and int(tree.left[node]) in sent.place[t]:
                    continue
                here = np.flatnonzero(alike.nodes[t] == node)
                received = sent.message.sums[t][place]
                row = np.zeros((2, len(alike.number)))
                row[:, here] = gradients[here].T
                sums_of_rest = received[of_bins].T
                if alike.bins == (LEFT,):
                    together = received[sent.cuts.of(0)].sum(0)
                    sums_of_rest = (together - alike.number[here] @ gradients[here])[:, None]
                row[:, alike.paths :] = sums_of_rest / alike.number[alike.paths :]
                rows.append(row)
                sums.append(received.T)
                error = DERIVATIVE_ERROR * scale * max(1, int(alike.number[here].sum()))
                errors += [error, error]
                self.nodes.append((2 * len(rows) - 2, here))
        self.matrix = np.concatenate(rows)
        self.sums = np.concatenate(sums)
        self.errors = np.array(errors)
        self.whole = self.solver(np.arange(len(alike.number)))

    def solver(self, some: _Some) -> _Solver:
        """Return the solver of the equations for some of the paths."""
        return _Solver(self.matrix[:, some], self.alike.number[some], self.errors, self.noise)


class _Solver:
    """Least squares with a small penalty for the equations of some paths."""

    def __init__(
        self, part: Float[np.ndarray, "row some"], numbers: _Some, errors: Float[np.ndarray, " row"], noise: float
    ) -> None:
        self.part = part
        self.determined: Bool[np.ndarray, " some"] = np.zeros(len(numbers), dtype=bool)
        """Which of the paths the equations determine."""
        # The smaller of the two matrices of products.
        self.wide = part.shape[0] < part.shape[1]
        # As much weight on few records as the noise of all equations has.
        ridge = noise**2 * len(part)
        self.half = _half(part @ part.T if self.wide else part.T @ part, ridge)
        if noise or not len(numbers):
            return
        likely = np.arange(len(numbers))
        if self.wide:
            seen = self.half.T @ part
            # What is kept of a path's own number. Where that is little, others cannot be told from it.
            likely = np.flatnonzero((1 - np.square(seen).sum(0)) * numbers < _SAFE / 2)
            inverse = seen[:, likely].T @ self.half.T
        else:
            inverse = self.half @ (self.half.T @ part.T)
        # What is left of other paths where one alone is meant, whatever the matrix that stands for an inverse.
        left = inverse @ part
        left[np.arange(len(likely)), likely] -= 1
        self.determined[likely] = (np.abs(left) @ numbers < _SAFE / 2) & (np.abs(inverse) @ errors < _SAFE / 2)

    def __call__(self, sums: Float[np.ndarray, "row value"]) -> Float[np.ndarray, "some value"]:
        """Return the numbers of records of each path that have these sums."""
        if self.wide:
            return self.part.T @ (self.half @ (self.half.T @ sums))
        return self.half @ (self.half.T @ (self.part.T @ sums))


def _half(squares: Float[np.ndarray, "side side"], ridge: float) -> Float[np.ndarray, "side rank"]:
    """Return a matrix whose product with its own transpose is the (regularised) inverse of a matrix of products."""
    if not len(squares):
        return squares
    if not ridge and len(squares) <= _DECOMPOSED:
        values, vectors = np.linalg.eigh(squares)
        significant = values > max(float(values[-1]), 1e-300) * _LEAST_SINGULAR**2
        return np.asarray(vectors[:, significant] / np.sqrt(values[significant]))
    squares[np.diag_indices_from(squares)] += ridge or max(_RIDGE * float(squares.trace()), 1e-30)
    (invert,) = get_lapack_funcs(("trtri",), (squares,))
    inverse: np.ndarray = invert(np.linalg.cholesky(squares), lower=1)[0]
    return inverse.T


def _column(sent: Sent, alike: _Paths, equations: _Equations, values: Values, read_in: Sequence[int]) -> _Counts:
    """Return how many records of each path have each value."""
    counts = np.full((len(alike.number), len(values.bins)), -1, dtype=np.int64)
    left = whole_counts(sent.counts[values.bins], len(alike.of_record))
    counts[~_possible(sent, alike, values, left)] = 0
    _fill_from_bins(alike, values, read_in, counts)
    sums = equations.sums[:, values.bins]
    estimate = equations.whole(sums)
    _settle(counts, alike.number, left)
    _round(counts, estimate, equations.whole.determined, np.arange(len(counts)))
    for _ in range(len(counts)):
        _settle(counts, alike.number, left)
        open_paths = np.flatnonzero((counts < 0).any(1))
        if not len(open_paths):
            break
        before = int((counts < 0).sum())
        rest = sums - equations.matrix @ np.maximum(counts, 0)
        if len(open_paths) < len(counts):
            solver = equations.solver(open_paths)
            estimate[open_paths] = solver(rest) + np.maximum(counts[open_paths], 0)
            _round(counts, estimate[open_paths], solver.determined, open_paths)
        if int((counts < 0).sum()) == before:
            _try_nodes(counts, equations, rest)
        if int((counts < 0).sum()) == before:
            break
    _settle(counts, alike.number, left)
    return _guessed(counts, estimate, alike.number, left)


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


def _fill_from_bins(alike: _Paths, values: Values, read_in: Sequence[int], counts: _Counts) -> None:
    """Fill in the column in whose bins all records of a path were read."""
    place = {int(number): i for i, number in enumerate(values.bins)}
    read = np.zeros(counts.shape, dtype=np.int64)
    for number, c in zip(read_in, alike.of_record, strict=True):
        if number in place:
            read[c, place[number]] += 1
    complete = read.sum(1) == alike.number
    counts[complete] = read[complete]


def _settle(counts: _Counts, number: _OfPath, left: _OfValue) -> None:
    """Fill in the counts that the totals by path and by value determine."""
    while True:
        open_cells = counts < 0
        of_path = number - np.maximum(counts, 0).sum(1)
        of_value = left - np.maximum(counts, 0).sum(0)
        # One open cell of a path or value takes all that is left; where nothing is left, all open cells are 0.
        none = open_cells & ((of_path <= 0)[:, None] | (of_value <= 0)[None])
        only = open_cells & ~none & (open_cells.sum(1) == 1)[:, None]
        most = (open_cells * np.maximum(of_path, 0)[:, None]).sum(0)
        full = open_cells & ~none & ~only & (most == of_value)[None]
        if not (none | only | full).any():
            return
        counts[none] = 0
        if only.any():
            counts[only] = np.broadcast_to(of_path[:, None], counts.shape)[only]
        elif full.any():
            # All paths that may have a value do.
            first = int(np.flatnonzero(full.any(0))[0])
            rows = full[:, first]
            counts[rows, first] = of_path[rows]


def _round(
    counts: _Counts, estimate: Float[np.ndarray, "some value"], determined: Bool[np.ndarray, " some"], some: _Some
) -> None:
    whole = np.rint(estimate)
    near = (np.abs(estimate - whole) < _SAFE) & (whole >= 0) & determined[:, None] & (counts[some] < 0)
    part = counts[some]
    part[near] = whole[near].astype(np.int64)
    counts[some] = part


def _try_nodes(counts: _Counts, equations: _Equations, rest: np.ndarray) -> None:
    """Fill in counts that have a single solution within one node, for nodes with few open paths."""
    for row, members in equations.nodes:
        open_here = members[(counts[members] < 0).any(1)]
        if not 0 < len(open_here) <= _TRIED.bit_length() or np.prod(equations.alike.number[open_here] + 1.0) > _TRIED:
            continue
        both = [row, row + 1]
        error = float(equations.errors[row])
        # Values that are open for the same paths have the same choices.
        which: dict[bytes, list[int]] = {}
        is_open = counts[open_here] < 0
        for value in np.flatnonzero(is_open.any(0)):
            which.setdefault(is_open[:, value].tobytes(), []).append(int(value))
        for members_open, values in which.items():
            some = open_here[np.frombuffer(members_open, dtype=bool)]
            numbers = [np.arange(int(number) + 1)[:, None] for number in equations.alike.number[some]]
            options = [n * equations.matrix[both, c] for n, c in zip(numbers, some, strict=True)]
            solved, only = only_choices(options, rest[both][:, values].T, error)
            here = np.array(values)[solved]
            counts[np.ix_(some, here)] = only.T
            rest[:, here] -= equations.matrix[:, some] @ only.T


def _guessed(counts: _Counts, estimate: Float[np.ndarray, "path value"], number: _OfPath, left: _OfValue) -> _Counts:
    """Return the numbers with open ones dealt out: the likeliest by the equations, and as many as each value has."""
    settled = np.maximum(counts, 0)
    paths = np.repeat(np.arange(len(counts)), np.maximum(number - settled.sum(1), 0))
    places = np.maximum(left - settled.sum(0), 0)
    free = np.flatnonzero(places)
    dealt = settled.copy()
    if len(paths) and len(free):
        gains = estimate[np.ix_(paths, free)] - 1e3 * (counts[np.ix_(paths, free)] >= 0)
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
