"""Fit of a whole batch by repeating the client's computation, up to noise of known size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.attacks.horizontal.exact.gradients import Gradient
from seepage.attacks.horizontal.exact.updates import moved_by
from seepage.attacks.horizontal.matching.starts import Starts
from seepage.learning import gradient, local_update
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, UpdateView, View

# Largest excess of the remaining squared length over that of noise alone, in standard deviations of the latter.
_CHANCE = 4.0
_TRACE = 40.0  # standard deviations of a record's part in a message that count as no trace of it
# Least standard deviation of an entry: that of a clipped message may be none, and its square must not be.
_LEAST = 1e-150
_NONE = 1e-3  # standard deviations of the noise that count as none
_PRECISE = 1e-12  # share of the errors that is rounding in float64
_COPIES = 1e-2  # standard deviations of a column by which copies of a record may differ after their numbers were fitted
_FITS = 8  # times that cells are fitted
# Shares of a Newton step that are tried, and of the largest singular value, what a careful one leaves out.
_STEPS, _DAMPED = (1.0, 0.3), 0.1


def can_replay(view: View, records: int) -> bool:
    """Return whether the client's computation follows from its records: the order of several batches is unknown."""
    # Of Adam's steps the rounding is not one noise for all entries, and those of alternatives hardly differ: what would
    # fit proves nothing. Nor is there a noise of one size where a client has cast its message to fewer bits.
    if view.precision != "full":
        return False
    if isinstance(view, GradientView):
        return True
    return view.clients == 1 and view.training.optimizer == "sgd" and len(view.training.batches(records)) == 1


@dataclass(frozen=True)
class Replay:
    """Result of a replay of one victim's records."""

    cells: Float[Tensor, "record column"]
    fits: bool  # whether they leave no more of the message than noise makes
    traceless: Bool[Tensor, " record"]  # records whose cells leave nothing but noise in it
    error: Float[Tensor, " record"]  # standard error of standardised rows; infinite without a trace of its own


def replayed(
    view: View,
    victim: int,
    read: Gradient,
    client: Encoder,
    starts: Starts,
    cells: Float[Tensor, "record column"],
    labels: Float[Tensor, " record"],
    noise: Sequence[float],
    parameters: Sequence[tuple[str, str | None]] = (),
) -> Replay:
    """Fit cells to the message, and return whether they explain it."""
    # What the records leave of the message, ``read`` as a mean gradient, has to be no longer than each layer's noise
    # makes it. A record's error at the first layer's units, as far as it is independent of the others', says how much
    # the message moves with its row. ``parameters``: names of each layer's weights and bias; empty for all in pairs.
    names = list(view.message)
    layers = list(parameters) or list(zip(names[::2], names[1::2], strict=True))
    first = layers[0][0]
    counts = torch.nn.functional.one_hot(labels.long(), read.classes).double()
    errors, _ = read.contributions(client.encode(cells).double(), counts)
    inverse = torch.linalg.pinv(errors[0].mT)
    damped = torch.linalg.pinv(errors[0].mT, rtol=_DAMPED)
    left = _left(view, victim, client, cells, labels)
    length = _length(left, layers, noise)
    for _ in range(_FITS):
        # What is left of the first layer's weights is errors times what rows lack.
        rows = client.encode(cells).double()
        tried = [starts.encoder.decode(rows + step * (by @ left[first])) for by in (inverse, damped) for step in _STEPS]
        rests = [_left(view, victim, client, batch, labels) for batch in tried]
        lengths = [_length(rest, layers, noise) for rest in rests]
        best = min(range(len(tried)), key=lengths.__getitem__)
        if not lengths[best] < length:
            break
        cells, left, length = tried[best], rests[best], lengths[best]
    entries = sum(left[name].numel() for layer in layers for name in layer if name is not None)
    fits = length <= entries + _CHANCE * math.sqrt(2 * entries)
    rows = client.encode(cells).double()
    # Copies of a record count together: the number of the first one of each, without gaps.
    alike = ~starts.apart(cells, cells, _COPIES)
    kind = alike.long().argmax(1).unique(return_inverse=True)[1]
    errors, inputs = read.contributions(rows, counts)
    merged = errors[0].new_zeros(int(kind.max()) + 1, errors[0].shape[1]).index_add_(0, kind, errors[0])
    blur = [max(size, _LEAST) for size in noise]
    alone = _apart(merged, max(_NONE * noise[0], _PRECISE * float(merged.norm())))[kind]
    trace = torch.stack(
        [e.norm(dim=1) * v[:, :-1].norm(dim=1) / n for e, v, n in zip(errors[:2], inputs[:2], blur, strict=False)]
    )
    return Replay(cells, fits, trace.amax(0) <= _TRACE, noise[0] / alone)


def _apart(vectors: Float[Tensor, "vector entry"], none: float) -> Float[Tensor, " vector"]:
    """Return the distance of each vector from the span of the others; singular values below ``none`` count as 0."""
    left, values, _ = torch.linalg.svd(vectors, full_matrices=len(vectors) > vectors.shape[1])
    values = torch.cat([values, values.new_zeros(left.shape[1] - len(values))])
    return (left.square() / (values.square() + none**2)).sum(1).rsqrt()


def _left(view: View, victim: int, client: Encoder, cells: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return the message as a mean gradient without these records, by parameter."""
    rows = client.encode(cells)
    targets = labels.to(rows.dtype)
    if isinstance(view, UpdateView):
        epochs = view.training.epochs
        sent = local_update(view.model, rows.expand(1, epochs, -1, -1), targets.expand(1, epochs, -1), view.training)
        scale = 1 / moved_by(view, len(cells))
    else:
        place = None if view.parameters is None else {n: p[victim, None] for n, p in view.parameters.items()}
        sent, scale = gradient(view.model, rows[None], targets[None], place), 1.0
    return {name: (view.message[name][victim].double() - part[0].double()) * scale for name, part in sent.items()}


def _length(left: Mapping[str, Tensor], layers: Sequence[tuple[str, str | None]], noise: Sequence[float]) -> float:
    """Return the squared length in standard deviations of the noise."""
    return sum(
        float(left[name].square().sum()) / max(size, _LEAST) ** 2
        for layer, size in zip(layers, noise, strict=True)
        for name in layer
        if name is not None
    )
