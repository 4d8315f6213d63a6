"""Federated boosted trees: what clients send by bagging, in a cycle, or as histograms of trees grown together.

Trees are those of xgboost itself (extra ``trees``). Histograms are the sums that its workers add up over the network:
in double precision, of derivatives in single precision.

A tree lowers the loss to second order (Chen and Guestrin, KDD 2016, equations 5 and 7, without their gamma). With G and
H the sums of first and second derivatives over the rows of a node, r the regularisation and e the learning rate, a leaf
has the value ``-e G / (H + r)``, and a split gains

    G_L^2 / (H_L + r) + G_R^2 / (H_R + r) - G^2 / (H + r),

half of which the loss falls by. All of it follows from the sums of G and H by column and bin: the left side of a split
behind a bin has the sums of all bins up to it, the right side the rest. So these histograms are all that clients send,
and with noise on them the same formulas hold, with H cut off at 0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int, Shaped
from torch import Tensor

from seepage.errors import BadInputError
from seepage.packages import LazyModule, extra
from seepage.tabular.encoder import Encoder, Scaling
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.wire.forest import Forest, ModelFile, Objective, Tree, read_forest
from seepage.wire.trees import Cuts, FileMessage, HistogramMessage

if TYPE_CHECKING:
    import xgboost
else:
    xgboost = LazyModule("xgboost")

Protocol = Literal["histogram", "bagging", "cyclic"]
Rows = Float32[np.ndarray, "row encoded"]
Sums = Float[np.ndarray, "bin 2"]
# As in xgboost, a split has to gain more than this.
_LEAST_GAIN = 1e-6
Labels = Shaped[np.ndarray, " row"]
Parts = Sequence[Float32[np.ndarray, "_row encoded"]]  # the rows of each client
PartLabels = Sequence[Shaped[np.ndarray, " _row"]]


@dataclass(frozen=True)
class Boosting:
    """Recipe of boosted trees, in the words of xgboost; ``classes`` is 1 for a regression.

    xgboost estimates the ``base_score``, the prediction before the first tree, from all labels if None.
    """

    objective: Objective
    classes: int
    rounds: int = 50
    depth: int = 6
    learning_rate: float = 0.3
    regularisation: float = 1.0
    min_child_weight: float = 1.0
    max_bin: int = 256
    base_score: float | None = None

    @property
    def parameters(self) -> dict[str, str | int | float]:
        """Parameters for ``xgboost.train``."""
        given: dict[str, str | int | float] = {
            "objective": self.objective,
            "tree_method": "hist",
            "max_depth": self.depth,
            "eta": self.learning_rate,
            "lambda": self.regularisation,
            "min_child_weight": self.min_child_weight,
            "max_bin": self.max_bin,
            "nthread": 1,
        }
        if self.objective == "multi:softprob":
            given["num_class"] = self.classes
        return given if self.base_score is None else {**given, "base_score": self.base_score}


def objective_of(schema: Schema) -> tuple[Objective, int]:
    """Return the loss of a target, and its number of classes."""
    target = schema.target
    if not isinstance(target, Discrete):
        return "reg:squarederror", 1
    if target.width < 2:
        raise BadInputError(
            f"the target {target.name!r} has one category, {target.categories[0]!r}, so that trees have nothing to "
            "learn; choose another target."
        )
    return ("binary:logistic", 2) if target.width == 2 else ("multi:softprob", target.width)


def encoded(schema: Schema, statistics: Statistics, cells: Float[Tensor, "row column"]) -> Rows:
    """Return rows as trees take them: numbers as they are, a column of 0 and 1 for each category."""
    plain = Scaling(torch.zeros(schema.width, dtype=torch.float64), torch.ones(schema.width, dtype=torch.float64))
    rows: Rows = Encoder(schema, plain).encode(cells).float().numpy()
    return rows


def check_installed() -> None:
    """Refuse to go on without xgboost, with MissingExtraError."""
    with extra("trees", "xgboost", "xgboost"):
        # What is used, not only its name: python -O leaves out assertions, and remains of a folder can be imported.
        from xgboost import Booster, QuantileDMatrix, train  # noqa: F401, PLC0415


def matrix(rows: Rows, labels: Labels, recipe: Boosting) -> xgboost.QuantileDMatrix:
    """Return rows in bins, as xgboost makes them."""
    return xgboost.QuantileDMatrix(rows, label=labels, max_bin=recipe.max_bin, nthread=1)


def margins_by_round(
    rows: Rows, labels: Labels, chosen: Int[np.ndarray, "model trained"], recipe: Boosting, rounds: Sequence[int]
) -> list[Float[Tensor, "model row label"]]:
    """Return logits of all rows under models of single trainings, each on its own rows, after some of their rounds.

    Trees that clients grow together from their sums are those of one training on the rows of all.
    """
    of_models = []
    for trained in chosen:
        booster, _ = train_together([rows[trained]], [labels[trained]], recipe)
        margins = [booster.inplace_predict(rows, iteration_range=(0, end), predict_type="margin") for end in rounds]
        # Of two classes the first one has the logit 0.
        of_models.append([m if m.ndim == 2 else np.stack([np.zeros_like(m), m], 1) for m in margins])
    return [torch.from_numpy(np.stack(of_round)) for of_round in zip(*of_models, strict=True)]


def cuts_of(binned: xgboost.QuantileDMatrix) -> Cuts:
    """Return the bins of rows, as xgboost made them."""
    start, values = binned.get_quantile_cut()
    starts = np.asarray(start, dtype=np.int64)
    # Before the ends of each column's bins stands a number below all its values.
    ends = np.delete(np.asarray(values, dtype=np.float32), starts[:-1])
    return Cuts(starts - np.arange(len(starts)), ends)


def forest_of(booster: xgboost.Booster) -> Forest:
    """Return the trees of a booster, from the JSON that it writes."""
    return read_forest(bytes(booster.save_raw("json")), "the model")


def histograms(forest: Forest, cuts: Cuts, rows: Rows, labels: Labels, depth: int) -> HistogramMessage:
    """Return a client's histograms for trees that all clients grow together.

    xgboost builds a histogram for each node that may be split: those above the largest depth. Of two children it sends
    the one with fewer rows, and every party gets the other by subtraction; here both are there.
    """
    binned = cuts.binned(rows)
    margins = np.tile(forest.intercept, (len(rows), 1))
    nodes, sums = [], []
    for number in range(len(forest.rounds)):
        gradients = forest.gradients(margins, labels).astype(np.float64)
        for position in forest.of_round(number):
            tree = forest.trees[position]
            members = tree.members(rows)
            inner = np.flatnonzero(tree.depth < depth)
            nodes.append(inner)
            tree_gradients = gradients[:, tree.output]
            sums.append(np.stack([_sums(binned[members[v]], tree_gradients[members[v]], cuts.bins) for v in inner]))
            for leaf in tree.leaves:
                margins[members[leaf], tree.output] += tree.condition[leaf]
    return HistogramMessage(forest, cuts, tuple(nodes), tuple(sums))


def _sums(binned: np.ndarray, gradients: Float[np.ndarray, "row 2"], bins: int) -> Float[np.ndarray, "bin 2"]:
    flat = binned.ravel()
    repeated = np.repeat(gradients, binned.shape[1], axis=0)
    # Counts of no rows at all come as whole numbers.
    return np.stack([np.bincount(flat, repeated[:, s], minlength=bins) for s in range(2)], axis=-1).astype(np.float64)


@dataclass(frozen=True)
class PassiveColumns:
    """Encoded columns whose sums another party sends, so that they alone have noise, where rows are the same for all.

    Sums of nodes are then known exactly. The first ``without`` rounds split on none of these columns.
    """

    encoded: Bool[np.ndarray, " encoded"]
    without: int = 0


def grow_together(
    parts: Parts,
    labels: PartLabels,
    recipe: Boosting,
    noise: Callable[[Sums], Sums],
    observed: Sequence[int],
    passive: PassiveColumns | None = None,
) -> tuple[Forest, HistogramMessage]:
    """Return trees that are grown from the sums of all clients after a defense, and the sums that some of them sent.

    The rule is that of xgboost's depth-wise growth; without noise its trees come out. Sums are sent for both children
    of a split, each with noise of its own; those of the ``observed`` clients are added up. With ``passive`` columns
    there is one client: all rows, whose columns are shared out.
    """
    cuts = cuts_of(matrix(np.concatenate(parts), np.concatenate(labels), recipe))
    binned = [cuts.binned(rows) for rows in parts]
    forest = Forest(recipe.objective, _intercept(recipe), (), (), cuts.columns)
    margins = [np.tile(forest.intercept, (len(rows), 1)) for rows in parts]
    trees: list[Tree] = []
    nodes: list[np.ndarray] = []
    sums: list[np.ndarray] = []
    noisy_bins = np.zeros(cuts.bins, bool) if passive is None else np.repeat(passive.encoded, np.diff(cuts.start))
    for number in range(recipe.rounds):
        barred = noisy_bins if passive is not None and number < passive.without else None
        rule = _Rule(cuts, recipe, noise, None if passive is None else noisy_bins, barred)
        gradients = [forest.gradients(m, true).astype(np.float64) for m, true in zip(margins, labels, strict=True)]
        grown = []
        for output in range(forest.outputs):
            of_output = [g[:, output] for g in gradients]
            tree, by_node = _grown(binned, of_output, parts, rule, observed, output)
            grown.append(tree)
            nodes.append(np.array(list(by_node)))
            sums.append(np.stack(list(by_node.values())))
        for tree in grown:
            for rows, m in zip(parts, margins, strict=True):
                m[:, tree.output] += tree.condition[tree.leaf_of(rows)]
        trees += grown
    ends = tuple(range(forest.outputs, len(trees) + 1, forest.outputs))
    forest = replace(forest, rounds=ends, trees=tuple(trees))
    return forest, HistogramMessage(forest, cuts, tuple(nodes), tuple(sums))


def _intercept(recipe: Boosting) -> Float32[np.ndarray, " output"]:
    assert recipe.base_score is not None
    score = recipe.base_score
    if recipe.objective == "binary:logistic":
        return np.array([math.log(score / (1 - score))], dtype=np.float32)
    return np.full(recipe.classes, score, dtype=np.float32)


@dataclass(frozen=True)
class _Rule:
    """How the trees of a round grow: bins, recipe, defense; bins with noise (all if None), and bins without splits."""

    cuts: Cuts
    recipe: Boosting
    noise: Callable[[Sums], Sums]
    noisy: Bool[np.ndarray, " bin"] | None
    barred: Bool[np.ndarray, " bin"] | None

    def defended(self, sums: Sums) -> Sums:
        """Return sums as they are sent."""
        if self.noisy is None:
            return self.noise(sums)
        sums[self.noisy] = self.noise(sums[self.noisy])
        return sums


def _grown(
    binned: Sequence[np.ndarray],
    gradients: Sequence[np.ndarray],
    parts: Parts,
    rule: _Rule,
    observed: Sequence[int],
    output: int,
) -> tuple[Tree, dict[int, Sums]]:
    """Return one tree, and the sums that the observed clients sent for each of its nodes."""
    cuts, recipe = rule.cuts, rule.recipe
    left, right, column, condition = [-1], [-1], [0], [0.0]
    depth = [0]
    members = [[np.arange(len(rows)) for rows in parts]]
    totals: list[np.ndarray | None] = [None]
    by_node: dict[int, Sums] = {}
    node = 0
    while node < len(left):
        split = None
        if rule.noisy is not None:
            totals[node] = np.sum(
                [g[mask].sum(axis=0) for g, mask in zip(gradients, members[node], strict=True)], axis=0
            )
        if depth[node] < recipe.depth:
            sent = [
                rule.defended(_sums(b[mask], g[mask], cuts.bins))
                for b, g, mask in zip(binned, gradients, members[node], strict=True)
            ]
            by_node[node] = np.sum([sent[k] for k in observed], axis=0)
            together = np.sum(sent, axis=0)
            total = None if rule.noisy is None else totals[node]
            if total is None:
                # Every column adds up to the node's own sums, up to noise.
                total = np.add.reduceat(together, cuts.start[:-1]).mean(axis=0)
            totals[node] = total
            split = _best_split(together, total, rule)
        if split is None:
            total = totals[node]
            assert total is not None
            condition[node] = recipe.learning_rate * -total[0] / (max(total[1], 0.0) + recipe.regularisation)
        else:
            place, left_total, rest = split
            column[node] = int(np.searchsorted(cuts.start, place, side="right")) - 1
            condition[node] = float(cuts.values[place])
            there = zip(parts, members[node], strict=True)
            goes = [rows[mask, column[node]] < cuts.values[place] for rows, mask in there]
            left[node], right[node] = len(left), len(left) + 1
            for total, side in ((left_total, True), (rest, False)):
                left.append(-1)
                right.append(-1)
                column.append(0)
                condition.append(0.0)
                depth.append(depth[node] + 1)
                totals.append(total)
                members.append([mask[g == side] for mask, g in zip(members[node], goes, strict=True)])
        node += 1
    arrays = (np.array(left), np.array(right), np.array(column), np.array(condition, dtype=np.float32))
    return Tree(*arrays, output=output), by_node


def _best_split(
    sums: Sums, total: Float[np.ndarray, " 2"], rule: _Rule
) -> tuple[int, Float[np.ndarray, " 2"], Float[np.ndarray, " 2"]] | None:
    """Return the last bin that goes left, and the sums of both sides; None where no split gains anything."""
    cuts, recipe = rule.cuts, rule.recipe
    running = np.cumsum(sums, axis=0)
    before = np.concatenate([np.zeros((1, 2)), running])[cuts.start[:-1]]
    below = running - np.repeat(before, np.diff(cuts.start), axis=0)
    above = total - below

    def score(part: Float[np.ndarray, "*some 2"]) -> Shaped[np.ndarray, "*some"]:
        squared = np.square(part[..., 0])
        return np.asarray(squared / (np.maximum(part[..., 1], 0) + recipe.regularisation))

    gain = score(below) + score(above) - score(total)
    least = np.minimum(below[:, 1], above[:, 1])
    # Beyond the last bin of a column nothing is left.
    gain[cuts.start[1:] - 1] = -np.inf
    gain[(least < recipe.min_child_weight) | (least <= 0)] = -np.inf
    if rule.barred is not None:
        gain[rule.barred] = -np.inf
    best = int(gain.argmax())
    return (best, below[best], above[best]) if gain[best] > _LEAST_GAIN else None


def train_together(parts: Parts, labels: PartLabels, recipe: Boosting) -> tuple[xgboost.Booster, Cuts]:
    """Return trees that clients grow together, and their bins: those of all rows in one place.

    Where clients add up histograms, the trees are those of their rows together, up to the order of sums; their
    sketches of quantiles are merged, which here are taken of all rows at once.
    """
    check_installed()
    classes = np.concatenate(labels)
    if recipe.objective == "binary:logistic" and recipe.base_score is None and len(set(classes.tolist())) == 1:
        # Of a single class xgboost estimates a chance of 0 or 1, which it does not read again.
        recipe = replace(recipe, base_score=float((classes.sum() + 0.5) / (len(classes) + 1)))
    binned = matrix(np.concatenate(parts), classes, recipe)
    return xgboost.train(recipe.parameters, binned, recipe.rounds), cuts_of(binned)


def bagging(parts: Parts, labels: PartLabels, recipe: Boosting) -> tuple[xgboost.Booster, list[FileMessage]]:
    """Return the global model and each client's messages, where all clients add trees in every round.

    As in Flower's XGBoost strategies: a client boosts the global model by one round on its own rows, and sends the new
    trees alone; the server appends the trees of all clients.
    """
    return _by_files(parts, labels, recipe, lambda number: range(len(parts)))


def cyclic(parts: Parts, labels: PartLabels, recipe: Boosting) -> tuple[xgboost.Booster, list[FileMessage]]:
    """Return the global model and each client's messages, where one client after another adds a round of trees."""
    return _by_files(parts, labels, recipe, lambda number: range(number % len(parts), number % len(parts) + 1))


def _by_files(
    parts: Parts, labels: PartLabels, recipe: Boosting, turns: Callable[[int], Iterable[int]]
) -> tuple[xgboost.Booster, list[FileMessage]]:
    check_installed()
    # In bins, rows would pass through other clients' trees by the bins' ends.
    matrices = [xgboost.DMatrix(rows, label=true, nthread=1) for rows, true in zip(parts, labels, strict=True)]
    # Clients agree on it before training; otherwise each would estimate its own.
    score = recipe.base_score
    if score is None:
        score = 0.5 if recipe.objective != "reg:squarederror" else float(np.mean(np.concatenate(labels)))
    parameters = {**recipe.parameters, "base_score": score}
    outputs = recipe.classes if recipe.objective == "multi:softprob" else 1
    content: ModelFile | None = None
    grown: list[list[int]] = [[] for _ in parts]
    before: list[list[int]] = [[] for _ in parts]
    total = 0
    for number in range(recipe.rounds):
        sent = []
        for client in turns(number):
            start = None if content is None else xgboost.Booster(parameters, model_file=_bytes(content))
            boosted = xgboost.train(parameters, matrices[client], 1, xgb_model=start)
            sent.append((client, json.loads(bytes(boosted[boosted.num_boosted_rounds() - 1 :].save_raw("json")))))
        started = total
        for client, new in sent:
            content = new if content is None else _appended(content, new)
            grown[client] += range(total, total + outputs)
            before[client] += [started] * outputs
            total += outputs
    assert content is not None
    model = xgboost.Booster(parameters, model_file=_bytes(content))
    forest = read_forest(content, "the global model")
    return model, [FileMessage(forest, tuple(o), tuple(b)) for o, b in zip(grown, before, strict=True)]


def _bytes(content: ModelFile) -> bytearray:
    return bytearray(json.dumps(content).encode())


def _appended(content: ModelFile, new: ModelFile) -> ModelFile:
    """Return a model with the trees of another one behind its own, as Flower's server aggregates them."""
    model, further = (forest["learner"]["gradient_booster"]["model"] for forest in (content, new))
    trees = len(model["trees"])
    for number, (tree, kind) in enumerate(zip(further["trees"], further["tree_info"], strict=True)):
        model["trees"].append({**tree, "id": trees + number})
        model["tree_info"].append(kind)
    model["gbtree_model_param"]["num_trees"] = str(len(model["trees"]))
    model["iteration_indptr"].append(len(model["trees"]))
    return content
