"""Inversion of a network layer by layer: from its outputs to its inputs, where its layers lose nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, fx, nn

from seepage.models.vertical import Copies, Stack
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Discrete

# Smallest singular value, relative to the largest, at which equations are solved.
_LEAST = 1e-5
# Distance from the ends of a bounded activation at which its input is taken as lost.
_SATURATED = 1e-6
# Numbers up to this share of a record's largest count as zero behind a ReLU.
_ZERO = 1e-4
# Numbers in memory at once.
_AT_ONCE = 2**24

Undone = tuple[Tensor, Tensor]
_Undo = Callable[[Tensor, Tensor], Undone]


@dataclass(frozen=True)
class Weighted:
    """A linear layer ``x W + b`` in float64."""

    name: str
    weight: Float[Tensor, "input output"]
    bias: Float[Tensor, " output"]


@dataclass(frozen=True)
class Activation:
    """An elementwise layer; ``undo`` maps outputs and the mask of known ones to inputs and theirs."""

    name: str
    undo: _Undo


@dataclass(frozen=True)
class Lossy:
    """A layer whose inputs do not follow from its outputs; ``why`` ends a sentence."""

    name: str
    why: str


Layer = Weighted | Activation | Lossy


def layers_of(module: nn.Module, training: int = 0, before: int = 0) -> list[Layer]:
    """Return the layers of a network, or of one training of a network of several; names count from ``before`` on."""
    if isinstance(module, Copies):
        return layers_of(module.networks[training], training, before)
    layers: list[Layer] = []
    if isinstance(module, nn.Sequential) and any(isinstance(part, Stack | Copies) for part in module):
        # The first layers of two parties, each behind the axis of trainings.
        for part in module:
            layers += layers_of(part, training, before + len(layers))
        return layers
    if isinstance(module, Stack):
        for weight, bias in zip(module.weights, module.biases, strict=True):
            if layers:
                layers.append(Activation(f"layer {before + len(layers) + 1} (ReLU)", _relu))
            layers.append(_affine(before + len(layers) + 1, "Linear", weight[training], bias[training, 0]))
        return layers
    try:
        # What is traced has layers in it.
        graph = fx.symbolic_trace(nn.Sequential(module)).graph
    except Exception as error:  # A user's forward may do anything.
        reason = " ".join(str(error).split())[:120]
        return [Lossy(f"the whole network ({type(module).__name__})", f"its layers cannot be listed ({reason})")]
    sequence: list[Layer] = []
    last: fx.Node | None = None
    for node in graph.nodes:
        if node.op == "output":
            continue
        if node.op == "placeholder":
            last = node
            continue
        number = before + len(sequence) + 1
        inputs = node.all_input_nodes
        if node.op == "get_attr" or last is None or inputs != [last]:
            return [Lossy(f"layer {number} ({node.name})", "it takes something else than the layer before it returns")]
        if node.op == "call_module":
            # Names begin with that of the network in its wrapper.
            inner = str(node.target).partition(".")[2]
            sequence.append(_of_module(number, module.get_submodule(inner)))
        else:
            sequence.append(_of_function(number, node))
        last = node
    return sequence


def obstacle(layers: list[Layer], encoder: Encoder) -> str | None:
    """Return the layer that stops the inversion, and why, as a part of a sentence; None where none does."""
    first = True
    for layer in layers:
        if isinstance(layer, Lossy):
            return f"{layer.name}: {layer.why}"
        if isinstance(layer, Weighted):
            weight = torch.cat([layer.weight, sums_of_categories(encoder)[0]], dim=1) if first else layer.weight
            if weight.shape[1] < weight.shape[0] or not bool(_full(weight.T[None])[0]):
                return f"{layer.name}: it returns fewer independent numbers than it takes"
            first = False
    return None


def cut_off(layers: Sequence[Layer]) -> bool:
    """Return whether a layer passes on positive numbers only."""
    return any(isinstance(layer, Activation) and layer.undo is _relu for layer in layers)


def inverted(
    layers: list[Layer], outputs: Float[Tensor, "record feature"], encoder: Encoder
) -> tuple[Float[Tensor, "record encoded"], Bool[Tensor, " record"]]:
    """Return inputs that give the outputs, and for which records they are the only ones; no layer is an obstacle."""
    values = outputs.double()
    mask = torch.ones_like(values, dtype=torch.bool)
    solved = torch.ones(len(values), dtype=torch.bool)
    start = next((i for i, layer in enumerate(layers) if isinstance(layer, Weighted)), None)
    for i in reversed(range(len(layers))):
        layer = layers[i]
        if isinstance(layer, Activation):
            values, mask = layer.undo(values, mask)
        elif isinstance(layer, Weighted):
            weight, target = layer.weight, values - layer.bias
            if i == start:
                more, sums = sums_of_categories(encoder)
                weight = torch.cat([weight, more], dim=1)
                target = torch.cat([target, sums.expand(len(target), -1)], dim=1)
                mask = torch.cat([mask, torch.ones(len(mask), more.shape[1], dtype=torch.bool)], dim=1)
            values, there = _solved(weight, target, mask)
            solved &= there
            mask = torch.ones_like(values, dtype=torch.bool)
    return values, solved & mask.all(1)


def _solved(weight: Tensor, target: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the solution of each record's known equations, and where it is the only one."""
    solutions, there = [], []
    for chunk in torch.arange(len(target)).split(max(1, _AT_ONCE // weight.numel())):
        equations = weight.T[None] * mask[chunk][:, :, None]
        there.append(_full(equations))
        solutions.append((torch.linalg.pinv(equations, rtol=_LEAST) @ (target[chunk] * mask[chunk])[..., None])[..., 0])
    return torch.cat(solutions), torch.cat(there)


def _full(equations: Float[Tensor, "record equation unknown"]) -> Bool[Tensor, " record"]:
    if equations.shape[1] < equations.shape[2]:
        return torch.zeros(len(equations), dtype=torch.bool)
    sizes = torch.linalg.svdvals(equations)
    return sizes[:, -1] > _LEAST * sizes[:, 0]


def sums_of_categories(encoder: Encoder) -> tuple[Float[Tensor, "encoded column"], Float[Tensor, " column"]]:
    """Return the equations by which the entries of each column of categories add up to 1."""
    schema = encoder.schema
    blocks = [b for column, b in zip(schema.columns, schema.blocks, strict=True) if isinstance(column, Discrete)]
    weight = torch.zeros(encoder.width, len(blocks), dtype=torch.float64)
    for k, block in enumerate(blocks):
        weight[block, k] = 1
    return weight, torch.ones(len(blocks), dtype=torch.float64)


def _affine(number: int, kind: str, weight: Tensor, bias: Tensor) -> Weighted:
    name = f"layer {number} ({kind}, {weight.shape[0]} to {weight.shape[1]} numbers)"
    return Weighted(name, weight.detach().double().cpu(), bias.detach().double().cpu())


def _relu(values: Tensor, mask: Tensor) -> Undone:
    # What is zero up to rounding was cut off.
    least = _ZERO * values.abs().amax(1, keepdim=True)
    return values, mask & (values > least)


def _leaky(slope: float) -> _Undo:
    return lambda values, mask: (torch.where(values < 0, values / slope, values), mask)


def _elu(alpha: float, scale: float = 1.0) -> _Undo:
    def undo(values: Tensor, mask: Tensor) -> Undone:
        below = (values / (scale * alpha)).clamp(min=_SATURATED - 1)
        there = mask & ((values >= 0) | (values / (scale * alpha) > _SATURATED - 1))
        return torch.where(values < 0, torch.log1p(below), values / scale), there

    return undo


def _softplus(beta: float) -> _Undo:
    def undo(values: Tensor, mask: Tensor) -> Undone:
        there = mask & (values > _SATURATED)
        return (torch.expm1(beta * values.clamp(min=_SATURATED)).log() / beta).clamp(max=values.max()), there

    return undo


def _tanh(values: Tensor, mask: Tensor) -> Undone:
    return values.clamp(_SATURATED - 1, 1 - _SATURATED).atanh(), mask & (values.abs() < 1 - _SATURATED)


def _sigmoid(values: Tensor, mask: Tensor) -> Undone:
    return values.logit(eps=_SATURATED), mask & (values > _SATURATED) & (values < 1 - _SATURATED)


def _same(values: Tensor, mask: Tensor) -> Undone:
    return values, mask


# Layers of PyTorch that are undone alike whatever their arguments are, by class and by function.
_UNDONE: dict[type[nn.Module], _Undo] = {
    nn.ReLU: _relu,
    nn.Tanh: _tanh,
    nn.Sigmoid: _sigmoid,
    nn.Identity: _same,
    nn.Dropout: _same,
    nn.Flatten: _same,
}
_FUNCTIONS = {kind.__name__.lower(): undo for kind, undo in _UNDONE.items() if kind is not nn.Identity}
_WHY: dict[type[nn.Module], str] = {
    nn.GELU: "two inputs have the same output",
    nn.SiLU: "two inputs have the same output",
    nn.LayerNorm: "it forgets mean and scale of its inputs",
    nn.Softmax: "it forgets a number that is added to all of its inputs",
}


def _of_module(number: int, layer: nn.Module) -> Layer:
    kind = type(layer)
    name = f"layer {number} ({kind.__name__})"
    if isinstance(layer, nn.Linear):
        bias = layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias
        return _affine(number, "Linear", layer.weight.T, bias)
    if isinstance(layer, nn.BatchNorm1d) and layer.running_mean is not None and layer.running_var is not None:
        scale = (layer.running_var.double() + layer.eps).rsqrt()
        scale = scale if layer.weight is None else scale * layer.weight.detach().double()
        shift = -layer.running_mean.double() * scale
        shift = shift if layer.bias is None else shift + layer.bias.detach().double()
        if not bool((scale != 0).all()):
            return Lossy(name, "it multiplies some numbers by zero")
        return Activation(name, lambda values, mask: ((values - shift) / scale, mask))
    if isinstance(layer, nn.LeakyReLU) and layer.negative_slope > 0:
        return Activation(name, _leaky(layer.negative_slope))
    if isinstance(layer, nn.PReLU) and layer.weight.numel() == 1 and layer.weight.item() > 0:
        return Activation(name, _leaky(layer.weight.item()))
    if isinstance(layer, nn.ELU):
        return Activation(name, _elu(layer.alpha))
    if isinstance(layer, nn.SELU):
        return Activation(name, _elu(1.6732632423543772, 1.0507009873554805))
    if isinstance(layer, nn.Softplus):
        return Activation(name, _softplus(float(layer.beta)))
    if kind in _UNDONE:
        return Activation(name, _UNDONE[kind])
    return Lossy(name, _WHY.get(kind, "seepage knows no inverse of it"))


def _of_function(number: int, node: Any) -> Layer:
    function = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    name = f"layer {number} ({function})"
    if function in _FUNCTIONS and len(node.args) == 1:
        return Activation(name, _FUNCTIONS[function])
    if function == "leaky_relu":
        slope = node.kwargs.get("negative_slope", node.args[1] if len(node.args) > 1 else 0.01)
        if isinstance(slope, float) and 0 < slope < math.inf:
            return Activation(name, _leaky(slope))
    return Lossy(name, "seepage knows no inverse of it")
