"""Federated regressions by Newton steps: the sums that each site sends, and the coefficients that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from seepage.errors import BadInputError
from seepage.wire.statistics import Family, NewtonStep

# Variance of a coefficient beyond which a site's own fit has separated.
_LARGEST_VARIANCE = 1e4
Start = Literal["zero", "outcome"]
Rows = Float[np.ndarray, "record coefficient"]
Outcomes = Float[np.ndarray, " record"]
Coefficients = Float[np.ndarray, " coefficient"]
Sites = Sequence[tuple[Float[np.ndarray, "_record coefficient"], Float[np.ndarray, " _record"]]]
# Both projects stop where the deviance changes by less than this share.
TOLERANCE = 1e-8


@dataclass(frozen=True)
class Newton:
    """Recipe of a generalised linear model with its canonical link, fitted by iterated weighted least squares.

    Sources: DataSHIELD's ``glmDS2`` (dsBase 6.3.3), whose sites send information, score and deviance from coefficients
    of zero (``zero``); vantage6's ``v6-glm-py`` 1.2.1, whose sites send X^T W X, X^T W z, deviance, the sum of the
    outcomes and, in gaussian models, the dispersion, and begin at statsmodels' ``starting_mu`` (``outcome``):
    (y + 1/2) / 2 with two classes, else (y + mean) / 2. Formulas are the projects', the code is our own.

    Attributes:
        start: coefficients of zero, or a first step from the outcomes.
        sends: ``score``, or ``right`` for the right side of the normal equations.
        iterations: largest number of iterations; it stops earlier where the deviance settles.
    """

    family: Family
    start: Start = "zero"
    sends: Literal["score", "right"] = "score"
    iterations: int = 25


@dataclass(frozen=True)
class FederatedFit:
    """Outcome of a federation: coefficients, covariance of their errors, and each sender's sums in every iteration."""

    coefficients: Float[np.ndarray, " coefficient"]
    covariance: Float[np.ndarray, "coefficient coefficient"]
    steps: tuple[tuple[NewtonStep, ...], ...]
    separated: bool = False


def mean_and_weight(family: Family, eta: Outcomes) -> tuple[Outcomes, Outcomes]:
    """Return the mean and the weight of each record, from its linear predictor."""
    if family == "binomial":
        mu = 1 / (1 + np.exp(-np.clip(eta, -700, 700)))
        return mu, mu * (1 / (1 + np.exp(np.clip(eta, -700, 700))))
    if family == "poisson":
        mu = np.exp(np.minimum(eta, 700))
        return mu, mu
    return eta, np.ones_like(eta)


def deviance(family: Family, y: Outcomes, eta: Outcomes, mu: Outcomes) -> float:
    """Return the deviance of some records."""
    if family == "binomial":
        return float(2 * (np.logaddexp(0, eta) - y * eta).sum())
    if family == "poisson":
        return float(2 * (np.where(y > 0, y * np.log(np.maximum(y, 1e-300)), 0) - y * eta - y + mu).sum())
    return float(np.square(y - mu).sum())


def sums(recipe: Newton, rows: Rows, y: Outcomes, coefficients: Coefficients | None) -> NewtonStep:
    """Return what a site sends in one iteration; ``coefficients`` are None in a first step from the outcomes."""
    if coefficients is None:
        mu = (y + (0.5 if recipe.family == "binomial" else y.mean())) / 2
        if recipe.family == "binomial":
            eta, weight = np.log(mu / (1 - mu)), mu * (1 - mu)
        else:
            eta, weight = (np.log(mu), mu) if recipe.family == "poisson" else (mu, np.ones_like(mu))
    else:
        eta = rows @ coefficients
        mu, weight = mean_and_weight(recipe.family, eta)
    information = rows.T @ (rows * weight[:, None])
    left = y - mu
    if recipe.sends == "score":
        return NewtonStep(coefficients, information, rows.T @ left, None, deviance(recipe.family, y, eta, mu))
    return NewtonStep(
        coefficients,
        information,
        None,
        rows.T @ (weight * eta + left),
        None if coefficients is None else deviance(recipe.family, y, eta, mu),
        float(np.square(left).sum()) if recipe.family == "gaussian" else None,
        float(y.mean()),
    )


def fit(
    recipe: Newton,
    sites: Sites,
    changed: Callable[[NewtonStep, int], NewtonStep] = lambda step, site: step,
    floor: float = 0.0,
) -> FederatedFit:
    """Return the fit of all sites together; ``changed`` is what a site does to its sums before it sends them.

    Eigenvalues of a noisy information below ``floor`` are raised to it, so that it can be inverted.

    Raises:
        BadInputError: the columns of the design are linearly dependent over all sites.
    """
    width = sites[0][0].shape[1]
    coefficients = np.zeros(width) if recipe.start == "zero" else None
    sent: list[tuple[NewtonStep, ...]] = []
    before, separated = np.inf, False
    inverse = np.full((width, width), np.nan)
    for _ in range(recipe.iterations):
        steps = tuple(changed(sums(recipe, x, y, coefficients), i) for i, (x, y) in enumerate(sites))
        information = sum((s.information for s in steps), np.zeros((width, width)))
        if not sent:
            _check_rank(sites)
        values, vectors = np.linalg.eigh((information + information.T) / 2)
        values = np.maximum(values, floor) if floor else values
        if not values[0] > 1e-11 * values[-1]:
            separated = True
            break
        inverse = vectors / values @ vectors.T
        sent.append(steps)
        coefficients = _updated(steps, inverse, coefficients)
        parts = [s.deviance for s in steps if s.deviance is not None]
        total = float(sum(parts)) if parts else np.inf
        if abs(total - before) <= TOLERANCE * (abs(total) + 0.1):
            break
        before = total
    if not sent:
        raise BadInputError(
            "the first sums are singular, so that no model can be fitted; leave out a column, take levels together, or "
            "change sums by less (such as more digits)."
        )
    assert coefficients is not None
    return FederatedFit(coefficients, inverse, tuple(zip(*sent, strict=True)), separated)


def averaged(recipe: Newton, sites: Sites) -> FederatedFit:
    """Return the mean of each site's own coefficients, weighted by inverse variances, and what each sends.

    A site's step is what its coefficients, their covariance and the deviance amount to, which DataSHIELD's
    ``glmSLMADS2`` (dsBase) returns: the inverse of the covariance is the information at the coefficients, where
    the score is 0. Columns that are linearly dependent at a site say nothing there, nor do those whose fit separates.
    Coefficients that a site cannot tell are sent as missing; as sums of the others, they are 0.

    Raises:
        BadInputError: no site can tell a coefficient.
    """
    width = sites[0][0].shape[1]
    weight, total = np.zeros(width), np.zeros(width)
    sent: list[tuple[NewtonStep, ...]] = []
    for x, y in sites:
        _, triangle = np.linalg.qr(x)
        independent = np.flatnonzero(np.abs(np.diag(triangle)) > 1e-8 * np.abs(triangle[0, 0]))
        site_fit = fit(recipe, [(x[:, independent], y)])
        variances = np.diag(site_fit.covariance)
        good = np.isfinite(variances) & (variances > 0) & (variances < _LARGEST_VARIANCE)
        weight[independent[good]] += 1 / variances[good]
        total[independent[good]] += site_fit.coefficients[good] / variances[good]
        sent.append((_of_fit(recipe, x, y, independent, site_fit.coefficients),))
    if not (weight > 0).all():
        raise BadInputError(
            f"no site alone tells {int((weight == 0).sum())} of {width} coefficients, so that nothing can be averaged; "
            "take levels together (minimum_level), give more rows, or use another defense than one_shot."
        )
    return FederatedFit(total / weight, np.diag(1 / weight), tuple(sent))


def _of_fit(
    recipe: Newton, rows: Rows, y: Outcomes, columns: Int[np.ndarray, " _some"], estimates: Float[np.ndarray, " _some"]
) -> NewtonStep:
    """Return the sums that a site's own coefficients of some columns and their covariance stand for."""
    coefficients, information = np.zeros(rows.shape[1]), np.zeros((rows.shape[1],) * 2)
    coefficients[columns] = estimates
    step = sums(recipe, rows, y, coefficients)
    # As an analyst has it, from the inverse.
    covariance = np.linalg.pinv(step.information[np.ix_(columns, columns)], hermitian=True)
    information[np.ix_(columns, columns)] = np.linalg.pinv(covariance, hermitian=True)
    return NewtonStep(coefficients, information, np.zeros(len(coefficients)), deviance=step.deviance)


def inversion(information: Float[np.ndarray, "coefficient coefficient"]) -> float:
    """Return the distance of neighbouring numbers that an inverse of a covariance tells apart.

    Example:
        >>> inversion(np.diag([1.0, 0.0, 1e-8])) > inversion(np.eye(3))
        True
    """
    sizes = np.linalg.svd(information, compute_uv=False)
    sizes = sizes[sizes > 0]
    if not len(sizes):
        return 0.0
    ratio = float(sizes[0] / sizes[-1])
    return max(1e-9, 10 * len(information) * float(np.finfo(float).eps) * ratio) * float(sizes[0])


def _updated(steps: Sequence[NewtonStep], inverse: np.ndarray, coefficients: Coefficients | None) -> Coefficients:
    """Return the coefficients of the next iteration."""
    if all(s.right is not None for s in steps):
        return inverse @ sum((s.right for s in steps if s.right is not None), np.zeros(len(inverse)))
    assert coefficients is not None
    return coefficients + inverse @ sum((s.score for s in steps if s.score is not None), np.zeros(len(inverse)))


def _check_rank(sites: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
    rows = np.concatenate([x for x, _ in sites])
    rank, width = int(np.linalg.matrix_rank(rows)), rows.shape[1]
    if rank < width:
        raise BadInputError(
            f"the design has {width} coefficients but rank {rank} over all sites, so that no model can be fitted; "
            "leave out a column that follows from others, or give more rows."
        )
