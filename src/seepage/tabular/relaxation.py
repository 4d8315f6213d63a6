"""Relaxations of valid rows: a softmax for a discrete group, a sigmoid within a continuous column's bounds."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.errors import check_choice
from seepage.products import times
from seepage.tabular.encoder import Encoder

Logits = Literal["raw", "standardised"]

# exp stays finite in float32, and both maps are saturated to the last bit long before.
_LARGEST_LOGIT = 80.0
# exp(z) is taken as 2^(z log2(e)): PyTorch's exp calls MKL, which takes five times as long on many processors. The
# product's rounding moves z by less than the last bit of z itself.
_LOG2_E = math.log2(math.e)


class Relaxation:
    """The map from unconstrained variables ``z`` to standardised rows ``x``, and its pullback.

    A discrete group becomes ``standardise(softmax(logits))``, a continuous column ``low + (high - low) * sigmoid(z)``
    (TabLeak section 4.1). Either can be left out: those columns are then ``z`` itself. Both maps are ``e / (sum of the
    group's e + c)`` with ``e = exp(logit)``, ``c`` = 0 or 1, one expression for the whole row.

    Args:
        logits: ``raw`` takes ``z`` as logits; ``standardised`` takes ``mean + std * z``, as the official code does,
            which leaves rare categories nearly unreachable.
    """

    def __init__(self, encoder: Encoder, softmax: bool = True, sigmoid: bool = True, logits: Logits = "raw") -> None:
        check_choice("logits", logits, Logits)
        continuous = encoder.is_continuous
        active = torch.where(continuous, sigmoid, softmax)
        zero = torch.zeros_like(encoder.mean)
        self._identity = not bool(active.any())
        # Sums over groups as products; continuous columns have a group of their own, with 1 added.
        self._sums = encoder.groups.T.contiguous()
        self._extra = (continuous.to(encoder.mean.dtype)[:, None] * encoder.groups).sum(0)
        # x = scale * share + offset on relaxed columns, x = keep * z on the others.
        scale = torch.where(active, encoder.high - encoder.low, zero)
        self._offset = torch.where(active, encoder.low, zero)
        self._spread = encoder.groups * scale[:, None]
        self._shares = encoder.groups * torch.where(scale != 0, scale.reciprocal(), zero)[:, None]
        self._keep = None if bool(active.all()) else (~active).to(encoder.mean.dtype)
        rescaled = active & ~continuous
        self._logit_scale = self._logit_offset = None
        if logits == "standardised" and bool(rescaled.any()):
            self._logit_scale = torch.where(rescaled, encoder.std, zero + 1)
            self._logit_offset = torch.where(rescaled, encoder.mean, zero)
        self._scaled_share: Tensor | None = None

    def relax(self, z: Float[Tensor, "... encoded"]) -> Float[Tensor, "... encoded"]:
        """Return the rows; differentiable, and remembers what ``pullback`` needs."""
        if self._identity:
            return z
        logits = z
        if self._logit_scale is not None and self._logit_offset is not None:
            logits = torch.addcmul(self._logit_offset, self._logit_scale, z)
        largest = _LARGEST_LOGIT * _LOG2_E
        e = (logits * _LOG2_E).clamp_(-largest, largest).exp2_().view(-1, z.shape[-1])
        scaled_share = (e * times(times(e, self._sums, self._extra).reciprocal(), self._spread)).view(z.shape)
        self._scaled_share = scaled_share.detach()
        x = scaled_share + self._offset
        return x if self._keep is None else torch.addcmul(x, self._keep, z)

    def pullback(self, gradient: Float[Tensor, "... encoded"]) -> Float[Tensor, "... encoded"]:
        """Return the gradient in ``z`` for a gradient in the rows that the last ``relax`` returned."""
        if self._identity:
            return gradient
        if self._scaled_share is None:
            raise RuntimeError("pullback needs a relax call before it")
        weighted = gradient * self._scaled_share
        means = times(times(weighted.reshape(-1, weighted.shape[-1]), self._sums), self._shares).view(weighted.shape)
        back = weighted.addcmul_(self._scaled_share, means, value=-1)
        if self._logit_scale is not None:
            back.mul_(self._logit_scale)
        return back if self._keep is None else back.addcmul_(self._keep, gradient)
