"""The equations of the records' numbers, against the dense matrix of what each number changes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from seepage.attacks.horizontal.exact import harvest


def _equations(records: int, seed: int) -> tuple[harvest._NumberEquations, Tensor, Tensor]:
    """Return equations of two layers, what each number adds to both layers, and what is left there."""
    draw = torch.Generator().manual_seed(seed)
    columns, matrices, rests, terms = 3, [], [], []
    for units, width, alike in ((7, 6, True), (5, 8, False)):
        errors = torch.randn(records, units, generator=draw, dtype=torch.float64)
        changes = torch.randn(1 if alike else records, columns, width, generator=draw, dtype=torch.float64)
        rest = torch.randn(units, width, generator=draw, dtype=torch.float64)
        terms.append(harvest._Term(errors, changes, rest))
        every = changes.expand(records, -1, -1)
        matrices.append(
            torch.stack([torch.outer(errors[n], every[n, c]).flatten() for n in range(records) for c in range(3)])
        )
        rests.append(rest.flatten())
    return harvest._NumberEquations(terms), torch.cat(matrices, 1), torch.cat(rests)


@pytest.mark.parametrize("at_once", [4000, 0])
@pytest.mark.parametrize("records", [1, 4])
def test_moves_are_those_of_the_dense_equations(records: int, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harvest, "_SOLVED_AT_ONCE", at_once)
    monkeypatch.setattr(harvest, "_CONJUGATE_END", 1e-24)
    equations, added, left = _equations(records, seed=records)
    gram = added @ added.T
    torch.testing.assert_close(equations.gram(), gram)
    wanted = torch.linalg.solve(gram + 0.1 * torch.eye(len(gram), dtype=gram.dtype), added @ left)
    torch.testing.assert_close(equations.solved(0.1).flatten(), wanted, rtol=1e-6, atol=1e-8)
