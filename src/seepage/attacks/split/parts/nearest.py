"""Searches for the configurations whose gradient is nearest to the received one, and the search through all of them.

With a flat prior and messages that are gradients up to rounding, the likeliest configuration (x, y) is the one with the
smallest distance ``d = |s(f(x), y) J(x) - g|``. Where coordinate a of the cut is added to a logit, ``J_a`` is 1, and so
``d >= |s(f(x), y) - g_a|``: the logit f alone, without J, excludes exactly all configurations whose bound is above the
distance of the best ones so far. That is most of them, and derivatives are computed for the few others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seepage.attacks.split.parts.messages import Messages
from seepage.attacks.split.parts.proof import fits_alone
from seepage.attacks.split.parts.responder import Side, width_of
from seepage.attacks.split.parts.space import check_enumerable

_AT_ONCE = 2**20  # units of hidden layers in memory at once: about the size of a core's cache
_FIRST = 8  # number of a record's configurations that are compared first where the logit may exclude the others


@dataclass(frozen=True)
class NearestConfigurations:
    """The nearest configurations of each record, nearest first."""

    places: Int[Tensor, "record nearest"]
    labels: Int[Tensor, "record nearest"]
    distances: Float[Tensor, "record nearest"]


class Search(ABC):
    """A way to the nearest configurations of a space, and to what is known of all others."""

    @abstractmethod
    def nearest(self, messages: Messages, keep: int) -> NearestConfigurations:
        """Return the best configurations; refuse a space or messages that it is not made for."""

    @abstractmethod
    def likely(self, messages: Messages, best: NearestConfigurations) -> Bool[Tensor, " record"]:
        """Return where the best one replays the message and no other is expected to."""


@dataclass(frozen=True)
class Exhaustive(Search):
    """Goes through all configurations.

    Attributes:
        most: largest number of configurations.
        prune: whether logits exclude configurations, where messages are gradients as they are.
        at_once: number of units of hidden layers in memory at once.
    """

    most: int = 4_000_000
    prune: bool = True
    at_once: int = _AT_ONCE

    def nearest(self, messages: Messages, keep: int) -> NearestConfigurations:
        """Return the nearest configurations of each record."""
        respond, space, cut, gradient = messages.respond, messages.space, messages.cut, messages.gradient
        check_enumerable(space, self.most)
        records, keep = len(cut), min(keep, space.configurations)
        best = torch.full((records, keep), torch.inf, dtype=gradient.dtype, device=cut.device)
        codes = torch.zeros(records, keep, dtype=torch.long, device=cut.device)
        bounded = self.prune and messages.bare and respond.additive is not None
        width = width_of(messages.model)
        candidates = max(1, min(space.size, self.at_once // width))
        together = max(1, self.at_once // (width * candidates))
        for chunk in space.chunks(candidates):
            table = respond.of_cells(space.cells(chunk).to(cut.device, cut.dtype))
            for start in range(0, records, together):
                span = slice(start, min(start + together, records))
                prepared = respond.of_cut(cut[span])
                if bounded:
                    distances = _bounded_distances(messages.of(span), prepared, table, best[span])
                else:
                    answer = respond.responses(prepared.across(), table)
                    distances = messages.distances(*answer, gradient[span, None])
                merged = torch.cat([best[span], distances.flatten(1)], dim=1)
                best[span], where = merged.topk(keep, largest=False)
                place = chunk.to(cut.device).repeat_interleave(space.labels) * space.labels
                place = place + torch.arange(space.labels, device=cut.device).repeat(len(chunk))
                codes[span] = torch.cat([codes[span], place.expand(len(merged), -1)], dim=1).gather(1, where)
        return NearestConfigurations(codes // space.labels, codes % space.labels, best)

    def likely(self, messages: Messages, best: NearestConfigurations) -> Bool[Tensor, " record"]:
        """Return where the best one replays the message and the second does not: no other one was left out."""
        return fits_alone(best.distances, messages.gradient, messages.model.form)


def _bounded_distances(
    messages: Messages, records: Side, table: Side, best: Float[Tensor, "record nearest"]
) -> Float[Tensor, "record candidate label"]:
    """Return distances of candidates; those that their logit puts behind the best ones are infinite."""
    respond, additive, keep = messages.respond, messages.respond.additive, best.shape[1]
    logits = respond.outputs(records.across(), table)
    observed = messages.gradient[:, None, None, additive : additive + logits.shape[-1]]  # type: ignore[operator]
    least = torch.linalg.vector_norm(messages.model.slopes(logits) - observed, dim=-1)
    distances, flat = torch.full_like(least, torch.inf), least.flatten(1)

    def compare(wanted: Tensor) -> None:
        r, c, y = wanted.nonzero(as_tuple=True)
        if len(r):
            answer = respond.responses(records.rows(r), table.rows(c))
            distances[r, c, y] = messages.distances(*answer, messages.gradient[r]).gather(1, y[:, None])[:, 0]

    if bool(best[:, -1].isinf().any()):
        first = flat.topk(min(max(_FIRST, keep), flat.shape[1]), largest=False).indices
        compare(torch.zeros_like(flat, dtype=torch.bool).scatter_(1, first, True).view_as(least))
    limit = torch.cat([best, distances.flatten(1)], dim=1).topk(keep, largest=False).values[:, -1:]
    compare((least <= limit[..., None]) & distances.isinf())
    return distances
