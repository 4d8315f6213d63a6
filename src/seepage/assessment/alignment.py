"""What the alignment of two tables tells: which of a party's records the other party has, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from torch import Tensor

from seepage.assessment.intervals import difference, interval
from seepage.assessment.measurement import Estimate
from seepage.seeds import stream
from seepage.tabular.schema import Column, Discrete

_FOLDS = 5
_FEWEST = 2 * _FOLDS  # records within and without that a prediction of membership needs


@dataclass(frozen=True)
class Rate:
    """A value's share, or a number's mean, among records that the other party has and among the others.

    Attributes:
        value: category in words; None for the mean of a column of numbers.
        shared, others: share with its 95% interval by Wilson, or mean with Student's.
        difference: ``shared`` less ``others``, with a 95% interval from theirs, see ``difference``.
    """

    column: str
    value: str | None
    shared: Estimate
    others: Estimate
    difference: Estimate


@dataclass(frozen=True)
class Alignment:
    """What a party learns of its own records by alignment, before anything is trained.

    Attributes:
        records: number of its records that were given.
        shared: number of those that the other party has, too: their ids crossed the wire.
        predicted: share of its records whose membership its own columns predict, without alignment; None where it gave
            no records, or too few, that the other party lacks.
        usual: share of the more frequent membership.
        rates: what membership tells of each column.
    """

    records: int
    shared: int
    predicted: Estimate | None
    usual: float
    rates: tuple[Rate, ...]


def alignment(
    cells: Float[Tensor, "record column"], columns: Sequence[Column], shared: Bool[Tensor, " record"], seed: int = 0
) -> Alignment:
    """Measure what a party learns when alignment tells which of its records the other party has.

    All memberships are learnt. What that is worth is how far they could not be predicted: by a logistic regression on
    the party's own columns, in five folds. To anyone who knows the rates, membership in turn tells of the columns.
    """
    count = int(shared.sum())
    usual = max(count, len(shared) - count) / max(1, len(shared))
    if min(count, len(shared) - count) < _FEWEST or not columns:
        return Alignment(len(shared), count, None, usual, ())
    rates = [rate for i, column in enumerate(columns) for rate in _rates(column, cells[:, i], shared)]
    features = np.concatenate([_features(column, cells[:, i]) for i, column in enumerate(columns)], axis=1)
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=stream(seed, 0, "alignment") % 2**31)
    guessed = cross_val_predict(LogisticRegression(max_iter=1000), features, shared.numpy(), cv=folds)
    right = torch.from_numpy(guessed == shared.numpy())
    return Alignment(len(shared), count, _share(right), usual, tuple(rates))


def _rates(column: Column, cells: Float[Tensor, " record"], shared: Bool[Tensor, " record"]) -> list[Rate]:
    if not isinstance(column, Discrete):
        within, without = interval(cells[shared]), interval(cells[~shared])
        return [Rate(column.name, None, within, without, difference(without, within))]
    rates = []
    for code, category in enumerate(column.categories):
        of_category = cells == code
        if bool(of_category.any()):
            within, without = _share(of_category[shared]), _share(of_category[~shared])
            rates.append(Rate(column.name, str(category), within, without, difference(without, within)))
    return rates


def _share(values: Bool[Tensor, " record"]) -> Estimate:
    """Return a share with its interval by Wilson, which holds for shares of 0 and 1, too."""
    count, n = int(values.sum()), len(values)
    bounds = binomtest(count, n).proportion_ci(method="wilson")
    return Estimate(count / n, float(bounds.low), float(bounds.high), n)


def _features(column: Column, cells: Float[Tensor, " record"]) -> np.ndarray:
    """Return a column as inputs of a regression: one for each category, or a standardised number."""
    if isinstance(column, Discrete):
        return np.eye(column.width)[cells.long().numpy()]
    spread = float(cells.std())
    return ((cells - cells.mean()) / (spread or 1.0)).numpy()[:, None]
