"""Distribution of the mismatch between the known client part and the one that answered, fitted on the messages."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.split.parts.messages import check_bare, logits_and_derivatives
from seepage.attacks.split.parts.prior import CellPrior
from seepage.attacks.split.parts.space import Responder, Space
from seepage.errors import BadInputError
from seepage.wire.split import CutView, KnownCut

# Number of pairs of a record and a combination in a fit, and of combinations of each record, the likeliest a priori.
_PAIRS, _EACH = 2**18, 2**10
_BELIEVED = 2**22  # prior chances in memory at once
_ROUNDS = 24
_GAIN = 1e-3  # gain of the likelihood of a record, in nats, below which rounds end
_RIDGE = 1e-4  # share of each variance that is added to it, since a few directions have almost no variance
_AT_ONCE = 2**13  # pairs whose responses are in memory at once


@dataclass(frozen=True)
class Mismatch:
    """A normal distribution of the difference between the received message and a combination's response.

    Both are represented by the logit and its derivatives with respect to the cut, which different weights shift by
    about the same amount for all records. Gradients, which are these times the loss's slope, are not shifted evenly.
    """

    additive: int  # position in the cut of the coordinate that is added to the logit
    mean: Float[Tensor, " observed"]
    inverse: Float[Tensor, "observed observed"]

    @classmethod
    def fit(cls, view: CutView, respond: Responder, space: Space, prior: CellPrior, defense: KnownCut) -> Mismatch:
        """Return the distribution under which the messages are likeliest, by expectation maximisation."""
        # Each round weighs the combinations of each record by their probability, and computes the mean and the
        # covariance of their differences (Dempster, Laird and Rubin 1977). The first round weighs them by the prior.
        additive = respond.additive
        if additive is None or view.model.head != "sigmoid":
            raise BadInputError(
                "weights='about' reads each record's logit and its derivatives, for which the client part must be a "
                "DeepFM with one logit whose first-order terms cross the cut; use weights='current'."
            )
        what = "weights='about' reads each record's logit from its gradient as it is"
        check_bare(defense, what, "weights='current'")
        each = min(space.size, _EACH)
        records = min(view.records, max(1, _PAIRS // each))
        all_places, together = torch.arange(space.size), max(1, _BELIEVED // space.size)
        likely = [
            prior.rows(slice(start, min(start + together, records))).of_places(space, all_places).topk(each, dim=1)
            for start in range(0, records, together)
        ]
        log_prior = torch.cat([top.values for top in likely]).log_softmax(1)
        places = torch.cat([top.indices for top in likely])
        seen = observed(view, additive)[:records].double().cpu()
        prepared = respond.of_cut(view.cut[:records])
        row = torch.arange(records).repeat_interleave(each)
        answers = []
        for some in torch.arange(len(row)).split(_AT_ONCE):
            cells = respond.of_cells(space.cells(places.flatten()[some]).to(view.cut))
            answers.append(answered(*respond.responses(prepared.at(row[some]), cells), additive).double().cpu())
        apart = seen[:, None] - torch.cat(answers).unflatten(0, (records, each))
        weight, before = log_prior.exp(), -torch.inf
        mismatch = cls(additive, seen.new_zeros(0), seen.new_zeros(0, 0))
        for _ in range(_ROUNDS):
            mean = torch.einsum("rp,rpo->o", weight, apart) / records
            scaled = ((apart - mean) * weight.sqrt()[..., None]).flatten(0, 1)
            covariance = scaled.T @ scaled / records
            covariance += torch.diag(_RIDGE * covariance.diagonal() + torch.finfo(torch.float32).eps ** 2)
            factor = torch.linalg.cholesky(covariance)
            identity = torch.eye(len(factor), dtype=factor.dtype)
            mismatch = cls(additive, mean, torch.linalg.solve_triangular(factor, identity, upper=False))
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

    def log_likelihood(
        self, logits: Float[Tensor, "record place 1"], jacobian: Float[Tensor, "record place 1 cut"], view: CutView
    ) -> Float[Tensor, "record place label"]:
        """Return the log-density of the message under each combination and label, up to a constant."""
        # The sign of the gradient at the coordinate that is added to the logit determines the label, whatever the
        # weights: combinations with the other one are excluded.
        seen = observed(view, self.additive).double().cpu()
        density = self.density(seen[:, None] - answered(logits, jacobian, self.additive).double().cpu())
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
