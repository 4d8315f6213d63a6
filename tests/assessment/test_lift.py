import math

import pytest
import torch

from seepage.assessment import Measurement, best_baseline, lift
from seepage.errors import BadInputError


def _rate(values: list[float], metric: str = "accuracy", column: str | None = None) -> Measurement:
    return Measurement(metric, column, torch.tensor(values, dtype=torch.float64), True, (0.0, 1.0))


def _error(values: list[float]) -> Measurement:
    return Measurement("rmse", None, torch.tensor(values, dtype=torch.float64), False, (0.0, math.inf))


def test_lift_is_over_the_best_baseline_on_the_same_metric_and_column():
    random = [_rate([0.5, 0.7]), _rate([0.1, 0.1], column="age")]
    mode = [_rate([0.4, 0.4]), _rate([0.3, 0.2], column="age")]
    overall = lift(_rate([0.9, 0.8]), {"random": random, "mode": mode})
    assert overall is not None
    assert (overall.baseline, overall.reference) == ("random", pytest.approx(0.6))
    assert overall.gain.mean == pytest.approx(0.25)
    assert overall.gain.n == 2
    by_column = lift(_rate([0.9, 0.8], column="age"), {"random": random, "mode": mode})
    assert by_column is not None
    assert by_column.baseline == "mode"


def test_an_error_below_guessing_is_a_positive_lift():
    found = lift(_error([0.5, 1.0]), {"random": [_error([1.5, 1.5])], "mode": [_error([1.0, 1.2])]})
    assert found is not None
    assert found.baseline == "mode"
    assert found.gain.mean == pytest.approx(0.35)


def test_an_attack_that_loses_to_guessing_has_a_negative_lift():
    found = lift(_rate([0.2, 0.3]), {"mode": [_rate([0.5, 0.5])]})
    assert found is not None
    assert found.gain.mean == pytest.approx(-0.25)


def test_no_baseline_with_the_figure_means_no_lift():
    assert lift(_rate([0.2], "top_quarter_discrete"), {"mode": [_rate([0.5])]}) is None
    assert lift(_rate([0.2]), {"mode": [_rate([math.nan])]}) is None
    assert lift(_rate([0.2]), {}) is None
    some = torch.zeros(2, dtype=torch.float64)
    pair = Measurement("kendall_discrete", None, some, entropy=some)
    assert best_baseline(pair, {"mode": [pair]}) is None


def test_a_baseline_of_other_victims_is_refused():
    with pytest.raises(BadInputError, match="same victims"):
        lift(_rate([0.2, 0.4]), {"mode": [_rate([0.5])]})
