"""Choices of options that add up to a sum are those that trying all of them finds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from seepage.solve.choices import all_choices, choices


@pytest.mark.parametrize("seed", range(20))
def test_all_choices_are_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Small whole numbers, so that several choices have the same sum.
    options = [rng.integers(-3, 4, (rng.integers(1, 4), 2)).astype(float) for _ in range(rng.integers(1, 7))]
    every = list(itertools.product(*(range(len(one)) for one in options)))
    picked = every[rng.integers(len(every))]
    target = sum((options[i][k] for i, k in enumerate(picked)), np.zeros(2))
    expected = [
        one for one in every if np.allclose(sum((options[i][k] for i, k in enumerate(one)), np.zeros(2)), target)
    ]
    found = choices(options, target, 1e-9)
    assert found is not None
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("seed", range(10))
def test_choices_of_many_targets_are_those_of_the_search_for_each(seed: int) -> None:
    rng = np.random.default_rng(seed)
    options = [rng.integers(-3, 4, (rng.integers(1, 4), 2)).astype(float) for _ in range(rng.integers(1, 5))]
    targets = rng.integers(-6, 7, (20, 2)).astype(float)
    each = [choices(options, target, 1e-9) for target in targets]
    found = all_choices(options, targets, np.full(2, 1e-9))
    assert [sorted(map(tuple, one.tolist())) for one in found] == [sorted(one or []) for one in each]


def test_nothing_to_choose_and_too_much() -> None:
    assert choices([], np.zeros(2), 0.1) == [()]
    assert choices([], np.ones(2), 0.1) == []
    # Two to the 26 choices add up to nothing: they are not listed.
    assert choices([np.zeros((2, 2))] * 26, np.zeros(2), 0.1) is None
    assert choices([np.zeros((2, 1))] * 60, np.zeros(1), 0.1) is None
