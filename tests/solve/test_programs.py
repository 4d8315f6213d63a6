"""The cheapest whole numbers are those that listing all of them finds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array

from seepage.solve.programs import cheapest


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_no_numbers_within_the_limits_are_cheaper(seed: int, form: type) -> None:
    rng = np.random.default_rng(seed)
    cost, upper = rng.integers(-2, 3, 4).astype(float), rng.integers(1, 4, 4).astype(float)
    limited, wanted = rng.integers(-1, 3, (2, 4)).astype(float), rng.normal(size=(2, 2, 4))
    most, targets = rng.integers(2, 6, 2).astype(float), rng.normal(size=(2, 2)) * 3

    def price(numbers: np.ndarray) -> float:
        return float(cost @ numbers + sum(np.abs(b @ numbers - t).sum() for b, t in zip(wanted, targets, strict=True)))

    sums = [(form(b), t) for b, t in zip(wanted, targets, strict=True)]
    found = cheapest(cost, upper, [(form(limited), -np.inf, most)], sums)
    every = [np.array(n, dtype=float) for n in itertools.product(*(range(int(u) + 1) for u in upper))]
    allowed = [n for n in every if (limited @ n <= most).all()]
    if not allowed:
        assert found is None
        return
    assert found is not None
    assert (limited @ found <= most).all()
    assert price(found) == pytest.approx(min(map(price, allowed)))


def test_limits_alone_are_enough_and_nothing_fits_where_they_contradict() -> None:
    limit = np.ones((1, 2))
    found = cheapest(np.array([1.0, 2.0]), np.array([3.0, 9.0]), [(limit, 5.0, 5.0), (np.zeros((0, 2)), 0.0, 0.0)])
    assert found is not None
    assert found.tolist() == [3.0, 2.0]
    assert cheapest(np.zeros(2), np.ones(2), [(limit, 5.0, 5.0)]) is None
