"""Likelihood of messages of a client that drops values at random, averaged over the masks that it may have drawn."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seepage.attacks.split.parts.nearest import candidate_gradients, rounding, spread
from seepage.attacks.split.parts.proof import FAR
from seepage.attacks.split.parts.space import Space, width_of
from seepage.errors import BadInputError
from seepage.models.batch_norm import normalising
from seepage.models.copies import copied
from seepage.models.dropout import drops_of, with_masks
from seepage.wire.split import CutView

# Masks that all combinations are tried with, the combinations that then are likeliest, and the masks of these.
_MASKS, _LIKELY, _MORE_MASKS = 64, 24, 2048
_MOST_MASKS = 2**14  # masks of a record that no other replays
_ROWS = 2**30  # runs of the client's part for all records together, times the units of its layers
# Share of messages that one of the masks replays, as far as that is known before.
_EXACT = 0.5
MOST = 2**14  # combinations
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
    view: CutView, space: Space, generator: torch.Generator, most_masks: int = _MOST_MASKS
) -> tuple[Float[Tensor, "record place label"], Float[Tensor, " record"]]:
    """Return the log-likelihood of each message, up to a constant, and the smallest distance at which it was replayed.

    Masks are drawn as the client draws them. A mask that replays a message up to rounding counts with the density of
    rounding, which is larger than any other by far: units that are off anyway need no mask, so that a few hundred
    draws contain the client's for most records. Beside it stands a kernel density of all drawn masks' gradients, with
    Scott's bandwidth, for records whose mask was not drawn. Combinations that this finds likely are tried with more.
    """
    client = copied(view.model.client).train()
    for part in client.modules():
        if normalising(part) and not list(part.children()):
            part.eval()
    masked = with_masks(_Joined(client, view.cut.shape[1]), view.cut.shape[1] + len(space.names))
    drops = drops_of(masked)
    if drops is None:
        raise BadInputError(
            "messages are said to be of a client in training mode that drops values, but no dropout was found in its "
            "part; leave out training from the form of the messages."
        )
    if space.size > MOST:
        raise BadInputError(
            f"{space.size:,} combinations of private values are more than the {MOST:,} that are averaged over masks "
            "of dropout; name fewer private columns."
        )
    # So many that the runs of all records take minutes at most.
    allowed = max(_MASKS, _ROWS // (width_of(view.model) * view.records * _LIKELY))
    counts = (_MASKS, min(_MORE_MASKS, allowed), min(most_masks, allowed))
    few, more, most = (drops.draw((count,), generator) for count in counts)
    all_places = torch.arange(space.size)
    scores, nearest = [], []
    rounded = spread(view).double().cpu()
    for row in range(view.records):
        record_view, message = view.of(slice(row, row + 1)), view.own_gradient[row].double().cpu()
        likely, apart = _scored(masked, record_view, space, all_places, few, message, rounded[row], False)
        chosen = likely.amax(1).topk(min(_LIKELY, space.size)).indices
        exact, nearer = _scored(masked, record_view, space, chosen, more, message, rounded[row], True)
        if len(most) > len(more) and float(nearer) > FAR * float(
            rounding(record_view.own_gradient, record_view.model.form)
        ):
            exact, nearer = _scored(masked, record_view, space, chosen, most, message, rounded[row], True)
        likely[chosen] = torch.logaddexp(likely[chosen] + math.log(1 - _EXACT), exact + math.log(_EXACT))
        scores.append(likely)
        nearest.append(torch.minimum(apart, nearer))
    return torch.stack(scores), torch.stack(nearest)


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
    gradients = []
    for some in places.split(max(1, _AT_ONCE // draws)):
        cells = space.cells(some).to(record_view.cut)
        rows = torch.cat(
            [
                record_view.cut.expand(len(some) * draws, -1),
                cells.repeat_interleave(draws, 0),
                masks.to(record_view.cut).repeat(len(some), 1),
            ],
            1,
        ).requires_grad_()
        outputs = masked(rows)
        slopes = [torch.autograd.grad(k.sum(), rows, retain_graph=True)[0][:, :cut] for k in outputs.unbind(1)]
        answer = candidate_gradients(record_view.model, outputs.detach(), torch.stack(slopes, 1))
        gradients.append(answer.unflatten(0, (len(some), draws)).double().cpu())
    answers = torch.cat(gradients)
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
