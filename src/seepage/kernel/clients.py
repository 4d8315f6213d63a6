"""Bounds of a client's computation: inputs, errors and derivatives of each layer over sets of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from seepage.kernel.intervals import Ball, Boxes, Trace, Value
from seepage.kernel.statement import SAME, Declaration, RefusedError, one_hot

# Numbers of a temporary.
_NUMBERS = 2**24


class Bounds(NamedTuple):
    """Bounds of a client's computation over sets of rows, for layers that see each record once, by their weight.

    Attributes:
        inputs: input of each layer (set, entry), extended by a 1 where there is a bias.
        bias: name of its bias; None where it has none.
        errors: largest magnitude of an error at each of its units (set, unit), times the number of records.
        slopes: derivatives of inputs by the directions that were asked for (direction, set, entry).
        affine: layers whose input is affine in the row.
    """

    inputs: dict[str, Ball]
    bias: dict[str, str | None]
    errors: dict[str, Tensor]
    slopes: dict[str, Ball]
    affine: set[str]

    def most(self, name: str) -> Tensor:
        """Return the largest sum of magnitudes behind each entry of a layer's message, a bias as the last column."""
        return torch.outer(self.errors[name].amax(0), self.inputs[name].most.amax(0))

    def entering(self, name: str) -> Tensor:
        """Return the largest magnitude of each entry of an input; infinite where there is none."""
        most = self.inputs[name].most.amax(0)
        return torch.where(most > 0, most, torch.inf)


def bounded(
    module: nn.Module, at: Mapping[str, Tensor], declared: Declaration, drift: Mapping[str, Tensor],
    boxes: Boxes, errors: bool = True, moves: Tensor | None = None,
) -> Bounds:  # fmt: skip
    """Return bounds of a client's computation on rows in boxes.

    Args:
        module, at, declared: the client's network, its parameters, and the declaration.
        drift: largest change of each parameter over local steps.
        boxes: sets of rows.
        errors: whether errors are bounded, too.
        moves: directions (direction, entry) by which derivatives of inputs are wanted.

    Raises:
        RefusedError: an operation is not bounded, or there is no box.
    """
    if not len(boxes.codes):
        raise RefusedError("no row of the declared columns lies in what the message spans")
    sources = 1 + errors * sum(len(p) for p in at.values()) + (0 if moves is None else len(moves))
    most = max(3, _NUMBERS // (sources * max(p.shape[-1] for p in at.values() if p.dim())))
    if len(boxes.codes) > most:
        every = torch.arange(len(boxes.codes)).split(most)
        parts = [bounded(module, at, declared, drift, boxes.some(some), errors, moves) for some in every]
        join = lambda balls: Ball(*(torch.cat(many, -2) for many in zip(*balls, strict=True)))  # noqa: E731
        return parts[0]._replace(
            inputs={name: join([part.inputs[name] for part in parts]) for name in parts[0].inputs},
            slopes={name: join([part.slopes[name] for part in parts]) for name in parts[0].slopes},
            errors={name: torch.cat([part.errors[name] for part in parts]) for name in parts[0].errors},
        )
    row = boxes.encoded(declared)
    count, sets = len(row.mid), max(3, len(row.mid))
    row = Ball(*(torch.cat([part, part[:1].expand(sets - count, -1)]) for part in row))
    same = lambda part: part[:, None].expand(-1, sets, -1)  # noqa: E731
    # As in training: hooks and the like show where derivatives are asked for.
    at = {name: part.detach().requires_grad_() for name, part in at.items()}
    trace, entered = Trace(at, module, drift, sets, errors), row.mid.clone()
    trace.enter(entered, Value(row, {} if moves is None else {"": Ball(same(moves), same(torch.zeros_like(moves)))}))
    with torch.enable_grad(), trace:
        try:
            outputs = torch.func.functional_call(module, at, (entered,))
        except RefusedError:
            raise
        except Exception as error:  # A module may raise anything.
            why = " ".join(str(error).split())[:200] or type(error).__name__
            raise RefusedError(f"the network cannot be followed in double precision ({why})") from error
    value = trace.of(outputs)
    if value is None or outputs.dim() != 2:
        raise RefusedError("the outputs of the network are not followed from its rows")
    found = Bounds({}, {}, {}, {}, set())
    for name, layer in trace.layers.items():
        if {name, layer.bias} & trace.shared:
            continue
        extend = lambda t, one, wide=int(layer.bias is not None): functional.pad(t, (0, wide), value=one)  # noqa: E731
        found.inputs[name] = Ball(
            *(extend(part[:count], one) for part, one in zip(layer.entering.value, (1.0, 0.0), strict=True))
        )
        found.bias[name] = layer.bias
        if "" in layer.entering.slopes:
            slope = layer.entering.slopes[""]
            found.slopes[name] = Ball(*(extend(part[:, :count], 0.0) for part in slope))
            if set(layer.entering.slopes) == {""} and bool((slope.rad <= SAME * 100 * slope.mid.abs().amax()).all()):
                found.affine.add(name)
        if errors:
            slope, most_error = value.slopes[name], torch.zeros(())
            for error in errors_at(declared, value.value):
                sums = (slope.mid * error.mid).sum(2).abs() + (
                    slope.mid.abs() * error.rad + slope.rad * error.most
                ).sum(2)
                most_error = torch.maximum(most_error, sums)
            found.errors[name] = most_error.T[:count]
    return found


def errors_at(declared: Declaration, outputs: Ball) -> Iterable[Ball]:
    """Return the errors at the outputs for every label, or for all numbers as target, of a mean over one record."""
    low, high = outputs.mid - outputs.rad, outputs.mid + outputs.rad
    if declared.head == "regression":
        middle, half = sum(declared.target) / 2, abs(declared.target[1] - declared.target[0]) / 2
        yield Ball(2 * (outputs.mid - middle), 2 * (outputs.rad + half))
        return
    if declared.head == "sigmoid":
        low, high = low.sigmoid(), high.sigmoid()
    else:
        width = 2 * outputs.rad.amax(1, keepdim=True)
        chance = outputs.mid.softmax(1)
        # A logit and all others move by at most their radius.
        low, high = chance * (-width).exp(), (chance * width.exp()).clamp(max=1.0)
    for label in range(2 if declared.head == "sigmoid" else low.shape[1]):
        true = float(label) if declared.head == "sigmoid" else one_hot(torch.tensor(label), low.shape[1])
        yield Ball((low + high) / 2 - true, (high - low) / 2)


def largest_drift(
    client: Callable[[Mapping[str, Tensor]], Bounds], at: Mapping[str, Tensor], declared: Declaration
) -> dict[str, Tensor]:
    """Return the largest change of each parameter over the local steps of any batch.

    If bounds with twice the moves that the first bounds allow are no larger than twice the first, then parameters never
    move further.

    Raises:
        RefusedError: the parameters may move too far, or some of them are not bounded.
    """
    drift: dict[str, Tensor] = {}
    if declared.rate is None or declared.steps == 1:
        return drift
    bounds = client({})
    for name, bias in bounds.bias.items():
        most = 2 * declared.rate * declared.steps * bounds.most(name)
        drift[name] = most if bias is None else most[:, :-1]
        drift |= {} if bias is None else {bias: most[:, -1]}
    if set(at) - set(drift):
        raise RefusedError("parameters beside those of layers are trained over several steps")
    after = client(drift)
    if any(bool((after.most(n) > 2 * bounds.most(n)).any()) for n in bounds.bias):
        raise RefusedError("the local steps may move the network too far")
    return drift
