"""Numbers are made whole without losing a record, as near as a total lets them be."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seepage.solve.proportional import proportional
from seepage.solve.remainders import to_total

NUMBERS = st.lists(st.floats(0, 5), min_size=1, max_size=4)


@given(NUMBERS, st.integers(0, 8))
def test_whole_numbers_have_the_total_and_no_others_are_nearer(near: list[float], total: int) -> None:
    found = to_total(np.array(near), total)
    assert found.sum() == total
    assert (found >= 0).all()
    if sum(near) > 1e-3:
        scaled = np.array(near) * total / sum(near)
        every = [n for n in itertools.product(range(total + 1), repeat=len(near)) if sum(n) == total]
        assert np.square(found - scaled).sum() <= min(np.square(np.array(n) - scaled).sum() for n in every) + 0.1


def test_numbers_that_are_nearly_whole_stay_and_what_is_missing_counts_for_nothing() -> None:
    assert to_total(np.array([1000.004, 0.006, 2.0]), 1002).tolist() == [1000, 0, 2]
    assert to_total(np.array([np.nan, 2.0, -3.0]), 2).tolist() == [0, 2, 0]
    assert to_total(np.zeros(3), 5).tolist() == [2, 2, 1]
    assert to_total(np.zeros(0), 0).tolist() == []
    assert to_total(np.array([5.0, 1.0]), 4, np.array([1.0, 1.0])).tolist() == [2, 2]


def test_a_fitted_table_has_the_totals_and_the_links_of_the_first_one() -> None:
    patterns = np.array(list(itertools.product(range(2), range(3))))
    first = np.array([1.0, 2.0, 1.0, 3.0, 1.0, 1.0])
    totals = [((0,), np.array([4.0, 6.0])), ((1,), np.array([2.0, 3.0, 5.0]))]
    table = proportional(first, totals, patterns).reshape(2, 3)
    np.testing.assert_allclose(table.sum(1), totals[0][1], rtol=1e-6)
    np.testing.assert_allclose(table.sum(0), totals[1][1], rtol=1e-6)
    # Fitting multiplies rows and columns, which leaves ratios of ratios.
    start = first.reshape(2, 3)
    ratio = table[0, 0] * table[1, 1] / table[0, 1] / table[1, 0]
    np.testing.assert_allclose(ratio, start[0, 0] * start[1, 1] / start[0, 1] / start[1, 0])
