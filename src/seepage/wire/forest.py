"""Boosted trees as xgboost writes them: reading of its JSON, the path of each row, gradients at any number of trees."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NotRequired, TypedDict, get_args

import numpy as np
from jaxtyping import Float, Float32, Int, Shaped

from seepage.errors import BadInputError

Objective = Literal["binary:logistic", "multi:softprob", "reg:squarederror"]
_OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
# Fields of a tree that say more than how it predicts.
FIELDS = ("sum_hessian", "base_weights", "loss_changes")
# As in xgboost: second derivatives do not fall below this.
_LEAST_HESSIAN = np.float32(1e-16)
# Each class has a margin of its own: more fill the memory.
_MOST_CLASSES = 10_000


class TreeFile(TypedDict):
    """What is read of a tree of xgboost's JSON, whose parameters are text; the further ``FIELDS`` may be left out."""

    tree_param: dict[str, str]
    categories: NotRequired[list[int]]
    left_children: list[int]
    right_children: list[int]
    split_indices: list[int]
    split_conditions: list[float]
    sum_hessian: NotRequired[list[float]]
    base_weights: NotRequired[list[float]]
    loss_changes: NotRequired[list[float]]
    id: int


class TreesFile(TypedDict):
    """The trees of a model, the class of each, and the number of them after each round."""

    trees: list[TreeFile]
    tree_info: list[int]
    iteration_indptr: list[int]
    gbtree_model_param: dict[str, str]


class BoosterFile(TypedDict):
    """A booster of trees."""

    name: str
    model: TreesFile


class LearnerFile(TypedDict):
    """What a model learns and by which booster."""

    gradient_booster: BoosterFile
    objective: dict[str, str]
    learner_model_param: dict[str, str]


class ModelFile(TypedDict):
    """A model in xgboost's JSON."""

    learner: LearnerFile


@dataclass(frozen=True)
class Tree:
    """One regression tree; arrays have one entry a node, the root first.

    Attributes:
        left, right: number of the children, -1 for a leaf.
        condition: value of a split, below which a row goes left; for a leaf, its contribution to the margin.
        output: class whose margin the tree adds to; 0 with a single margin.
        hessian, weight, gain: ``sum_hessian``, ``base_weights`` (before the split), ``loss_changes``; None if not sent.
    """

    left: Int[np.ndarray, " node"]
    right: Int[np.ndarray, " node"]
    column: Int[np.ndarray, " node"]
    condition: Float32[np.ndarray, " node"]
    output: int = 0
    hessian: Float[np.ndarray, " node"] | None = None
    weight: Float[np.ndarray, " node"] | None = None
    gain: Float[np.ndarray, " node"] | None = None

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.left)

    @property
    def leaves(self) -> Int[np.ndarray, " leaf"]:
        """Numbers of the leaves."""
        return np.flatnonzero(self.left < 0)

    @property
    def depth(self) -> Int[np.ndarray, " node"]:
        """Depth of each node, 0 for the root."""
        depth = np.zeros(self.nodes, dtype=np.int64)
        for node in range(self.nodes):
            if self.left[node] >= 0:
                depth[[self.left[node], self.right[node]]] = depth[node] + 1
        return depth

    def members(self, rows: Float32[np.ndarray, "row encoded"]) -> list[Int[np.ndarray, " _member"]]:
        """Return the positions of the rows that reach each node."""
        by_node: list[Int[np.ndarray, " _member"]] = [np.arange(len(rows))] + [np.arange(0)] * (self.nodes - 1)
        for node in range(self.nodes):
            if self.left[node] >= 0:
                members = by_node[node]
                left = rows[members, self.column[node]] < self.condition[node]
                by_node[self.left[node]], by_node[self.right[node]] = members[left], members[~left]
        return by_node

    def leaf_of(self, rows: Float32[np.ndarray, "row encoded"]) -> Int[np.ndarray, " row"]:
        """Return the leaf that each row reaches."""
        leaf = np.zeros(len(rows), dtype=np.int64)
        for node, members in enumerate(self.members(rows)):
            if self.left[node] < 0:
                leaf[members] = node
        return leaf

    def boxes(self, columns: int) -> Float[np.ndarray, "node encoded 2"]:
        """Return the interval of each encoded column, lower end included, that rows of a node lie in."""
        boxes = np.empty((self.nodes, columns, 2))
        boxes[0] = -np.inf, np.inf
        for node in range(self.nodes):
            if self.left[node] >= 0:
                column, value = self.column[node], float(self.condition[node])
                boxes[self.left[node]] = boxes[self.right[node]] = boxes[node]
                boxes[self.left[node], column, 1] = min(boxes[node, column, 1], value)
                boxes[self.right[node], column, 0] = max(boxes[node, column, 0], value)
        return boxes


@dataclass(frozen=True)
class Forest:
    """An ensemble of boosted trees; those of a round, of which ``rounds`` has the ends, have the same gradients."""

    objective: Objective
    intercept: Float32[np.ndarray, " output"]
    rounds: tuple[int, ...]
    trees: tuple[Tree, ...]
    columns: int

    @property
    def outputs(self) -> int:
        """Number of margins of a row."""
        return len(self.intercept)

    @property
    def labels(self) -> int | None:
        """Number of classes; None for a regression."""
        return None if self.objective == "reg:squarederror" else max(2, self.outputs)

    def of_round(self, number: int) -> range:
        """Return the positions of the trees of a round."""
        return range(0 if number == 0 else self.rounds[number - 1], self.rounds[number])

    def first(self, rounds: int) -> Forest:
        """Return the ensemble after its first rounds."""
        ends = self.rounds[:rounds]
        return replace(self, rounds=ends, trees=self.trees[: ends[-1] if ends else 0])

    def margins(self, rows: Float32[np.ndarray, "row encoded"]) -> Float32[np.ndarray, "row output"]:
        """Return the margins of rows, added up in the order and precision of xgboost."""
        margins = np.tile(self.intercept, (len(rows), 1))
        for tree in self.trees:
            margins[:, tree.output] += tree.condition[tree.leaf_of(rows)]
        return margins

    def gradients(
        self, margins: Float32[np.ndarray, "row output"], labels: Shaped[np.ndarray, " row"]
    ) -> Float32[np.ndarray, "row output 2"]:
        """Return first and second derivatives of each row's loss by its margins, in single precision as xgboost's."""
        unit = np.float32(1)
        if self.objective == "reg:squarederror":
            first = margins - labels.astype(np.float32)[:, None]
            return np.stack([first, np.ones_like(first)], axis=-1)
        if self.objective == "binary:logistic":
            # Beyond this xgboost cuts the margin off, so that the exponential stays finite.
            chances = unit / (unit + np.exp(np.minimum(-margins, np.float32(88.7))))
            second = np.maximum(chances * (unit - chances), _LEAST_HESSIAN)
            return np.stack([chances - labels.astype(np.float32)[:, None], second], axis=-1)
        raised = np.exp(margins - margins.max(1, keepdims=True))
        chances = raised / raised.sum(1, keepdims=True, dtype=np.float32)
        second = np.maximum(np.float32(2) * chances * (unit - chances), _LEAST_HESSIAN)
        shown = np.arange(self.outputs) == labels.astype(np.int64)[:, None]
        return np.stack([chances - shown.astype(np.float32), second], axis=-1)

    def stripped(self, fields: Sequence[str]) -> Forest:
        """Return the ensemble without some of ``FIELDS``."""
        names = {"sum_hessian": "hessian", "base_weights": "weight", "loss_changes": "gain"}
        none: dict[str, Any] = {names[field]: None for field in fields}
        return replace(self, trees=tuple(replace(tree, **none) for tree in self.trees))


def read_forest(content: ModelFile | Mapping[str, Any] | str | bytes, origin: str = "the tree file") -> Forest:
    """Return the ensemble of an xgboost model in JSON, as text or parsed; refuse other trees with BadInputError."""
    if isinstance(content, str | bytes):
        try:
            content = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise BadInputError(
                f"{origin} is no JSON ({error}); save the model with Booster.save_model('model.json')."
            ) from error
    learner = content.get("learner") if isinstance(content, Mapping) else None
    if not isinstance(learner, Mapping):
        raise BadInputError(
            f"{origin} has no 'learner', so it is no model of xgboost; save one with Booster.save_model('model.json')."
        )
    try:
        return _forest(learner, origin)
    except BadInputError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError) as error:
        raise BadInputError(
            f"{origin} lacks or garbles the field {error} of an xgboost model; save it again with "
            "Booster.save_model('model.json')."
        ) from error


def _forest(learner: Mapping[str, Any], origin: str) -> Forest:
    booster = learner["gradient_booster"]
    if booster["name"] != "gbtree":
        raise BadInputError(
            f"{origin} is of the booster {booster['name']!r}; trees that are dropped or linear boosters follow other "
            "rules, so give a model of 'gbtree'."
        )
    objective = learner["objective"]["name"]
    if objective == "multi:softmax":
        # The same trees; only predictions differ.
        objective = "multi:softprob"
    if objective not in _OBJECTIVES:
        raise BadInputError(f"{origin} descends {objective!r}; give a model of one of {', '.join(_OBJECTIVES)}.")
    about = learner["learner_model_param"]
    if int(about.get("num_target", 1)) > 1:
        raise BadInputError(f"{origin} learns {about['num_target']} targets at once; give a model of one target.")
    outputs = max(1, int(about["num_class"]))
    if outputs > _MOST_CLASSES:
        raise BadInputError(f"{origin} has {outputs:,} classes; at most {_MOST_CLASSES:,} are read here.")
    base = [float(value) for value in str(about["base_score"]).strip("[]").split(",")]
    if not all(map(math.isfinite, base)) or (objective == "binary:logistic" and not 0 < base[0] < 1):
        raise BadInputError(f"{origin} has the base score {about['base_score']}, which is none of {objective!r}.")
    scores = np.array(base if len(base) == outputs else base[:1] * outputs, dtype=np.float32)
    if objective == "binary:logistic":
        unit = np.float32(1)
        scores = -np.log(unit / scores - unit)
    model = booster["model"]
    kinds = model["tree_info"]
    trees = tuple(_tree(raw, int(kind), origin) for raw, kind in zip(model["trees"], kinds, strict=True))
    parallel = int(model["gbtree_model_param"].get("num_parallel_tree", 1))
    pointers = model.get("iteration_indptr") or list(range(0, len(trees) + 1, outputs * parallel))
    columns = int(about["num_feature"])
    splits = [tree.column[tree.left >= 0] for tree in trees]
    if any(((columns_of < 0) | (columns_of >= columns)).any() for columns_of in splits):
        raise BadInputError(f"{origin} splits on a column beyond the {columns} that it says it has.")
    rounds = tuple(int(pointer) for pointer in pointers[1:])
    if any(not 0 <= tree.output < outputs for tree in trees) or [*rounds] != sorted({*rounds, len(trees)} - {0}):
        raise BadInputError(f"{origin} has trees of classes or rounds that it does not have; save the model again.")
    return Forest(objective, scores, rounds, trees, columns)


def _tree(content: TreeFile, output: int, origin: str) -> Tree:
    if content.get("categories"):
        raise BadInputError(
            f"{origin} splits on sets of categories (enable_categorical); such splits are not read here, so train on "
            "one-hot columns."
        )
    if int(content["tree_param"].get("size_leaf_vector", 1)) > 1:
        raise BadInputError(f"{origin} has leaves with several values (multi_output_tree); train one output a tree.")
    left, right = (np.array(content[name], dtype=np.int64) for name in ("left_children", "right_children"))
    nodes = len(left)
    if left.shape != right.shape:
        raise BadInputError(f"{origin} has a tree whose fields differ in length or are not finite; save it again.")
    inner = np.flatnonzero(left >= 0)
    # Children come after their parent, and each once.
    children = np.concatenate([left[inner], right[inner]])
    if nodes == 0 or (right[inner] < 0).any() or (children <= np.tile(inner, 2)).any() or (children >= nodes).any():
        raise BadInputError(f"{origin} has a tree whose nodes are no tree; save the model again.")
    if len(np.unique(children)) < len(children) or len(children) != nodes - 1:
        raise BadInputError(f"{origin} has a tree with nodes that none or several others lead to; save it again.")
    optional = {
        attribute: np.array(content[name], dtype=np.float64) if content.get(name) else None
        for attribute, name in (("hessian", "sum_hessian"), ("weight", "base_weights"), ("gain", "loss_changes"))
    }
    column = np.array(content["split_indices"], dtype=np.int64)
    condition = np.array(content["split_conditions"], dtype=np.float32)
    arrays = [right, column, condition, *(array for array in optional.values() if array is not None)]
    if any(array.shape != (nodes,) for array in arrays) or not np.isfinite(condition).all():
        raise BadInputError(f"{origin} has a tree whose fields differ in length or are not finite; save it again.")
    return Tree(left, right, column, condition, output, **optional)
