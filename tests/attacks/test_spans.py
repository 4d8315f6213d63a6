"""Random combinations of the directions outside a span stand for all of them."""

from __future__ import annotations

import torch
from torch import Tensor

from seepage.attacks.horizontal.exact.cells_search import COMBINED, MANY_OUTSIDE, combined


def drawn(*sizes: int, seed: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_combinations_see_what_lies_outside_at_its_length() -> None:
    off, rows = torch.eye(MANY_OUTSIDE + 100, dtype=torch.float64).split([MANY_OUTSIDE + 50, 50])
    mixed = combined(off)
    assert mixed.shape == (COMBINED, MANY_OUTSIDE + 100)
    assert float((mixed @ rows.T).abs().max()) == 0
    vectors = drawn(200, MANY_OUTSIDE + 100, seed=1)
    share = (vectors @ mixed.T).square().sum(1) / (vectors @ off.T).square().sum(1)
    assert 0.5 < float(share.min()) < float(share.max()) < 2
