from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from torch import tensor

from seepage.assessment import clustered, interval, rows_worth, rows_worth_of_error
from seepage.errors import BadInputError


def test_rows_seen_directly_are_worth_at_least_their_number() -> None:
    # Who sees n rows and names the likelier share is right so often; the bound turns that into at most n rows.
    for low, high in ((0.3, 0.7), (0.5, 0.6), (0.1, 0.9)):
        for n in (1, 3, 8):
            counts = np.arange(n + 1)
            chances = [stats.binom.pmf(counts, n, share) for share in (low, high)]
            accuracy = float(np.maximum(*chances).sum() / 2)
            worth = rows_worth(accuracy, low, high)
            assert worth is not None
            assert 0 < worth <= n + 1e-9


def test_ends_of_the_scale() -> None:
    assert rows_worth(0.4, 0.3, 0.7) == 0.0
    assert rows_worth(1.0, 0.3, 0.7) is None
    assert rows_worth(0.9, 0.0, 1.0) == 0.0
    assert rows_worth(0.9, 0.3, 0.7) == rows_worth(0.9, 0.7, 0.3)
    assert rows_worth_of_error(0.3, 0.0) is None
    assert rows_worth_of_error(0.3, 0.021) == pytest.approx(10)
    with pytest.raises(BadInputError, match="two different shares"):
        rows_worth(0.9, 0.3, 0.3)


def test_clusters_widen_an_interval_as_far_as_they_differ() -> None:
    rng = np.random.default_rng(0)
    covered = {"clustered": 0, "units": 0}
    for k in range(200):
        centre = 0.7 + 0.1 * rng.standard_normal(5)
        values = [tensor((rng.random(100) < c).astype(float)) for c in centre]
        found = clustered(values, resamples=400, seed=k)
        plain = interval(tensor(np.concatenate([one.numpy() for one in values])))
        assert found.n == 500
        for name, one in (("clustered", found), ("units", plain)):
            assert one.low is not None
            assert one.high is not None
            covered[name] += one.low <= 0.7 <= one.high
    assert covered["units"] / 200 < 0.7
    assert 0.82 <= covered["clustered"] / 200 <= 0.98


def test_clusters_without_values_are_left_out() -> None:
    one = tensor([0.0, 1.0, 1.0, math.nan])
    alone = clustered([one, tensor([math.nan])])
    assert (alone.mean, alone.low, alone.n) == (pytest.approx(2 / 3), None, 3)
    assert clustered([]).mean is None
    same = clustered([tensor([1.0, 1.0]), tensor([1.0])])
    assert (same.low, same.high) == (1.0, 1.0)
