"""Tree files of a client as an exposure: the rows that the trees were grown on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, cast

import numpy as np
from pydantic import Field

from seepage.attacks.trees.files import Hessians, LeafCounts, Thresholds
from seepage.captures.trees import forests_at, is_tree_file, load_tree_files
from seepage.digests import Json, plain
from seepage.errors import BadInputError, check_count
from seepage.settings.captured import RECONSTRUCTION, BatchSize, CapturedSpec, ClientSchema, Reader, RecordsExposure
from seepage.settings.findings import Findings, FindingsSection
from seepage.settings.option import PARTIES, Option
from seepage.settings.setting import About
from seepage.settings.trees.audit import METRICS, TREES_SCALES
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import frame_of
from seepage.text import clean
from seepage.wire.horizontal import RecordsGuess
from seepage.wire.trees import FileMessage, TreeFilesView, TreesKnowledge

# Weights of a file that was grown with this recipe add up within this share.
_RECIPE = 1e-3
# Thresholds of a column that are shown at most.
_SHOWN = 4
# Distance from whole numbers up to which sums in single precision are numbers of rows.
_WHOLE = 0.05
_SPLITS = (
    "splits are values of its rows where these are unscaled and tree_method is hist (the default) or approx; with "
    "exact they lie between rows"
)
_NO_VALUES = (
    "splits are no values of its rows: some lie between whole numbers or outside of the schema's bounds, as with "
    "tree_method exact or scaled numbers"
)
_WEIGHTED = (
    "each row counts by its weight (weights, scale_pos_weight), and rows that sampling left out do not count; the file "
    "does not say which: --batch-size or --truth tells the number of rows"
)


class TreeFilesSpec(CapturedSpec):
    """An attack on the tree files of a client."""

    setting: ClassVar[str] = "trees"
    needs: ClassVar[Mapping[str, str]] = {
        "schema_file": "tree files are read with the schema of the client's table",
        "data": "cells that trees do not tell are drawn from public rows of the same kind",
    }

    schema_file: ClientSchema = None
    batch_size: BatchSize = None
    regularisation: Annotated[
        float, Field(ge=0, lt=float("inf")), Option("For tree files: lambda of the client's trees.", PARTIES)
    ] = 1.0
    learning_rate: Annotated[
        float, Field(gt=0, lt=float("inf")), Option("For tree files: eta of the client's trees.", PARTIES)
    ] = 0.3


def read(path: Path, spec: TreeFilesSpec) -> RecordsExposure:
    """Return a client's trees as an exposure, the first of which was grown from the base score."""
    assert spec.schema_file is not None
    schema = Schema.load(spec.schema_file)
    if spec.batch_size is not None:
        check_count("batch_size", spec.batch_size)
    public = spec.read_rows(spec.data, schema)
    assert public is not None
    statistics = Statistics.of(public)
    message = load_tree_files(path, schema.width)
    truth = spec.read_rows(spec.truth, schema)
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
    if truth is not None and len(truth) != count:
        raise BadInputError(
            f"the truth has {len(truth)} rows, but the trees were grown on {count}; give the rows of the same client. "
            "Where these have weights (scale_pos_weight too), give --batch-size; of a sample, give its rows."
        )
    knowledge = TreesKnowledge(schema, statistics, count, regularisation=regularisation, learning_rate=learning_rate)
    view = TreeFilesView((message,))
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
    return RecordsExposure(
        view,
        knowledge,
        seed,
        [seed],
        facts,
        "timberstrike",
        lambda guess, _: _findings(view, knowledge, guess, seed, truth is not None or spec.batch_size is not None),
        truth,
        "trees",
        METRICS,
        granted=cast("Mapping[str, Json]", plain(knowledge.describe())),
    )


def _findings(
    view: TreeFilesView, knowledge: TreesKnowledge, guess: RecordsGuess, seed: int, rows_known: bool
) -> Findings:
    """Return what the trees tell as they are: rows of each class in leaves, thresholds, and sums of every node.

    Leaves are those of the first tree, where they are known; sums are of second derivatives, None where unknown. Rows
    are weighted ones unless their number is known otherwise and fits.
    """
    counted, listed = LeafCounts()(view, knowledge, [seed]).leaves, Thresholds()(view, knowledge, [seed]).values
    sums = Hessians()(view, knowledge, [seed]).hessians
    assert counted is not None
    assert listed is not None
    assert sums is not None
    [message], count = view.messages, knowledge.batch_size
    leaves = counted[0][0] if counted[0] else np.zeros((0, 1))
    whole = np.isfinite(leaves).all() and bool(
        (np.abs(leaves - np.rint(leaves)) <= _WHOLE).all() and (leaves > -1).all()
    )
    counts = [[int(value) for value in np.rint(row)] for row in leaves] if whole else []
    by_sums = _rows_by_sums(message)
    plain_rows = rows_known and (not counts or sum(map(sum, counts)) == count)
    plain_rows = plain_rows and (by_sums is None or abs(by_sums - count) <= _WHOLE)
    rows = "rows" if plain_rows else "weighted rows"
    of_class = "" if message.forest.labels is None else " of each class"
    points = [] if plain_rows else [_WEIGHTED]
    if counts:
        points.append(f"{rows}{of_class} in the first tree's {len(counts)} leaves are known exactly")
    thresholds = {name: values for name, values in listed[0].items() if len(values)}
    if not _may_be_values(message, knowledge.schema):
        thresholds = {}
        points.append(_NO_VALUES)
    elif thresholds:
        points.append(_SPLITS)
    for name, values in thresholds.items():
        listing = ", ".join(f"{value:g}" for value in values[:_SHOWN]) + ", ..." * (len(values) > _SHOWN)
        points.append(f"{clean(name, 32)}: split at {listing}")
    figures = {
        "records": count,
        "rows_weighted": not plain_rows,
        "leaf_counts": counts,
        "thresholds": {name: values.tolist() for name, values in thresholds.items()},
        "sum_hessian": [[None if value != value else value for value in tree.tolist()] for tree in sums[0]],
    }
    # A number that was given or is that of the truth is one of rows; what sums tell may be weights.
    of = "rows" if rows_known else "weighted rows"
    section = FindingsSection(f"{len(sums[0])} trees of a client with {count} {of}", points=tuple(points))
    return Findings((section,), figures, {RECONSTRUCTION: frame_of(knowledge.schema, guess.cells[0])})


def _may_be_values(message: FileMessage, schema: Schema) -> bool:
    """Return whether all splits on numbers may be values of rows: within the bounds, whole where all cells are."""
    for column, block in zip(schema.columns, schema.blocks, strict=True):
        if isinstance(column, Discrete):
            continue
        by_tree = [t.condition[(t.left >= 0) & (t.column == block.start)] for t in message.forest.trees]
        splits = np.unique(np.concatenate(by_tree))
        # The end of the last bin lies beyond all values.
        beyond = splits > np.float32(column.high)
        inside = splits[~beyond]
        if beyond.sum() > 1 or (inside < np.float32(column.low)).any():
            return False
        if column.integer and (inside != np.rint(inside)).any():
            return False
    return True


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
                "to those of their parents; give --regularisation and --learning-rate as the client trained. Trees "
                "with reg_alpha, max_delta_step or num_parallel_tree follow other rules and are not read."
            )


def _count(message: FileMessage) -> int:
    count = _rows_by_sums(message)
    if count is None:
        raise BadInputError(
            "the first tree has no 'sum_hessian', so that the number of rows does not follow; give --batch-size, which "
            "clients report to the server."
        )
    if abs(count - round(count)) > _WHOLE or round(count) < 1:
        raise BadInputError(
            f"the first tree was grown on {count:.4g} rows by its sums, which is no whole number: it builds on earlier "
            "trees, or rows have weights; give the client's first file, or --batch-size."
        )
    return round(count)


def _rows_by_sums(message: FileMessage) -> float | None:
    """Return the number of rows, by their weights, that the first tree was grown on; None where sums are not sent."""
    tree, forest = message.forest.trees[0], message.forest
    if tree.hessian is None:
        return None
    of_row = float(forest.gradients(forest.intercept[None], np.zeros(1))[0, 0, 1])
    return float(tree.hessian[0]) / of_row


READER = Reader("tree files", is_tree_file, TreeFilesSpec, read, lambda path, _: forests_at(path))
