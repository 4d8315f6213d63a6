"""Refinement of numbers within the bins that fit best.

The gradients of ReLU networks jump where a unit changes its sign, so that a descent by derivatives would stop anywhere.
Each number in turn is searched on a grid of points around its value instead. The grid shrinks by 3/8 in each round, to
the points beside the best one and half as far again; later sweeps over the numbers begin at a quarter of the reach
before, as they only correct for the changes in other columns.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.attacks.split.parts.messages import Messages

_POINTS, _ROUNDS, _SWEEPS = 9, 12, 4


def refined(
    messages: Messages,
    cells: Float[Tensor, "record private"],
    labels: Int[Tensor, " record"],
    enough: Float[Tensor, " record"] | None = None,
) -> tuple[Float[Tensor, "record private"], Float[Tensor, " record"]]:
    """Return cells whose numbers fit better than the given ones, and their distances; a search ends at ``enough``."""
    model, cells, chosen = messages.model, cells.clone().to(messages.cut), labels.to(messages.cut.device)
    best = messages.apart(cells[:, None], chosen)[:, 0]
    columns = [i for i, column in enumerate(model.private) if column in model.schema.continuous]
    for sweep in range(_SWEEPS if len(columns) > 1 else 1):
        for i in columns:
            values = messages.space.values[i]
            reach = float(values.diff().max() if len(values) > 1 else 1.0) / 4**sweep
            unfitted = torch.arange(len(best)) if enough is None else (best > enough).nonzero()[:, 0]
            if not len(unfitted):
                return cells, best
            for _ in range(_ROUNDS):
                points = cells[unfitted][:, None].repeat(1, _POINTS, 1)
                steps = torch.linspace(-reach, reach, _POINTS, dtype=cells.dtype, device=cells.device)
                points[..., i] = (points[..., i] + steps).clamp(0, 1)
                least, where = messages.of(unfitted).apart(points, chosen[unfitted]).min(1)
                better = least < best[unfitted]
                moved = points[torch.arange(len(points)), where]
                cells[unfitted] = torch.where(better[:, None], moved, cells[unfitted])
                best[unfitted] = torch.where(better, least, best[unfitted])
                reach *= 2 / (_POINTS - 1) * 1.5
    return cells, best
