"""Baselines: private columns imputed by boosted trees from the attacker's own columns, learnt on rows that it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from seepage.baselines.split import numbered
from seepage.baselines.vertical import NEAR
from seepage.errors import BadInputError
from seepage.models.predictors import boosted
from seepage.registry import baselines
from seepage.tabular.schema import Column, Discrete, Schema
from seepage.wire.split import CutGuess, CutKnowledge, CutView
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge, FeatureView

# Rows that are learnt from, and trees of a column, one a class in each iteration: a column takes half a second. Many
# columns share the trees of all.
_MOST_ROWS, _TREES, _ALL_TREES = 2_000, 300, 20_000
_FEWEST_ITERATIONS, _MOST_ITERATIONS = 10, 60
# Columns of all trainings together from which on it takes minutes.
_MOST_COLUMNS = 1_000
# One row in four is left out to weigh the trees. No weight is 1: a certainty that is wrong has no likelihood.
_LEFT_OUT, _WEIGHTS = 4, (0.0, 0.25, 0.5, 0.75, 0.95)
# Parts of a number's range that trees tell apart, and values that are answered.
_LEVELS, _CANDIDATES = 10, 100


@baselines.register("imputer", "split", needs=("auxiliary",))
@dataclass(frozen=True)
class CutImputer:
    """Boosted trees from the server's own columns to each private column and the label, learnt on auxiliary rows.

    Trees need no scale of a column, which makes them stronger than the nearest neighbours of unscaled codes. At most
    2,000 rows are learnt from.

    Raises:
        BadInputError: the attacker holds no auxiliary rows.
    """

    def __call__(self, view: CutView, knowledge: CutKnowledge, seeds: Sequence[int] = (0,)) -> CutGuess:
        """Return the guess; the first of ``seeds`` is that of the trees."""
        rows, model, schema = knowledge.auxiliary, view.model, knowledge.schema
        if rows is None or not len(rows):
            raise BadInputError("the imputer learns from auxiliary rows, but the attacker holds none; grant it some.")
        public = schema.model_copy(update={"columns": tuple(schema.columns[i] for i in model.public)})
        known, sought = own_inputs(public, rows.cells[:, list(model.public)]), own_inputs(public, view.features)
        columns = [*((schema.columns[i], rows.cells[:, i]) for i in model.private), (schema.target, rows.labels)]
        trees = _trees_of(len(columns))
        *cells, labels = (
            imputed(column, known, values, sought, _tolerance(column), seeds[0], trees) for column, values in columns
        )
        return CutGuess(torch.stack(cells, dim=1), labels)


@baselines.register("imputer", "vertical", needs=("auxiliary",))
@dataclass(frozen=True)
class FeatureImputer:
    """Boosted trees from the active party's own columns to each column of the target, learnt on auxiliary rows.

    Where the attacker knows labels of the records, the label is one more column. At most 2,000 rows are learnt from.

    Raises:
        BadInputError: the attacker holds no auxiliary rows.
    """

    def __call__(self, view: FeatureView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
        """Return the guess; ``seeds`` are those of each training's trees."""
        rows = knowledge.granted_auxiliary("the guess by boosted trees")
        schema = view.model.partition.schemas[0]
        trees = _trees_of(len(seeds) * len(knowledge.schema.columns))
        trainings = []
        for k, seed in enumerate(seeds):
            known, sought = own_inputs(schema, rows.own[k]), own_inputs(schema, view.own[k])
            if view.labels is not None:
                known = torch.cat([known, rows.labels[k, :, None]], dim=1)
                sought = torch.cat([sought, view.labels[k, :, None]], dim=1)
            columns = zip(knowledge.schema.columns, rows.cells[k].unbind(1), strict=True)
            cells = [imputed(column, known, values, sought, _near(column), seed, trees) for column, values in columns]
            trainings.append(torch.stack(cells, dim=1))
        return FeatureGuess(torch.stack(trainings))


def _trees_of(columns: int) -> int:
    """Return the number of trees of each column; refuse columns, as of images, with which all would take minutes."""
    if columns > _MOST_COLUMNS:
        raise BadInputError(
            f"the imputer learns each column of each training, and {columns:,} take minutes; at most "
            f"{_MOST_COLUMNS:,} are learnt. Leave it out, or attack fewer columns."
        )
    return max(1, min(_TREES, _ALL_TREES // max(1, columns)))


def _tolerance(column: Column) -> float:
    """Return the error within which a figure of split learning takes a number for right."""
    return 0.0 if isinstance(column, Discrete) else column.tolerance


def _near(column: Column) -> float:
    """Return the error within which a figure of vertical learning takes a number for right."""
    return 0.0 if isinstance(column, Discrete) else NEAR * (column.high - column.low)


def own_inputs(schema: Schema, cells: Float[Tensor, "row own"]) -> Float[Tensor, "row input"]:
    """Return own columns as inputs of trees, categories by their sorted places; without any, a constant."""
    cells = cells.detach().cpu().double()
    if not cells.shape[1]:
        return cells.new_zeros(len(cells), 1)
    return numbered(schema, range(len(schema.columns)), cells)


def imputed(
    column: Column,
    known: Float[Tensor, "row input"],
    values: Float[Tensor, " row"],
    sought: Float[Tensor, "record input"],
    tolerance: float,
    seed: int,
    trees: int = _TREES,
) -> Float[Tensor, " record"]:
    """Return the value of each record that is expected to be right most often.

    Trees give chances of categories, or of a number's tenths. These are mixed with the shares in all rows as suits rows
    that are left out, so that where own columns tell nothing, or rows are few, the answer is the constant one. The
    value that is answered has most chance within ``tolerance``.
    """
    # Rows that an attacker holds may be in an order.
    order = np.random.default_rng(seed % 2**32).permutation(len(known))[:_MOST_ROWS]
    rows, cells = known.numpy()[order], values.detach().cpu().double().numpy()[order]
    if isinstance(column, Discrete):
        codes, candidates, levels = cells.astype(int), np.arange(column.width, dtype=float), column.width
        right = np.eye(column.width)
    else:
        ends = np.unique(np.quantile(cells, np.arange(1, _LEVELS) / _LEVELS, method="nearest"))
        codes, levels = np.searchsorted(ends, cells), len(ends) + 1
        candidates = np.unique(np.quantile(cells, np.linspace(0, 1, _CANDIDATES), method="nearest"))
        within = np.abs(cells[:, None] - candidates) <= tolerance
        right = np.stack(
            [within[codes == level].mean(0) if (codes == level).any() else 0 * candidates for level in range(levels)]
        )
    shares = (np.bincount(codes, minlength=levels) + 1 / levels) / (len(codes) + 1)
    chances, weight = _learnt(rows, np.eye(levels)[codes], sought.numpy(), shares, seed % 2**32, trees)
    mixed = weight * chances + (1 - weight) * shares
    return torch.from_numpy(candidates[(mixed @ right).argmax(1)])


def _learnt(
    rows: np.ndarray, targets: np.ndarray, sought: np.ndarray, shares: np.ndarray, seed: int, trees: int
) -> tuple[np.ndarray, float]:
    """Return chances of each level for the sought records, and their weight beside the shares of all rows."""
    train = len(rows) - len(rows) // _LEFT_OUT
    iterations = max(_FEWEST_ITERATIONS, min(_MOST_ITERATIONS, trees // targets.shape[1]))
    both = np.concatenate([rows[train:], sought])
    chances = boosted(rows[:train], targets[:train], both, seed, True, iterations)
    left_out, answers = chances[: len(rows) - train], chances[len(rows) - train :]
    true = targets[train:].argmax(1)
    if not len(true):
        return answers, 0.0
    of_truth = left_out[np.arange(len(true)), true]
    likelihoods = [np.log(weight * of_truth + (1 - weight) * shares[true]).sum() for weight in _WEIGHTS]
    return answers, _WEIGHTS[int(np.argmax(likelihoods))]
