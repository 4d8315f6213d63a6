from __future__ import annotations

import pytest
import torch

from seepage.products import times, times_each


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# In float32 the products go through another library than in float64.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [0, 1, 33])
@pytest.mark.parametrize("biased", [False, True])
def test_products_are_those_of_the_formula(dtype: torch.dtype, rows: int, biased: bool) -> None:
    left, weight, bias = normal(rows, 7, seed=0), normal(5, 7, seed=1), normal(5, seed=2)
    expected = (left[:, None] * weight).sum(2) + (bias if biased else 0)
    found = times(left.to(dtype), weight.to(dtype), bias.to(dtype) if biased else None)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("victims", [1, 3])
def test_each_victim_has_weights_of_its_own(dtype: torch.dtype, victims: int) -> None:
    rows, weights = normal(victims * 4, 7, seed=0), normal(victims, 5, 7, seed=1)
    expected = torch.cat([rows[4 * v : 4 * v + 4] @ weights[v].T for v in range(victims)])
    torch.testing.assert_close(times_each(rows.to(dtype), weights.to(dtype)).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_derivative_by_the_rows_is_recorded(dtype: torch.dtype) -> None:
    rows, weights = normal(8, 7, seed=0).to(dtype).requires_grad_(), normal(2, 5, 7, seed=1).to(dtype)
    (one,) = torch.autograd.grad(times(rows, weights[0]).sum(), rows)
    torch.testing.assert_close(one, weights[0].sum(0).expand(8, 7))
    (each,) = torch.autograd.grad(times_each(rows, weights).sum(), rows)
    torch.testing.assert_close(each, weights.sum(1).repeat_interleave(4, 0))
