"""Probing of the linear maps of a network with typical rows: which of their gradients distinguish single records.

A linear map ``W a + b`` distinguishes records where its gradient is ``G = sum_i d_i a_i^T``, with one error d and one
input a a record, and a depends on that record alone (``spans``). A network of any form is asked for it by running it:
the gradient that PyTorch gives for W has to be the sum of the watched errors times inputs, an input has to be the same
with and without other records, and of several inputs a record (tokens) one alone may have an error.

**Affine inputs.** If ``a = M x + c`` in the encoded row x, the rows 0 and e_1 to e_d say all of it: ``c = a(0)`` and
``M e_k = a(e_k) - a(0)``. It is taken where it also gives the inputs of the typical rows. Behind an argmax or an index,
a network takes rows of a table alone; then the probes are the table's, each with one category or number changed.

**Computed weights.** Where W is a function of parameters t, such as a norm and a direction, the message has the
gradient by t, ``s = J^T g`` with ``J = dW / dt`` and g the gradient by W. The g nearest to it solves ``J J^T g = J s``,
by conjugate gradients that need J and its transpose as products alone. That it is the true g is tested, not assumed:
J^T may lose a part of it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.attacks.horizontal.exact.networks import extended
from seepage.attacks.horizontal.exact.spans import ROUNDINGS, row_scale
from seepage.errors import one_line
from seepage.learning import mean_loss
from seepage.models.batch_norm import inputs_seen
from seepage.models.linear_calls import LinearCall, LinearRun, linear_calls
from seepage.models.model import Head
from seepage.tabular.encoder import Encoder

# Typical rows, between these numbers, with which the layers of a network are looked at.
_LEAST_ROWS, _MOST_ROWS = 64, 1024
# Relative difference of two float64 computations that counts as none, and that of a system solved by steps.
_SAME, _SOLVED = 1e-9, 1e-7
_SILENT = 1e-12  # share of the largest error that counts as none
_USUAL = 4.0  # length that inputs of a layer are brought to on average, where searches compare them
# Most steps of conjugate gradients, and the share of the squared length at which they end.
_CONJUGATE, _CONJUGATE_END = 200, 1e-24
NAMED = 3  # layers that a message names


class UnreadableError(Exception):
    """No layer of a network distinguishes single records; the message gives the reason as a clause."""


@dataclass(frozen=True)
class WatchedLayer:
    """A linear map whose gradient is a sum over records of error times input."""

    name: str  # in the module: of the layer, else of the parameter
    place: int  # index among the linear calls of a run
    weights: tuple[str, ...]  # parameters that its weight is, or is computed from
    computed: bool = False  # whether its weight is computed from them
    isometric: bool = True  # whether its weight's gradient has the parameters' entries, in another order
    bias: str | None = None  # parameter whose gradient is the sum of the errors
    token: int | None = None  # place of the only one of several inputs of a record that has an error
    centred: str | None = None  # normalisation behind it that makes errors add up to zero

    def chosen(self, values: Tensor) -> Tensor:
        """Return the values of the record's only input that has an error."""
        return values if self.token is None else values[:, self.token]

    def entered(self, call: LinearCall) -> Float[Tensor, "record extended"]:
        """Return the inputs of a run, with an appended 1 where the layer has a bias."""
        values = self.chosen(call.entering).detach()
        return values if self.bias is None else extended(values)

    def received(self, module: nn.Module, message: Mapping[str, Tensor], row: Tensor) -> Float[Tensor, "unit _"]:
        """Return the gradient of weight and bias side by side; any encoded row does."""
        if self.computed:
            weight = linear_calls(module, row[None], [self.place], graph=True, until=[self.place]).calls[0].weight
            parameters = dict(module.named_parameters())
            parts, sent = [parameters[name] for name in self.weights], [message[name] for name in self.weights]
            gradient = _of_weight(weight, parts, sent)
        else:
            gradient = message[self.weights[0]]
        if self.bias is None:
            return gradient
        return torch.cat([gradient, message[self.bias].flatten()[:, None].to(gradient.dtype)], 1)


@dataclass(frozen=True)
class Probes:
    """Rows that determine the affine map from encoded rows to the inputs of a layer.

    Raw entries of columns are ``scale`` times the encoded one plus ``shift``; None for rows that are no table's.
    """

    rows: Float[Tensor, "probe encoded"]
    scale: Float[Tensor, " encoded"] | None = None
    shift: Float[Tensor, " encoded"] | None = None

    @classmethod
    def anywhere(cls, like: Float[Tensor, "row encoded"]) -> Probes:
        """Return the probes of networks that take any numbers."""
        width = like.shape[1]
        return cls(torch.cat([torch.zeros_like(like[:1]), torch.eye(width, dtype=like.dtype, device=like.device)]))

    @classmethod
    def valid(cls, encoder: Encoder) -> Probes:
        """Return rows of the table, for networks that are affine on those alone, such as behind an argmax."""
        schema = encoder.schema
        raw = torch.zeros(1 + encoder.width, encoder.width, dtype=torch.float64, device=encoder.mean.device)
        for i in schema.discrete:
            block = schema.blocks[i]
            raw[:, block.start] = 1.0
            for entry in range(block.start, block.stop):
                raw[1 + entry, block] = 0.0
                raw[1 + entry, entry] = 1.0
        rows = torch.where(encoder.is_continuous, 0.0, (raw - encoder.mean) / encoder.std)
        for i in schema.continuous:
            entry = schema.blocks[i].start
            rows[1 + entry, entry] = 1.0
        # Of a number the encoded entry is its own measure.
        scale = torch.where(encoder.is_continuous, 1.0, encoder.std)
        return cls(rows, scale, torch.where(encoder.is_continuous, 0.0, encoder.mean))

    def map(self, values: Float[Tensor, "probe input"]) -> tuple[Float[Tensor, "input encoded"], Tensor]:
        """Return the map from encoded rows to values, and its constant, from the values of the probes."""
        base, ways = values.split([1, len(values) - 1])
        linear, constant = (ways - base).T.contiguous(), base[0]
        if self.scale is None or self.shift is None:
            return linear, constant
        return linear * self.scale, constant + linear @ self.shift


@dataclass(frozen=True)
class LayerProbe:
    """Properties of a linear map, measured on typical rows."""

    layer: WatchedLayer
    inputs: int
    outputs: int  # number of the network's outputs
    linear: tuple[Tensor, Tensor] | None  # map from the encoded row to its input and the constant, where affine
    rank: int  # dimensions of its gradient, however many records
    scale: float  # factor that brings its inputs to the usual length
    numbers: int  # numbers a row that all linear maps take and return
    work: int  # multiplications a row of all linear maps
    at_end: bool  # whether its errors are those of the outputs


def probed(
    module: nn.Module, trained: nn.Module, head: Head, rows: Float[Tensor, "row encoded"], encoder: Encoder | None
) -> tuple[list[LayerProbe], Probes, list[str]]:
    """Return the layers that take one input a record in the order in which they run, probes, and why others do not."""
    # ``module`` computes each record by itself; ``trained`` is as clients train it, and may normalise by the batch.
    wide = max((max(p.shape[0], p[0].numel()) for p in module.parameters() if p.dim() > 1), default=0)
    if not wide:
        raise UnreadableError("no affine layer")
    rows = rows[: min(_MOST_ROWS, max(_LEAST_ROWS, 2 * wide))]
    with inputs_seen(trained) as inputs:
        run = watched_run(trained, rows, graph=True)
    several, alone = run if trained is module else watched_run(module, rows), watched_run(module, rows[:1])
    if len(several.calls) != len(alone.calls) or not close(several.outputs[:1], alone.outputs):
        raise UnreadableError("a record's outputs depend on the others")
    labels = torch.arange(len(rows), device=rows.device) % max(2, run.outputs.shape[1])
    loss = mean_loss(head, run.outputs, labels.double())
    parameters = {name: p for name, p in trained.named_parameters() if p.requires_grad}
    moving = [call for call in run.calls if call.returned.requires_grad]
    wanted = [run.outputs, *parameters.values(), *(call.returned for call in moving)]
    out, *derivatives = torch.autograd.grad(loss, wanted, retain_graph=True, allow_unused=True)
    gradients = dict(zip(parameters, derivatives[: len(parameters)], strict=True))
    apart = {shared_run.place: (shared_run, call) for shared_run, call in zip(several.calls, alone.calls, strict=True)}
    layers: list[tuple[WatchedLayer, LinearCall, int, bool]] = []
    refused: list[str] = []
    for call, back in zip(moving, derivatives[len(parameters) :], strict=True):
        linear_call, single = apart.get(call.place, (None, None))
        if back is None or linear_call is None or single is None or len(call.entering) != len(rows):
            continue
        layer = _layer(call, back, parameters, gradients, inputs)
        if isinstance(layer, str):
            refused += [layer] if layer else []
            continue
        if not close(linear_call.entering[:1], single.entering) or not close(linear_call.weight, single.weight):
            refused.append(f"what enters {layer.name!r} depends on other records")
            continue
        error = layer.chosen(call.by_unit(back))
        sent = error.T @ layer.entered(call)
        values = torch.linalg.svdvals(sent / row_scale(sent)[:, None])
        # Dimensions above the rounding of float32.
        rank = int((values > ROUNDINGS * torch.finfo(torch.float32).eps * values.max()).sum())
        layers.append((layer, linear_call, rank, close(error, out)))
    if not layers:
        why = f" ({'; '.join(dict.fromkeys(refused[:NAMED]))})" if refused else ""
        raise UnreadableError(f"no affine layer with one input a record{why}")
    probes, maps = Probes.anywhere(rows), list[tuple[Tensor, Tensor] | None]()
    for tried in (probes, None if encoder is None else Probes.valid(encoder)):
        if tried is None or any(single is not None for single in maps):
            continue
        calls = {call.place: call for call in watched_run(module, tried.rows).calls}
        maps = [_affine(layer, linear_call, tried, calls.get(layer.place), rows) for layer, linear_call, _, _ in layers]
        probes = tried
    numbers = sum(call.returned[0].numel() + call.entering[0].numel() for call in alone.calls)
    work = sum(call.weight.numel() * call.entering[0].numel() // call.weight.shape[1] for call in alone.calls)
    probed_layers = []
    for (layer, linear_call, rank, at_end), linear in zip(layers, maps, strict=True):
        entered = layer.chosen(linear_call.entering).detach()
        scale = _USUAL / float(entered.norm(dim=1).mean().clamp_min(1e-12))
        width, outputs = entered.shape[1], run.outputs.shape[1]
        probed_layers.append(LayerProbe(layer, width, outputs, linear, rank, scale, numbers, work, at_end))
    return probed_layers, probes, refused


def watched_run(
    module: nn.Module, rows: Tensor, places: Collection[int] | None = None, graph: bool = False
) -> LinearRun:
    """Return the linear maps of a run, see ``linear_calls``."""
    try:
        return linear_calls(module, rows, places, graph=graph)
    except Exception as error:  # A user's module may raise anything.
        raise UnreadableError(f"the network cannot be run in float64 ({one_line(error)})") from error


def _affine(
    layer: WatchedLayer, call: LinearCall, probes: Probes, probe_call: LinearCall | None, rows: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Return the map from the encoded row to a layer's input, None where it is not affine."""
    if probe_call is None:
        return None
    linear, constant = probes.map(layer.chosen(probe_call.entering))
    entered = layer.chosen(call.entering).detach()
    return (linear, constant) if close(rows @ linear.T + constant, entered) else None


def _layer(
    call: LinearCall,
    back: Tensor,
    parameters: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor | None],
    inputs: Mapping[str, Tensor],
) -> WatchedLayer | str:
    """Return the layer of a call; else why its gradient is no sum of one error times one input a record."""
    # Empty where the call applies no parameter.
    name_alone = next((name for name, p in parameters.items() if p is call.weight), None)
    if name_alone is None:
        if not call.weight.requires_grad:
            return ""
        ways = torch.autograd.grad(call.weight.sum(), list(parameters.values()), retain_graph=True, allow_unused=True)
        names = tuple(name for name, slope in zip(parameters, ways, strict=True) if slope is not None)
    else:
        names = (name_alone,)
    name = _named(names)
    error = call.by_unit(back)
    token, errors, entered = None, error, call.entering.detach()
    if error.dim() == 3:
        sizes = error.abs().amax((0, 2))
        active = (sizes > _SILENT * sizes.max()).nonzero()[:, 0].tolist()
        if len(active) != 1:
            return f"{name!r} takes several inputs of each record"
        token = int(active[0])
        errors, entered = error[:, token], entered[:, token]
    sent = [gradients[part] for part in names]
    parts = [gradient for gradient in sent if gradient is not None]
    if len(parts) < len(sent):
        return f"{name!r} has parameters without a gradient"
    total, isometric = errors.T @ entered, True
    if name_alone is None:
        tensors = [parameters[part] for part in names]
        isometric = _is_isometric(call.weight, tensors)
        if not close(_of_weight(call.weight, tensors, parts), total, _SOLVED):
            return f"the weight of {name!r} is computed from parameters whose gradient does not tell its own"
    elif not close(parts[0], total):
        return f"the weight of {name!r} is used more than once"
    added = errors.sum(0)
    centred = None
    if bool((added.abs() <= _SAME * errors.abs().sum(0).max()).all()):
        normalised = [norm for norm, given in inputs.items() if close(given, call.by_unit(call.returned).detach())]
        if not normalised:
            return f"the errors at {name!r} add up to zero over the batch"
        centred = normalised[0]
    bias = None if centred else _bias(call, added, parameters, gradients)
    return WatchedLayer(name, call.place, names, name_alone is None, isometric, bias, token, centred)


def _bias(
    call: LinearCall, added: Tensor, parameters: Mapping[str, Tensor], gradients: Mapping[str, Tensor | None]
) -> str | None:
    """Return the parameter whose gradient is the sum of a call's errors: the call's own bias, or one added behind."""
    alike = sorted(
        (name for name, p in parameters.items() if p.shape[-1:] == added.shape and p.numel() == len(added)),
        key=lambda name: parameters[name] is not call.bias,
    )
    for name in alike:
        sent = gradients[name]
        if sent is not None and close(sent.flatten(), added):
            return name
    return None


def _named(parameters: Sequence[str]) -> str:
    """Return the layer of parameters, or the parameter that is none."""
    place, _, part = parameters[0].rpartition(".")
    place = place.removesuffix(".parametrizations.weight").removesuffix("parametrizations.weight")
    return place if place and (part.startswith(("weight", "original"))) else "" if part == "weight" else parameters[0]


def _of_weight(weight: Tensor, parameters: Sequence[Tensor], sent: Sequence[Tensor]) -> Tensor:
    """Return the gradient of a weight from that of the parameters from which it is computed, by least squares."""
    # J^T v as a function of v, whose own derivative, transposed, is the product with J.
    none = torch.zeros_like(weight, requires_grad=True)
    behind = torch.autograd.grad(weight, parameters, none, create_graph=True)

    def ahead(ways: Sequence[Tensor]) -> Tensor:
        return torch.autograd.grad(behind, none, list(ways), retain_graph=True)[0]

    def square(direction: Tensor) -> Tensor:
        return ahead(torch.autograd.grad(weight, parameters, direction, retain_graph=True))

    rest = ahead([part.to(weight) for part in sent])
    gradient, direction = torch.zeros_like(rest), rest
    size = first = float(rest.square().sum())
    for _ in range(_CONJUGATE):
        if not size > _CONJUGATE_END * first:
            break
        pushed = square(direction)
        along = float((direction * pushed).sum())
        if not along > 0:
            break
        step = size / along
        gradient, rest = gradient + step * direction, rest - step * pushed
        size, before = float(rest.square().sum()), size
        direction = rest + size / before * direction
    return gradient.detach()


def _is_isometric(weight: Tensor, parameters: Sequence[Tensor]) -> bool:
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(weight.shape, generator=generator, dtype=weight.dtype).to(weight.device)
    parts = torch.autograd.grad(weight, parameters, direction, retain_graph=True)
    same = sum(int((part != 0).sum()) for part in parts) == direction.numel()
    lengths = math.fsum(float(part.square().sum()) for part in parts)
    return len(parts) == 1 and same and abs(lengths / float(direction.square().sum()) - 1) < _SAME


def close(values: Tensor, wanted: Tensor, share: float = _SAME) -> bool:
    """Return whether two results of the same shape differ by no more than this share of the largest entry."""
    return values.shape == wanted.shape and bool(
        ((values - wanted).abs() <= share * wanted.abs().max().clamp_min(1e-12)).all()
    )
