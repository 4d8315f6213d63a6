"""Federated survival models by Newton steps: the risk-set sums that each site sends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from seepage.errors import BadInputError
from seepage.wire.statistics import RiskStep

Rows = Float[np.ndarray, "record coefficient"]
Times = Float[np.ndarray, " time"]
# vantage6 stops where no coefficient changes by more.
TOLERANCE = 1e-8


@dataclass(frozen=True)
class SurvivalRows:
    """Records of a site: design rows with an intercept, times, and whether an event ended each."""

    rows: Rows
    times: Float[np.ndarray, " record"]
    events: Int[np.ndarray, " record"]


@dataclass(frozen=True)
class FederatedCox:
    """Outcome of a federation: log hazard ratios, covariance of their errors, grid of times, and each site's sums."""

    coefficients: Float[np.ndarray, " coefficient"]
    covariance: Float[np.ndarray, "coefficient coefficient"]
    times: Times
    steps: tuple[tuple[RiskStep, ...], ...]


def events_at(sites: Sequence[SurvivalRows], grid: Times) -> Times:
    """Return the number of events of some sites at each time of a grid."""
    number = np.zeros(len(grid))
    for site in sites:
        number += [((site.times == t) & (site.events > 0)).sum() for t in grid]
    return number


def risk_sums(site: SurvivalRows, grid: Times, coefficients: Float[np.ndarray, " coefficient"]) -> RiskStep:
    """Return the sums over the records at risk at each time of a grid, those whose time is not before it.

    Source: WebDISCO (Lu et al. 2015), and ``perform_iteration`` of vantage6's ``v6-coxph``; the code is our own.
    """
    weight = np.exp(site.rows[:, 1:] @ coefficients)
    at_risk = (site.times[None, :] >= grid[:, None]).astype(np.float64)
    products = site.rows[:, :, None] * site.rows[:, None, :] * weight[:, None, None]
    sums = at_risk @ products.reshape(len(site.rows), -1)
    return RiskStep(coefficients, sums.reshape(len(grid), *products.shape[1:]))


def fit(
    sites: Sequence[SurvivalRows],
    iterations: int,
    guard: Callable[[SurvivalRows, Times], SurvivalRows] = lambda site, grid: site,
    changed: Callable[[RiskStep], RiskStep] = lambda step: step,
) -> FederatedCox:
    """Return the fit of all sites together, ties by Breslow's method.

    Args:
        guard: what a site does to its records before it adds them up.
        changed: what a site does to its sums before it sends them.

    Raises:
        BadInputError: there is no event, or the columns of the design are linearly dependent.
    """
    if not any(site.events.any() for site in sites):
        raise BadInputError(
            "no record of these sites has an event, so that there is no risk set; give more rows, or another outcome."
        )
    guarded = [guard(site, np.unique(site.times)) for site in sites]
    grid = np.unique(np.concatenate([site.times[site.events > 0] for site in guarded]))
    number = sum(
        (np.array([((s.times == t) & (s.events > 0)).sum() for t in grid]) for s in guarded), np.zeros(len(grid))
    )
    observed = sum((s.rows[s.events > 0, 1:].sum(0) for s in guarded), np.zeros(sites[0].rows.shape[1] - 1))
    coefficients = np.zeros(sites[0].rows.shape[1] - 1)
    sent: list[tuple[RiskStep, ...]] = []
    inverse = np.full((len(coefficients), len(coefficients)), np.nan)
    for _ in range(iterations):
        steps = tuple(changed(risk_sums(site, grid, coefficients)) for site in guarded)
        total = sum((step.sums for step in steps), np.zeros_like(steps[0].sums))
        mean = total[:, 0, 1:] / total[:, :1, 0]
        score = observed - number @ mean
        spread = total[:, 1:, 1:] / total[:, :1, :1] - mean[:, :, None] * mean[:, None, :]
        information = np.einsum("t,tjk->jk", number, spread)
        values, vectors = np.linalg.eigh((information + information.T) / 2)
        if not values[0] > 1e-9 * values[-1]:
            if sent:
                break
            raise BadInputError(
                "the first risk-set sums are singular, so that no model can be fitted; leave out a column, or take "
                "levels together."
            )
        inverse = vectors / values @ vectors.T
        sent.append(steps)
        change = inverse @ score
        coefficients = coefficients + change
        if np.abs(change).max(initial=0.0) <= TOLERANCE:
            break
    return FederatedCox(coefficients, inverse, grid, tuple(zip(*sent, strict=True)))


def with_jumps(site: SurvivalRows, least: int) -> SurvivalRows:
    """Return records whose risk sets differ by none or at least ``least`` of them, and have as many.

    Records beyond the time of the ``least``-th last are censored there. Walking through the times, records stay at risk
    until ``least`` leave together. Source: the guards of vantage6's ``v6-cox-ph`` (tail censoring, risk-set jumps); the
    code is our own, and holds times where theirs holds sums.
    """
    if len(site.times) <= least:
        raise BadInputError(
            f"a guard on {least} leaving records needs more rows than that, got {len(site.times)}; give more rows, or "
            "a smaller number (records)."
        )
    times, events = site.times.copy(), site.events.copy()
    cut = np.sort(times)[-least]
    events[times > cut] = 0
    times = np.minimum(times, cut)
    order = np.argsort(times, kind="stable")
    together: list[int] = []
    for place, i in enumerate(order):
        together.append(int(i))
        ends = place + 1 == len(order) or times[order[place + 1]] > times[i]
        if ends and len(together) >= least:
            times[together] = times[i]
            together = []
    return SurvivalRows(site.rows, times, events)
