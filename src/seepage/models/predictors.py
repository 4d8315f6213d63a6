"""Predictors from few rows: the best of several heads by left-out records, and a logistic regression with prior."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn import functional

from seepage.models.kernel_regression import fitted
from seepage.pace import paced
from seepage.tabular.schema import Column, Discrete

Floats = NDArray[np.float64]
_FOLDS = 5
_TREES = 100
# Settings of boosted trees, and the usual number of their iterations.
_BOOSTED = {"max_leaf_nodes": 15, "early_stopping": False}
_ITERATIONS = 60
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

    Heads are a kernel regression, a random forest and, for classes, a logistic regression. The pair of head and inputs
    with the least loss on known records that were left out of its fit answers. Heads that take longer are not tried
    once one has all of these right and is sure of it.
    """
    predictions = []
    for k in paced(len(seeds), least=1):
        values = [np.asarray(rows[k].double().cpu()) for rows in inputs]
        places, known = np.asarray(labelled[k].cpu()), np.asarray(labels[k].double().cpu())
        predictions.append(torch.from_numpy(_best(values, places, known, target, seeds[k] % 2**32)))
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
    both = (np.asarray(part[0]) for part in (regression.left_out, regression.values))
    left_out, answers = (_as_chances(part) if discrete else part for part in both)
    return left_out, answers


def _as_chances(values: Floats) -> Floats:
    positive = np.clip(values, 1e-6, None)
    return positive / positive.sum(1, keepdims=True)


# Checks of parameters would take longer than the trees.
@config_context(skip_parameter_validation=True, assume_finite=True)
def forest(rows: Floats, values: Floats, queries: Floats, seed: int, discrete: bool) -> tuple[Floats, Floats]:
    """Return the predictions of a random forest for left-out (out-of-bag) records and queries."""
    if not discrete:
        forest = RandomForestRegressor(_TREES, oob_score=True, random_state=seed).fit(rows, values[:, 0])
        return np.asarray(forest.oob_prediction_)[:, None], forest.predict(queries)[:, None]
    classifier = RandomForestClassifier(_TREES, oob_score=True, random_state=seed).fit(rows, values.argmax(1))
    classes = np.asarray(classifier.classes_)
    left_out, answers = np.zeros_like(values), np.zeros((len(queries), values.shape[1]))
    left_out[:, classes] = np.nan_to_num(classifier.oob_decision_function_)
    answers[:, classes] = classifier.predict_proba(queries)
    return left_out, answers


@config_context(skip_parameter_validation=True, assume_finite=True)
def boosted(
    rows: Floats, values: Floats, queries: Floats, seed: int, discrete: bool, iterations: int = _ITERATIONS
) -> Floats:
    """Return the predictions of boosted trees for queries: chances of each class, or numbers."""
    if not discrete:
        trees = HistGradientBoostingRegressor(max_iter=iterations, **_BOOSTED, random_state=seed).fit(
            rows, values[:, 0]
        )
        return np.asarray(trees.predict(queries))[:, None]
    classes, codes = np.unique(values.argmax(1), return_inverse=True)
    answers = np.zeros((len(queries), values.shape[1]))
    answers[:, classes] = 1.0
    if len(classes) > 1:
        trees = HistGradientBoostingClassifier(max_iter=iterations, **_BOOSTED, random_state=seed).fit(rows, codes)
        answers[:, classes] = trees.predict_proba(queries)
    return answers


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


# Weights of the squared coefficients beside the sum of the rows' losses, from the strongest to the weakest.
_PENALTIES = (1000.0, 300.0, 100.0, 30.0, 10.0, 2.0)
_LOGISTIC_FOLDS = 4
# Rows below which nothing is learned, and steps of a fit.
_FEWEST, _STEPS = 12, 60
# Largest standardised input: beyond what was seen, a straight line is not trusted.
_LARGEST = 5.0
_SMALLEST_SPREAD = 1e-3
# Largest number of coefficients that Newton's method fits; gain of a row, in nats, below which steps end; and least
# share of a step.
_NEWTON, _GAIN, _LEAST_SHARE = 150, 1e-5, 1e-3


@dataclass(frozen=True)
class Logistic:
    """Scores that are linear in the standardised inputs and are added to prior log-chances."""

    center: Float[Tensor, " _input"]
    spread: Float[Tensor, " _input"]
    weight: Float[Tensor, "_input _value"]
    bias: Float[Tensor, " _value"]

    @classmethod
    def none(cls, inputs: int, values: int) -> Logistic:
        """Return scores that are zero."""
        zeros, ones = (make(inputs, dtype=torch.float64) for make in (torch.zeros, torch.ones))
        return cls(zeros, ones, zeros[:, None].expand(-1, values), torch.zeros(values, dtype=torch.float64))

    def scores(self, inputs: Float[Tensor, "*some _input"], first: int = 0) -> Float[Tensor, "*some _value"]:
        """Return the scores without the bias, so that those of several groups of inputs add up."""
        part = slice(first, first + inputs.shape[-1])
        scaled = (inputs.double() - self.center[part]) / self.spread[part]
        return scaled.clamp(-_LARGEST, _LARGEST) @ self.weight[part]

    def log_chances(
        self, inputs: Float[Tensor, "row _input"], before: Float[Tensor, "*row _value"]
    ) -> Float[Tensor, "row _value"]:
        """Return the log-chances of each value, from prior ones of each row or the same for all."""
        return (before + self.scores(inputs) + self.bias).log_softmax(1)


@dataclass(frozen=True)
class Shrunk:
    """Result of a regression: scores to add to the prior log-chances, and log-chances of each row without it."""

    logistic: Logistic
    left_out: Float[Tensor, "row _value"]


def shrunk(
    inputs: Float[Tensor, "row _input"], codes: Int[Tensor, " row"], before: Float[Tensor, "row _value"]
) -> Shrunk:
    """Fit a multinomial logistic regression that starts from prior chances.

    The penalty is that with the largest likelihood of rows that are left out, in four folds. Where none adds to that by
    more than its standard error, the prior chances remain as they are.
    """
    rows, values = before.shape
    nothing = Shrunk(Logistic.none(inputs.shape[1], values), before)
    if rows < _FEWEST or not inputs.shape[1]:
        return nothing
    prior_likelihood = before.gather(1, codes[:, None])[:, 0]
    fold = folds(rows)
    starts: list[Logistic | None] = [None] * _LOGISTIC_FOLDS
    best, chosen, likelihood = before, math.inf, prior_likelihood
    for penalty in _PENALTIES:
        left_out = torch.empty_like(before)
        for k in range(_LOGISTIC_FOLDS):
            train, out = fold != k, fold == k
            fit = _fitted(inputs[train], codes[train], before[train], penalty, starts[k])
            starts[k] = fit
            left_out[out] = fit.log_chances(inputs[out], before[out])
        reached = left_out.gather(1, codes[:, None])[:, 0]
        if reached.mean() <= likelihood.mean():
            break
        best, chosen, likelihood = left_out, penalty, reached
    if not gains(likelihood - prior_likelihood):
        return nothing
    return Shrunk(_fitted(inputs, codes, before, chosen, None), best)


def folds(rows: int) -> Int[Tensor, " row"]:
    """Return the fold of each row: rows that follow each other are in different ones."""
    return torch.arange(rows) % _LOGISTIC_FOLDS


def gains(differences: Float[Tensor, " row"]) -> bool:
    """Return whether the mean of differences is positive by more than its standard error."""
    return bool(differences.mean() > differences.std() / math.sqrt(len(differences)))


def _fitted(inputs: Tensor, codes: Tensor, before: Tensor, penalty: float, start: Logistic | None) -> Logistic:
    inputs = inputs.double()
    center, spread = inputs.mean(0), inputs.std(0).clamp(min=_SMALLEST_SPREAD)
    scaled = ((inputs - center) / spread).clamp(-_LARGEST, _LARGEST)
    initial = start or Logistic.none(inputs.shape[1], before.shape[1])
    design = torch.cat([scaled, torch.ones_like(scaled[:, :1])], dim=1)
    coefficients = torch.cat([initial.weight, initial.bias[None]])
    fit = _by_newton if coefficients.numel() <= _NEWTON else _by_gradients
    coefficients = fit(design, codes, before, penalty, coefficients)
    return Logistic(center, spread, coefficients[:-1], coefficients[-1])


def _by_newton(design: Tensor, codes: Tensor, before: Tensor, penalty: float, coefficients: Tensor) -> Tensor:
    """Return coefficients by Newton's method, for few of them; steps that do not help are halved."""
    wanted, size = functional.one_hot(codes, before.shape[1]).double(), coefficients.numel()
    eye = torch.eye(before.shape[1], dtype=torch.float64)

    def loss(weights: Tensor) -> float:
        fit = functional.cross_entropy(before + design @ weights, codes, reduction="sum")
        return float(fit + penalty * weights.square().sum())

    reached = loss(coefficients)
    for _ in range(_STEPS):
        chances = (before + design @ coefficients).softmax(1)
        slope = design.T @ (chances - wanted) + 2 * penalty * coefficients
        products = (design[:, :, None] * chances[:, None]).flatten(1)
        same = torch.einsum("vab,vw->avbw", design.T @ (design * chances.T[..., None]), eye).reshape(size, size)
        hessian = same - products.T @ products + 2 * penalty * torch.eye(size, dtype=torch.float64)
        step = torch.linalg.solve(hessian, slope.flatten()).view_as(coefficients)
        share, before_step = 1.0, reached
        while (reached := loss(coefficients - share * step)) > before_step and share > _LEAST_SHARE:
            share /= 2
        coefficients = coefficients - share * step
        if before_step - reached < _GAIN * len(codes):
            break
    return coefficients


def _by_gradients(design: Tensor, codes: Tensor, before: Tensor, penalty: float, coefficients: Tensor) -> Tensor:
    coefficients = coefficients.clone().requires_grad_(True)
    optimiser = torch.optim.LBFGS(
        [coefficients], max_iter=_STEPS, tolerance_change=_GAIN, history_size=10, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        optimiser.zero_grad()
        loss = functional.cross_entropy(before + design @ coefficients, codes, reduction="sum")
        loss = (loss + penalty * coefficients.square().sum()) / len(codes)
        loss.backward()
        return float(loss.detach())

    optimiser.step(closure)
    return coefficients.detach()
