"""Rank of a table's encoded rows: a bound on the records that linear algebra can separate."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from seepage.errors import check_count
from seepage.tabular.encoder import Encoder

# A singular value below this share of the largest is a rounding error.
_ROUNDING = 1e-9


def rank_ceiling(encoder: Encoder, cells: Float[Tensor, "row column"]) -> int:
    """Return the rank of all encoded rows, each extended by a 1.

    The gradient of a network's first layer has no higher rank, whatever the width of the layer and the size of the
    batch. No method that uses this gradient alone can separate more records.
    """
    width = encoder.width + 1
    # No more than one part of the table is encoded at a time.
    factor = torch.zeros(0, width, dtype=torch.float64, device=encoder.mean.device)
    for part in cells.split(max(4 * width, 4096)):
        factor = torch.linalg.qr(torch.cat([factor, _extended(encoder, part)]), mode="r").R
    return int(_ranks(factor[None])[0])


def batch_rank(
    encoder: Encoder,
    cells: Float[Tensor, "row column"],
    records: int,
    seed: int,
    draws: int = 100,
    replacement: bool = True,
) -> float:
    """Return the mean rank of batches' encoded rows, each row extended by a 1."""
    check_count("records", records)
    check_count("draws", draws)
    generator = np.random.default_rng(seed)
    count = len(cells)
    drawn = [
        generator.choice(count, min(records, count) if not replacement else records, replacement) for _ in range(draws)
    ]
    rows = _extended(encoder, cells[torch.from_numpy(np.stack(drawn)).to(cells.device)])
    return float(_ranks(rows).double().mean())


def _extended(encoder: Encoder, cells: Float[Tensor, "*batch column"]) -> Float[Tensor, "*batch extended"]:
    rows = encoder.encode(cells).double().to(encoder.mean.device)
    # Raw categories are 0 and 1, whatever rounding did to their standardised values.
    rows = rows * encoder.std.double() + encoder.mean.double()
    size = torch.where(encoder.is_continuous, encoder.std.double(), torch.ones_like(encoder.std.double()))
    centre = torch.where(encoder.is_continuous, encoder.mean.double(), torch.zeros_like(encoder.mean.double()))
    return torch.cat([(rows - centre) / size, rows.new_ones(*rows.shape[:-1], 1)], -1)


def _ranks(rows: Float[Tensor, "batch row extended"]) -> Tensor:
    values = torch.linalg.svdvals(rows)
    return (values > _ROUNDING * values[:, :1]).sum(1)
