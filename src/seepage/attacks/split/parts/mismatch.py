"""Likelihood of messages of a client part that is not quite the known one; the mismatch is fitted on the messages.

Other weights shift the logit and its derivatives, ``o = (f, J)``, by about the same amount for all records, but not
gradients, which are these times the loss's slope. So ``o(message) - o(x)`` is taken to be normal with a mean m and a
covariance C. With w the chance of each combination of a record given its message, and n records,

    m = sum w (o(message) - o(x)) / n,   C = sum w (o(message) - o(x) - m) (...)' / n.

Weights by the prior come first; both in turn raise the likelihood (expectation maximisation, Dempster et al. 1977).
The sign of the gradient at the coordinate that is added to the logit determines the label, whatever the weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.split.parts.messages import check_bare, logits_and_derivatives
from seepage.attacks.split.parts.noise import Answer, Noise, RoundWithPriors
from seepage.errors import BadInputError
from seepage.wire.split import CutView

# Number of pairs of a record and a combination in a fit, and of combinations of each record, the likeliest a priori.
_PAIRS, _EACH = 2**18, 2**10
_BELIEVED = 2**22  # prior chances in memory at once
_ROUNDS = 24
_GAIN = 1e-3  # gain of the likelihood of a record, in nats, below which rounds end
_RIDGE = 1e-4  # share of each variance that is added to it, since a few directions have almost no variance
_AT_ONCE = 2**13  # pairs whose responses are in memory at once


@dataclass(frozen=True)
class Mismatch(Noise):
    """A normal distribution of the difference between the message and a combination's response."""

    view: CutView
    additive: int  # position in the cut of the coordinate that is added to the logit
    mean: Float[Tensor, " observed"]
    inverse: Float[Tensor, "observed observed"]

    @classmethod
    def fit(cls, messages: RoundWithPriors) -> Mismatch:
        """Return the distribution under which the messages are likeliest."""
        view, respond, space, prior = messages.view, messages.respond, messages.space, messages.cells
        additive = respond.additive
        if additive is None or view.model.head != "sigmoid":
            raise BadInputError(
                "weights='about' reads each record's logit and its derivatives, for which the client part must be a "
                "DeepFM with one logit whose first-order terms cross the cut; use weights='current'."
            )
        what = "weights='about' reads each record's logit from its gradient as it is"
        check_bare(messages.knowledge.defense, what, "weights='current'")
        each = min(space.size, _EACH)
        records = min(view.records, max(1, _PAIRS // each))
        all_places, together = torch.arange(space.size), max(1, _BELIEVED // space.size)
        likely = [
            prior.rows(slice(start, min(start + together, records))).of_places(space, all_places).topk(each, dim=1)
            for start in range(0, records, together)
        ]
        log_prior = torch.cat([top.values for top in likely]).log_softmax(1)
        places = torch.cat([top.indices for top in likely])
        received = observed(view, additive)[:records].double().cpu()
        prepared = respond.of_cut(view.cut[:records])
        row = torch.arange(records).repeat_interleave(each)
        answers = []
        for chunk in torch.arange(len(row)).split(_AT_ONCE):
            cells = respond.of_cells(space.cells(places.flatten()[chunk]).to(view.cut))
            answers.append(answered(*respond.responses(prepared.rows(row[chunk]), cells), additive).double().cpu())
        apart = received[:, None] - torch.cat(answers).unflatten(0, (records, each))
        weight, before = log_prior.exp(), -torch.inf
        mismatch = cls(view, additive, received.new_zeros(0), received.new_zeros(0, 0))
        for _ in range(_ROUNDS):
            mean = torch.einsum("rp,rpo->o", weight, apart) / records
            scaled = ((apart - mean) * weight.sqrt()[..., None]).flatten(0, 1)
            covariance = scaled.T @ scaled / records
            covariance += torch.diag(_RIDGE * covariance.diagonal() + torch.finfo(torch.float32).eps ** 2)
            factor = torch.linalg.cholesky(covariance)
            identity = torch.eye(len(factor), dtype=factor.dtype)
            mismatch = cls(view, additive, mean, torch.linalg.solve_triangular(factor, identity, upper=False))
            joint = log_prior + mismatch.density(apart)
            likelihood = float(joint.logsumexp(1).mean())
            weight = joint.softmax(1)
            if likelihood - before < _GAIN:
                break
            before = likelihood
        return mismatch

    def density(self, apart: Float[Tensor, "*some observed"]) -> Float[Tensor, "*some"]:
        """Return the log-density of differences, up to a constant."""
        scaled = (apart - self.mean) @ self.inverse.T
        return self.inverse.diagonal().log().sum() - scaled.square().sum(-1) / 2

    def log_density(self, answer: Answer, records: Tensor, places: Tensor) -> Float[Tensor, "record place label"]:
        """Return the log-density of messages under combinations with the label of their sign, up to a constant."""
        view = self.view.of(records)
        apart = (
            observed(view, self.additive).double().cpu()[:, None] - answered(*answer(), self.additive).double().cpu()
        )
        density = self.density(apart)
        positive = (view.own_gradient[:, self.additive] < 0).cpu()
        ruled_out = torch.stack([positive, ~positive], dim=-1)[:, None]
        return density[..., None].expand(*density.shape, 2).masked_fill(ruled_out, -torch.inf)


def observed(view: CutView, additive: int) -> Float[Tensor, "record observed"]:
    """Return each record's logit and its derivatives, computed from the message."""
    logits, derivatives = logits_and_derivatives(view.own_gradient, additive, view.model.form)
    return torch.cat([logits[:, None], derivatives[:, :additive]], dim=1)


def answered(
    logits: Float[Tensor, "*some 1"], jacobian: Float[Tensor, "*some 1 cut"], additive: int
) -> Float[Tensor, "*some observed"]:
    """Return the same values of combinations."""
    return torch.cat([logits, jacobian[..., 0, :additive]], dim=-1)
