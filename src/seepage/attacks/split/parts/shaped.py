"""Noise whose size and direction follow from the gradients of a batch, as an attacker fits it on the messages."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.split.parts.nearest import candidate_gradients
from seepage.attacks.split.parts.prior import CellPrior, LabelPrior
from seepage.attacks.split.parts.space import Responder, Space
from seepage.models.split import batches
from seepage.wire.split import CutView

_AT_ONCE = 2**25  # numbers in memory at once while noise is fitted
_ROUNDS = 40
_GAIN = 1e-3  # gain of the likelihood of a record, in nats, below which rounds end
_ROUNDING = 1e-5  # standard deviation of rounding, in units of a message's norm
_LARGEST = 0.1  # error of the largest norm of a batch that is estimated from its messages, in its own units
_LEAST = 1e-12


@dataclass(frozen=True)
class AlongGradient:
    """Noise of ``max_norm``: along each gradient itself, so that the message's line is the gradient's own.

    The largest norm of the gradients in each record's batch is the root of the mean squared norm of messages.
    """

    largest: Float[Tensor, " record"]

    @classmethod
    def fit(cls, view: CutView) -> AlongGradient:
        """Return the noise that the messages of a view show."""
        squares = view.own_gradient.double().cpu().square().sum(1)
        largest = torch.cat([squares[some].mean().sqrt().expand(len(squares[some])) for some in batches(view.behind)])
        return cls(largest)

    def log_likelihood(
        self, candidates: Float[Tensor, "record place label cut"], received: Float[Tensor, "record cut"], some: Tensor
    ) -> Float[Tensor, "record place label"]:
        """Return the log-density of messages under candidates' gradients, up to a constant a record."""
        gradients, message = candidates.double().cpu(), received.double().cpu()[:, None, None]
        largest = self.largest[some, None, None]
        size = torch.linalg.vector_norm(gradients, dim=-1)
        unit = gradients / size.clamp(min=1e-300)[..., None]
        along = (message * unit).sum(-1)
        beside = (message - along[..., None] * unit).square().sum(-1)
        variance = (largest.square() - size.square()).clamp(min=0) + (_LARGEST * largest).square()
        rounding = (_ROUNDING * torch.linalg.vector_norm(message, dim=-1)).square().clamp(min=1e-300)
        return -(along - size).square() / (2 * variance) - variance.log() / 2 - beside / (2 * rounding)


@dataclass(frozen=True)
class AlongDifference:
    """Noise of ``marvell``: along the difference of the labels' mean gradients, and less across it, for each label.

    An attacker that knows the client's weights computes that difference from what it takes the records to be, and what
    lies across it has little noise or none. Both variances are fitted on the messages of each batch together.
    """

    direction: Float[Tensor, "record cut"]
    along: Float[Tensor, "record label"]
    across: Float[Tensor, "record label"]

    @classmethod
    def fit(
        cls, view: CutView, respond: Responder, space: Space, prior: CellPrior, classes: LabelPrior
    ) -> AlongDifference:
        """Return the noise under which the messages are likeliest, by expectation maximisation."""
        # Each round weighs the combinations of each record by their probability, and computes the difference of the
        # mean gradients and the variances of what is left. The first round weighs them by the prior.
        fitted = [_fitted(view, some, respond, space, prior, classes) for some in batches(view.behind)]
        return cls(*(torch.cat(parts) for parts in zip(*fitted, strict=True)))

    def log_likelihood(
        self, candidates: Float[Tensor, "record place label cut"], received: Float[Tensor, "record cut"], some: Tensor
    ) -> Float[Tensor, "record place label"]:
        """Return the log-density of messages under candidates' gradients, up to a constant."""
        apart = received.double().cpu()[:, None, None] - candidates.double().cpu()
        on = (apart * self.direction[some, None, None]).sum(-1)
        beside = apart.square().sum(-1) - on.square()
        return _density(on.square(), beside, self.along[some, None], self.across[some, None], apart.shape[-1])


def _density(on: Tensor, beside: Tensor, along: Tensor, across: Tensor, features: int) -> Tensor:
    return -on / (2 * along) - along.log() / 2 - beside / (2 * across) - (features - 1) * across.log() / 2


def _fitted(
    view: CutView, some: slice, respond: Responder, space: Space, prior: CellPrior, classes: LabelPrior
) -> tuple[Float[Tensor, "record cut"], Float[Tensor, "record label"], Float[Tensor, "record label"]]:
    """Return direction and variances of one batch, for each of its records."""
    cut, received = view.cut[some], view.own_gradient[some].double().cpu()
    records, features = received.shape
    each = max(1, min(space.size, _AT_ONCE // (records * features * space.labels)))
    likely = prior.rows(some).of_places(space, torch.arange(space.size)).topk(each, dim=1)
    prepared = respond.of_cut(cut)
    gradients, believed = [], []
    for r in range(records):
        codes, at = space.codes(likely.indices[r]), some.start + r
        table = respond.of_cells(space.of_codes(codes).to(view.cut))
        logits, jacobian = respond.responses(prepared.at(torch.tensor([r])).across(), table)
        gradients.append(candidate_gradients(view.model, logits, jacobian)[0].double().cpu())
        predicted = classes.rows(slice(at, at + 1)).trained(logits, codes)[0]
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
