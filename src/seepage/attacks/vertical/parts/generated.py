"""Rows that an attacker makes up: for queries, and from free numbers that a descent may change."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Discrete


def generated(
    encoder: Encoder, rows: int, seeds: Sequence[int], stretch: float | int = 1
) -> Float[Tensor, "training row encoded"]:
    """Return valid rows whose cells are drawn evenly: categories from all, numbers from their range."""
    return torch.stack([_queries(encoder, rows, torch.Generator().manual_seed(seed), stretch) for seed in seeds])


def plain_uniform(encoder: Encoder, rows: int, seeds: Sequence[int]) -> Float[Tensor, "training row encoded"]:
    """Return rows whose encoded columns are all numbers drawn evenly from 0 to 1; they are not valid rows."""
    drawn = [torch.rand(rows, encoder.width, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    return torch.stack(drawn)


def _queries(encoder: Encoder, rows: int, generator: torch.Generator, stretch: float | int) -> Tensor:
    parts = []
    for column in encoder.schema.columns:
        if isinstance(column, Discrete):
            codes = torch.randint(column.width, (rows,), generator=generator)
            parts.append(functional.one_hot(codes, column.width).float())
        else:
            parts.append(stretch * (2 * torch.rand(rows, 1, generator=generator) - 1))
    return torch.cat(parts, dim=1)


def relaxed(encoder: Encoder, free: Float[Tensor, "*some encoded"]) -> Float[Tensor, "*some encoded"]:
    """Return rows near valid ones from free numbers: softmax over a column's categories, tanh of a number."""
    parts = [
        free[..., block].softmax(-1) if isinstance(column, Discrete) else free[..., block].tanh()
        for column, block in zip(encoder.schema.columns, encoder.schema.blocks, strict=True)
    ]
    return torch.cat(parts, dim=-1)
