"""Heads from few known labels to all: the best of several, by records that are left out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from seepage.models.kernel_regression import fitted
from seepage.pace import paced
from seepage.tabular.schema import Column, Discrete

Floats = NDArray[np.float64]
_FOLDS = 5
_TREES = 100
# Chances are kept away from 0, so that one wrong certainty does not decide between heads.
_LEAST = 0.01
# Mean loss, in nats, of heads that have every left-out record right and say so: no other is better.
_SURE = 0.05


def best_head(
    inputs: Sequence[Float[Tensor, "training record _input"]],
    labelled: Int[Tensor, "training labelled"],
    labels: Float[Tensor, "training labelled"],
    target: Column,
    seeds: Sequence[int],
) -> Float[Tensor, "training record value"]:
    """Return the predictions of the best head on the best inputs for all records: class chances, or numbers.

    Heads are a kernel regression, a random forest and, for classes, a logistic regression; the best has the least loss
    on known records that were left out of its fit. Slower heads are not tried once one has all of these right.
    """
    predictions = []
    for k in paced(len(seeds), least=1):
        values = [np.asarray(rows[k].double().cpu()) for rows in inputs]
        places, own = np.asarray(labelled[k].cpu()), np.asarray(labels[k].double().cpu())
        predictions.append(torch.from_numpy(_best(values, places, own, target, seeds[k] % 2**32)))
    # A rehearsal ends before the last training.
    return torch.stack([*predictions, *predictions[-1:] * (len(seeds) - len(predictions))])


def _best(inputs: Sequence[Floats], places: NDArray[np.int64], labels: Floats, target: Column, seed: int) -> Floats:
    """Return chances of each class, or numbers (record, 1), for all records."""
    classes = target.width if isinstance(target, Discrete) else None
    values = labels[:, None] if classes is None else np.eye(classes)[labels.astype(int)]
    trials: list[tuple[float, Floats]] = []
    # What is the same for all known records tells nothing.
    usable = [rows[:, np.ptp(rows[places], axis=0) > 0] for rows in inputs]
    # Forests, which take longest, come last.
    for head in (_kernel, *([] if classes is None else [_logistic]), forest):
        if min((loss for loss, _ in trials), default=float("inf")) < (_SURE if classes is not None else 0.0):
            break
        for rows in usable:
            if rows.shape[1]:
                left_out, answers = head(rows[places], values, rows, seed, classes is not None)
                trials.append((_loss(left_out, values, classes is not None), answers))
    constant = np.broadcast_to(values.mean(0), (len(inputs[0]), values.shape[1])).copy()
    return min([(float("inf"), constant), *trials], key=lambda trial: trial[0])[1]


def _loss(predictions: Floats, values: Floats, discrete: bool) -> float:
    if not discrete:
        return float(np.square(predictions - values).mean())
    smoothed = (predictions + _LEAST / predictions.shape[1]) / (1 + _LEAST)
    return float(-np.log((smoothed * values).sum(1)).mean())


def _kernel(rows: Floats, values: Floats, queries: Floats, seed: int, discrete: bool) -> tuple[Floats, Floats]:
    """Return the predictions of a linear or radial kernel regression for left-out records and queries."""
    regression = fitted(*(torch.from_numpy(np.ascontiguousarray(part))[None] for part in (rows, values, queries)))
    left_out, answers = np.asarray(regression.left_out[0]), np.asarray(regression.values[0])
    if discrete:
        left_out, answers = (np.clip(part, 1e-6, None) for part in (left_out, answers))
        left_out, answers = (part / part.sum(1, keepdims=True) for part in (left_out, answers))
    return left_out, answers


# Checks of parameters would take longer than the trees.
@config_context(skip_parameter_validation=True, assume_finite=True)
def forest(rows: Floats, values: Floats, queries: Floats, seed: int, discrete: bool) -> tuple[Floats, Floats]:
    """Return the predictions of a random forest for left-out (out-of-bag) records and queries."""
    if not discrete:
        forest = RandomForestRegressor(_TREES, oob_score=True, random_state=seed).fit(rows, values[:, 0])
        return np.asarray(forest.oob_prediction_)[:, None], forest.predict(queries)[:, None]
    classifier = RandomForestClassifier(_TREES, oob_score=True, random_state=seed).fit(rows, values.argmax(1))
    seen = np.asarray(classifier.classes_)
    left_out, answers = np.zeros_like(values), np.zeros((len(queries), values.shape[1]))
    left_out[:, seen] = np.nan_to_num(classifier.oob_decision_function_)
    answers[:, seen] = classifier.predict_proba(queries)
    return left_out, answers


def _logistic(rows: Floats, values: Floats, queries: Floats, seed: int, discrete: bool) -> tuple[Floats, Floats]:
    """Return the predictions of a logistic regression for records left out in folds and for queries."""
    labels = values.argmax(1)

    def predict(train: NDArray[np.intp], of: Floats) -> Floats:
        chances = np.zeros((len(of), values.shape[1]))
        if len(np.unique(labels[train])) < 2:
            chances[:, labels[train][0]] = 1.0
            return chances
        head = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
        with warnings.catch_warnings():
            # A head that did not converge loses in validation; that is all that is asked of it.
            warnings.simplefilter("ignore", ConvergenceWarning)
            head.fit(rows[train], labels[train])
        chances[:, np.asarray(head.classes_)] = head.predict_proba(of)
        return chances

    left_out = np.zeros_like(values)
    for train, test in KFold(min(_FOLDS, len(rows)), shuffle=True, random_state=seed).split(rows):
        left_out[test] = predict(train, rows[test])
    return left_out, predict(np.arange(len(rows)), queries)
