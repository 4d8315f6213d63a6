"""The share itself, with an interval: shadow models over the whole range, one direction, and its inverse."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor

from seepage.attacks.property.parts.features import Reduced, logarithms
from seepage.attacks.property.parts.shadows import Shadows
from seepage.errors import BadInputError
from seepage.guesses import PropertyGuess
from seepage.knowledge import PooledKnowledge
from seepage.registry import property_attacks
from seepage.views import PredictionView

# Ridge strengths in units of the features' mean square.
_RIDGES = np.logspace(-4, 4, 33)
_GRID = 1001


@property_attacks.register("ratio")
@dataclass(frozen=True)
class Ratio:
    """Estimate the share of the victim's rows that carry the attribute, with a confidence interval.

    Ridge regression on the shadow models' standardised logarithms gives one number a model; its strength is chosen by
    leaving models out one at a time, in closed form. What that number is for a given share is learnt from the left-out
    shadow models: a quadratic mean and a spread that may change with the share. Its inverse gives the likeliest share,
    an interval of all shares that do not put the number into the outer tails, and each told-apart share's chance.

    Attributes:
        level: of the interval.

    Raises:
        BadInputError: ``level`` is not in (0, 1).
    """

    level: float = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise BadInputError(f"level lies in (0, 1), got level={self.level!r}.")

    def __call__(self, view: PredictionView, known: PooledKnowledge, shadows: Shadows, seed: int) -> PropertyGuess:
        """Return chances of each share, the estimated share and its interval; ``seed`` is not used.

        Args:
            view: is asked the attacker's queries.
            known: gives queries and the shares that are told apart.
            shadows: spread over the range in which the share may be.
            seed: of nothing here.

        Raises:
            BadInputError: shadow models are too few (below 20), or queries are not answered.
        """
        answers = view.ask(known.queries)
        features = logarithms(shadows.answers)
        reduced = Reduced.of(features)
        return invert(reduced(features), shadows.shares[:, 0], reduced(logarithms(answers)), known.shares, self.level)


def invert(
    features: Float[Tensor, "shadow feature"],
    shares: Float[Tensor, " shadow"],
    asked: Float[Tensor, "target feature"],
    told_apart: tuple[float, ...],
    level: float,
) -> PropertyGuess:
    """Return what features of models say of their shares, learnt from models whose shares are known.

    Raises:
        BadInputError: fewer than 20 such models.
    """
    n = len(shares)
    if n < 20:
        raise BadInputError(f"an interval rests on at least 20 shadow models, got {n}; train more.")
    left_out, scored = _ridge(features.cpu().numpy(), shares.cpu().numpy(), asked.cpu().numpy())
    r = shares.cpu().numpy()
    low, high = float(r.min()), float(r.max())
    grid = np.linspace(low, high, _GRID)

    def terms(x: np.ndarray, degree: int) -> np.ndarray:
        return np.vander(2 * (x - low) / (high - low) - 1, degree + 1, increasing=True)

    mean, *_ = np.linalg.lstsq(terms(r, 2), left_out, rcond=None)
    residual = left_out - terms(r, 2) @ mean
    spread = _spread(terms(r, 1), residual)
    freedom = n - 3
    at_grid, width = terms(grid, 2) @ mean, np.exp(terms(grid, 1) @ spread)
    # The fitted mean is uncertain too.
    inverse = np.linalg.pinv(terms(r, 2).T @ terms(r, 2))
    leverage = np.einsum("gi,ij,gj->g", terms(grid, 2), inverse, terms(grid, 2))
    width = width * np.sqrt(1 + leverage)
    z = (scored[:, None] - at_grid) / width
    fits = stats.t.logpdf(z, freedom) - np.log(width)
    best = fits.argmax(1)
    inside = np.abs(z) <= stats.t.ppf((1 + level) / 2, freedom)
    # Where no share fits, the likeliest one alone would claim to be sure: its whole neighbourhood does not.
    inside[np.arange(len(z)), best] = True
    first, last = inside.argmax(1), _GRID - 1 - inside[:, ::-1].argmax(1)
    near = np.abs(grid[:, None] - np.asarray(told_apart)).argmin(0)
    chances = np.exp(fits[:, near] - fits[:, near].max(1, keepdims=True))
    return PropertyGuess(
        told_apart,
        torch.from_numpy(chances / chances.sum(1, keepdims=True)),
        torch.from_numpy(grid[best]),
        torch.from_numpy(grid[first]),
        torch.from_numpy(grid[last]),
    )


def _ridge(features: np.ndarray, shares: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions for each shadow model by all others, and for targets by all."""
    centre, mean = features.mean(0), shares.mean()
    u, values, rows = np.linalg.svd(features - centre, full_matrices=False)
    held = values > 1e-9 * values.max(initial=1e-300)
    u, values, rows = u[:, held], values[held], rows[held]
    target = u.T @ (shares - mean)
    best: tuple[float, np.ndarray, np.ndarray] | None = None
    for ridge in _RIDGES * (values**2).mean():
        shrunk = values**2 / (values**2 + ridge)
        fitted = u @ (shrunk * target) + mean
        leverage = (u**2 @ shrunk) + 1 / len(shares)
        left_out = shares - (shares - fitted) / (1 - leverage).clip(1e-9)
        error = float(((left_out - shares) ** 2).mean())
        if best is None or error < best[0]:
            best = (error, left_out, rows.T @ (values / (values**2 + ridge) * target))
    assert best is not None
    return best[1], (asked - centre) @ best[2] + mean


def _spread(terms: np.ndarray, residual: np.ndarray) -> np.ndarray:
    """Return coefficients of the logarithm of a normal residual's standard deviation, by Fisher scoring."""
    n = len(residual)
    scale = max(float(np.sqrt((residual**2).sum() / (n - 3))), 1e-12)
    found = np.zeros(terms.shape[1])
    found[0] = np.log(scale)
    for _ in range(50):
        ratio = np.clip((residual / np.exp(terms @ found)) ** 2, 0, 100)
        step = np.linalg.solve(2 * terms.T @ terms, terms.T @ (ratio - 1))
        found += np.clip(step, -1, 1)
        if np.abs(step).max() < 1e-9:
            break
    # Three degrees of freedom went into the mean.
    found[0] += 0.5 * np.log(n / (n - 3))
    return found
