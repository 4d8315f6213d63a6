"""Equations are solved alike by either matrix of products, and with a penalty in place of singular values."""

from __future__ import annotations

import numpy as np
import pytest

from seepage.attacks.trees import cells


@pytest.mark.parametrize("decomposed", [True, False])
@pytest.mark.parametrize("equations", [12, 60])
def test_numbers_are_those_of_the_pseudo_inverse(
    equations: int, decomposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "_DECOMPOSED", 1_000 if decomposed else 0)
    rng = np.random.default_rng(equations)
    part = rng.normal(size=(equations, 30))
    # The first eight equations hold three paths alone, which they determine; the last two paths are alike.
    part[:8, 3:] = part[8:, :3] = 0
    part[:, 29] = part[:, 28]
    numbers = rng.integers(1, 4, 30)
    sums = part @ rng.integers(0, 2, (30, 5)).astype(float)
    solver = cells._Solver(part, numbers, np.full(equations, 1e-6), 0.0)
    np.testing.assert_allclose(solver(sums), np.linalg.pinv(part, rcond=1e-8) @ sums, atol=1e-5)
    few = equations < 30
    assert solver.determined.tolist() == [True] * 3 + [not few] * 25 + [False] * 2
