"""Estimate of the share itself, with an interval: shadow models over the whole range, and the chance of each share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor

from seepage.attacks.pooled.parts.features import Reduced, logarithms
from seepage.errors import BadInputError
from seepage.registry import Traits, attacks
from seepage.wire.pooled import PooledKnowledge, PredictionView, PropertyGuess, SpreadShadows

_RIDGES = np.logspace(-4, 4, 33)  # ridge strengths in units of the features' mean square
_GRID, _LEAST = 1001, 20


@attacks.register("ratio", "pooled", traits=Traits(needs=("auxiliary", "queries"), shares=True))
@dataclass(frozen=True)
class Ratio:
    """Estimates the share of the victim's rows that carry the attribute, with an interval.

    Source: our own.

    Ridge regression on the shadow models' standardised logarithms gives one number a model; the rule fitted on one half
    of the auxiliary rows is applied to the other half's models. The number's distribution for a given share is learnt
    from these: a quadratic mean, and a spread, to which the deviation of a half itself from the population is added.
    The inverse gives the chance of each share, all equally likely beforehand, and an interval; the estimate is the
    median. A target's number is the mean of both rules, with one rule's error: intervals are rather too wide.

    Attributes:
        level: confidence level of the interval.

    Raises:
        BadInputError: ``level`` is not in (0, 1).
    """

    # Shadow models are spread over a range of shares, on which the attack estimates one.
    level: float = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise BadInputError(f"level lies in (0, 1), got level={self.level!r}.")

    def __call__(self, view: PredictionView, knowledge: PooledKnowledge, seeds: Sequence[int] = (0,)) -> PropertyGuess:
        """Return chances of each share, the estimated share and its interval; ``seeds`` are not used."""
        shadows = knowledge.trained("spread")
        if not isinstance(shadows, SpreadShadows):
            raise BadInputError("shadow models of the kind 'spread' are SpreadShadows; train them with spread_shadows.")
        if len(shadows) < _LEAST:
            raise BadInputError(
                f"an interval rests on at least {_LEAST} shadow models, got {len(shadows)}; train more."
            )
        answers = view.ask(knowledge.queries)
        features = logarithms(shadows.answers)
        reduced = Reduced.of(features)
        return invert(shadows, reduced(features), reduced(logarithms(answers)), knowledge.shares, self.level)


def invert(
    shadows: SpreadShadows,
    features: Float[Tensor, "shadow feature"],
    targets: Float[Tensor, "target feature"],
    candidates: tuple[float, ...],
    level: float,
) -> PropertyGuess:
    """Return the guess of models' shares from their features, learnt from models whose shares are known."""
    r, halves = shadows.shares[:, 0].cpu().numpy(), shadows.halves.cpu().numpy()
    left_out, scored = _crossed(features.cpu().numpy(), r, halves, targets.cpu().numpy())
    low, high = float(r.min()), float(r.max())
    grid = np.linspace(low, high, _GRID)

    def terms(x: np.ndarray, degree: int) -> np.ndarray:
        return np.vander(2 * (x - low) / (high - low) - 1, degree + 1, increasing=True)

    # Halves may lie on either side of the population.
    design = np.column_stack([terms(r, 2), 2 * halves - 1])
    fitted, *_ = np.linalg.lstsq(design, left_out, rcond=None)
    residual = left_out - design @ fitted
    freedom = len(r) - design.shape[1]
    of_training, of_rows = _components(shadows, residual, freedom)
    drawn = [shadows.drawn_share(torch.from_numpy(x)).numpy() for x in (r, grid)]
    spread = _spread(terms(r, 1), residual / np.sqrt(of_training + of_rows * (1 - drawn[0])), freedom)
    at_grid, more = terms(grid, 2) @ fitted[:-1], np.exp(terms(grid, 1) @ spread)
    # The fitted mean is uncertain too.
    inverse = np.linalg.pinv(terms(r, 2).T @ terms(r, 2))
    leverage = np.einsum("gi,ij,gj->g", terms(grid, 2), inverse, terms(grid, 2))
    # A model's rows vary as the population does; the mean of both halves has half the variance of one half.
    width = more * np.sqrt(of_training * (1 + leverage) + of_rows * (1 + drawn[1] / 2 + leverage * (1 - drawn[1])))
    z = (scored[:, None] - at_grid) / width
    fits = stats.t.logpdf(z, freedom) - np.log(width)
    likely = np.exp(fits - fits.max(1, keepdims=True))
    cumulative = (likely / likely.sum(1, keepdims=True)).cumsum(1)
    median = (cumulative < 0.5).sum(1)
    inside = np.abs(z) <= stats.t.ppf((1 + level) / 2, freedom)
    # Where no share fits, and where only shares on one side of it do, the interval still holds the estimate.
    inside[np.arange(len(z)), median] = True
    first, last = inside.argmax(1), _GRID - 1 - inside[:, ::-1].argmax(1)
    near = np.abs(grid[:, None] - np.asarray(candidates)).argmin(0)
    chances = np.exp(fits[:, near] - fits[:, near].max(1, keepdims=True))
    return PropertyGuess(
        candidates,
        torch.from_numpy(chances / chances.sum(1, keepdims=True)),
        *(torch.from_numpy(grid[place]) for place in (median, first, last)),
    )


def _crossed(
    features: np.ndarray, shares: np.ndarray, halves: np.ndarray, targets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions for each half's shadow models by the other half's rule, for targets by both rules' mean."""
    rules = []
    for half in (0, 1):
        sample = features[halves == half]
        centre = sample.mean(0)
        u, values, rows = np.linalg.svd(sample - centre, full_matrices=False)
        nonzero = values > 1e-9 * values.max(initial=1e-300)
        mean = shares[halves == half].mean()
        target = u[:, nonzero].T @ (shares[halves == half] - mean)
        rules.append((centre, mean, values[nonzero], rows[nonzero], target))
    best: tuple[float, np.ndarray, np.ndarray] | None = None
    for ridge in _RIDGES:
        read = []
        for centre, mean, values, rows, target in rules:
            # Models that all answer alike leave no direction.
            scale = (values**2).sum() / max(1, len(values))
            slope = rows.T @ (values / (values**2 + ridge * scale) * target)
            read.append(tuple((which - centre) @ slope + mean for which in (features, targets)))
        crossed = np.where(halves == 1, read[0][0], read[1][0])
        error = float(((crossed - shares) ** 2).mean())
        if best is None or error < best[0]:
            best = (error, crossed, (read[0][1] + read[1][1]) / 2)
    assert best is not None
    return best[1], best[2]


def _components(shadows: SpreadShadows, residual: np.ndarray, freedom: int) -> tuple[float, float]:
    """Return the variance of a rule's number due to training, and due to rows drawn from the population."""
    of_training = float(((residual[0::2] - residual[1::2]) ** 2).mean() / 2)
    there = 1 - float(shadows.drawn_share(shadows.shares[:, 0]).mean())
    left = float((residual**2).sum() / freedom) - of_training
    return max(of_training, 1e-24), max(0.0, left) / max(there, 1e-9)


def _spread(terms: np.ndarray, residual: np.ndarray, freedom: int) -> np.ndarray:
    """Return coefficients of the logarithm of a normal residual's standard deviation, by Fisher scoring."""
    n = len(residual)
    scale = max(float(np.sqrt((residual**2).sum() / freedom)), 1e-12)
    coefficients = np.zeros(terms.shape[1])
    coefficients[0] = np.log(scale)
    for _ in range(50):
        ratio = np.clip((residual / np.exp(terms @ coefficients)) ** 2, 0, 100)
        step = np.linalg.solve(2 * terms.T @ terms, terms.T @ (ratio - 1))
        coefficients += np.clip(step, -1, 1)
        if np.abs(step).max() < 1e-9:
            break
    # The mean took some degrees of freedom.
    coefficients[0] += 0.5 * np.log(n / freedom)
    return coefficients
