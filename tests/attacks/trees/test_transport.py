"""Values are given to records as the optimal assignment of records to places gives them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from seepage.attacks.trees.transport import assigned


@pytest.mark.parametrize("seed", range(20))
def test_gains_are_those_of_the_optimal_assignment(seed: int) -> None:
    rng = np.random.default_rng(seed)
    records = int(rng.integers(1, 80))
    values = int(rng.integers(1, records + 1))
    # Whole numbers have many ties; some values are out of the question.
    gains = rng.normal(0, 1, (records, values)) if seed % 2 else rng.integers(-2, 3, (records, values)).astype(float)
    gains[rng.random(gains.shape) < 0.3] -= 1e3
    of_places = np.concatenate([np.arange(values), rng.integers(0, values, records - values)])
    found = assigned(gains, np.bincount(of_places))
    np.testing.assert_array_equal(np.bincount(found, minlength=values), np.bincount(of_places))
    rows, places = linear_sum_assignment(-gains[:, of_places])
    assert gains[np.arange(records), found].sum() == pytest.approx(gains[rows, of_places[places]].sum())
