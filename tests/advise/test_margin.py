"""The probability that a further audit passes, against audits that are drawn and decided."""

from __future__ import annotations

import numpy as np
import pytest

from seepage.advise.margin import chance_of_passing
from seepage.assessment import decision
from seepage.run.limits import LimitedFigure, Standing
from seepage.settings.setting import Configuration

LIMIT, UNITS = 0.2, 57


def standing(lifts: np.ndarray, attack: str = "reads", sample: int | None = None, label: bool = False) -> Standing:
    figure = LimitedFigure(Configuration("noise"), attack, sample=sample)
    predicted = np.full(len(lifts), 0.5)
    closed = float(lifts.mean() / 0.5) if label else None
    upper = decision.upper_bound(lifts)
    return Standing(
        figure,
        len(lifts),
        float(lifts.mean()),
        upper,
        below=upper < LIMIT,
        above=False,
        possible=True,
        may_be_above=False,
        more=None,
        closed=closed,
        scores=predicted + lifts,
        predicted=predicted,
    )


def chance(*standings: Standing, units: int = UNITS) -> float:
    probability = chance_of_passing(standings, LIMIT, units, seed=0)
    assert probability is not None
    return probability


def test_certain_cases() -> None:
    """Without any lift an audit of enough units passes, with large ones or too few units none does."""
    none, large = np.zeros(57), np.full(57, 0.3)
    assert chance(standing(none)) == 1.0
    assert chance(standing(none), units=decision.least_units(LIMIT)) == 1.0
    assert chance(standing(none), units=decision.least_units(LIMIT) - 1) == 0.0
    assert chance(standing(large)) == 0.0
    assert chance(standing(none), standing(large, "other")) == 0.0
    assert chance_of_passing([], LIMIT, UNITS, seed=0) is None
    unknown = Standing(
        standing(none).figure, 0, 0.0, 1.0, below=False, above=False, possible=False, may_be_above=False, more=None
    )
    assert chance_of_passing([standing(none), unknown], LIMIT, UNITS, seed=0) is None


@pytest.mark.parametrize("mean", [0.03, 0.07, 0.1, 0.13])
def test_it_is_how_often_audits_of_such_units_pass(mean: float) -> None:
    """Averaged over what may have been seen, it is near the share of audits that pass, decided one by one."""
    generator = np.random.default_rng(3)

    def drawn(count: int) -> np.ndarray:
        return generator.choice([-0.125, 0.0, 0.125, 0.25, 0.375], size=count, p=_shares(mean))

    passed = np.mean([decision.shown_below(drawn(UNITS), LIMIT) for _ in range(300)])
    expected = np.mean([chance(standing(drawn(200))) for _ in range(20)])
    assert abs(passed - expected) < 0.17


def _shares(mean: float) -> np.ndarray:
    """Return shares of five values, tilted until they have a mean."""
    values = np.array([-0.125, 0.0, 0.125, 0.25, 0.375])
    tilts = np.linspace(-40, 40, 4001)
    weights = np.exp(tilts[:, None] * values)
    weights /= weights.sum(1, keepdims=True)
    return weights[np.abs(weights @ values - mean).argmin()]


def test_a_figure_that_just_passed_is_no_safe_margin() -> None:
    """A bound just below the limit means that about half of the further audits pass."""
    lifts = np.resize([0.0, 0.375, 0.125, 0.0, 0.125], UNITS)
    seen = standing(lifts)
    assert 0.19 < seen.upper < LIMIT
    assert 0.3 < chance(seen) < 0.9


def test_figures_of_an_attack_meet_the_same_units() -> None:
    """A second figure that is the first takes nothing away; an attack with other units does."""
    lifts = np.resize([0.0, 0.375, 0.125, 0.0, 0.125], UNITS)
    alone = chance(standing(lifts))
    assert chance(standing(lifts), standing(lifts, "same")) == alone
    assert chance(standing(lifts), standing(lifts[:-1], "other")) < alone


def test_a_label_that_is_wholly_read_does_not_pass() -> None:
    """Where no lift is large since labels are alike, the gap to certainty has to stay open too."""
    lifts = np.full(57, 0.05)
    read = standing(lifts, label=True)
    read = Standing(**{**vars(read), "scores": np.ones(57), "predicted": np.full(57, 0.95)})
    assert chance(standing(lifts)) == 1.0
    assert chance(read) == 0.0


def test_members_of_trainings_are_drawn_within_one() -> None:
    """A further audit has as many trainings, each like one of those seen: one bad of five is rarely missed."""
    good, bad = np.zeros(420), np.full(420, 0.4)
    trainings = [standing(bad if i == 0 else good, sample=i) for i in range(5)]
    # (4 / 5) to the power of 5.
    assert abs(chance(*trainings, units=420) - 0.8**5) < 0.08
    assert chance(*(standing(good, sample=i) for i in range(5)), units=420) == 1.0
