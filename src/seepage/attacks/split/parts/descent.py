"""Search for the nearest configuration of a space too large to enumerate: descent by pairs of columns."""

from __future__ import annotations

import itertools

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.split.parts.messages import logits_and_derivatives
from seepage.attacks.split.parts.nearest import Messages, NearestConfigurations, rounding

_UNCHANGED = 0.5  # share of columns that a start keeps when it no longer improves
_LOGIT = 1.0  # weight of a difference of logits relative to the relative difference of their derivatives
_AT_ONCE = 2**14  # number of gradients in memory at once


def descend(
    messages: Messages, keep: int, generator: torch.Generator, starts: int, sweeps: int
) -> NearestConfigurations:
    """Return the best configurations that were tried."""
    # From random starts, two columns at a time are set to the pair of values that fits best with the other columns
    # unchanged, and the label with them. Where a sweep over all pairs changes nothing, half of the start's columns are
    # drawn again. All starts of all records are updated together, until one of a record's fits exactly.
    space, gradient = messages.space, messages.gradient
    records, columns = len(gradient), len(space.widths)
    exact = rounding(gradient, messages.model.form)
    codes = space.drawn((records, starts), generator)
    blocks = list(itertools.combinations(range(columns), 2)) or [(0,)]
    top = _Top(records, keep, space.labels, gradient)
    compared = 0
    # A record is done when a start of it fits exactly.
    active = torch.arange(records)
    for _ in range(sweeps):
        before = codes.clone()
        for k in torch.randperm(len(blocks), generator=generator).tolist():
            block = blocks[k]
            options = torch.cartesian_prod(*[torch.arange(space.widths[i]) for i in block]).view(-1, len(block))
            each = max(1, _AT_ONCE // (len(options) * starts))
            for some in active.split(each):
                trial = codes[some][:, :, None].repeat(1, 1, len(options), 1)
                trial[..., list(block)] = options
                distances, misfit = _fits(messages.of(some), trial)
                compared += distances.numel()
                place = misfit.flatten(2).argmin(2).cpu() // space.labels
                codes[some] = trial.gather(2, place[..., None, None].expand(-1, -1, 1, columns))[:, :, 0]
                top.add(some, space.places(trial), distances)
            active = active[(top.distances[active, 0] > exact[active]).cpu()]
            if not len(active):
                break
        if not len(active):
            break
        # A start that no pair of columns improves begins again somewhere else.
        stuck = (codes == before).all(-1, keepdim=True)
        fresh = space.drawn((records, starts), generator)
        unchanged = torch.rand(codes.shape, generator=generator) < _UNCHANGED
        codes = torch.where(stuck & ~unchanged, fresh, codes)
    return NearestConfigurations(
        top.codes.cpu() // space.labels, top.codes.cpu() % space.labels, top.distances, compared
    )


class _Top:
    """The best different configurations tried so far."""

    def __init__(self, records: int, keep: int, labels: int, like: Tensor) -> None:
        self.distances = torch.full((records, keep), torch.inf, dtype=like.dtype, device=like.device)
        self.codes = torch.full((records, keep), -1, dtype=torch.long, device=like.device)
        self._labels = labels

    def add(self, some: Tensor, places: Tensor, distances: Tensor) -> None:
        keep = self.codes.shape[1]
        named = places[..., None].to(distances.device) * self._labels + torch.arange(self._labels)
        # Several starts find the same configuration: at most this many copies of each are among the best.
        near, at = distances.flatten(1).topk(min(keep * distances.shape[1], distances[0].numel()), largest=False)
        merged = torch.cat([self.distances[some], near], 1)
        names = torch.cat([self.codes[some], named.flatten(1).gather(1, at)], 1)
        order = torch.sort(merged, dim=1, stable=True).indices
        merged, names = merged.gather(1, order), names.gather(1, order)
        again = (names[:, :, None] == names[:, None, :]).tril(-1).any(2)
        merged = merged.masked_fill(again, torch.inf)
        best, where = merged.topk(keep, largest=False)
        self.distances[some], self.codes[some] = best, names.gather(1, where).clamp(min=0)


def _fits(
    messages: Messages, trial: Tensor
) -> tuple[Float[Tensor, "record start option label"], Float[Tensor, "record start option label"]]:
    """Return distances of gradients, and the criterion of the descent."""
    # Where a single logit has an additive coordinate, the received gradient there gives label and logit, and the
    # gradient divided by it gives the logit's derivatives. The derivatives show that a configuration is nearly right
    # whatever its logit is; by the gradient itself, all configurations with a wrong logit look alike.
    respond, cut, gradient, space = messages.respond, messages.cut, messages.gradient, messages.space
    shape = trial.shape[:-1]
    at = torch.arange(len(cut), device=cut.device)[:, None, None].expand(shape).flatten()
    cells = space.of_codes(trial.flatten(0, -2)).to(cut.device, cut.dtype)
    logits, jacobian = respond.responses(respond.of_cut(cut).at(at), respond.of_cells(cells))
    distances = messages.distances(logits, jacobian, gradient[at]).view(*shape, space.labels)
    form = messages.model.form
    bare = messages.sent is None and form.scale_of == "known"
    if respond.additive is None or messages.model.head != "sigmoid" or not bare:
        return distances, distances
    logit, derivatives = logits_and_derivatives(gradient, respond.additive, form)
    size = torch.linalg.vector_norm(derivatives[:, : respond.additive], dim=1)
    apart = torch.linalg.vector_norm(jacobian[:, 0] - derivatives[at], dim=-1) / size[at]
    misfit = torch.hypot(apart, _LOGIT * (logits[:, 0] - logit[at])).view(*shape, 1)
    return distances, misfit.expand_as(distances)
