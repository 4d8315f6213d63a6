"""Products with a matrix that many rows share, by the fastest available library.

On a CPU PyTorch's ``mm`` calls MKL, which leaves half of the speed of processors not made by Intel
unused; oneDNN, which ships with the same PyTorch, does not. Both round like any other float32 product.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

# The operator behind compiled CPU linear layers; PyTorch has had it since 2.0, but not in every build.
_ONEDNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None


def times(
    rows: Float[Tensor, "row input"], weight: Float[Tensor, "unit input"], bias: Float[Tensor, " unit"] | None = None
) -> Float[Tensor, "row unit"]:
    """Return ``rows @ weight.T + bias``; only a derivative by the rows is recorded."""
    if (linear := _onednn(rows)) is not None:
        return linear(rows, weight, bias, "none", [], "")
    return rows @ weight.T if bias is None else torch.addmm(bias, rows, weight.T)


def times_each(
    rows: Float[Tensor, "row input"], weights: Float[Tensor, "victim unit input"]
) -> Float[Tensor, "row unit"]:
    """Return each victim's ``rows @ weight.T``, victim after victim; only a derivative by the rows is recorded."""
    if len(weights) == 1:
        return times(rows, weights[0])
    stacked = rows.view(len(weights), -1, rows.shape[-1])
    if _onednn(rows) is not None:
        return torch.cat([times(r, w) for r, w in zip(stacked, weights, strict=True)])
    return torch.bmm(stacked, weights.transpose(1, 2)).flatten(0, 1)


def _onednn(rows: Tensor) -> Callable[..., Tensor] | None:
    """Return oneDNN's operator where it takes such rows."""
    recorded = rows.requires_grad and torch.is_grad_enabled()
    return _ONEDNN if rows.device.type == "cpu" and rows.dtype == torch.float32 and not recorded else None
