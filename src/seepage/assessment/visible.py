"""Records that a message shows at all: those whose own part is longer than the client's rounding."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.defenses.defense import Update
from seepage.learning import gradient
from seepage.models.batch_norm import normalisations
from seepage.models.copies import copied
from seepage.models.model import Model
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, UpdateView, View
from seepage.wire.precision import cast_noise
from seepage.wire.secret import RecordsSecret

Rows = Float[Tensor, "record encoded"]
# Factor by which a record's error has to exceed the uncertainty of the client's own arithmetic.
_ERROR_FACTOR = 4.0
# Number of standard deviations of rounding along its direction that a record's part has to exceed.
_LONGER = 4.0
# Standard deviation of the rounding of an entry, in precisions of its size: spread evenly over its last place.
_ROUNDING = 0.25
# Numbers in memory at a time of gradients of single records.
_AT_ONCE = 2**24


def visible(view: object, secret: RecordsSecret, encoder: Encoder) -> Bool[Tensor, "victim record"] | None:
    """Return which records stand above the client's rounding in its message; None where that is unknown.

    A record's own gradient over the number of records is its part of the message. It is visible where, in the gradient
    of some weight, it is longer than four standard deviations of the rounding along its direction, and where the client
    computed its error to a quarter. A client computes the chance p of a label with an absolute error of half a
    precision: the error of a record of which the network is sure, p - 1, is lost before anything is sent. A record that
    is not visible cannot be distinguished from rounding; a visible one that an attack misses may be read by others.

    None for networks that normalise by the batch, where no part is a single record's, for networks that do not run in
    double precision, and for messages that are no plain gradients or updates of SGD.
    """
    if not isinstance(view, GradientView | UpdateView) or normalisations(view.model.module):
        return None
    if isinstance(view, UpdateView) and view.training.optimizer != "sgd":
        return None
    first = next(iter(view.message.values()))
    precision = torch.finfo(first.dtype).eps
    model = replace(view.model, module=copied(view.model.module).double(), each={})
    flags = []
    for victim, (cells, labels) in enumerate(zip(secret.cells, secret.labels, strict=True)):
        rows = encoder.encode(cells.to(encoder.mean.device)).double()
        point = view.place(victim) if isinstance(view, GradientView) else view.model.parameters
        place = {name: p.detach().double() for name, p in point.items()}
        targets = labels.to(rows)
        noise = _noise(view, victim, len(cells), precision)
        try:
            above = _above(model, rows, targets, place, noise)
        except RuntimeError:
            # A network that turns its rows into single precision does not run in double precision.
            return None
        flags.append(above & _computed(model, rows, targets, place, precision))
    return torch.stack(flags).cpu()


def _noise(view: View, victim: int, records: int, precision: float) -> dict[str, float]:
    """Return the standard deviation of the rounding of each parameter's entries, as of a mean gradient."""
    deviations = {}
    for name, sent in view.message.items():
        entries, cast = sent[victim].double(), cast_noise(sent, view.precision)
        if isinstance(view, UpdateView):
            training = view.training
            client_records = records // view.clients
            moved = math.fsum(training.rates(client_records))
            # A step rounds the parameter that it changes.
            size = float(view.model.parameters[name].double().square().mean().sqrt())
            step = _ROUNDING * precision * size * math.sqrt(training.steps(client_records))
            deviations[name] = math.hypot(step, cast) / moved
        else:
            deviations[name] = math.hypot(_ROUNDING * precision * float(entries.square().mean().sqrt()), cast)
    return deviations


def _above(model: Model, rows: Rows, labels: Tensor, place: Update, noise: dict[str, float]) -> Bool[Tensor, " record"]:
    """Return which records have a part of the message that is longer than rounding in some weight."""
    size = sum(p.numel() for p in place.values())
    flags = []
    together = max(1, _AT_ONCE // size)
    for group, targets in zip(rows.split(together), labels.split(together), strict=True):
        expanded = {name: p.expand(len(group), *p.shape) for name, p in place.items()}
        sent = gradient(model, group[:, None], targets[:, None], expanded)
        longer = torch.zeros(len(group), dtype=torch.bool, device=rows.device)
        for name, part in sent.items():
            if part.dim() < 3:
                continue
            length = part.flatten(1).norm(dim=1) / len(rows)
            longer |= (length > _LONGER * noise[name]) & (length > 0)
        flags.append(longer)
    return torch.cat(flags)


def _computed(model: Model, rows: Rows, labels: Tensor, place: Update, precision: float) -> Bool[Tensor, " record"]:
    """Return whose error at the outputs the client knows to a quarter."""
    with torch.no_grad():
        outputs = torch.func.functional_call(model.module, place, (rows,))
    if model.head == "regression":
        error = (outputs[:, 0] - labels).abs()
        return error > _ERROR_FACTOR * precision / 2 * outputs[:, 0].abs().maximum(labels.abs())
    chances = outputs.softmax(-1) if model.head == "softmax" else torch.cat([-outputs, outputs], 1).sigmoid()
    others = chances.scatter(1, labels.long()[:, None], 0.0)
    return others.sum(1) > _ERROR_FACTOR * precision / 2
