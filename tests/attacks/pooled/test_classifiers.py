"""Classifiers of models from few of them: planted worlds, honest certainty, and models that say nothing."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from seepage.attacks.pooled.parts.classifiers import _RIDGES, Classifier, _losses, fitted_chances
from seepage.shadow.stacked import Dense


def planted(models: int, worlds: int, apart: float, seed: int, noisy: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Models of two hundred features: ten tell worlds apart, ten others vary much more and say nothing."""
    generator = torch.Generator().manual_seed(seed)
    of = torch.arange(models) % worlds
    features = noisy * torch.randn(models, 200, generator=generator, dtype=torch.float64)
    features[:, :10] += apart * of[:, None]
    features[:, 10:20] += 3 * torch.randn(models, 1, generator=generator, dtype=torch.float64)
    return features, of


@pytest.mark.parametrize("worlds", [2, 5])
def test_worlds_that_lie_apart_are_told_apart_whatever_else_varies(worlds: int) -> None:
    features, of = planted(100, worlds, 2.0, seed=0)
    asked, truth = planted(200, worlds, 2.0, seed=1)
    chances = fitted_chances("ridge", features, of, asked, seed=0)
    assert chances.shape == (200, worlds)
    torch.testing.assert_close(chances.sum(1), torch.ones(200, dtype=torch.float64))
    # The best rule there is: features of a world are normal with known means and covariance.
    inverse = torch.linalg.inv(torch.eye(200, dtype=torch.float64) + _common())
    means = torch.zeros(worlds, 200, dtype=torch.float64)
    means[:, :10] = 2.0 * torch.arange(worlds)[:, None]
    best = torch.stack([-(((asked - mean) @ inverse) * (asked - mean)).sum(1) for mean in means], dim=1).argmax(1)
    assert float((best == truth).double().mean()) > 0.99
    right = float((chances.argmax(1) == truth).double().mean())
    plain = fitted_chances("lr", features, of, asked, seed=0)
    assert right >= max(0.75, float((plain.argmax(1) == truth).double().mean()))


def _common() -> torch.Tensor:
    common = torch.zeros(200, 200, dtype=torch.float64)
    common[10:20, 10:20] = 9.0
    return common


def test_chances_are_as_sure_as_they_are_right() -> None:
    sureness, right = [], []
    for seed in range(10):
        features, of = planted(100, 2, 0.6, seed=2 * seed)
        asked, truth = planted(400, 2, 0.6, seed=2 * seed + 1)
        chances = fitted_chances("ridge", features, of, asked, seed)
        sureness.append(float(chances.max(1).values.mean()))
        right.append(float((chances.argmax(1) == truth).double().mean()))
    assert abs(np.mean(sureness) - np.mean(right)) < 0.05
    assert 0.55 < np.mean(right) < 0.95


def test_models_that_differ_in_nothing_are_told_apart_by_guessing() -> None:
    features, of = planted(100, 2, 0.0, seed=0)
    asked, truth = planted(2000, 2, 0.0, seed=1)
    chances = fitted_chances("ridge", features, of, asked, seed=0)
    assert abs(float((chances.argmax(1) == truth).double().mean()) - 0.5) < 0.05
    assert float(chances.max(1).values.mean()) < 0.65


def test_models_that_all_but_one_answer_alike_give_chances() -> None:
    features = torch.zeros(12, 3).double()
    features[0, 0] = 1.0
    chances = fitted_chances("ridge", features, torch.arange(12) % 2, features[:2], seed=0)
    assert bool(chances.isfinite().all())
    assert float(chances[0, 0]) >= float(chances[1, 0])


@pytest.mark.parametrize("features", [torch.zeros(4, 3), torch.zeros(4, 0), torch.eye(4)[:, :1], torch.eye(4)])
def test_least_models_and_constant_features_give_chances(features: torch.Tensor) -> None:
    chances = fitted_chances("ridge", features.double(), torch.tensor([0, 1, 0, 1]), features.double()[:2], seed=0)
    assert bool(chances.isfinite().all())
    torch.testing.assert_close(chances.sum(1), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize(("kind", "hidden"), [("lr", ()), ("mlp", (20, 8))])
def test_published_classifiers_are_trained_by_plain_adam_on_the_cross_entropy(
    kind: Classifier, hidden: tuple[int, ...]
) -> None:
    features, of = planted(30, 3, 0.5, seed=0)
    asked, _ = planted(10, 3, 0.5, seed=1)
    first, _ = Dense(3, hidden).initial(200, [7])
    layers: list[torch.nn.Module] = []
    for weight, bias in zip(first.weights, first.biases, strict=True):
        layer = torch.nn.Linear(weight.shape[2], weight.shape[1])
        layer.load_state_dict({"weight": weight[0], "bias": bias[0]})
        layers += [layer, torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers[:-1])
    optimiser = torch.optim.Adam(network.parameters(), lr=0.001)
    for _ in range(300):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(features.float()), of).backward()
        optimiser.step()
    wanted = network(asked.float()).softmax(1).double()
    torch.testing.assert_close(fitted_chances(kind, features, of, asked, seed=7), wanted, atol=1e-3, rtol=0)


@pytest.mark.long
def test_the_strength_for_other_rows_is_that_of_rules_fitted_anew() -> None:
    features, of = planted(24, 2, 0.7, seed=3)
    X, halves = features.numpy() + np.repeat([[0.0], [0.4]], 12, axis=0), np.repeat([0, 1], 12)
    indicators = np.eye(2)[of.numpy()]

    def lost(fitted: np.ndarray, asked: np.ndarray, alpha: float) -> np.ndarray:
        rule = Ridge(alpha=alpha, solver="svd").fit(X[fitted], indicators[fitted])
        return (rule.predict(X[asked]) - indicators[asked]) ** 2

    for half in (0, 1):
        mine, others = np.flatnonzero(halves == half), np.flatnonzero(halves != half)
        of_half = ((X[mine] - X[mine].mean(0)) ** 2).sum()
        losses = _losses(X, indicators, halves == half)
        for place, strength in enumerate(_RIDGES):
            # Left out of a fit at the strength that all of the half's models have.
            alpha = strength * of_half
            within = np.mean([lost(mine[mine != one], np.array([one]), alpha) for one in mine])
            across = lost(mine, others, alpha).mean()
            assert losses[place] == pytest.approx(within + (across - within) / 4, rel=1e-6)
