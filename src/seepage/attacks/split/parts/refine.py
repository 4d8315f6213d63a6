"""Refinement of continuous private columns within the bins that fit best."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.attacks.split.parts.nearest import Sent, candidate_gradients
from seepage.attacks.split.parts.responses import Responder
from seepage.attacks.split.parts.space import Space
from seepage.models.split import SplitModel

_POINTS = 9
_ROUNDS = 12
_SWEEPS = 4


def refined(
    model: SplitModel,
    respond: Responder,
    cut: Float[Tensor, "record cut"],
    gradient: Float[Tensor, "record cut"],
    space: Space,
    cells: Float[Tensor, "record private"],
    labels: Int[Tensor, " record"],
    sent: Sent | None = None,
) -> tuple[Float[Tensor, "record private"], Float[Tensor, " record"]]:
    """Return cells whose continuous columns fit better than the given candidates, and their distances.

    Each continuous column in turn is searched on a grid around its value that shrinks to the points beside the best
    one. The gradients of ReLU networks are discontinuous, so that a descent by derivatives would stop anywhere.

    Args:
        model, respond, cut, gradient, space, sent: arguments of ``nearest``.
        cells, labels: starting point, scaled.
    """
    cells = cells.clone().to(cut)
    chosen = labels.to(cut.device)
    best = _distance(model, respond, cut, gradient, cells[:, None], chosen, sent)[:, 0]
    columns = [i for i, at in enumerate(model.private) if at in model.schema.continuous]
    for sweep in range(_SWEEPS if len(columns) > 1 else 1):
        for i in columns:
            values = space.values[i]
            # Later sweeps correct for the changes in other columns, which become smaller.
            reach = float(values.diff().max() if len(values) > 1 else 1.0) / 4**sweep
            for _ in range(_ROUNDS):
                steps = torch.linspace(-reach, reach, _POINTS, dtype=cut.dtype, device=cut.device)
                points = cells[:, None].repeat(1, _POINTS, 1)
                points[..., i] = (points[..., i] + steps).clamp(0, 1)
                distances = _distance(model, respond, cut, gradient, points, chosen, sent)
                least, where = distances.min(1)
                better = least < best
                moved = points[torch.arange(len(points)), where]
                cells = torch.where(better[:, None], moved, cells)
                best = torch.where(better, least, best)
                reach *= 2 / (_POINTS - 1) * 1.5
    return cells, best


def _distance(
    model: SplitModel,
    respond: Responder,
    cut: Tensor,
    gradient: Tensor,
    points: Tensor,
    labels: Tensor,
    sent: Sent | None,
) -> Float[Tensor, "record point"]:
    records, number = points.shape[:2]
    at = torch.arange(records, device=cut.device).repeat_interleave(number)
    logits, jacobian = respond.responses(respond.of_cut(cut).at(at), respond.of_cells(points.flatten(0, 1)))
    found = candidate_gradients(model, logits, jacobian)[torch.arange(len(at)), labels[at]]
    if sent is not None:
        found = sent(found)
    return torch.linalg.vector_norm(found - gradient[at], dim=-1).view(records, number)
