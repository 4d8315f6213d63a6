"""Exhaustive search for the configurations whose gradient is nearest to the received one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.attacks.split.parts.space import Responder, Space, width_of
from seepage.models.message import MessageForm, step_of
from seepage.models.split import SplitModel
from seepage.wire.split import CutView

# The deterministic part of the defense, from a record's gradient to its message: (..., cut) to (..., cut).
Sent = Callable[[Tensor], Tensor]

# Roundings of a gradient's norm by which two computations of it usually differ at most; records whose logit is far from
# zero may exceed it. A larger number would take wrong configurations for exact fits: where many millions meet a cut of
# a few numbers, wrong ones come within ten times that.
ROUNDINGS = 16
# Rounding of a gradient's entries as a standard deviation, in units of its norm.
_ROUNDING = 1e-5
_AT_ONCE = 2**20  # units of hidden layers in memory at once: about the size of a core's cache
_FIRST = 8  # number of a record's configurations that are compared first where the logit may exclude the others


@dataclass(frozen=True)
class NearestConfigurations:
    """The nearest configurations of each record, nearest first."""

    places: Int[Tensor, "record nearest"]
    labels: Int[Tensor, "record nearest"]
    distances: Float[Tensor, "record nearest"]
    compared: int  # number of gradients that were computed, of all records together


@dataclass(frozen=True)
class Messages:
    """Messages of records, with what their candidates' gradients are computed by."""

    model: SplitModel
    respond: Responder
    cut: Float[Tensor, "record cut"]
    gradient: Float[Tensor, "record cut"]  # received gradient of each record's own loss
    space: Space
    sent: Sent | None = None  # applied to candidates' gradients before they are compared

    def of(self, some: slice | Tensor) -> Messages:
        """Return the messages of some of the records."""
        return replace(self, cut=self.cut[some], gradient=self.gradient[some])

    def distances(
        self, logits: Float[Tensor, "*some output"], jacobian: Float[Tensor, "*some output cut"], observed: Tensor
    ) -> Float[Tensor, "*some label"]:
        """Return the distance of candidates' gradients, for every label, from observed ones."""
        gradients = candidate_gradients(self.model, logits, jacobian)
        gradients = gradients if self.sent is None else self.sent(gradients)
        return distance(self.model.form, gradients, observed[..., None, :])


def nearest(messages: Messages, keep: int, prune: bool = True, at_once: int = _AT_ONCE) -> NearestConfigurations:
    """Return the nearest configurations of each record among all of a space."""
    # One pass serves all labels, as the derivatives of the logits do not depend on the label (specification of EXACT).
    # Where a coordinate of the cut is added to a logit, a configuration's distance is at least the difference there,
    # which excludes most of them exactly (``prune``; never where messages are changed before they are sent).
    model, respond, space = messages.model, messages.respond, messages.space
    cut, gradient = messages.cut, messages.gradient
    records, keep = len(cut), min(keep, space.configurations)
    best = torch.full((records, keep), torch.inf, dtype=gradient.dtype, device=cut.device)
    codes = torch.zeros(records, keep, dtype=torch.long, device=cut.device)
    known = messages.sent is None and model.form.scale_of == "known"
    additive = respond.additive if prune and known else None
    width = width_of(model)
    candidates = max(1, min(space.size, at_once // width))
    together = max(1, at_once // (width * candidates))
    compared = 0
    for chunk in space.chunks(candidates):
        table = respond.of_cells(space.cells(chunk).to(cut.device, cut.dtype))
        for start in range(0, records, together):
            some = slice(start, min(start + together, records))
            prepared = respond.of_cut(cut[some])
            if additive is None:
                logits, jacobian = respond.responses(prepared.across(), table)
                distances = messages.distances(logits, jacobian, gradient[some, None])
                compared += distances.numel()
            else:
                logits = respond.outputs(prepared.across(), table)
                observed = gradient[some, None, None, additive : additive + logits.shape[-1]]
                least = torch.linalg.vector_norm(model.slopes(logits) - observed, dim=-1)
                distances = torch.full_like(least, torch.inf)

                def compare(wanted: Tensor) -> int:
                    r, c, y = wanted.nonzero(as_tuple=True)
                    if not len(r):
                        return 0
                    outputs, jacobian = respond.responses(prepared.at(r), table.at(c))  # noqa: B023
                    chosen = messages.distances(outputs, jacobian, gradient[some][r])  # noqa: B023
                    distances[r, c, y] = chosen.gather(1, y[:, None])[:, 0]  # noqa: B023
                    return len(r)

                flat = least.flatten(1)
                if bool(best[some, -1].isinf().any()):
                    first = flat.topk(min(max(_FIRST, keep), flat.shape[1]), largest=False).indices
                    compared += compare(
                        torch.zeros_like(flat, dtype=torch.bool).scatter_(1, first, True).view_as(least)
                    )
                limit = torch.cat([best[some], distances.flatten(1)], dim=1).topk(keep, largest=False).values[:, -1:]
                compared += compare((least <= limit[..., None]) & distances.isinf())
            merged = torch.cat([best[some], distances.flatten(1)], dim=1)
            smallest, where = merged.topk(keep, largest=False)
            place = chunk.to(cut.device).repeat_interleave(space.labels) * space.labels
            place = place + torch.arange(space.labels, device=cut.device).repeat(len(chunk))
            merged_codes = torch.cat([codes[some], place.expand(len(merged), -1)], dim=1)
            best[some], codes[some] = smallest, merged_codes.gather(1, where)
    return NearestConfigurations(codes // space.labels, codes % space.labels, best, compared)


def rounding(gradient: Float[Tensor, "record cut"], form: MessageForm | None = None) -> Float[Tensor, " record"]:
    """Return the distance below which a configuration's gradient equals the received one, up to rounding."""
    unit = torch.finfo(gradient.dtype).eps
    if form is not None and form.format in ("float16", "bfloat16"):
        unit = form.unit
    return ROUNDINGS * unit * torch.linalg.vector_norm(gradient, dim=1)


def spread(view: CutView, least: float = _ROUNDING) -> Float[Tensor, " record"]:
    """Return the standard deviation of each number of a record's own gradient that its form leaves unexplained.

    ``least`` is the smallest one, in units of the gradient's norm.
    """
    form, gradient = view.model.form, view.own_gradient
    relative = max(least, form.unit / 2 if form.format in ("float16", "bfloat16") else 0.0, float(form.noise))
    size = relative * torch.linalg.vector_norm(gradient, dim=1)
    if form.format == "int8":
        size = torch.hypot(size, step_of(view.gradient) / math.sqrt(12) * view.behind.to(size))
    # A gradient of 0, as of a class weight of 0, is as precise as the smallest other one.
    return torch.where(size > 0, size, size[size > 0].amin()) if bool((size > 0).any()) else size


def distance(
    form: MessageForm, gradients: Float[Tensor, "*some cut"], observed: Float[Tensor, "*other cut"]
) -> Float[Tensor, "*some"]:
    """Return how far gradients are from observed ones, at any positive factor where each record has one of its own."""
    if form.scale_of == "record":
        gradients = gradients * factors(gradients, observed)[..., None]
    return torch.linalg.vector_norm(gradients - observed, dim=-1)


def factors(gradients: Float[Tensor, "*some cut"], observed: Float[Tensor, "*other cut"]) -> Float[Tensor, "*some"]:
    """Return the factor from 0 up that brings gradients nearest to observed ones."""
    along = (gradients * observed).sum(-1)
    return along.clamp(min=0) / gradients.square().sum(-1).clamp(min=1e-30)


def candidate_gradients(
    model: SplitModel, logits: Float[Tensor, "*some output"], jacobian: Float[Tensor, "*some output cut"]
) -> Float[Tensor, "*some label cut"]:
    """Return the gradient of a record's loss with respect to the cut, for every label."""
    return model.slopes(logits) @ jacobian
