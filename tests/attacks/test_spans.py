"""Spans of gradients, updated by one record, against those computed anew."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from seepage.attacks.horizontal.exact.cells_search import COMBINED, MANY_OUTSIDE, combined
from seepage.attacks.horizontal.exact.spans import Span, row_scale


def drawn(*sizes: int, seed: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def onto(basis: Tensor) -> Tensor:
    return basis.T @ basis


@pytest.mark.parametrize("records", [0, 1, 10])
def test_one_more_record_adds_its_own_dimension(records: int) -> None:
    error, entered = drawn(40, seed=1), drawn(50, seed=2)
    gradient = drawn(records, 40, seed=3).T @ drawn(records, 50, seed=4) + 1e-9 * drawn(40, 50, seed=5)
    scale = row_scale(drawn(40, 50, seed=6))
    more = Span.of(gradient, scale, 50.0, 1e-7).beside(error, entered)
    anew = Span.of(gradient + torch.outer(error, entered), scale, 50.0, 1e-7)
    assert more is not None
    assert more.rank == anew.rank == records + 1
    for one, other in ((more.rows, anew.rows), (more.off_rows, anew.off_rows), (more.off_columns, anew.off_columns)):
        torch.testing.assert_close(onto(one), onto(other), rtol=0, atol=1e-8)
    torch.testing.assert_close(more.inverse, anew.inverse, rtol=0, atol=1e-6 * float(anew.inverse.abs().max()))


def test_a_record_within_the_span_adds_none() -> None:
    errors, inputs = drawn(5, 40, seed=3), drawn(5, 50, seed=4)
    span = Span.of(errors.T @ inputs, torch.ones(40, dtype=torch.float64), 50.0, 1e-7)
    assert span.beside(errors[0], inputs[0]) is None


def test_combinations_see_what_lies_outside_at_its_length() -> None:
    off, rows = torch.eye(MANY_OUTSIDE + 100, dtype=torch.float64).split([MANY_OUTSIDE + 50, 50])
    mixed = combined(off)
    assert mixed.shape == (COMBINED, MANY_OUTSIDE + 100)
    assert float((mixed @ rows.T).abs().max()) == 0
    vectors = drawn(200, MANY_OUTSIDE + 100, seed=1)
    share = (vectors @ mixed.T).square().sum(1) / (vectors @ off.T).square().sum(1)
    assert 0.5 < float(share.min()) < float(share.max()) < 2
