"""Classifiers of models, from few shadow models with many features each."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from torch import Tensor

from seepage.shadow.stacked import Dense

Classifier = Literal["lr", "mlp", "mixed"]

# Passes of the published classifiers over all shadow models at once. They are not stated there: fitted once on Adult's
# five shares of a synthetic column (100, 300 or 1,000), and the same for all data sets since.
_PASSES = 300
_RATE = 1e-3
# Settings of ``mixed``: inverse strength of the ridge in units of the features' total variance, number of leading
# directions, number of folds, and growth of a classifier's weight for each nat by which it is better in the folds.
_RIDGE, _LEADING, _FOLDS, _LEAST_FOLDS, _SHARPNESS = 4.0, 20, 5, 3, 20.0
_LEAST = -30.0  # a classifier from so few models gives no chance below e to the power of this


def fitted_chances(
    kind: Classifier,
    features: Float[Tensor, "shadow feature"],
    worlds: Int[Tensor, " shadow"],
    targets: Float[Tensor, "target feature"],
    seed: int,
    hidden: tuple[int, ...] = (20, 8),
) -> Float[Tensor, "target world"]:
    """Fit a classifier on shadow models and return its chances of each world for others.

    ``lr`` is logistic regression and ``mlp`` has hidden layers, both as published: Adam at 0.001 on the cross-entropy
    without any penalty. ``mixed`` (ours) is a strongly regularised logistic regression, and a linear discriminant with
    a shrunk covariance of the leading principal components; the confidence of each is scaled by cross-validation over
    the shadow models, and the better one weighs more.
    """
    X, y, wanted = features.cpu().numpy(), worlds.cpu().numpy(), targets.cpu().numpy()
    if not X.var(0).sum() > 0:
        # All models answer alike.
        share = np.bincount(y) / len(y)
        return torch.from_numpy(np.tile(share, (len(wanted), 1)))
    if kind != "mixed":
        published = Dense(int(y.max()) + 1, hidden if kind == "mlp" else (), _PASSES, None, _RATE, weight_decay=0)
        everyone = torch.arange(len(worlds))[None]
        classifier = published.train(features.cpu(), worlds.cpu(), everyone, [seed])
        return classifier.answers(targets.cpu())[0].double()
    # The ridge may stop before it converges; a fold's models may all answer alike, and chances may round to 0.
    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        warnings.simplefilter("ignore", ConvergenceWarning)
        chances = _mixed(X, y, wanted, seed)
    return torch.from_numpy(np.asarray(chances, dtype=np.float64))


def _mixed(X: np.ndarray, y: np.ndarray, targets: np.ndarray, seed: int) -> np.ndarray:
    """Return the chances of two calibrated classifiers, weighed by their results in the folds."""
    least = int(np.bincount(y).min())
    ridge = LogisticRegression(C=_RIDGE / float(X.var(0).sum()), max_iter=500)
    if least < _LEAST_FOLDS:
        # Folds would leave one model of a class, which does not show the variation within a class.
        return ridge.fit(X, y).predict_proba(targets)
    leading = PCA(min(_LEADING, X.shape[1], max(1, len(X) // 3)), whiten=True, svd_solver="full")
    classifiers: list[Any] = [
        ridge,
        make_pipeline(leading, LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")),
    ]
    folds = StratifiedKFold(min(_FOLDS, least), shuffle=True, random_state=seed % 2**32)
    chances, losses = [], []
    for classifier in classifiers:
        held_out = np.asarray(cross_val_predict(classifier, X, y, cv=folds, method="predict_log_proba")).clip(_LEAST)
        sureness, loss = _calibrated(held_out, y)
        losses.append(loss)
        logs = classifier.fit(X, y).predict_log_proba(targets).clip(_LEAST)
        chances.append(np.exp(log_softmax(sureness * logs, axis=1)))
    weights = np.exp(-_SHARPNESS * (np.array(losses) - min(losses)))
    return np.average(chances, axis=0, weights=weights)


def _calibrated(logs: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return the factor of log chances at which the truth is likeliest, and the remaining mean loss."""

    def loss(log_factor: float) -> float:
        scaled = log_softmax(np.exp(log_factor) * logs, axis=1)
        return float(-scaled[np.arange(len(y)), y].mean())

    optimum = minimize_scalar(loss, bounds=(-6, 3), method="bounded")
    return float(np.exp(optimum.x)), float(optimum.fun)
