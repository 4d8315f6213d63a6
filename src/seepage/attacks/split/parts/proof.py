"""Proof of guessed cells by the kernel, and which answers are likely: they fit, and no other is expected to."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seepage import kernel
from seepage.attacks.split.parts.nearest import Messages, rounding
from seepage.kernel import Certified, Declaration, certify_cut
from seepage.models.deepfm import DeepFMClient
from seepage.models.message import PLAIN, MessageForm
from seepage.tabular.schema import Continuous, Discrete
from seepage.wire.split import CutKnowledge, CutView

FAR = 16  # largest deviation of the true configuration, in units of the usual rounding
_CHANCE = 1e-3  # largest expected number of further configurations that fit by chance at which an exact fit is likely
# Number of configurations drawn to estimate their density, and number of the nearest that count.
_SAMPLE, _NEAREST = 4_000, 20
_AT_ONCE, _LEAST = 2**13, 1e-12


def proof_of(view: CutView, knowledge: CutKnowledge, cells: Float[Tensor, "record private"]) -> Certified | None:
    """Return which guessed cells are proved by one message of each record; None where a number cannot be listed."""
    model, defense = view.model, knowledge.defense
    columns = [_column(model.schema.columns[i]) for i in model.private]
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


def _column(column: Discrete | Continuous) -> kernel.EncodedColumn:
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
    # The true configuration's gradient differs from the received one by rounding too. Where millions of configurations
    # meet a cut of a few numbers, a wrong one may come nearer than that; one that is nearest by far but replays nothing
    # proves nothing. Distances are of the whole space's nearest, at least two if there are as many.
    far = FAR * rounding(gradient, form)
    fits = distances[:, 0] <= far
    if distances.shape[1] > 1:
        fits &= distances[:, 1] - distances[:, 0] > far
    return fits.cpu()


def likely_fit(
    messages: Messages,
    distances: Float[Tensor, "record nearest"],
    codes: Int[Tensor, "record column"],
    generator: torch.Generator,
) -> Bool[Tensor, " record"]:
    """Return where a configuration fits exactly and no other can be expected to do so by chance.

    The number of others is estimated from random ones: the share of the loss's slopes within rounding, times the size
    of the space, as derivatives of a ReLU network are the same for all configurations with the same active units. Where
    embeddings of the server cross the cut to a DeepFM client, the share of sums of embeddings within rounding counts,
    too.
    """
    model, respond, space = messages.model, messages.respond, messages.space
    cut, gradient = messages.cut, messages.gradient
    size = rounding(gradient, model.form)
    fits = distances[:, 0] <= size
    alone = fits_alone(distances, gradient, model.form).to(fits.device)
    drawn = space.drawn((_SAMPLE,), generator)
    table = respond.of_cells(space.of_codes(drawn).to(cut))
    nearest = min(_NEAREST, _SAMPLE)
    client = model.client
    sums = isinstance(client, DeepFMClient) and client.fields > 0 and respond.additive is not None
    expected = torch.full((len(cut),), float(space.configurations), dtype=torch.float64)
    prepared = respond.of_cut(cut)
    for r in (fits & alone).nonzero()[:, 0].tolist():
        record = torch.tensor([r])
        some = torch.arange(len(drawn)).split(_AT_ONCE)
        logits = torch.cat([respond.outputs(prepared.at(record).across(), table.at(at))[0] for at in some])
        own = respond.outputs(prepared.at(record), respond.of_cells(space.of_codes(codes[r : r + 1]).to(cut)))
        apart = torch.linalg.vector_norm(model.slopes(logits) - model.slopes(own), dim=-1)[:, 0]
        expected[r] *= _share(apart, FAR * float(size[r]), 1, nearest)
        if sums:
            assert isinstance(client, DeepFMClient)
            assert respond.additive is not None
            # The sum is in the logit's derivatives, which are the gradient over the loss's slope.
            within = FAR * float(size[r]) / max(abs(float(gradient[r, respond.additive])), _LEAST)
            with torch.no_grad():
                theirs = client.own.embedded(space.of_codes(drawn).to(cut)).sum(1)
                mine = client.own.embedded(space.of_codes(codes[r : r + 1]).to(cut)).sum(1)
            away = torch.linalg.vector_norm(theirs - mine, dim=1)
            expected[r] *= _share(away, within, client.dim, nearest)
    return (fits & alone).cpu() & (expected < _CHANCE)


def _share(apart: Tensor, within: float, dims: int, nearest: int) -> float:
    """Return the share of points within a distance, from the distance of the nearest ones in some dimensions."""
    reach = float(apart.kthvalue(nearest).values)
    share = nearest / len(apart)
    return 1.0 if within >= reach else share * (within / reach) ** dims
