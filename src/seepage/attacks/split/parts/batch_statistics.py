"""Likelihood of messages of a client that normalises by the batch in training: all records of a batch at once.

With z what enters a normalisation and n records in the batch, the client computes ``t = (z - mean) / sd`` and sends

    dL/dz  =  (dL/dt - mean of dL/dt - t mean of (dL/dt t)) / sd,

so that a message depends on all records, through four means over them. In turns, the chances of the combinations of
each record are computed with these means, and the means as sums over the chances, while the noise that messages are
taken to have falls: the mean-field equations with falling noise of deterministic annealing (Rose 1998). The step at
which messages are likeliest is taken; where every record is found, that is the last one. Where the mean and variance
of z are known, chances have the factor ``exp(a t + b (t^2 - 1))`` of an exponential family, with a and b such that both
hold.

Source: our own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seepage.attacks.split.parts.responder import width_of
from seepage.attacks.split.parts.space import Space
from seepage.models.batch_norm import BatchNorm, Moments, by_batch, normalising
from seepage.models.copies import copied
from seepage.models.dropout import dropping
from seepage.models.split import batches
from seepage.wire.split import CutView

# Noise at first, in units of a message's norm, and by how much it falls in each step.
_NOISE, _COOLING, _STEPS = 1.0, 0.85, 80
_RIDGE = 0.05  # part of the variance of what enters a layer by which a change of multipliers is held back
_UNLIKELY = 1e-9  # chance below which a combination is left out of further steps
_SMALL = 0.1  # part of the median squared norm that is added to each, as small messages are off by as much as others
_MOST = 2**26  # units of the client's layers, for all records and combinations of a batch


class _Standardised(torch.autograd.Function):
    """Standardises rows that stand for records by their shares; gradients are those of a batch of such records."""

    @staticmethod
    def forward(ctx: Any, entering: Tensor, shares: Tensor, mean: Tensor, variance: Tensor, eps: float) -> Tensor:
        """Return the rows, standardised."""
        scale = (variance + eps).rsqrt()
        standard = (entering - mean) * scale
        ctx.save_for_backward(standard, shares, scale)
        return standard

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of each row: its own, less what the mean and the variance of the batch take from it."""
        standard, shares, scale = ctx.saved_tensors
        [gradient] = gradients
        mean, along = shares @ gradient, shares @ (gradient * standard)
        return scale * (gradient - mean - standard * along), None, None, None, None


class _Layer(nn.Module):
    """A batch normalisation of weighted rows, by known moments of the batch or by those of the rows."""

    def __init__(self, layer: BatchNorm, moments: Moments | None, records: int) -> None:
        super().__init__()
        self.layer, self.shares, self.standard = layer, torch.zeros(0), torch.zeros(0)
        self.known = None
        if moments is not None:
            # What running statistics keep is the unbiased variance; normalisation is by the other.
            self.known = moments.mean.double(), moments.variance.double() * (records - 1) / records

    def forward(self, entering: Tensor) -> Tensor:
        """Return the rows, normalised."""
        if self.known is None:
            mean = (self.shares @ entering).detach()
            variance = (self.shares @ (entering - mean).square()).detach()
        else:
            mean, variance = self.known
        standard = _Standardised.apply(entering, self.shares, mean, variance, self.layer.eps)
        assert isinstance(standard, Tensor)
        self.standard = standard.detach()
        if self.layer.weight is None or self.layer.bias is None:
            return standard
        return standard * self.layer.weight + self.layer.bias

    def entered(self) -> tuple[Tensor, Tensor]:
        """Return what entered and its square, less the moments of the batch, in units of its variance."""
        return self.standard, self.standard.square() - 1


class _LikelyRows(NamedTuple):
    """Combinations of records that are still likely."""

    record: Int[Tensor, " row"]
    place: Int[Tensor, " row"]
    label: Int[Tensor, " row"]
    prior: Float[Tensor, " row"]

    def of(self, likely: Tensor) -> _LikelyRows:
        return _LikelyRows(*(column[likely] for column in self))


def why_not_followed(view: CutView, space: Space) -> str | None:
    """Return why batch statistics of a client are not solved for; None where they are."""
    if not normalising(view.model.client):
        return "no batch normalisation was found in its part"
    if dropping(view.model.client):
        return "its part drops values too"
    records = max(len(view.cut[batch]) for batch in batches_of(view))
    rows = records * space.configurations
    if rows * width_of(view.model) > _MOST:
        return f"{rows:,} combinations of all records of a batch are too many for a network of this width"
    return None


def batch_log_likelihood(
    view: CutView, space: Space, prior: Float[Tensor, "record place label"]
) -> tuple[Float[Tensor, "record place label"], Float[Tensor, " record"]]:
    """Return the log-likelihood of each message, up to a constant, and the distance of the likeliest combination's."""
    by_batches = [_annealed_likelihood(view.of(batch), space, prior[batch]) for batch in batches_of(view)]
    scores, apart = zip(*by_batches, strict=True)
    return torch.cat(scores), torch.cat(apart)


def batches_of(view: CutView) -> list[slice]:
    """Return the records of each batch; all of them where the loss is a sum, which says nothing of batches."""
    return batches(view.behind) if bool((view.behind > 1).all()) else [slice(0, view.records)]


def _annealed_likelihood(view: CutView, space: Space, prior: Tensor) -> tuple[Tensor, Tensor]:
    records, labels = view.records, space.labels
    client, layers = _weighted_client(view.model.client, view.moments, records)
    known = [layer for layer in layers if layer.known is not None]
    cells = space.cells(torch.arange(space.size)).double()
    cut, message = view.cut.double().cpu(), view.own_gradient.double().cpu()
    size = message.norm(dim=1)
    size = (size.square() + _SMALL * size.median().square()).sqrt()
    everything = torch.cartesian_prod(*map(torch.arange, (records, space.size, labels)))
    record, place, label = everything.unbind(1)
    rows = _LikelyRows(record, place, label, prior.double().flatten())
    chances, _ = _chances(rows.prior, rows.record, records)
    best, best_rows, best_off, best_noise = -math.inf, rows, torch.zeros(len(chances)), _NOISE
    pull = torch.zeros(0, dtype=torch.float64)
    for step in range(_STEPS):
        noise = _NOISE * _COOLING**step
        for layer in layers:
            layer.shares = chances / records
        received = cut[rows.record].requires_grad_()
        outputs = client(received, cells[rows.place])
        slopes = view.model.slopes(outputs.detach())[torch.arange(len(outputs)), rows.label]
        gradients = torch.autograd.grad(outputs, received, slopes)[0]
        off = ((gradients - message[rows.record]) / size[rows.record, None]).square().sum(1)
        logs = rows.prior - off / (2 * noise**2)
        chances, evidence = _chances(logs, rows.record, records)
        evidence -= records * cut.shape[1] * math.log(noise)
        if evidence > best:
            best, best_rows, best_off, best_noise = evidence, rows, off, noise
        if known:
            entered = torch.cat([part for layer in known for part in layer.entered()], 1)
            pull = pull if len(pull) else entered.new_zeros(entered.shape[1])
            pull = _moment_multipliers(pull, entered, logs, rows.record, records)
            chances, _ = _chances(logs + entered @ pull, rows.record, records)
        likely = chances > _UNLIKELY
        rows, chances = rows.of(likely), chances[likely]
    scores = torch.full((records, space.size, labels), -torch.inf, dtype=torch.float64)
    scores[best_rows.record, best_rows.place, best_rows.label] = -best_off / (2 * best_noise**2)
    nearest = torch.full((records,), torch.inf).double().scatter_reduce(0, best_rows.record, best_off, "amin")
    return scores, nearest.sqrt() * size


def _moment_multipliers(pull: Tensor, entered: Tensor, logs: Tensor, record: Tensor, records: int) -> Tensor:
    """Return multipliers under which the rows have the batch's moments: two steps of Newton's method."""
    for _ in range(2):
        chances, _ = _chances(logs + entered @ pull, record, records)
        weighted = chances[:, None] * entered
        mean = torch.zeros(records, entered.shape[1], dtype=entered.dtype).index_add(0, record, weighted)
        spread = entered.T @ weighted - mean.T @ mean
        step = torch.linalg.solve(spread + _RIDGE * records * torch.eye(len(spread)).to(spread), -mean.sum(0))
        pull = pull + step / max(1.0, float(step.abs().max()))
    return pull


def _chances(logs: Tensor, record: Tensor, records: int) -> tuple[Tensor, float]:
    """Return the chances of rows among those of their record, and the log-likelihood of all records."""
    most = torch.full((records,), -torch.inf, dtype=logs.dtype).scatter_reduce(0, record, logs, "amax")
    chances = (logs - most[record]).exp()
    total = torch.zeros_like(most).index_add(0, record, chances)
    return chances / total[record], float((total.log() + most).sum())


def _weighted_client(
    client: nn.Module, moments: Mapping[str, Moments] | None, records: int
) -> tuple[nn.Module, list[_Layer]]:
    """Return a client part in double precision whose normalisations are by weighted rows, and these layers."""
    network, layers = by_batch(copied(client).cpu().double().train(), type(client).__name__), list[_Layer]()
    for name, part in list(network.named_modules()):
        if not isinstance(part, BatchNorm):
            continue
        layers.append(_Layer(part, (moments or {}).get(name), records))
        if not name:
            network = layers[-1]
            continue
        place, _, child = name.rpartition(".")
        setattr(network.get_submodule(place), child, layers[-1])
    return network, layers
