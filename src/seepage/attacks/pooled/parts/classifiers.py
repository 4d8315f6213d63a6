"""Classifiers of models: fitted on few shadow models with many features each."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from seepage.shadow.stacked import Dense

Published = Literal["lr", "mlp"]
Classifier = Literal[Published, "ridge"]

# Passes of the published classifiers over all shadow models at once. They are not stated there: fitted once on Adult's
# five shares of a synthetic column (100, 300 or 1,000), and the same for all data sets since.
_PASSES = 300
_RATE = 1e-3
# Ridge strengths in units of the features' total variance.
_RIDGES = np.logspace(-6, 2, 25)
_LEAST_LEFT = 1e-6  # of a model's own weight in its prediction, where hardly anything is left out


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
    without any penalty. ``ridge`` (ours) is a ridge regression of the worlds' indicators, at the strength that predicts
    left-out models best; a linear discriminant of these predictions gives the chances. Nothing in it is random.
    """
    X, y, wanted = features.cpu().numpy(), worlds.cpu().numpy(), targets.cpu().numpy()
    if not X.var(0).sum() > 0:
        # All models answer alike.
        share = np.bincount(y) / len(y)
        return torch.from_numpy(np.tile(share, (len(wanted), 1)))
    if kind == "ridge":
        left_out, scores = _ridge(X, y, wanted)
        discriminant = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(left_out, y)
        return torch.from_numpy(discriminant.predict_proba(scores))
    published = Dense(int(y.max()) + 1, hidden if kind == "mlp" else (), _PASSES, None, _RATE, weight_decay=0)
    everyone = torch.arange(len(worlds))[None]
    classifier = published.train(features.cpu(), worlds.cpu(), everyone, [seed])
    return classifier.answers(targets.cpu())[0].double()


def _ridge(X: np.ndarray, y: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions of the worlds' indicators for left-out shadow models, and for targets."""
    mean = X.mean(0)
    X, targets = X - mean, targets - mean
    indicators = np.eye(int(y.max()) + 1)[y]
    indicators = indicators - indicators.mean(0)
    values, vectors = np.linalg.eigh(X @ X.T)
    values = values.clip(0)
    along = vectors.T @ indicators
    best: tuple[float, np.ndarray, np.ndarray] | None = None
    for strength in _RIDGES * values.sum():
        shrinkage = values / (values + strength)
        # What a model contributes to its own prediction, the mean of all models included.
        own = (vectors**2 @ shrinkage + 1 / len(X)).clip(max=1 - _LEAST_LEFT)
        errors = (indicators - vectors @ (shrinkage[:, None] * along)) / (1 - own)[:, None]
        loss = float((errors**2).mean())
        if best is None or loss < best[0]:
            best = (loss, indicators - errors, vectors @ (along / (values + strength)[:, None]))
    assert best is not None
    # The mean of the others leans away from a model's own world, which that of all does not.
    return best[1] + indicators / (len(X) - 1), targets @ (X.T @ best[2])
