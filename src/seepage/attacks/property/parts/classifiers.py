"""Classifiers of models, from few shadow models with many features each."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from torch import Tensor

Classifier = Literal["lr", "mlp", "regularised"]

# Inverse strengths, of which cross-validation over the shadow models takes one.
_STRENGTHS = np.logspace(-6, 0, 7)
_FOLDS = 5


def fitted_chances(
    kind: Classifier,
    features: Float[Tensor, "shadow feature"],
    worlds: Int[Tensor, " shadow"],
    asked: Float[Tensor, "target feature"],
    seed: int,
    hidden: tuple[int, ...] = (20, 8),
) -> Float[Tensor, "target world"]:
    """Fit a classifier on shadow models and return its chances of each world for others.

    Args:
        kind: ``lr`` (logistic regression as scikit-learn has it), ``mlp`` (hidden layers, Adam at 0.001), or
            ``regularised`` (logistic regression whose strength cross-validation chooses among strong ones).
        features: of shadow models.
        worlds: of shadow models, 0 up without gaps.
        asked: features of the others.
        seed: of first weights, batches and folds.
        hidden: units of an ``mlp``'s layers.
    """
    X, y = features.cpu().numpy(), worlds.cpu().numpy()
    if kind == "lr":
        made = LogisticRegression(max_iter=500)
    elif kind == "mlp":
        made = MLPClassifier(hidden, learning_rate_init=1e-3, max_iter=200, random_state=seed % 2**32)
    else:
        folds = min(_FOLDS, int(np.bincount(y).min()))
        made = GridSearchCV(LogisticRegression(max_iter=500), {"C": _STRENGTHS}, scoring="neg_log_loss", cv=folds)
    with warnings.catch_warnings():
        # The published recipe stops after so many passes, converged or not.
        warnings.simplefilter("ignore", ConvergenceWarning)
        made.fit(X, y)
    return torch.from_numpy(np.asarray(made.predict_proba(asked.cpu().numpy()), dtype=np.float64))
