"""Linear or kernel regression in a closed form, with its leave-one-out predictions."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

# Penalties, in units of the mean of the kernel's diagonal; and widths of the radial kernel, in units of the median
# distance between leaked records (infinite: the linear kernel).
_PENALTIES = tuple(10.0**k for k in range(-6, 3))
_WIDTHS = (float("inf"), 4.0, 2.0, 1.0)


class Fitted(NamedTuple):
    """Predictions for new records, and for each leaked record from a regression without it."""

    values: Float[Tensor, "training record value"]
    left_out: Float[Tensor, "training leaked value"]


def fitted(
    inputs: Float[Tensor, "training leaked feature"],
    values: Float[Tensor, "training leaked value"],
    queries: Float[Tensor, "training record feature"],
) -> Fitted:
    """Regress values by kernel ridge regression, in each training with its own penalty and kernel."""
    mean = inputs.mean(1, keepdim=True)
    spread = inputs.std(1, keepdim=True, correction=0)
    scale = torch.where(spread > 0, spread, torch.ones_like(spread))
    first, second = (inputs - mean) / scale, (queries - mean) / scale
    centre = values.mean(1, keepdim=True)
    rest = values - centre
    apart = torch.cdist(first, first)
    median = apart.flatten(1).median(1).values.clamp(min=torch.finfo(apart.dtype).tiny)[:, None, None]
    best = inputs.new_full((len(inputs),), torch.inf)
    chosen = torch.zeros(len(inputs), queries.shape[1], values.shape[2], dtype=values.dtype)
    left_out = torch.zeros_like(values)
    for width in _WIDTHS:
        if width == float("inf"):
            kernel, across = first @ first.mT, second @ first.mT
        else:
            kernel = torch.exp(-((apart / (width * median)) ** 2) / 2)
            across = torch.exp(-((torch.cdist(second, first) / (width * median)) ** 2) / 2)
        size = kernel.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]
        # One decomposition serves all penalties.
        eigenvalues, basis = torch.linalg.eigh(kernel)
        eigenvalues, turned = eigenvalues.clamp(min=0)[..., None], basis.mT @ rest
        for penalty in _PENALTIES:
            shares = eigenvalues / (eigenvalues + penalty * size)
            # An intercept, taken out before, costs one record of the smoother.
            left = (1 - 1 / inputs.shape[1] - basis.square() @ shares).clamp(min=1e-9)
            missed = (rest - basis @ (shares * turned)) / left
            error = missed.square().mean((1, 2))
            better = error < best
            if not bool(better.any()):
                continue
            weights = basis @ (turned / (eigenvalues + penalty * size))
            best = torch.where(better, error, best)
            chosen = torch.where(better[:, None, None], across @ weights + centre, chosen)
            left_out = torch.where(better[:, None, None], values - missed, left_out)
    return Fitted(chosen, left_out)
