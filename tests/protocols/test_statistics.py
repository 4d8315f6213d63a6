"""Sums of federated regressions and survival models, against slow formulas and a general optimiser."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from seepage.errors import BadInputError
from seepage.protocols import statistics, survival


def rows(number: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.concatenate([np.ones((number, 1)), rng.integers(0, 2, (number, 3))], axis=1).astype(float)
    return x, (rng.uniform(size=number) < 1 / (1 + np.exp(1 - x[:, 1] - 0.5 * x[:, 2]))).astype(float)


def optimum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return minimize(lambda b: float((np.logaddexp(0, x @ b) - y * (x @ b)).sum()), np.zeros(x.shape[1]), tol=1e-10).x


@pytest.mark.parametrize(("start", "sends"), [("zero", "score"), ("outcome", "right")])
def test_sites_together_fit_what_an_optimiser_fits_to_all_rows(start: Any, sends: Any) -> None:
    x, y = rows()
    sites = [(x[:40], y[:40]), (x[40:], y[40:])]
    fitted = statistics.fit(statistics.Newton("binomial", start, sends), sites)
    assert fitted.coefficients == pytest.approx(optimum(x, y), abs=1e-3)
    step = fitted.steps[0][-1]
    weight = np.exp(x[:40] @ step.coefficients) / np.square(1 + np.exp(x[:40] @ step.coefficients))
    slow = sum(w * np.outer(row, row) for w, row in zip(weight, x[:40], strict=True))
    assert step.information == pytest.approx(slow)


def test_a_site_that_fits_alone_sends_its_information_by_its_covariance() -> None:
    x, y = rows()
    # The second site has no record with the third column, whose coefficient it cannot tell.
    few = x[60:].copy()
    few[:, 3] = 0
    fitted = statistics.averaged(statistics.Newton("binomial"), [(x[:60], y[:60]), (few, y[60:])])
    for k, (own, outcomes, some) in enumerate([(x[:60], y[:60], 4), (few, y[60:], 3)]):
        [step] = fitted.steps[k]
        best = optimum(own[:, :some], outcomes)
        assert step.coefficients is not None
        assert step.coefficients[:some] == pytest.approx(best, abs=1e-3)
        chance = 1 / (1 + np.exp(-own @ step.coefficients))
        assert step.information == pytest.approx((own.T * (chance * (1 - chance))) @ own, abs=1e-9)
        # What the analyst takes for the score of a fit that has settled.
        assert own.T @ (outcomes - chance) == pytest.approx(step.score, abs=1e-6)


def test_separation_ends_the_iterations_and_dependent_columns_are_refused() -> None:
    x, _ = rows()
    apart = statistics.fit(statistics.Newton("binomial", iterations=60), [(x, x[:, 1].copy())])
    assert apart.separated or len(apart.steps[0]) < 60
    with pytest.raises(BadInputError, match="has 5 coefficients but rank 4"):
        statistics.fit(statistics.Newton("binomial"), [(np.concatenate([x, 1 - x[:, 1:2]], axis=1), x[:, 2].copy())])


def survivors(seed: int = 0, number: int = 60) -> survival.SurvivalRows:
    x, y = rows(number, seed)
    return survival.SurvivalRows(x, np.random.default_rng(seed).integers(1, 50, number).astype(float), y.astype(int))


def test_sites_fit_the_partial_likelihood_of_all_records() -> None:
    sites = [survivors(0), survivors(1)]
    x, times, events = (np.concatenate([getattr(s, name) for s in sites]) for name in ("rows", "times", "events"))

    def loss(b: np.ndarray) -> float:
        eta = x[:, 1:] @ b
        return -sum(eta[i] - np.log(np.exp(eta[times >= times[i]]).sum()) for i in np.flatnonzero(events))

    fitted = survival.fit(sites, 25)
    assert fitted.coefficients == pytest.approx(minimize(loss, np.zeros(3), tol=1e-10).x, abs=1e-3)
    step = fitted.steps[1][1]
    at_risk = sites[1].times >= fitted.times[5]
    slow = sum(np.exp(row[1:] @ step.coefficients) * np.outer(row, row) for row in sites[1].rows[at_risk])
    assert step.sums[5] == pytest.approx(slow)


def test_risk_sets_of_a_guarded_site_differ_by_none_or_enough_records() -> None:
    guarded = survival.with_jumps(survivors(2), 5)
    sizes = [int((guarded.times >= t).sum()) for t in np.unique(survivors(2).times)]
    jumps = -np.diff([*sizes, 0])
    assert set(jumps[jumps > 0] >= 5) == {True}
    with pytest.raises(BadInputError, match="needs more rows than that, got 3"):
        survival.with_jumps(survivors(2, 3), 5)


def test_no_event_is_refused() -> None:
    nobody = survivors()
    with pytest.raises(BadInputError, match="no record of these sites has an event"):
        survival.fit([survival.SurvivalRows(nobody.rows, nobody.times, 0 * nobody.events)], 5)
