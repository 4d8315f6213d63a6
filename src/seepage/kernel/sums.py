"""Rule for sums of derivatives by node and bin: all readings of bins are listed, and values follow as whole numbers."""

from __future__ import annotations

import itertools
import math
import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from operator import mul
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from seepage.kernel.doubts import coarse
from seepage.kernel.statement import (
    HUGE,
    ROUNDINGS,
    SAME,
    UNIT,
    Certified,
    EncodedColumn,
    RefusedError,
    as_numbers,
    refused,
)

# Effort: choices that are tried for one bin, readings of a bin side by side, columns whose bins are read, and paths of
# equations that are solved again for a single value; open paths of a node whose choices are tried.
_TRIED, _READINGS, _COLUMNS, _SOLVED, _FEW = 20_000, 32, 5, 300, 12
# Label and, for each tree, the leaf that a record reached; of the last round the deepest node with sums.
Path = tuple[float | int, ...]
Reading = tuple[tuple[Path, int], ...]
Vector = tuple[float, ...]
Shares = tuple[int, ...]
Some = TypeVar("Some", bound=Sized)


class Grown(NamedTuple):
    """A tree by node, -1 for no child, with ``sums`` (node, bin, 2) at ``place``; a leaf's condition is its value."""

    left: Sequence[int]
    right: Sequence[int]
    column: Sequence[int]
    condition: Sequence[float]
    output: int
    place: Mapping[int, int]
    sums: Tensor


class Sums(NamedTuple):
    """Sums of derivatives by node and bin, and how they came about.

    Attributes:
        columns: columns of the table; numbers are encoded as they are, categories as columns of 0 and 1.
        ends: upper end of each bin, which is not in it, for each encoded column.
        objective: ``binary:logistic``, ``multi:softprob`` or ``reg:squarederror``.
        start: margins before the first tree.
        rounds: number of trees at the end of each round.
        trees: all trees with what was sent for them.
        records: number of rows behind the sums.
        defense: name of what changed the sums before they were sent.
    """

    columns: tuple[EncodedColumn, ...]
    ends: tuple[tuple[float, ...], ...]
    objective: str
    start: Vector
    rounds: tuple[int, ...]
    trees: tuple[Grown, ...]
    records: int
    defense: str = "none"


def certify_sums(sent: Sums, cells: Tensor, labels: Tensor, nodes: Tensor) -> Certified:
    """Return which cells are proved by sums of derivatives.

    Every choice of records that the sums of a bin allow is followed tree by tree. Where one reading is left, the labels
    and leaves of the bin's records are proved. How many records of each path have a value solves linear equations in
    whole numbers: the witness's numbers are proved where no other ones are within the bound. A row is certified where
    this holds in all columns.

    Args:
        sent: the message and its declaration.
        cells: witness, the rows (record, column): codes, or values of numbers.
        labels: their labels.
        nodes: the leaf of each row in each tree, in the last round the deepest node with sums (record, tree).
    """
    try:
        if sent.defense != "none":
            raise RefusedError(f"no rule holds under the defense {sent.defense}")
        _check_form(sent, cells, labels, nodes)
        if coarse({str(t): tree.sums for t, tree in enumerate(sent.trees)}):
            raise RefusedError("the sums lie on a coarser grid than single precision")
        paths = [(float(y), *map(int, row)) for y, row in zip(labels.tolist(), nodes.tolist(), strict=True)]
        system = _WholeNumbers(_Bins(sent), Counter(paths))
        settled, exact = system.columns(cells.double(), torch.tensor([system.kinds[path] for path in paths]))
    except RefusedError as why:
        return refused(cells, getattr(sent, "columns", ()), str(why))
    except Exception as error:  # Numbers from outside may be of any form.
        why = f"the sums or records are of another form than declared ({type(error).__name__})"
        return refused(cells, getattr(sent, "columns", ()), why)
    proved = exact & settled.all(1, keepdim=True)
    return Certified(proved, torch.zeros_like(proved), (
        f"The message is sums over exactly {sent.records} records, each counted once: derivatives of {sent.objective} "
        f"in single precision with {ROUNDINGS:g} roundings, added in double precision; no defense changed it.",
        "Every value lies in the declared bins, and every party adds the declared leaves to its margins in order.",
    ))  # fmt: skip


def _check_form(sent: Sums, cells: Tensor, labels: Tensor, nodes: Tensor) -> None:
    """Refuse sums, trees or a witness with what is no number, of another shape, or too large for single precision."""
    as_numbers(cells, "the witness", (sent.records, len(sent.columns)))
    as_numbers(labels, "the labels", (sent.records,), HUGE)
    if bool((as_numbers(nodes, "the leaves", (sent.records, len(sent.trees))) % 1).any()):
        raise RefusedError("a leaf has no number")
    bins = sum(map(len, sent.ends))
    for tree in sent.trees:
        as_numbers(tree.sums, "the sums of a tree", (len(tree.place), bins, 2), HUGE)
        if not all(abs(x) < HUGE for x in tree.condition):
            raise RefusedError("a tree has a condition or value that is no number, or too large")
    if not all(abs(x) < HUGE for x in sent.start):
        raise RefusedError("a margin before the first tree is no number, or too large")
    if any(not a < b for ends in sent.ends for a, b in itertools.pairwise(ends)) or math.nan in map(sum, sent.ends):
        raise RefusedError("the ends of bins are not in their order")


def _single(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])


def _ways(
    items: Sequence[tuple[int, Sequence[Vector]]], target: Vector, slack: Vector, effort: Iterator[int]
) -> list[list[Shares]]:
    """Return every way to share out each item's records among its vectors that adds up to a target within a slack."""
    order = sorted(range(len(items)), key=lambda i: -max(abs(x) for option in items[i][1] for x in option))
    # What is still to come adds between these.
    ends = [([0.0] * len(target), [0.0] * len(target))]
    for count, options in (items[i] for i in reversed(order)):
        low, high = ends[-1]
        each = list(zip(*options, strict=True))
        least = [a + count * min(x) for a, x in zip(low, each, strict=True)]
        ends.append((least, [b + count * max(x) for b, x in zip(high, each, strict=True)]))
    found: list[list[Shares]] = []
    shared: list[Shares] = [()] * len(items)

    def place(depth: int, rest: Sequence[float]) -> None:
        if next(effort, None) is None:
            raise RefusedError("too many choices of records have the sums of a bin")
        low, high = ends[len(items) - depth]
        if any(not a - s <= r <= b + s for r, a, b, s in zip(rest, low, high, slack, strict=True)):
            return
        if depth == len(items):
            found.append(list(shared))
            return
        count, options = items[order[depth]]
        last = count + len(options) - 1
        for bars in itertools.combinations(range(last), len(options) - 1):
            shares = tuple(b - a - 1 for a, b in itertools.pairwise((-1, *bars, last)))
            shared[order[depth]] = shares
            left = [r - sum(map(mul, shares, x)) for r, x in zip(rest, zip(*options, strict=True), strict=True)]
            place(depth + 1, left)

    place(0, target)
    return found


class _Bins:
    """What the sums of single bins say: their records' labels and leaves."""

    def __init__(self, sent: Sums) -> None:
        self.sent = sent
        self.first = [0, *itertools.accumulate(map(len, sent.ends))]
        self.margins: dict[Path, Vector] = {}
        self.of_margins: dict[tuple[float, Vector], tuple[Vector, Vector]] = {}
        for tree in sent.trees:
            for column, condition, left in zip(tree.column, tree.condition, tree.left, strict=True):
                if left >= 0 and condition not in sent.ends[column]:
                    raise RefusedError("a split lies within a bin")
        # Before the first tree all records have the same second derivative.
        second, size = (one[1] for one in self.derivatives((0.0,)))
        seen = sent.trees[0].sums[sent.trees[0].place[0], :, 1].double()
        whole = (seen / second).round()
        if bool(((seen - whole * second).abs() > ROUNDINGS * UNIT * size * whole).any()):
            raise RefusedError("the sums of the first root are not those of whole records")
        self.counts = [int(n) for n in whole.tolist()]
        if any(sum(self.counts[a:b]) != sent.records for a, b in itertools.pairwise(self.first)):
            raise RefusedError(f"the bins of a column do not hold {sent.records} records")
        self.read: dict[int, Counter[Path] | None] = {}

    def derivatives(self, path: Path) -> tuple[Vector, Vector]:
        """Return both derivatives for each output after the trees of a path, and what bounds their roundings."""
        key = path[0], self._margins(path)
        if key not in self.of_margins:
            self.of_margins[key] = _derivatives(self.sent, *key)
        return self.of_margins[key]

    def _margins(self, path: Path) -> Vector:
        if len(path) == 1:
            return self.sent.start
        if path not in self.margins:
            margins, tree = list(self._margins(path[:-1])), self.sent.trees[len(path) - 2]
            margins[tree.output] = _single(margins[tree.output] + tree.condition[int(path[-1])])
            self.margins[path] = tuple(margins)
        return self.margins[path]

    def unique(self, position: int) -> Counter[Path] | None:
        """Return the records of a bin by path, where its sums have one reading only; None elsewhere."""
        if position not in self.read:
            try:
                readings = self.readings(position)
            except RefusedError:
                readings = set()
            self.read[position] = Counter(dict(next(iter(readings)))) if len(readings) == 1 else None
        return self.read[position]

    def readings(self, position: int) -> set[Reading]:
        """Return every reading of a bin's records that all sums allow; refuse too many."""
        before, begin, effort = 0, 0, iter(range(_TRIED))
        states: set[Reading] = {(((), self.counts[position]),)}
        if self.sent.objective == "reg:squarederror":
            states = {self._values(position)}
        for end in self.sent.rounds:
            # Which leaves records reached is left open where no sums were sent for them, as are first labels.
            sums = self._at(0, position, range(begin, end))
            after: set[Reading] = set()
            for state in states:
                options = [self._options(path, before, position) for path, _ in state]
                found = [[self.derivatives(option) for option in some] for some in options]
                items = [(n, [d for d, _ in each]) for (_, n), each in zip(state, found, strict=True)]
                sizes = [
                    [n * max(x) for x in zip(*(s for _, s in each), strict=True)]
                    for (_, n), each in zip(state, found, strict=True)
                ]
                for way in _ways(items, sums, _slack(sizes), effort):
                    shared = (zip(some, shares, strict=True) for some, shares in zip(options, way, strict=True))
                    after.add(_gathered(shared))
            states = _followed(after)
            for t in range(begin, end):
                states = _followed({one for state in states for one in self._down(state, t, begin, position, effort)})
            before, begin = begin, end
        return states

    def _at(self, node: int, position: int, trees: Sequence[int]) -> Vector:
        chosen = [self.sent.trees[t] for t in trees]
        if [tree.output for tree in chosen] != list(range(len(self.sent.start))) and len(chosen) > 1:
            raise RefusedError("a round has several trees for an output")
        return tuple(x for tree in chosen for x in tree.sums[tree.place[node], position].tolist())

    def _values(self, position: int) -> Reading:
        """Return the targets of a bin's records, where the first tree tells them apart."""
        tree = self.sent.trees[0]
        found: list[Path] = []
        for node in _deepest(tree):
            first, second = self._at(node, position, [0])
            if round(second) > 1:
                raise RefusedError("the first tree does not tell the targets of a bin apart")
            found += [(_single(self.sent.start[0] - first),)] * round(second)
        return _gathered([[(path, 1)] for path in found])

    def _options(self, path: Path, before: int, position: int) -> list[Path]:
        """Return what the deepest nodes of the round before leave open."""
        if not path:
            return [(float(label),) for label in range(max(2, len(self.sent.start)))]
        leaves: list[Sequence[float]] = []
        for t, node in enumerate(path[1 + before :], before):
            tree, v = self.sent.trees[t], int(node)
            side = None if tree.left[v] < 0 else self._side(tree, v, position)
            both = [node] if tree.left[v] < 0 else [tree.left[v], tree.right[v]]
            leaves.append(both if side is None else both[:1] if side else both[1:])
        return [(*path[: 1 + before], *each) for each in itertools.product(*leaves)]

    def _side(self, tree: Grown, node: int, position: int) -> bool | None:
        """Return whether a bin's records go left; None where the split is on another column."""
        first, last = self.first[tree.column[node]], self.first[tree.column[node] + 1]
        if not first <= position < last:
            return None
        return self.sent.ends[tree.column[node]][position - first] <= tree.condition[node]

    def _down(self, state: Reading, t: int, begin: int, position: int, effort: Iterator[int]) -> Iterator[Reading]:
        """Yield every way of the records down a tree to the deepest nodes with sums."""
        tree = self.sent.trees[t]
        which = slice(2 * tree.output, 2 * tree.output + 2)
        vectors = {path: [part[which] for part in self.derivatives(path[: 1 + begin])] for path, _ in state}
        slack = _slack([[n * x for x in vectors[path][1]] for path, n in state])
        ways: list[dict[int, Reading]] = [{0: state}]
        for v in tree.place:
            left, right = tree.left[v], tree.right[v]
            if left not in tree.place:
                continue
            after = []
            for way in ways:
                here = way.pop(v, ())
                side = self._side(tree, v, position)
                if not here or side is not None:
                    after.append({**way, left: here if side else (), right: () if side else here})
                    continue
                items = [(n, [vectors[path][0], (0.0, 0.0)]) for path, n in here]
                for each in _ways(items, self._at(left, position, [t]), slack, effort):
                    parts = [
                        tuple((path, s[k]) for (path, _), s in zip(here, each, strict=True) if s[k]) for k in range(2)
                    ]
                    after.append({**way, left: parts[0], right: parts[1]})
            ways = _followed(after)
        for way in ways:
            yield _gathered([[((*path, v), n)] for v, here in way.items() for path, n in here])


def _deepest(tree: Grown) -> list[int]:
    return [v for v in tree.place if tree.left[v] not in tree.place]


def _slack(sizes: Sequence[Sequence[float]]) -> Vector:
    return tuple(ROUNDINGS * UNIT * sum(x) for x in zip(*sizes, strict=True))


def _followed(readings: Some) -> Some:
    if len(readings) > _READINGS:
        raise RefusedError("too many readings of a bin fit")
    return readings


def _gathered(parts: Iterable[Iterable[tuple[Path, int]]]) -> Reading:
    counts: Counter[Path] = Counter()
    for path, n in itertools.chain.from_iterable(parts):
        counts[path] += n
    return tuple(sorted((path, n) for path, n in counts.items() if n))


def _derivatives(sent: Sums, label: float, margins: Vector) -> tuple[Vector, Vector]:
    """Return first and second derivatives, output by output, and the magnitudes that their roundings are shares of.

    In single precision an exponential errs by up to three units in the last place, which sizes count twice; a target
    was read from a sum, so that it errs like one.
    """
    if sent.objective == "reg:squarederror":
        size = 2 * (abs(margins[0]) + abs(sent.start[0])) + 4 * abs(label)
        return (margins[0] - label, 1.0), (size, 0.0)
    found: list[float] = []
    sizes: list[float] = []
    if sent.objective == "binary:logistic":
        chances = [1 / (1 + math.exp(min(-margins[0], 88.7)))]
        scales, shown, factor = [2 * chances[0]], [label], 1.0
    else:
        powers = [math.exp(margin - max(margins)) for margin in margins]
        chances = [power / sum(powers) for power in powers]
        scales = [p * (len(margins) + max(margins) - m) for p, m in zip(chances, margins, strict=True)]
        shown, factor = [float(k == label) for k in range(len(margins))], 2.0
    for chance, scale, one in zip(chances, scales, shown, strict=True):
        found += [chance - one, max(factor * chance * (1 - chance), 1e-16)]
        sizes += [scale + one, factor * (scale + chance)]
    return tuple(found), tuple(sizes)


class _WholeNumbers:
    """How many records of each path, as a witness has them, have each value: linear equations in whole numbers."""

    def __init__(self, bins: _Bins, wanted: Mapping[Path, int]) -> None:
        self.bins, self.sent = bins, bins.sent
        # A record is in one bin of every column, so that a path is there at least as often as one column shows it.
        found: Counter[Path] = Counter()
        spans = sorted(itertools.pairwise(bins.first), key=lambda span: sum(bins.counts[b] ** 2 for b in range(*span)))
        for span in spans[:_COLUMNS]:
            if found.total() < self.sent.records:
                read = [bins.unique(b) for b in range(*span) if bins.counts[b]]
                found |= sum((one for one in read if one is not None), Counter())
        if found.total() != self.sent.records:
            raise RefusedError(f"the labels and leaves of {found.total()} of {self.sent.records} records are proved")
        if found != wanted:
            raise RefusedError("the records do not have the labels and leaves that the sums prove")
        self.kinds = {path: i for i, path in enumerate(found)}
        self.number = torch.tensor(list(found.values())).double()
        parts, sizes, sums, whole = [], [], [], []
        width, depth = len(self.sent.ends), len(found)
        self.low, self.high = torch.zeros(depth, width), torch.full((depth, width), math.inf)
        begins = {t: a for a, b in itertools.pairwise((0, *self.sent.rounds)) for t in range(a, b)}
        for t, tree in enumerate(self.sent.trees):
            boxes, above = self._boxes(tree), _above(tree)
            reached = [int(path[1 + t]) for path in found]
            self.low = torch.maximum(self.low, boxes[reached, :, 0])
            self.high = torch.minimum(self.high, boxes[reached, :, 1])
            which = slice(2 * tree.output, 2 * tree.output + 2)
            own = torch.tensor([[part[which] for part in bins.derivatives(p[: 1 + begins[t]])] for p in found]).double()
            deep = _deepest(tree)
            there = (torch.tensor([above[v] for v in reached])[:, None] == torch.tensor(deep)).double()
            part, size = torch.einsum("pn,pks->knsp", there, own).flatten(1, 2)
            parts.append(part)
            sizes.append(size)
            whole.append(size.unflatten(0, (-1, 2)).sum(0).repeat(len(deep), 1))
            sums.append(tree.sums[[tree.place[v] for v in deep]].double().transpose(1, 2).flatten(0, 1))
        self.matrix, self.sums = torch.cat(parts), torch.cat(sums)
        # Of sums that are differences of others also the roundings of double precision are left.
        self.size = torch.cat(sizes) + self.sent.records * 2.0**-29 * torch.cat(whole)
        self.inverse = self._inverse(torch.arange(depth))

    def _boxes(self, tree: Grown) -> Tensor:
        """Return for each node and encoded column the first bin of its rows, and the one after the last."""
        boxes = torch.zeros(len(tree.left), len(self.sent.ends), 2)
        boxes[..., 1] = math.inf
        for v, (left, right, column) in enumerate(zip(tree.left, tree.right, tree.column, strict=True)):
            if left >= 0:
                cut = 1 + self.sent.ends[column].index(tree.condition[v])
                boxes[left] = boxes[right] = boxes[v]
                boxes[left, column, 1] = min(cut, float(boxes[v, column, 1]))
                boxes[right, column, 0] = max(cut, float(boxes[v, column, 0]))
        return boxes

    def _inverse(self, some: Tensor) -> tuple[Tensor, Tensor]:
        """Return a matrix that stands for the inverse of some paths' equations, and what it leaves."""
        part = self.matrix[:, some]
        values, vectors = torch.linalg.eigh(part.T @ part)
        kept = values > values[-1] * 1e-10
        inverse = vectors[:, kept] / values[kept] @ vectors[:, kept].T @ part.T
        return inverse, torch.eye(len(some)).double() - inverse @ part

    def columns(self, cells: Tensor, of_record: Tensor) -> tuple[Tensor, Tensor]:
        """Return whether each row's value is the only one of its path, and its bin within the column's tolerance."""
        found, first = [], 0
        for c, column in enumerate(self.sent.columns):
            found.append(self._column(column, first, cells[:, c], of_record))
            first += 1 if column.categories is None else len(column.categories)
        settled, exact = zip(*found, strict=True)
        return torch.stack(settled, 1), torch.stack(exact, 1)

    def _column(self, column: EncodedColumn, first: int, cells: Tensor, of_record: Tensor) -> tuple[Tensor, Tensor]:
        ends, none = self.sent.ends, torch.zeros(len(cells), dtype=torch.bool)
        own = [first]
        if column.categories is None:
            values = [[b] for b in range(len(ends[first]))]
            value = [bisect_right(ends[first], _single(cell)) for cell in cells.tolist()]
            exact = [
                v < len(values) and self._within(column, ends[first], v, x)
                for v, x in zip(value, cells.tolist(), strict=True)
            ]
        else:
            width = range(first, first + len(column.categories))
            own = codes = [e for e in width if ends[e][-1] > 1]
            values = [[bisect_right(ends[other], float(other == e)) for other in width] for e in codes]
            value = [codes.index(first + int(x)) if first + int(x) in codes else len(codes) for x in cells.tolist()]
            exact = [True] * len(value)
        at = [self.bins.first[e] + v[e - first] for e, v in zip(itertools.cycle(own), values)]
        count = torch.tensor([self.bins.counts[position] for position in at]).double()
        if int(count.sum()) != self.sent.records or max(value) >= len(values):
            return none, none
        inside, v = torch.tensor(values), torch.tensor(value)
        low, high = (ends[:, None, first : first + inside.shape[1]] for ends in (self.low, self.high))
        possible = ((low <= inside) & (inside < high)).all(2)
        low, high = self._numbers(count, possible, self.sums[:, at], at)
        settled = (low == high) & (high == self.number[:, None])
        return settled[of_record, v], torch.tensor(exact)

    def _numbers(self, count: Tensor, possible: Tensor, sums: Tensor, at: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return bounds of how many records of each path have each value."""
        high = torch.minimum(self.number[:, None], count) * possible
        low = torch.zeros_like(high)
        for v, position in enumerate(at):
            if (read := self.bins.read.get(position)) is not None:
                low[:, v] = high[:, v] = torch.tensor([read[path] for path in self.kinds])
        totals = ((0, count), (1, self.number[:, None]))
        every = torch.arange(len(high))
        while True:
            before = float((high - low).sum())
            for dim, total in totals:
                low = torch.maximum(low, total - high.sum(dim, keepdim=True) + high)
                high = torch.minimum(high, total - low.sum(dim, keepdim=True) + low)
            if bool((low > high).any()):
                raise RefusedError("no table of records with these labels and leaves has the sums")
            self._solve(self.inverse, every, range(len(at)), low, high, sums)
            if float((high - low).sum()) < before:
                continue
            solved: dict[bytes, tuple[Tensor, Tensor]] = {}
            for v in (high > low).any(0).nonzero()[:, 0].tolist():
                some = (high > low)[:, v].nonzero()[:, 0]
                if len(some) <= min(_SOLVED, len(high) - 1):
                    key = some.numpy().tobytes()
                    solved[key] = solved.get(key) or self._inverse(some)
                    self._solve(solved[key], some, [v], low, high, sums)
            if float((high - low).sum()) == before:
                self._by_node(low, high, sums)
            if float((high - low).sum()) == before:
                return low, high

    def _bound(self, high: Tensor) -> Tensor:
        """Return by how much each sum may differ from that of its records, whose numbers are at most these."""
        return ROUNDINGS * UNIT * self.size @ high

    def _solve(
        self, solver: tuple[Tensor, Tensor], some: Tensor, which: Sequence[int], low: Tensor, high: Tensor, sums: Tensor
    ) -> None:
        """Narrow bounds by equations: for any matrix X, numbers n are X (A n) + (1 - X A) n."""
        inverse, rest = solver
        at = (some[:, None], torch.tensor(which))
        least, most = low[at], high[at]
        mid, half = (least + most) / 2, (most - least) / 2
        fixed = low[:, which].clone()
        fixed[some] = 0
        center = inverse @ (sums[:, which] - self.matrix @ fixed) + rest @ mid
        error = inverse.abs() @ self._bound(high[:, which]) + rest.abs() @ half
        # What is not finite says nothing.
        known = center.isfinite() & error.isfinite()
        low[at] = torch.where(known, torch.maximum(least, (center - error - SAME).ceil()), least)
        high[at] = torch.where(known, torch.minimum(most, (center + error + SAME).floor()), most)

    def _by_node(self, low: Tensor, high: Tensor, sums: Tensor) -> None:
        """Narrow bounds to what all choices within a node with few open paths leave."""
        there = self.matrix[1::2] != 0
        number = there.double() @ (high > low).double()
        bound = self._bound(high)
        for place, v in ((number > 0) & (number <= _FEW)).nonzero().tolist():
            some, both = (there[place] & (high > low)[:, v]).nonzero()[:, 0], slice(2 * place, 2 * place + 2)
            vectors, least = self.matrix[both, some], low[some, v]
            items = [
                (int(n), [tuple(x), (0.0, 0.0)])
                for n, x in zip((high[some, v] - least).tolist(), vectors.T.tolist(), strict=True)
            ]
            target = sums[both, v] - self.matrix[both] @ low[:, v]
            try:
                ways = _ways(items, tuple(target.tolist()), tuple(bound[both, v].tolist()), iter(range(_TRIED // 10)))
            except RefusedError:
                continue
            if not ways:
                raise RefusedError("no table of records with these labels and leaves has the sums")
            taken = torch.tensor([[shares[0] for shares in way] for way in ways]).double()
            low[some, v], high[some, v] = least + taken.amin(0), least + taken.amax(0)

    def _within(self, column: EncodedColumn, ends: Sequence[float], b: int, cell: float) -> bool:
        """Return whether all numbers of a bin are within the column's tolerance of a cell."""
        low, high = max(column.low, ends[b - 1] if b else -math.inf), min(column.high, ends[b])
        # Numbers that single precision does not hold were rounded before they were put into a bin.
        rounding = UNIT * max(abs(low), abs(high))
        if column.integer and rounding < 0.5:
            low, high, rounding = math.ceil(low), math.ceil(high) - 1 if high == ends[b] else math.floor(high), 0.0
        return max(cell - low, high - cell) + rounding <= column.tolerance


def _above(tree: Grown) -> list[int]:
    """Return the deepest node with sums on the way to each node."""
    found = list(range(len(tree.left)))
    for v, children in enumerate(zip(tree.left, tree.right, strict=True)):
        for child in children:
            if child >= 0:
                found[child] = child if child in tree.place else found[v]
    return found
