"""Pooling of many candidate batches: choose a reference, match the others' rows to it, pool cell by cell."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.errors import check_choice
from seepage.tabular.align import match, pairwise_error, reorder
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Continuous, Discrete
from seepage.tabular.statistics import Statistics

Pooling = Literal["median", "lower_median", "mean"]
Entropy = Literal["softmax", "counts"]
Decoding = Literal["marginals", "nearest"]
_Candidates = Float[Tensor, "victim restart record encoded"]
_Pooled = Float[Tensor, "victim record encoded"]
_Columns = Float[Tensor, "victim record column"]

# Width of the kernel by which a candidate supports values near its own, see ``decode_by_marginals``.
_OWN_SPREAD, _COLUMN_SPREAD, _ADVANTAGE = 0.5, 0.05, 1.02
_AGREEMENT = 0.1  # candidates whose spread is below this share of the tolerance agree


def align(encoder: Encoder, candidates: _Candidates, losses: Float[Tensor, "victim restart"]) -> _Candidates:
    """Return the candidates with their records in the order of the one with the least loss."""
    # By the share of cells that differ beyond the tolerance, optimally, one candidate at a time (TabLeak algorithm 1).
    cells = encoder.decode(candidates)
    best = losses.argmin(dim=1)
    reference = cells[torch.arange(len(cells), device=best.device), best][:, None]
    return reorder(candidates, match(pairwise_error(encoder.schema, cells, reference)))


def pool(encoder: Encoder, aligned: _Candidates, pooling: Pooling = "median") -> _Pooled:
    """Return one batch from aligned candidates."""
    # ``lower_median`` takes the lower of two middle values, as in the official code (D4). Decoding takes the largest
    # entry of each group, so groups need not be renormalised.
    check_choice("pooling", pooling, Pooling)
    if pooling == "mean":
        return aligned.mean(dim=1)
    if pooling == "lower_median":
        return aligned.median(dim=1).values
    middle = aligned.sort(dim=1).values
    restarts = aligned.shape[1]
    return (middle[:, (restarts - 1) // 2] + middle[:, restarts // 2]) / 2


def decode_by_marginals(encoder: Encoder, statistics: Statistics, aligned: _Candidates, pooled: _Pooled) -> _Columns:
    """Decode a pooled batch; the public marginals decide where the candidates disagree.

    Gradient matching leaves heavy-tailed and multimodal columns (capital losses, hours worked) at
    values between the frequent ones. Each value v of a continuous column's marginal weighs

        w(v) = sqrt(p(v)) * mean over candidates r of exp(-((v - x_r) / h)^2 / 2),
        h = s / 2 + sigma / 20,

    with s the candidates' spread on the cell and sigma the column's standard deviation. The cell becomes the value
    within whose tolerance most weight lies, if that beats the pooled value's own weight by a fiftieth; where the
    candidates agree (to a tenth of the tolerance) the pooled value stays. Discrete columns are decoded as usual. Not
    in TabLeak; the constants were chosen on victims of Adult outside every reported figure.
    """
    cells = encoder.decode(pooled)
    raw = encoder.destandardise(aligned.to(cells.dtype))
    for i in encoder.schema.continuous:
        column, block = encoder.schema.columns[i], encoder.schema.blocks[i]
        if not isinstance(column, Continuous):
            continue
        values = statistics.marginals[i].values.to(cells)
        prior = statistics.marginals[i].probabilities.to(cells).sqrt()
        numbers = raw[..., block.start]
        width = numbers.std(dim=1) * _OWN_SPREAD + statistics.marginals[i].std * _COLUMN_SPREAD
        if not bool((width > 0).all()):
            continue
        away = (values - numbers[..., None]) / width[:, None, :, None]
        weight = prior * torch.exp(-0.5 * away.square()).mean(dim=1)
        near = (values[:, None] - values).abs() <= column.tolerance
        mass = weight @ near.to(weight.dtype)
        own_mass = (weight * ((values - cells[..., i, None]).abs() <= column.tolerance)).sum(-1)
        best = mass.max(dim=-1)
        # A histogram is too coarse to overrule candidates that agree.
        open_ = numbers.std(dim=1) >= _AGREEMENT * column.tolerance
        better = open_ & (best.values > _ADVANTAGE * own_mass)
        cells[..., i] = torch.where(better, values[best.indices], cells[..., i])
    return cells


def uncertainty(encoder: Encoder, aligned: _Candidates, entropy: Entropy = "softmax") -> _Columns:
    """Return the disagreement of the aligned candidates on each cell.

    Discrete columns: Shannon entropy over the log of the number of categories (0 for a single category), of the mean of
    the candidates' probabilities (``softmax``, the official code) or of the share of candidates in which each category
    is the largest (``counts``, TabLeak Eq. 5; D6). Continuous columns: entropy in nats of a normal distribution with
    the candidates' unbiased variance, in standardised units; -inf where they agree exactly (TabLeak section 4.3).
    """
    check_choice("entropy", entropy, Entropy)
    raw = encoder.destandardise(aligned)
    columns = []
    for column, block in zip(encoder.schema.columns, encoder.schema.blocks, strict=True):
        if isinstance(column, Discrete):
            share = raw[..., block]
            if entropy == "counts":
                share = torch.nn.functional.one_hot(share.argmax(-1), column.width).to(raw.dtype)
            mean = share.mean(dim=1).clamp_min(0)
            mean = mean / mean.sum(-1, keepdim=True)
            nats = -torch.special.xlogy(mean, mean).sum(-1)
            columns.append(nats / math.log(column.width) if column.width > 1 else nats)
        else:
            variance = aligned[..., block.start].var(dim=1)
            columns.append(0.5 + 0.5 * (2 * math.pi * variance).log())
    return torch.stack(columns, dim=-1).double()
