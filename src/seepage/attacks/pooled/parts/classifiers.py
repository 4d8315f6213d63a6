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
    halves: Int[Tensor, " shadow"] | None = None,
) -> Float[Tensor, "target world"]:
    """Fit a classifier on shadow models and return its chances of each world for others.

    ``lr`` is logistic regression and ``mlp`` has hidden layers, both as published: Adam at 0.001 on the cross-entropy
    without any penalty. ``ridge`` (ours) is a ridge regression of the worlds' indicators, at the strength that predicts
    left-out models best; a linear discriminant of these predictions gives the chances. Nothing in it is random. Where
    shadow models are from two ``halves`` of the rows, the strength allows for targets being of other rows.
    """
    X, y, wanted = features.cpu().numpy(), worlds.cpu().numpy(), targets.cpu().numpy()
    if not X.var(0).sum() > 0:
        # All models answer alike.
        share = np.bincount(y) / len(y)
        return torch.from_numpy(np.tile(share, (len(wanted), 1)))
    if kind == "ridge":
        left_out, scores = _ridge(X, y, wanted, None if halves is None else halves.cpu().numpy())
        discriminant = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(left_out, y)
        return torch.from_numpy(discriminant.predict_proba(scores))
    published = Dense(int(y.max()) + 1, hidden if kind == "mlp" else (), _PASSES, None, _RATE, weight_decay=0)
    everyone = torch.arange(len(worlds))[None]
    classifier = published.train(features.cpu(), worlds.cpu(), everyone, [seed])
    return classifier.answers(targets.cpu())[0].double()


class _Ridge:
    """Ridge regressions of indicators on features, of any strength in units of the features' total variance."""

    def __init__(self, X: np.ndarray, indicators: np.ndarray) -> None:
        self.mean, self.share = X.mean(0), indicators.mean(0)
        self.X, self.indicators = X - self.mean, indicators - self.share
        values, self.vectors = np.linalg.eigh(self.X @ self.X.T)
        self.values = values.clip(0)
        self.along = self.vectors.T @ self.indicators

    def errors(self, strength: float) -> np.ndarray:
        """Return the errors of predictions of left-out models."""
        shrinkage = self.values / (self.values + strength * self.values.sum())
        # What a model contributes to its own prediction, the mean of all models included.
        leverage = (self.vectors**2 @ shrinkage + 1 / len(self.X)).clip(max=1 - _LEAST_LEFT)
        return (self.indicators - self.vectors @ (shrinkage[:, None] * self.along)) / (1 - leverage)[:, None]

    def along_these(self, others: np.ndarray) -> np.ndarray:
        """Return other models' products with these, from which predictions of any strength follow."""
        return (others - self.mean) @ self.X.T @ self.vectors

    def predicted(self, strength: float, products: np.ndarray) -> np.ndarray:
        """Return predictions of others' indicators, relative to the mean of these models."""
        return products @ (self.along / (self.values + strength * self.values.sum())[:, None])


def _ridge(
    X: np.ndarray, y: np.ndarray, targets: np.ndarray, halves: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions of the worlds' indicators for left-out shadow models, and for targets."""
    indicators = np.eye(int(y.max()) + 1)[y]
    rule = _Ridge(X, indicators)
    if halves is None:
        losses = [float((rule.errors(strength) ** 2).mean()) for strength in _RIDGES]
    else:
        losses = np.mean([_losses(X, indicators, halves == half) for half in (0, 1)], axis=0)
    strength = _RIDGES[int(np.argmin(losses))]
    # The mean of the others leans away from a model's own world, which that of all does not.
    left_out = rule.indicators - rule.errors(strength) + rule.indicators / (len(X) - 1)
    return left_out, rule.predicted(strength, rule.along_these(targets))


def _losses(X: np.ndarray, indicators: np.ndarray, mine: np.ndarray) -> list[float]:
    """Return what rules of each strength, fitted on one half's models, are expected to lose on models of other rows.

    Two halves of n rows differ with four times the variance with which 2n rows differ from the population that targets
    are drawn from. So a quarter counts of what rules lose from one half to the other.
    """
    rule = _Ridge(X[mine], indicators[mine])
    products, truth = rule.along_these(X[~mine]), indicators[~mine] - rule.share
    losses = []
    for strength in _RIDGES:
        within = float((rule.errors(strength) ** 2).mean())
        across = float(((rule.predicted(strength, products) - truth) ** 2).mean())
        losses.append(within + (across - within) / 4)
    return losses
