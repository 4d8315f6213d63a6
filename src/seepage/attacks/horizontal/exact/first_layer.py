"""The gradient of a network's first affine layer: a mixture of the records, which linear attacks separate.

With ``e_nj`` the error of record ``x_n`` at neuron ``j``, row ``j`` of the weights' gradient is the sum over records
of ``e_nj x_n`` and entry ``j`` of the bias's gradient the sum of ``e_nj``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.errors import BadInputError
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, Knowledge, RecordsGuess


class FirstLayer(NamedTuple):
    """The first affine layer, and the gradient of its weights and bias."""

    layer: nn.Linear
    weight: Float[Tensor, "victim neuron encoded"]
    bias: Float[Tensor, "victim neuron"]


def first_layer(view: GradientView) -> FirstLayer:
    """Return the gradient of the affine layer that takes the encoded rows; refused where there is none with a bias."""
    names = list(view.model.parameters)
    leaves = [(name, part) for name, part in view.model.module.named_modules() if not list(part.children())]
    name, layer = leaves[0] if leaves else ("", view.model.module)
    prefix = f"{name}." if name else ""
    if type(layer) is not nn.Linear or names[:2] != [f"{prefix}weight", f"{prefix}bias"]:
        raise BadInputError(
            f"this attack reads records off the first affine layer and its bias, but model {view.model.name!r} does "
            "not begin with an nn.Linear that has one; audit such a model, or leave the attack out."
        )
    return FirstLayer(layer, view.gradient[names[0]], view.gradient[names[1]])


def nearest_records(knowledge: Knowledge, candidates: Float[Tensor, "victim candidate encoded"]) -> RecordsGuess:
    """Return the guess of the candidate rows that are nearest to valid ones, see ``choose_records``."""
    encoder = Encoder(knowledge.schema, knowledge.statistics, dtype=candidates.dtype, device=candidates.device)
    return RecordsGuess(choose_records(encoder, knowledge, candidates).cpu())


def refuse_frozen(attack: str, view: GradientView, names: Sequence[str]) -> None:
    """Refuse a layer whose weight or bias is needed with its gradient but has none, as frozen ones."""
    lacking = [name for name in names if name not in view.gradient]
    if lacking:
        raise BadInputError(
            f"{attack} needs the gradient of {', '.join(names)}, but clients of model {view.model.name!r} send none of "
            f"{', '.join(lacking)}, as of parameters that are frozen (requires_grad=False); audit a model that trains "
            "them, or leave the attack out."
        )


def quotients(
    weight: Float[Tensor, "victim candidate encoded"], bias: Float[Tensor, "victim candidate"]
) -> Float[Tensor, "victim candidate encoded"]:
    """Return each candidate's row: a record where a single one reacted; not finite where none did."""
    largest = bias.abs().amax(1, keepdim=True)
    # A neuron that hardly reacted contains only rounding errors.
    silent = bias.abs() <= largest * torch.finfo(bias.dtype).eps
    return torch.where(silent[..., None], torch.full_like(weight, torch.inf), weight / bias[..., None])


def choose_records(
    encoder: Encoder, knowledge: Knowledge, rows: Float[Tensor, "victim candidate encoded"]
) -> Float[Tensor, "victim record column"]:
    """Return different records, as many as a batch holds: those whose standardised rows are nearest to valid ones."""
    # A candidate's distance is that of its worst entry: the distance of a discrete one to the nearest 0 or 1, or that
    # of a number from its bounds in units of its range. Missing records get the row of most frequent values.
    there = rows.isfinite().all(-1)
    rows = torch.where(there[..., None], rows, torch.zeros_like(rows)).double()
    raw = encoder.destandardise(rows)
    off = (raw - encoder.destandardise(encoder.project(rows).double())).abs()
    ranges = torch.where(
        encoder.is_continuous, (encoder.high - encoder.low) * encoder.std, torch.ones_like(encoder.std)
    )
    inside = encoder.is_continuous & ((rows >= encoder.low) & (rows <= encoder.high))
    off = torch.where(inside, torch.zeros_like(off), off / ranges.double()).amax(-1)
    order = torch.where(there, off, torch.full_like(off, torch.inf)).argsort(dim=1, stable=True)
    # Every candidate is compared with every other, so that invalid ones are removed before.
    order = order[:, : int(there.sum(1).max())]
    cells = encoder.decode(rows).gather(1, order[..., None].expand(-1, -1, len(encoder.schema.columns)))
    valid = there.gather(1, order)
    alike = (cells[:, :, None] == cells[:, None]).all(-1) & valid[:, None]
    # Best first, so that candidates equal to an earlier one are not needed.
    new = valid & ~(alike & torch.ones_like(alike).tril(-1)).any(-1)
    mode = torch.tensor([m.median for m in knowledge.statistics.marginals], dtype=cells.dtype, device=cells.device)
    chosen = mode.repeat(len(cells), knowledge.batch_size, 1)
    for batch, fresh, candidates in zip(chosen, new, cells, strict=True):
        best = candidates[fresh][: knowledge.batch_size]
        batch[: len(best)] = best
    return chosen
