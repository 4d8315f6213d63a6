"""Search for the nearest configuration of a space too large to go through: descent by pairs of columns.

From random starts, two columns at a time are set to the pair of values that fits best with the other columns
unchanged, and the label with them. Where a sweep over all pairs changes nothing, half of the start's columns are drawn
again. All starts of all records are updated together, until one of a record's fits exactly.

The fit is the distance of gradients. Where the message gives logit f and derivatives J (see ``messages``), it is
``|(J(x) - J)| / |J|`` and ``f(x) - f``, as the sides of a right angle: J shows that a configuration is nearly right
whatever its logit is, while by the gradient itself all configurations with a wrong logit look alike.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.attacks.split.parts.messages import Messages, logits_and_derivatives
from seepage.attacks.split.parts.nearest import NearestConfigurations, Search
from seepage.attacks.split.parts.proof import likely_fit
from seepage.attacks.split.parts.space import check_countable

_UNCHANGED = 0.5  # share of columns that a start keeps when it no longer improves
_AT_ONCE = 2**14  # number of gradients in memory at once


@dataclass(frozen=True)
class ColumnDescent(Search):
    """Descends from random starts.

    Attributes:
        starts, sweeps: number of starts of each record, and of sweeps over all pairs of columns.
        seed: seed of the starts.
    """

    starts: int
    sweeps: int
    seed: int

    def nearest(self, messages: Messages, keep: int) -> NearestConfigurations:
        """Return the best configurations that were tried."""
        space, gradient, exact = messages.space, messages.gradient, messages.rounding
        check_countable(space)
        generator = torch.Generator().manual_seed(self.seed)
        records, columns = len(gradient), len(space.widths)
        codes = space.drawn((records, self.starts), generator)
        blocks = list(itertools.combinations(range(columns), 2)) or [(0,)]
        best = torch.full((records, keep), torch.inf, dtype=gradient.dtype, device=gradient.device)
        names = torch.full((records, keep), -1, dtype=torch.long, device=gradient.device)
        active = torch.arange(records)
        for _ in range(self.sweeps):
            before = codes.clone()
            for k in torch.randperm(len(blocks), generator=generator).tolist():
                block = blocks[k]
                options = torch.cartesian_prod(*[torch.arange(space.widths[i]) for i in block]).view(-1, len(block))
                for batch in active.split(max(1, _AT_ONCE // (len(options) * self.starts))):
                    trial = codes[batch][:, :, None].repeat(1, 1, len(options), 1)
                    trial[..., list(block)] = options
                    distances, misfit = _trial_distances(messages.of(batch), trial)
                    place = misfit.flatten(2).argmin(2).cpu() // space.labels
                    codes[batch] = trial.gather(2, place[..., None, None].expand(-1, -1, 1, columns))[:, :, 0]
                    named = space.places(trial)[..., None].to(gradient.device) * space.labels
                    named = named + torch.arange(space.labels)
                    best[batch], names[batch] = _merged_nearest(best[batch], names[batch], distances, named)
                active = active[(best[active, 0] > exact[active]).cpu()]
                if not len(active):
                    break
            if not len(active):
                break
            # A start that no pair of columns improves begins again somewhere else.
            stuck = (codes == before).all(-1, keepdim=True)
            fresh = space.drawn((records, self.starts), generator)
            unchanged = torch.rand(codes.shape, generator=generator) < _UNCHANGED
            codes = torch.where(stuck & ~unchanged, fresh, codes)
        return NearestConfigurations(names.cpu() // space.labels, names.cpu() % space.labels, best)

    def likely(self, messages: Messages, best: NearestConfigurations) -> Bool[Tensor, " record"]:
        """Return where the best one fits exactly and hardly any other is expected to."""
        return likely_fit(messages, best.distances, best.places, self.seed)


def _merged_nearest(best: Tensor, names: Tensor, distances: Tensor, named: Tensor) -> tuple[Tensor, Tensor]:
    """Return the nearest different configurations among the best so far and those that were tried."""
    keep = best.shape[1]
    # Several starts find the same configuration: at most this many copies of each are among the best.
    near, positions = distances.flatten(1).topk(min(keep * distances.shape[1], distances[0].numel()), largest=False)
    merged, names = torch.cat([best, near], 1), torch.cat([names, named.flatten(1).gather(1, positions)], 1)
    order = torch.sort(merged, dim=1, stable=True).indices
    merged, names = merged.gather(1, order), names.gather(1, order)
    again = (names[:, :, None] == names[:, None, :]).tril(-1).any(2)
    nearest, where = merged.masked_fill(again, torch.inf).topk(keep, largest=False)
    return nearest, names.gather(1, where).clamp(min=0)


def _trial_distances(
    messages: Messages, trial: Tensor
) -> tuple[Float[Tensor, "record start option label"], Float[Tensor, "record start option label"]]:
    """Return distances of gradients, and the criterion of the descent."""
    respond, gradient, space = messages.respond, messages.gradient, messages.space
    logits, jacobian, received = messages.pairs(space.of_codes(trial))
    distances = messages.distances(logits, jacobian, received).view(*trial.shape[:-1], space.labels)
    if respond.additive is None or messages.model.head != "sigmoid" or not messages.bare:
        return distances, distances
    logit, derivatives = logits_and_derivatives(gradient, respond.additive, messages.model.form)
    size = torch.linalg.vector_norm(derivatives[:, : respond.additive], dim=1)
    record = torch.arange(len(gradient)).repeat_interleave(len(logits) // len(gradient))
    apart = torch.linalg.vector_norm(jacobian[:, 0] - derivatives[record], dim=-1) / size[record]
    misfit = torch.hypot(apart, logits[:, 0] - logit[record]).view(*trial.shape[:-1], 1)
    return distances, misfit.expand_as(distances)
