"""Proof of guessed cells by the kernel, and which answers are likely: they fit, and no other is expected to.

The true configuration's gradient differs from the received one by rounding too, by at most ``FAR`` times the usual one.
Where a search left out configurations, those that fit by chance are counted by their density: the gradient of a ReLU
network with given active units depends on a configuration through the loss's slope alone and, where embeddings of the
server cross the cut to a DeepFM client, through the sum of all embeddings. Of N configurations, about
``N P(|slope - own slope| <= r) P(|sum - own sum| <= r')`` are expected within rounding. Each P is from random ones:
with the k-th nearest of n at distance R in d dimensions, ``P(r) = k / n (r / R)^d``.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seepage import kernel
from seepage.attacks.split.parts.messages import FAR, Messages, rounding
from seepage.kernel import Certified, Declaration, certify_cut
from seepage.models.deepfm import DeepFMClient
from seepage.models.message import PLAIN, MessageForm
from seepage.tabular.schema import Continuous, Discrete
from seepage.wire.split import CutKnowledge, CutView

_CHANCE = 1e-3  # largest expected number of further configurations that fit by chance at which an exact fit is likely
# Number of configurations drawn to estimate their density, and number of the nearest that count.
_SAMPLE, _NEAREST = 4_000, 20
_AT_ONCE, _LEAST = 2**13, 1e-12


def proof_of(view: CutView, knowledge: CutKnowledge, cells: Float[Tensor, "record private"]) -> Certified | None:
    """Return which guessed cells are proved by one message of each record; None where a number cannot be listed."""
    model, defense = view.model, knowledge.defense
    columns = [_encoded_column(model.schema.columns[i]) for i in model.private]
    if any(column.categories is None and not column.integer for column in columns):
        return None
    form, head = model.form, model.head
    changed = defense.shaped or ("cut_noise" if defense.clips else "none")
    if changed == "none" and form.training:
        changed = "dropout masks"
    elif changed == "none" and not (form.plain and not form.estimated):
        # Of one output the direction of the gradient is enough, which is the same for every loss and every scale.
        changed, head = ("none", "regression") if model.outputs == 1 else ("another loss or scale", head)
    precision = str(view.gradient.dtype).removeprefix("torch.").replace("float64", "float32")
    declared = Declaration(tuple(columns), view.records, head, precision=precision, defense=changed)
    return certify_cut(model.client, view.cut, view.gradient, view.behind, declared, cells)


def _encoded_column(column: Discrete | Continuous) -> kernel.EncodedColumn:
    if isinstance(column, Discrete):
        return kernel.EncodedColumn(column.name, (0.0,), (1.0,), column.categories)
    span = column.high - column.low or 1.0
    return kernel.EncodedColumn(
        column.name, (column.low,), (span,), None, column.low, column.high, column.tolerance, column.integer
    )


def fits_alone(
    distances: Float[Tensor, "record nearest"], gradient: Float[Tensor, "record cut"], form: MessageForm = PLAIN
) -> Bool[Tensor, " record"]:
    """Return where the nearest of all configurations replays the message, and no other does up to rounding."""
    # Where millions of configurations meet a cut of a few numbers, a wrong one may come nearer than the rounding of the
    # true one; one that is nearest by far but replays nothing proves nothing.
    far = FAR * rounding(gradient, form)
    fits = distances[:, 0] <= far
    if distances.shape[1] > 1:
        fits &= distances[:, 1] - distances[:, 0] > far
    return fits.cpu()


def likely_fit(
    messages: Messages, distances: Float[Tensor, "record nearest"], places: Int[Tensor, "record nearest"], seed: int
) -> Bool[Tensor, " record"]:
    """Return where a configuration fits exactly and no other can be expected to do so by chance."""
    model, respond, space = messages.model, messages.respond, messages.space
    cut, size, client = messages.cut, messages.rounding, messages.model.client
    fits = (distances[:, 0] <= size).cpu() & fits_alone(distances, messages.gradient, model.form)
    drawn = space.of_codes(space.drawn((_SAMPLE,), torch.Generator().manual_seed(seed))).to(cut)
    table, prepared, best = respond.of_cells(drawn), respond.of_cut(cut), space.cells(places[:, 0]).to(cut)
    expected = torch.full((len(cut),), float(space.configurations), dtype=torch.float64)
    for r in fits.nonzero()[:, 0].tolist():
        record, cell, within = torch.tensor([r]), best[r : r + 1], FAR * float(size[r])
        chunks = torch.arange(len(drawn)).split(_AT_ONCE)
        logits = torch.cat([respond.outputs(prepared.rows(record).across(), table.rows(chunk))[0] for chunk in chunks])
        fitting_logits = respond.outputs(prepared.rows(record), respond.of_cells(cell))
        apart = torch.linalg.vector_norm(model.slopes(logits) - model.slopes(fitting_logits), dim=-1)[:, 0]
        expected[r] *= _share(apart, within, 1)
        if isinstance(client, DeepFMClient) and client.fields > 0 and respond.additive is not None:
            # The sum is in the logit's derivatives, which are the gradient over the loss's slope.
            within /= max(abs(float(messages.gradient[r, respond.additive])), _LEAST)
            with torch.no_grad():
                away = client.own.embedded(drawn).sum(1) - client.own.embedded(cell).sum(1)
            expected[r] *= _share(torch.linalg.vector_norm(away, dim=1), within, client.dim)
    return fits & (expected < _CHANCE)


def _share(apart: Tensor, within: float, dims: int) -> float:
    """Return the share of points within a distance, from the distance of the nearest ones in some dimensions."""
    reach, share = float(apart.kthvalue(_NEAREST).values), _NEAREST / len(apart)
    return 1.0 if within >= reach else share * (within / reach) ** dims
