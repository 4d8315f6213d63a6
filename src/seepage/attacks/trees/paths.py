"""Paths of single records through all trees, read from the sums of one bin.

A record's derivatives follow from its label and from the leaves that it reached before. So the few records in a bin
have few possible sums: which of them go left at a split is the one choice whose derivatives add up to the sum of the
left child. Tree by tree this gives the leaves of every record in the bin, and with them its derivatives everywhere.

With two classes a record of label y has in each tree of a round (Chen and Guestrin, KDD 2016, as xgboost computes them)

    g = p - y,   h = p (1 - p),   p the chance by its margin, the sum of the leaves that it reached in earlier rounds.

**Labels.** In the first round all records have the same p. So the n records of a bin have the sum ``n p - sum(y)`` of g
at the root, which says how many of them have label 1; of several classes, each has an output that says it.

**Splits.** Records of a bin with equal labels and margins have equal derivatives, so that only their number on either
side counts. The numbers ``k_c`` of each such class c that go left have

    sum_c k_c (g_c, h_c) = (G, H) of the left child,   0 <= k_c <= n_c,

up to the roundings of single precision. All solutions are listed (``solve.choices``). What goes right has the
difference, and needs no test. At a split on the bin's own column that does not cut the bin, all go the same way.

**Several solutions** are followed side by side. A wrong one gives some record wrong margins, and with them derivatives
in the next round that do not add up there. Nothing is taken where too many remain: a solution that is dropped unseen
is not excluded. A reading is ``alone`` where all that remain have the same paths.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence, Sized
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Float32, Int

from seepage.solve.choices import MOST, choices
from seepage.wire.forest import Forest
from seepage.wire.sums import Sent

# Bound on the error of one derivative in single precision, as a share of the largest of them: three roundings of
# numbers up to 1, as computers differ in their exponential functions.
DERIVATIVE_ERROR = 2e-7
_SIDE_BY_SIDE = 8  # readings of a bin that are followed side by side until later trees tell which is right
Readings = TypeVar("Readings", bound=Sized)


class _TooManyReadingsError(Exception):
    """A bin has more readings than are followed; a reading that is left out is not excluded, so that none is taken."""


@dataclass(frozen=True)
class Path:
    """The way of one record through all trees, with its derivatives."""

    label: float
    nodes: Int[np.ndarray, " tree"]  # deepest node of each tree that the record is known to reach
    gradients: Float[np.ndarray, "tree 2"]  # its derivatives for each tree
    bin: int  # bin in which it was read
    alone: bool  # whether that bin has no other reading

    @property
    def key(self) -> bytes:
        """Key that equal paths share."""
        return self.nodes.tobytes() + np.float64(self.label).tobytes()


@dataclass(frozen=True)
class _State:
    """One reading of the records of a bin."""

    margins: Float32[np.ndarray, "record output"]  # before the round
    labels: Float[np.ndarray, " record"]
    nodes: tuple[tuple[int, ...], ...] = ()  # node of each record in each tree so far
    gradients: tuple[Float[np.ndarray, "record 2"], ...] = ()  # of each record for each tree so far


def paths_of_bin(sent: Sent, number: int, records: int) -> list[Path] | None:
    """Return the paths of all records in a bin; None where its sums are those of no records, or of too many."""
    try:
        states = _readings(sent, number, records)
    except _TooManyReadingsError:
        return None
    if not states:
        return None
    keys = {_content(state) for state in states}
    state = states[0]
    nodes, gradients = np.array(state.nodes), np.stack(state.gradients)
    return [
        Path(float(state.labels[i]), nodes[:, i].copy(), gradients[:, i].copy(), number, len(keys) == 1)
        for i in range(records)
    ]


def _readings(sent: Sent, number: int, records: int) -> list[_State]:
    """Return every reading of a bin's records that all trees allow."""
    margins = np.tile(sent.forest.intercept, (records, 1))
    states = [_State(margins, labels) for labels in _first_labels(sent, number, records) or []]
    for round_number in range(len(sent.forest.rounds)):
        if round_number:
            states = [after for state in states for after in _after(sent, state, round_number, number)]
        states = _followed([reading for state in states for reading in _through(sent, state, round_number, number)])
    return states


def _followed(readings: Readings) -> Readings:
    """Return readings that are not too many to be followed."""
    if len(readings) > _SIDE_BY_SIDE:
        raise _TooManyReadingsError
    return readings


def _content(state: _State) -> tuple[bytes, ...]:
    """Return the key that equal readings share: the records without their order."""
    nodes = np.array(state.nodes)
    return tuple(sorted(nodes[:, i].tobytes() + state.labels[i].tobytes() for i in range(len(state.labels))))


def _first_labels(sent: Sent, number: int, records: int) -> list[Float[np.ndarray, " record"]] | None:
    """Return the labels of a bin's records, which the first trees' roots give; several where more fit."""
    forest, message = sent.forest, sent.message
    roots = np.array([message.sums[t][sent.place[t][0], number, 0] for t in forest.of_round(0)])
    if forest.labels is None:
        return _first_values(sent, number, records)
    if forest.outputs == 1:
        ones = records * (sent.chances[0]) - roots[0]
        counts = np.array([records - ones, ones])
    else:
        # The derivative before any label of class 0 is taken off.
        chances = sent.chances.copy()
        chances[0] += 1
        counts = records * chances - roots[: forest.outputs]
    rounded = np.rint(counts)
    if (np.abs(counts - rounded) > 0.01).any() or (rounded < 0).any() or int(rounded.sum()) != records:
        return None
    return [np.repeat(np.arange(len(rounded), dtype=np.float64), rounded.astype(np.int64))]


def _first_values(sent: Sent, number: int, records: int) -> list[Float[np.ndarray, " record"]] | None:
    """Return the targets of a bin's records in a regression, where the first tree tells them apart."""
    # Trees that grow side by side are of the same derivatives.
    tree_number = sent.forest.of_round(0)[0]
    tree, place = sent.forest.trees[tree_number], sent.place[tree_number]
    sums = sent.message.sums[tree_number][:, number]
    start = float(sent.forest.intercept[0])
    values: list[float] = []
    for node, position in place.items():
        children = (int(tree.left[node]), int(tree.right[node]))
        if tree.left[node] >= 0 and children[0] in place:
            continue
        count = round(float(sums[position, 1]))
        if count > 1:
            return None
        if count == 1:
            # Targets are held in single precision.
            values.append(float(np.float32(start - sums[position, 0])))
    return [np.array(values)] if len(values) == records else None


def _allowed(records: int, margins: Float32[np.ndarray, "record output"], forest: Forest) -> float:
    scale = 1.0 if forest.labels is not None else 1.0 + float(np.abs(margins).max(initial=0.0))
    return DERIVATIVE_ERROR * scale * max(1, records)


def _classes(state: _State, records: Sequence[int]) -> list[list[int]]:
    """Return groups of records with the same margins and labels so far."""
    groups: dict[bytes, list[int]] = {}
    for i in records:
        groups.setdefault(state.margins[i].tobytes() + state.labels[i].tobytes(), []).append(i)
    return list(groups.values())


def _through(sent: Sent, state: _State, round_number: int, number: int) -> list[_State]:
    """Return a bin's records with their nodes in the trees of a round, in every way that its sums allow."""
    forest = sent.forest
    gradients = forest.gradients(state.margins, state.labels).astype(np.float64)
    ways = [state]
    for position in forest.of_round(round_number):
        tree = forest.trees[position]
        of_output = gradients[:, tree.output]
        after = []
        for reading in ways:
            for nodes in _nodes(sent, reading, position, number, of_output):
                after.append(replace(reading, nodes=(*reading.nodes, nodes), gradients=(*reading.gradients, of_output)))
        ways = _followed(after)
    return ways


def _nodes(
    sent: Sent, state: _State, position: int, number: int, gradients: Float[np.ndarray, "record 2"]
) -> list[tuple[int, ...]]:
    """Return the deepest node of each record in a tree that sums were sent for, in every way that these allow."""
    tree, place = sent.forest.trees[position], sent.place[position]
    sums: list[list[float]] = sent.message.sums[position][:, number].tolist()
    records = len(state.labels)
    error = _allowed(records, state.margins, sent.forest)
    total = gradients.sum(0)
    if abs(total[0] - sums[place[0]][0]) > error or abs(total[1] - sums[place[0]][1]) > error:
        return []
    derivatives = gradients.tolist()
    ways: list[tuple[list[int], dict[int, list[int]]]] = [([0] * records, {0: list(range(records))})]
    for node in place:
        left, right = int(tree.left[node]), int(tree.right[node])
        if left < 0 or left not in place:
            continue
        side = sent.split_by(tree, node, number)
        sent_left = sums[place[left]]
        after = []
        for nodes, members in ways:
            inside = members.get(node)
            if not inside:
                after.append((nodes, members))
                continue
            for going in _going_left(state, inside, sent_left, side, derivatives, error):
                chosen = list(nodes)
                staying = [i for i in inside if i not in going]
                for i in going:
                    chosen[i] = left
                for i in staying:
                    chosen[i] = right
                after.append((chosen, {**members, left: going, right: staying}))
        ways = _followed(after)
    return [tuple(nodes) for nodes, _ in ways]


def _going_left(
    state: _State,
    records: list[int],
    sums: list[float],
    side: bool | None,
    derivatives: list[list[float]],
    error: float,
) -> list[list[int]]:
    """Return the records that go left at a split, in every way that the left child's sums allow."""
    if side is not None or len(records) == 1:
        none, all_left = abs(sums[0]) <= error and abs(sums[1]) <= error, True
        for s in range(2):
            all_left = all_left and abs(sums[s] - sum(derivatives[i][s] for i in records)) <= error
        if side is not None:
            return [records] if side and all_left else [[]] if not side and none else []
        # Where second derivatives vanish, one record may be on either side.
        return ([records] if all_left else []) + ([[]] if none else [])
    classes = _classes(state, records)
    options = [np.arange(len(alike) + 1)[:, None] * np.array(derivatives[alike[0]]) for alike in classes]
    solutions = choices(options, np.array(sums), error)
    if solutions is None:
        raise _TooManyReadingsError
    return [
        [i for count, alike in zip(solution, classes, strict=True) for i in alike[:count]]
        for solution in _followed(solutions)
    ]


def _after(sent: Sent, state: _State, round_number: int, number: int) -> list[_State]:
    """Return a reading with the margins after the round before, in every way that the next roots' sums allow."""
    forest = sent.forest
    records = len(state.labels)
    before = list(forest.of_round(round_number - 1))
    # Of splits at the largest depth only both children together are known.
    open_leaves: list[list[tuple[int, ...]]] = []
    for i in range(records):
        leaves = [_leaves(sent, position, state.nodes[position][i], number) for position in before]
        if math.prod(map(len, leaves)) > MOST:
            raise _TooManyReadingsError
        open_leaves.append(list(itertools.product(*leaves)))
    margins = []
    for i, combinations in enumerate(open_leaves):
        options = np.repeat(state.margins[i][None], len(combinations), axis=0)
        for option, leaves in enumerate(combinations):
            for position, leaf in zip(before, leaves, strict=True):
                tree = forest.trees[position]
                options[option, tree.output] += tree.condition[leaf]
        margins.append(options)
    chosen = [(0,) * records]
    if any(len(listed) > 1 for listed in open_leaves):
        values = [
            forest.gradients(margin, np.full(len(margin), state.labels[i])).astype(np.float64).reshape(len(margin), -1)
            for i, margin in enumerate(margins)
        ]
        roots = [
            sent.message.sums[position][sent.place[position][0], number] for position in forest.of_round(round_number)
        ]
        by_output = {forest.trees[p].output: root for p, root in zip(forest.of_round(round_number), roots, strict=True)}
        target = np.concatenate([by_output[k] for k in range(forest.outputs)])
        solutions = choices(values, target, _allowed(records, state.margins, forest))
        if solutions is None:
            raise _TooManyReadingsError
        chosen = solutions
    states: dict[tuple[bytes, ...], _State] = {}
    for choice in chosen:
        after = np.stack([margins[i][option] for i, option in enumerate(choice)])
        nodes = list(state.nodes)
        for place, position in enumerate(before):
            nodes[position] = tuple(open_leaves[i][option][place] for i, option in enumerate(choice))
        new = replace(state, margins=after, nodes=tuple(nodes))
        # Records that are alike may be exchanged.
        states.setdefault(_content(new), new)
        _followed(states)
    return list(states.values())


def _leaves(sent: Sent, position: int, node: int, number: int) -> list[int]:
    """Return the leaves that a record of a bin may have reached below the deepest node that sums were sent for."""
    tree = sent.forest.trees[position]
    if tree.left[node] < 0:
        return [node]
    side = sent.split_by(tree, node, number)
    left, right = int(tree.left[node]), int(tree.right[node])
    return [left, right] if side is None else [left if side else right]
