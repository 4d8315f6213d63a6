"""Tree files of a real federation: reading them, and what they give away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from seepage.attacks.trees.files import Hessians, LeafCounts, Thresholds
from seepage.attacks.trees.timberstrike import TimberStrike
from seepage.captures.audit import Attacked, RecordsExposure, run_parts
from seepage.captures.spec import AttackSpec, TreeFilesSpec
from seepage.digests import Json, plain
from seepage.errors import BadInputError
from seepage.settings.setting import About
from seepage.settings.trees.audit import METRICS, TREES_SCALES
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from seepage.wire.forest import read_forest
from seepage.wire.horizontal import RecordsGuess
from seepage.wire.trees import FileMessage, TreeFilesView, TreesKnowledge

SUFFIX = ".json"
# Weights of a file that was grown with this recipe add up within this share.
_RECIPE = 1e-3


@dataclass(frozen=True)
class ReadTrees:
    """The results of the attacks on a client's tree files.

    ``leaves`` has the number of rows of each class in every leaf of the first tree, where it is known, and
    ``recovered`` the sums of second derivatives of every node of each tree.
    """

    attacked: Attacked
    records: int
    leaves: tuple[tuple[int, ...], ...]
    values: Mapping[str, tuple[float, ...]]
    recovered: tuple[tuple[float, ...], ...]
    guess: RecordsGuess

    def to_plain(self) -> dict[str, Json]:
        """Return all results but the records as JSON values; an unknown sum is None."""
        hessians: list[Json] = [[None if value != value else value for value in sums] for sums in self.recovered]
        return {
            "records": self.records,
            "leaf_counts": [list(counts) for counts in self.leaves],
            "thresholds": {name: list(values) for name, values in self.values.items()},
            "sum_hessian": hessians,
        }


def is_tree_file(path: Path) -> bool:
    """Return whether a path is a tree file in JSON, or a folder of them and of no other captures."""
    if path.is_dir():
        return any(path.glob(f"*{SUFFIX}")) and not any(path.glob("*.safetensors"))
    return path.suffix == SUFFIX


def load_tree_files(path: Path, columns: int) -> FileMessage:
    """Return the trees of a client: those of one xgboost file in JSON, or of all files of a folder by name."""
    files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    forests = []
    for file in files:
        try:
            forests.append(read_forest(file.read_bytes(), repr(str(file))))
        except OSError as error:
            raise BadInputError(f"the tree file {str(file)!r} cannot be read: {error}.") from error
    for file, forest in zip(files, forests, strict=True):
        if forest.columns != columns:
            raise BadInputError(
                f"{str(file)!r} has trees of {forest.columns} columns, but the schema encodes {columns}: numbers as "
                "they are, a column of 0 and 1 for each category; give the schema that the client trained with."
            )
        if (forest.objective, forest.outputs) != (forests[0].objective, forests[0].outputs):
            raise BadInputError(f"{str(file)!r} learns another target than {str(files[0])!r}; give files of one run.")
        if not forest.trees:
            raise BadInputError(f"{str(file)!r} has no tree; give the model after a round of boosting.")
    trees = tuple(tree for forest in forests for tree in forest.trees)
    outputs = forests[0].outputs
    if len(trees) % outputs:
        raise BadInputError(
            f"the files have {len(trees)} trees of {outputs} classes each round; give whole rounds of one client."
        )
    forest = replace(forests[0], trees=trees, rounds=tuple(range(outputs, len(trees) + 1, outputs)))
    return FileMessage(forest, tuple(range(len(trees))), tuple(t // outputs * outputs for t in range(len(trees))))


def read_trees(
    message: FileMessage, schema: Schema, statistics: Statistics, truth: Table | None, spec: AttackSpec
) -> ReadTrees:
    """Attack the tree files of a client, the first of which was grown from the base score."""
    regularisation, learning_rate, seed = spec.regularisation, spec.learning_rate, spec.seed
    classes = schema.target.width if isinstance(schema.target, Discrete) else None
    if classes != message.forest.labels:
        trees, target = ("numbers" if n is None else f"{n} classes" for n in (message.forest.labels, classes))
        raise BadInputError(
            f"the trees learn {trees}, but the schema's target {schema.target.name!r} has {target}; give the client's "
            "schema."
        )
    _check_recipe(message, regularisation, learning_rate)
    count = _count(message) if spec.batch_size is None else spec.batch_size
    knowledge = TreesKnowledge(schema, statistics, count, regularisation=regularisation, learning_rate=learning_rate)
    view = TreeFilesView((message,))
    counted, listed = LeafCounts()(view, knowledge, [seed]).leaves, Thresholds()(view, knowledge, [seed]).values
    sums = Hessians()(view, knowledge, [seed]).hessians
    assert counted is not None
    assert listed is not None
    assert sums is not None
    leaves = counted[0][0] if counted[0] else np.zeros((0, 1))
    exact = np.isfinite(leaves).all()
    exposure = RecordsExposure(
        view, knowledge, seed, lambda _: TimberStrike()(view, knowledge, [seed]), truth, "trees", METRICS
    )
    if truth is not None and len(truth) != count:
        raise BadInputError(
            f"the truth has {len(truth)} rows, but the trees were grown on {count}; give the rows of the same client."
        )
    facts = About(
        "tree files",
        "bagging",
        f"xgboost ({len(message.own)} trees)",
        lead="What the tree files of a client give away of the rows that they were grown on.",
        message="the tree files",
        size="client size",
        threat_model=(
            "The attacker is whoever receives the files. It has the client's schema, the marginals of public rows and "
            "the recipe of the trees.",
        ),
        scales=TREES_SCALES,
        settings={"seed": seed},
    )
    done = TreeFilesSpec.of(attacks=("timberstrike",), seed=seed, gate=spec.gate)
    granted = cast("Mapping[str, Json]", plain(knowledge.describe()))
    attacked = run_parts(exposure.audit(done, facts, knowledge=granted))
    assert exposure.guess is not None
    return ReadTrees(
        attacked,
        count,
        tuple(tuple(int(value) for value in np.rint(row)) for row in leaves) if exact else (),
        {name: tuple(values.tolist()) for name, values in listed[0].items()},
        tuple(tuple(tree.tolist()) for tree in sums[0]),
        exposure.guess,
    )


def _check_recipe(message: FileMessage, regularisation: float, learning_rate: float) -> None:
    """Refuse lambda and eta with which the first derivatives of children do not add up to their parent's."""
    for tree in message.forest.trees:
        if tree.hessian is None or tree.weight is None:
            continue
        scaled = np.where(tree.left < 0, tree.condition.astype(np.float64) / learning_rate, tree.weight)
        slopes = scaled * (tree.hessian + regularisation)
        inner = np.flatnonzero(tree.left >= 0)
        apart = np.abs(slopes[tree.left[inner]] + slopes[tree.right[inner]] - slopes[inner])
        if len(inner) and float(apart.max()) > _RECIPE * float(np.abs(slopes).max() + 1):
            raise BadInputError(
                f"with lambda {regularisation:g} and eta {learning_rate:g} the weights of a tree's nodes do not add up "
                "to those of their parents; give --regularisation and --learning-rate as the client trained."
            )


def _count(message: FileMessage) -> int:
    tree, forest = message.forest.trees[0], message.forest
    if tree.hessian is None:
        raise BadInputError(
            "the first tree has no 'sum_hessian', so that the number of rows does not follow; give --batch-size, which "
            "clients report to the server."
        )
    of_row = float(forest.gradients(forest.intercept[None], np.zeros(1))[0, 0, 1])
    count = tree.hessian[0] / of_row
    if abs(count - round(count)) > 0.05 or round(count) < 1:
        raise BadInputError(
            f"the first tree was grown on {count:.4g} rows by its sums, which is no whole number: it builds on earlier "
            "trees, or rows have weights; give the client's first file, or --batch-size."
        )
    return round(count)
