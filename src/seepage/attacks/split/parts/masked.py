"""Likelihood of messages of a client that drops values at random, averaged over the masks that it may have drawn.

With masks m of chance q(m), and rounding of variance v in each number of a message,

    p(g | x, y)  =  sum over m of q(m) N(g; s_m J_m, v),

in which a mask that replays g outweighs all others by far. Where outputs are sums over the units that may be dropped,
``f = f_0 + sum over units u that stay of f_u``, as where the last layer follows the dropout, so are their derivatives:
all masks follow from the runs of single units, and are listed, those that drop fewest units first. A unit that is off
anyway needs none. Elsewhere masks are drawn as the client draws them, more of them for likely combinations. Beside both
stands a kernel density of some drawn masks' gradients, with Scott's bandwidth, for records whose mask is not among
those.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seepage.attacks.split.parts.messages import FAR, candidate_gradients, rounding, spread
from seepage.attacks.split.parts.responder import width_of
from seepage.attacks.split.parts.space import Space
from seepage.errors import BadInputError
from seepage.models.batch_norm import normalising
from seepage.models.copies import copied
from seepage.models.dropout import Drops, drops_of, with_masks
from seepage.wire.split import CutView

# Masks that all combinations are tried with, the combinations that then are likeliest, and the masks of these.
_MASKS, _LIKELY, _MORE_MASKS = 64, 24, 2048
_MOST_MASKS = 2**14  # masks of a record that no other replays
# Masks that are listed of a client whose outputs are sums over the units that may be dropped, numbers that are computed
# with them for all records, and the deviation of a message's numbers from those of the true mask, in units of its norm.
_LISTED, _NUMBERS, _ROUNDED = 2**13, 2**32, 2e-6
# The same where no more is asked than whether any mask replays messages.
_TRIAL_MASKS, _TRIAL_LISTED = 2048, 2**8
_ROWS = 2**30  # runs of the client's part for all records together, times the units of its layers
# Share of messages that one of the masks replays, as far as that is known before.
_EXACT = 0.5
MOST = 2**14  # combinations
_NEVER = -1e6  # log-odds of what is impossible, finite so that its product with 0 is 0
_AT_ONCE = 2**15  # rows of the client's part in memory at once


class _Joined(nn.Module):
    """A client part that takes activations and cells as one row."""

    def __init__(self, client: nn.Module, cut: int) -> None:
        super().__init__()
        self.client, self.cut = client, cut

    def forward(self, rows: Tensor) -> Tensor:
        """Return the logits."""
        return self.client(rows[:, : self.cut], rows[:, self.cut :])


def masked_log_likelihood(
    view: CutView, space: Space, generator: torch.Generator, trial: bool = False
) -> tuple[Float[Tensor, "record place label"], Float[Tensor, " record"], Bool[Tensor, " record"]]:
    """Return the log-likelihood of each message, up to a constant, its distance from a replay, and whether it has one.

    A ``trial`` takes fewer masks.
    """
    masked, drops = _with_masks(view, space)
    # So many that the runs of all records take minutes at most.
    allowed = max(_MASKS, _ROWS // (width_of(view.model) * view.records * _LIKELY))
    counts = (_MASKS, min(_MORE_MASKS, allowed), min(_TRIAL_MASKS if trial else _MOST_MASKS, allowed))
    few, more, most = (drops.draw((count,), generator) for count in counts)
    all_places = torch.arange(space.size)
    units = _Units.of(view, space, _TRIAL_LISTED if trial else _LISTED)
    rounded, exactly = spread(view).double().cpu(), spread(view, _ROUNDED).double().cpu()
    scores, nearest, replayed = [], [], []
    for row in range(view.records):
        record_view, message = view.of(slice(row, row + 1)), view.own_gradient[row].double().cpu()
        likely, apart = _scored(masked, record_view, space, all_places, few, message, rounded[row], False)
        by_units = None if units is None else units.scored(record_view, message, exactly[row])
        if by_units is not None:
            listed, missed, nearer = by_units
            likely = torch.logaddexp(listed, likely + missed.clamp(min=1e-12).log()[:, None])
            replayed.append(nearer <= exactly[row])
        else:
            near = FAR * float(rounding(record_view.own_gradient, record_view.model.form))
            chosen = likely.amax(1).topk(min(_LIKELY, space.size)).indices
            exact, nearer = _scored(masked, record_view, space, chosen, more, message, rounded[row], True)
            if len(most) > len(more) and float(nearer) > near:
                exact, nearer = _scored(masked, record_view, space, chosen, most, message, rounded[row], True)
            likely[chosen] = torch.logaddexp(likely[chosen] + math.log(1 - _EXACT), exact + math.log(_EXACT))
            replayed.append(nearer <= near)
        scores.append(likely)
        nearest.append(torch.minimum(apart, nearer))
    return torch.stack(scores), torch.stack(nearest), torch.stack(replayed)


def _with_masks(view: CutView, space: Space, dtype: torch.dtype | None = None) -> tuple[nn.Module, Drops]:
    """Return the client's part in training mode, which takes masks in its rows; refuse one that drops nothing."""
    if space.size > MOST:
        raise BadInputError(
            f"{space.size:,} combinations of private values are more than the {MOST:,} that are averaged over masks "
            "of dropout; name fewer private columns."
        )
    client = copied(view.model.client).train()
    for part in client.modules():
        if normalising(part) and not list(part.children()):
            part.eval()
    joined = _Joined(client if dtype is None else client.to(dtype), view.cut.shape[1])
    masked = with_masks(joined, view.cut.shape[1] + len(space.names))
    drops = drops_of(masked)
    if drops is None:
        raise BadInputError(
            "messages are said to be of a client in training mode that drops values, but no dropout was found in its "
            "part; leave out training from the form of the messages."
        )
    return masked, drops


@dataclass(frozen=True)
class _Units:
    """A client's part whose outputs are sums over the units that may be dropped, in double precision."""

    masked: nn.Module
    drops: Drops
    cells: Float[Tensor, "place private"]
    most: int

    @classmethod
    def of(cls, view: CutView, space: Space, most: int) -> _Units | None:
        """Return the part; None where its runs take too long."""
        numbers = space.size * view.records * view.model.outputs * (1 + 2 * view.cut.shape[1])
        most = min(most, _NUMBERS // numbers)
        masked, drops = _with_masks(view, space, torch.float64)
        cells = space.cells(torch.arange(space.size)).double()
        return cls(masked, drops, cells, most) if most > drops.size else None

    def scored(
        self, record_view: CutView, message: Float[Tensor, " cut"], width: Float[Tensor, ""]
    ) -> tuple[Float[Tensor, "place label"], Float[Tensor, " place"], Float[Tensor, ""]] | None:
        """Return log-densities of a message, the chance of masks that are not listed, and the distance of a replay.

        None where outputs are no sums over units.
        """
        model, rates = record_view.model, self.drops.rates.double()
        outputs, cut = model.outputs, record_view.cut.double().cpu()
        factors = self.drops.factors.double()
        drawn = self.drops.draw((1,), torch.Generator().manual_seed(0)).double()
        runs = torch.cat(_responses(self.masked, cut, self.cells, torch.cat([0 * drawn, factors.diag(), drawn])), -1)
        parts = runs[:, 1:-1] - runs[:, :1]
        whole = runs[:, 0] + (parts * (drawn[0] > 0)[:, None]).sum(1)
        if not torch.allclose(whole, runs[:, -1], rtol=1e-6, atol=1e-9):
            return None
        on = parts.abs().amax(-1) > 0
        count = max(1, int(on.sum(1).max()))
        units = on.double().topk(count, dim=1).indices
        parts = parts.gather(1, units[..., None].expand(-1, -1, parts.shape[-1]))
        # Units that are off are the same with and without a mask.
        odds = torch.where(on, rates.log() - torch.log1p(-rates), -torch.inf).clamp(min=_NEVER).gather(1, units)
        none = torch.where(on, torch.log1p(-rates), 0.0).sum(1)
        dropped = _subsets(count, self.most)
        scores, listed, nearest = [], [], message.new_tensor(torch.inf)
        for chunk in torch.arange(len(units)).split(max(1, _AT_ONCE * 64 // (len(dropped) * parts.shape[-1]))):
            answers = (runs[chunk, 0] + parts[chunk].sum(1))[:, None] - dropped @ parts[chunk]
            jacobian = answers[..., outputs:].unflatten(-1, (outputs, -1))
            apart = (candidate_gradients(model, answers[..., :outputs], jacobian) - message).square().sum(-1)
            chance = none[chunk, None] + odds[chunk] @ dropped.T
            density = chance[..., None] - apart / (2 * width**2) - len(message) * width.log()
            scores.append(density.logsumexp(1))
            listed.append(chance.logsumexp(1).exp())
            nearest = torch.minimum(nearest, apart.min().sqrt())
        return torch.cat(scores), 1 - torch.cat(listed), nearest


def _subsets(units: int, most: int) -> Float[Tensor, "mask unit"]:
    """Return which units each mask drops: all subsets of 0, 1, 2 and more units, as long as they are few."""
    masks = [torch.zeros(1, units, dtype=torch.float64)]
    for size in range(1, units + 1):
        if sum(map(len, masks)) + math.comb(units, size) > most:
            break
        places = torch.tensor(list(itertools.combinations(range(units), size)))
        masks.append(torch.zeros(len(places), units, dtype=torch.float64).scatter_(1, places, 1.0))
    return torch.cat(masks)


def _responses(
    masked: nn.Module,
    cut: Float[Tensor, "1 cut"],
    cells: Float[Tensor, "place private"],
    masks: Float[Tensor, "draw mask"],
) -> tuple[Float[Tensor, "place draw output"], Float[Tensor, "place draw slope"]]:
    """Return outputs, and their derivatives with respect to the cut one output after the other."""
    draws, width, outputs, slopes = len(masks), cut.shape[1], [], []
    for chunk in cells.to(cut).split(max(1, _AT_ONCE // draws)):
        rows = torch.cat(
            [
                cut.expand(len(chunk) * draws, -1),
                chunk.repeat_interleave(draws, 0),
                masks.to(cut).repeat(len(chunk), 1),
            ],
            1,
        ).requires_grad_()
        logits = masked(rows)
        each = [torch.autograd.grad(k.sum(), rows, retain_graph=True)[0][:, :width] for k in logits.unbind(1)]
        outputs.append(logits.detach().unflatten(0, (len(chunk), draws)))
        slopes.append(torch.cat(each, 1).unflatten(0, (len(chunk), draws)))
    return torch.cat(outputs), torch.cat(slopes)


def _scored(
    masked: nn.Module,
    record_view: CutView,
    space: Space,
    places: Int[Tensor, " place"],
    masks: Float[Tensor, "draw mask"],
    message: Float[Tensor, " cut"],
    rounded: Float[Tensor, ""],
    exact: bool,
) -> tuple[Float[Tensor, "place label"], Float[Tensor, ""]]:
    """Return the log-density of a message for each combination, by replays alone or by all masks, and the distance."""
    draws, cut = masks.shape[0], record_view.cut.shape[1]
    outputs, slopes = _responses(masked, record_view.cut, space.cells(places), masks)
    jacobian = slopes.unflatten(-1, (outputs.shape[-1], cut))
    answers = candidate_gradients(record_view.model, outputs, jacobian).double().cpu()
    apart = (answers - message).square()
    distance = apart.sum(-1).amin().sqrt()
    if exact:
        width = rounded.expand(cut)
    else:
        # Scott's rule, with the mean variance within combinations.
        width = answers.var(1).mean((0, 1)).sqrt() * draws ** (-1 / (cut + 4))
        width = torch.maximum(width, rounded)
    density = -(apart / (2 * width.square())).sum(-1) - width.log().sum()
    return density.logsumexp(1) - math.log(draws), distance
