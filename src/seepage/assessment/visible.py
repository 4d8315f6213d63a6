"""Which records a message holds at all: those whose own part is longer than what the client's rounding makes."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.learning import gradient
from seepage.models.batch_norm import normalisations
from seepage.models.copies import copied
from seepage.models.model import Model
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, UpdateView, View
from seepage.wire.precision import cast_noise
from seepage.wire.secret import RecordsSecret

# Times that a record's error has to be as large as what the client's own arithmetic leaves open of it.
_KNOWN = 4.0
# Standard deviations of what rounding adds along its own direction, that its part has to be longer than.
_LONGER = 4.0
# Standard deviation of what rounding adds to an entry, in precisions of its size: spread evenly over its last place.
_ROUNDING = 0.25
# Numbers of single gradients that are held at a time.
_AT_ONCE = 2**24


def visible(view: object, secret: RecordsSecret, encoder: Encoder) -> Bool[Tensor, "victim record"] | None:
    """Return which records stand above the client's rounding in what it sent; None where that cannot be said.

    A record's own gradient over the number of records is its part of the message. It is visible where, in the gradient
    of some weight, it is longer than four standard deviations of what rounding adds along its direction, and where the
    client computed its error to a quarter. A client computes the chance p of a label with an absolute error of half a
    precision: the error of a record of which the network is sure, p - 1, is lost before anything is sent. What is not
    visible cannot be told from rounding; what is visible and was not found may be found by others.

    None for networks that normalise by the batch, where no part is a single record's, and for messages that are no
    plain gradients or updates of SGD.

    Args:
        view: what was received, undefended.
        secret: records behind it.
        encoder: encoder of the clients.

    Example:
        >>> from seepage.datasets.planted import distinct
        >>> from seepage.models.mlp import nn3
        >>> from seepage.protocols.fedsgd import FedSGD
        >>> data = distinct(rows=40)
        >>> encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
        >>> ran = FedSGD(4).run(nn3(data.schema, seed=0), data.train, encoder, seeds=[1])
        >>> visible(ran.view, ran.secret, encoder).tolist()
        [[True, True, True, True]]
    """
    if not isinstance(view, GradientView | UpdateView) or normalisations(view.model.module):
        return None
    if isinstance(view, UpdateView) and view.training.optimizer != "sgd":
        return None
    first = next(iter(view.message.values()))
    precision = torch.finfo(first.dtype).eps
    model = replace(view.model, module=copied(view.model.module).double(), each={})
    found = []
    for victim, (cells, labels) in enumerate(zip(secret.cells, secret.labels, strict=True)):
        rows = encoder.encode(cells.to(encoder.mean.device)).double()
        place = {name: p.detach().double() for name, p in _place(view, victim).items()}
        targets = labels.to(rows)
        noise = _noise(view, victim, len(cells), precision)
        found.append(_above(model, rows, targets, place, noise) & _computed(model, rows, targets, place, precision))
    return torch.stack(found).cpu()


def _place(view: View, victim: int) -> dict[str, Tensor]:
    return view.place(victim) if isinstance(view, GradientView) else view.model.parameters


def _noise(view: View, victim: int, records: int, precision: float) -> dict[str, float]:
    """Return the standard deviation of what rounding adds to each parameter's entries, as of a mean gradient."""
    found = {}
    for name, sent in view.message.items():
        entries, cast = sent[victim].double(), cast_noise(sent, view.precision)
        if isinstance(view, UpdateView):
            training = view.training
            each = records // view.clients
            moved = math.fsum(training.rates(each))
            # A step rounds the parameter that it changes.
            held = float(view.model.parameters[name].double().square().mean().sqrt())
            step = _ROUNDING * precision * held * math.sqrt(training.steps(each))
            found[name] = math.hypot(step, cast) / moved
        else:
            found[name] = math.hypot(_ROUNDING * precision * float(entries.square().mean().sqrt()), cast)
    return found


def _above(
    model: Model,
    rows: Float[Tensor, "record encoded"],
    labels: Float[Tensor, " record"],
    place: dict[str, Tensor],
    noise: dict[str, float],
) -> Bool[Tensor, " record"]:
    """Return whose part of the message is longer than rounding makes it in some weight."""
    size = sum(p.numel() for p in place.values())
    found = []
    some = max(1, _AT_ONCE // size)
    for each, targets in zip(rows.split(some), labels.split(some), strict=True):
        expanded = {name: p.expand(len(each), *p.shape) for name, p in place.items()}
        sent = gradient(model, each[:, None], targets[:, None], expanded)
        longer = torch.zeros(len(each), dtype=torch.bool, device=rows.device)
        for name, part in sent.items():
            if part.dim() < 3:
                continue
            own = part.flatten(1).norm(dim=1) / len(rows)
            longer |= (own > _LONGER * noise[name]) & (own > 0)
        found.append(longer)
    return torch.cat(found)


def _computed(
    model: Model,
    rows: Float[Tensor, "record encoded"],
    labels: Float[Tensor, " record"],
    place: dict[str, Tensor],
    precision: float,
) -> Bool[Tensor, " record"]:
    """Return whose error at the outputs the client knows to a quarter."""
    with torch.no_grad():
        outputs = torch.func.functional_call(model.module, place, (rows,))
    if model.head == "regression":
        error = (outputs[:, 0] - labels).abs()
        return error > _KNOWN * precision / 2 * outputs[:, 0].abs().maximum(labels.abs())
    chances = outputs.softmax(-1) if model.head == "softmax" else torch.cat([-outputs, outputs], 1).sigmoid()
    others = chances.scatter(1, labels.long()[:, None], 0.0)
    return others.sum(1) > _KNOWN * precision / 2
