"""Relaxation of rows to free numbers that a descent may change."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Discrete


def relaxed(encoder: Encoder, free: Float[Tensor, "*some encoded"]) -> Float[Tensor, "*some encoded"]:
    """Return rows near valid ones from free numbers: softmax over a column's categories, tanh of a number.

    Example:
        >>> from seepage.datasets.planted import telling
        >>> from seepage.models.vertical import encoder_of
        >>> relaxed(encoder_of(telling(rows=9).schema), torch.zeros(1, 11))[0, :2].tolist()
        [0.5, 0.5]
    """
    parts = [
        free[..., block].softmax(-1) if isinstance(column, Discrete) else free[..., block].tanh()
        for column, block in zip(encoder.schema.columns, encoder.schema.blocks, strict=True)
    ]
    return torch.cat(parts, dim=-1)
