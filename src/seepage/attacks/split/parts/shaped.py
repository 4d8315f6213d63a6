"""Likelihoods of noise whose size and direction follow from the gradients of a batch, fitted on its messages.

``max_norm`` sends ``g (1 + t)`` with t normal, such that the norm's mean square is that of the longest gradient M of
the batch. With ``e = s J / |s J|``, the message's part along e is normal around |s J| with variance
``M^2 - |s J|^2``, its part beside e is rounding, and M^2 is the mean square of the messages.

``marvell`` adds normal noise with variance ``a_y`` along the difference of the labels' mean gradients, and ``b_y`` in
each of the d - 1 directions across it. With w the chance of each combination and label of a record given its message,
the difference follows from the means of gradients weighed by w, and the variances from what is left of the messages:

    a_y = sum w (g - s J).along^2 / sum w,   b_y = sum w |(g - s J).across|^2 / ((d - 1) sum w).

Both in turn raise the likelihood of the messages until it stays (expectation maximisation, Dempster et al. 1977).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.split.parts.messages import candidate_gradients
from seepage.attacks.split.parts.noise import Answer, Noise, RoundWithPriors
from seepage.models.split import batches
from seepage.wire.split import CutView

_AT_ONCE = 2**25  # numbers in memory at once while noise is fitted
_ROUNDS = 40
_GAIN = 1e-3  # gain of the likelihood of a record, in nats, below which rounds end
_ROUNDING = 1e-5  # standard deviation of rounding, in units of a message's norm
_LARGEST = 0.1  # error of the largest norm of a batch that is estimated from its messages, in its own units
_LEAST = 1e-12


@dataclass(frozen=True)
class AlongGradient(Noise):
    """Noise of ``max_norm``, along each gradient itself."""

    view: CutView
    largest: Float[Tensor, " record"]  # largest norm of the gradients in each record's batch

    @classmethod
    def fit(cls, messages: RoundWithPriors) -> AlongGradient:
        """Return the noise that the messages show."""
        view = messages.view
        squares = view.own_gradient.double().cpu().square().sum(1)
        largest = torch.cat(
            [squares[batch].mean().sqrt().expand(len(squares[batch])) for batch in batches(view.behind)]
        )
        return cls(view, largest)

    def log_density(self, answer: Answer, records: Tensor, places: Tensor) -> Float[Tensor, "record place label"]:
        """Return the log-density of messages under combinations, up to a constant a record."""
        gradients = candidate_gradients(self.view.model, *answer()).double().cpu()
        message = self.view.own_gradient[records].double().cpu()[:, None, None]
        largest = self.largest[records, None, None]
        size = torch.linalg.vector_norm(gradients, dim=-1)
        unit = gradients / size.clamp(min=1e-300)[..., None]
        along = (message * unit).sum(-1)
        beside = (message - along[..., None] * unit).square().sum(-1)
        variance = (largest.square() - size.square()).clamp(min=0) + (_LARGEST * largest).square()
        rounding = (_ROUNDING * torch.linalg.vector_norm(message, dim=-1)).square().clamp(min=1e-300)
        return -(along - size).square() / (2 * variance) - variance.log() / 2 - beside / (2 * rounding)


@dataclass(frozen=True)
class AlongDifference(Noise):
    """Noise of ``marvell``, along the difference of the labels' mean gradients and less across it."""

    view: CutView
    direction: Float[Tensor, "record cut"]
    along: Float[Tensor, "record label"]
    across: Float[Tensor, "record label"]

    @classmethod
    def fit(cls, messages: RoundWithPriors) -> AlongDifference:
        """Return the noise under which the messages of each batch are likeliest."""
        fitted = [_fitted_noise(messages, batch) for batch in batches(messages.view.behind)]
        return cls(messages.view, *(torch.cat(parts) for parts in zip(*fitted, strict=True)))

    def log_density(self, answer: Answer, records: Tensor, places: Tensor) -> Float[Tensor, "record place label"]:
        """Return the log-density of messages under combinations, up to a constant."""
        candidates = candidate_gradients(self.view.model, *answer())
        apart = self.view.own_gradient[records].double().cpu()[:, None, None] - candidates.double().cpu()
        on = (apart * self.direction[records, None, None]).sum(-1)
        beside = apart.square().sum(-1) - on.square()
        return _density(on.square(), beside, self.along[records, None], self.across[records, None], apart.shape[-1])


def _density(on: Tensor, beside: Tensor, along: Tensor, across: Tensor, features: int) -> Tensor:
    return -on / (2 * along) - along.log() / 2 - beside / (2 * across) - (features - 1) * across.log() / 2


def _fitted_noise(
    messages: RoundWithPriors, batch: slice
) -> tuple[Float[Tensor, "record cut"], Float[Tensor, "record label"], Float[Tensor, "record label"]]:
    """Return direction and variances of one batch, for each of its records."""
    view, respond, space = messages.view, messages.respond, messages.space
    cut, received = view.cut[batch], view.own_gradient[batch].double().cpu()
    records, features = received.shape
    each = max(1, min(space.size, _AT_ONCE // (records * features * space.labels)))
    likely = messages.cells.rows(batch).of_places(space, torch.arange(space.size)).topk(each, dim=1)
    prepared = respond.of_cut(cut)
    gradients, believed = [], []
    for r in range(records):
        codes, record = space.codes(likely.indices[r]), batch.start + r
        table = respond.of_cells(space.of_codes(codes).to(view.cut))
        logits, jacobian = respond.responses(prepared.rows(torch.tensor([r])).across(), table)
        gradients.append(candidate_gradients(view.model, logits, jacobian)[0].double().cpu())
        predicted = messages.labels.rows(slice(record, record + 1)).trained(logits, codes)[0]
        believed.append(likely.values[r][:, None] + predicted.log())
    candidates, log_prior = torch.stack(gradients), torch.stack(believed)
    log_prior = log_prior - log_prior.logsumexp((1, 2), keepdim=True)
    apart = (received[:, None, None] - candidates).square().sum(-1)
    floor = (_ROUNDING * torch.linalg.vector_norm(received, dim=1).mean()).square().clamp(min=1e-300)
    weight, before = log_prior.exp(), -torch.inf
    direction = received.new_zeros(features)
    along = across = received.new_ones(space.labels)
    for _ in range(_ROUNDS):
        total = weight.sum((0, 1)).clamp(min=_LEAST)
        means = torch.einsum("rpl,rplc->lc", weight, candidates) / total[:, None]
        direction = means[1] - means[0]
        direction = direction / torch.linalg.vector_norm(direction).clamp(min=1e-300)
        on = ((received @ direction)[:, None, None] - candidates @ direction).square()
        beside = (apart - on).clamp(min=0)
        along = torch.maximum((weight * on).sum((0, 1)) / total, floor)
        across = torch.maximum((weight * beside).sum((0, 1)) / total / max(1, features - 1), floor)
        joint = log_prior + _density(on, beside, along, across, features)
        likelihood = float(joint.logsumexp((1, 2)).mean())
        weight = (joint - joint.logsumexp((1, 2), keepdim=True)).exp()
        if likelihood - before < _GAIN:
            break
        before = likelihood
    return direction.expand(records, -1), along.expand(records, -1), across.expand(records, -1)
