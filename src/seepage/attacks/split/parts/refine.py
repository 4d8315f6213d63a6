"""Refinement of continuous private columns within the bins that fit best."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.attacks.split.parts.nearest import Messages, candidate_gradients, distance

_POINTS, _ROUNDS, _SWEEPS = 9, 12, 4


def refined(
    messages: Messages,
    cells: Float[Tensor, "record private"],
    labels: Int[Tensor, " record"],
    enough: Float[Tensor, " record"] | None = None,
) -> tuple[Float[Tensor, "record private"], Float[Tensor, " record"]]:
    """Return cells whose continuous columns fit better than the given candidates, and their distances."""
    # Each continuous column in turn is searched on a grid around its value that shrinks to the points beside the best
    # one. The gradients of ReLU networks are discontinuous, so that a descent by derivatives would stop anywhere. A
    # record's search ends at the distance ``enough``.
    model, cut = messages.model, messages.cut
    cells = cells.clone().to(cut)
    chosen = labels.to(cut.device)
    best = _distance(messages, cells[:, None], chosen)[:, 0]
    columns = [i for i, at in enumerate(model.private) if at in model.schema.continuous]
    for sweep in range(_SWEEPS if len(columns) > 1 else 1):
        for i in columns:
            values = messages.space.values[i]
            # Later sweeps correct for the changes in other columns, which become smaller.
            reach = float(values.diff().max() if len(values) > 1 else 1.0) / 4**sweep
            some = torch.arange(len(best)) if enough is None else (best > enough).nonzero()[:, 0]
            if not len(some):
                return cells, best
            for _ in range(_ROUNDS):
                steps = torch.linspace(-reach, reach, _POINTS, dtype=cut.dtype, device=cut.device)
                points = cells[some][:, None].repeat(1, _POINTS, 1)
                points[..., i] = (points[..., i] + steps).clamp(0, 1)
                distances = _distance(messages.of(some), points, chosen[some])
                least, where = distances.min(1)
                better = least < best[some]
                moved = points[torch.arange(len(points)), where]
                cells[some] = torch.where(better[:, None], moved, cells[some])
                best[some] = torch.where(better, least, best[some])
                reach *= 2 / (_POINTS - 1) * 1.5
    return cells, best


def _distance(messages: Messages, points: Tensor, labels: Tensor) -> Float[Tensor, "record point"]:
    respond, cut, (records, number) = messages.respond, messages.cut, points.shape[:2]
    at = torch.arange(records, device=cut.device).repeat_interleave(number)
    logits, jacobian = respond.responses(respond.of_cut(cut).at(at), respond.of_cells(points.flatten(0, 1)))
    gradients = candidate_gradients(messages.model, logits, jacobian)[torch.arange(len(at)), labels[at]]
    gradients = gradients if messages.sent is None else messages.sent(gradients)
    return distance(messages.model.form, gradients, messages.gradient[at]).view(records, number)
