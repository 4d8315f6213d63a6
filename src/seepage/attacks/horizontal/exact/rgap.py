"""R-GAP (Zhu and Blaschko, ICLR 2021): one record, solved for layer by layer from the output down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seepage.attacks.horizontal.exact.first_layer import choose_records, refuse_frozen
from seepage.attacks.horizontal.matching.reconstruct import as_gradient, check
from seepage.errors import BadInputError
from seepage.learning import gradient
from seepage.registry import Traits, attacks
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, Knowledge, RecordsGuess, View

ACTIVATIONS = (nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid)  # invertible activations; ReLU where its output is positive

# Numbers of grid points and of powers of e in the search for the output's scale, which is then bisected.
_PLACES, _POWERS, _BISECTIONS = 4096, 30.0, 60
_ROOTS = 3  # largest number of scales that may explain the output layer's gradient
_EDGE = 1e-12  # distance from their bounds up to which bounded activations are inverted


@attacks.register("rgap", "horizontal", traits=Traits(exact=True))
@dataclass(frozen=True)
class RGap:
    """Recursive gradient attack: one record read off a fully connected network without biases, in closed form.

    Source: Zhu and Blaschko, R-GAP (ICLR 2021).

    With one record, each layer's gradient is the product k x' of the error k at its outputs and its input x. At the
    output layer the loss's derivative determines the scale between the two; below it, k follows from the layer above,
    the outputs z from inverting the activation (ReLU, leaky ReLU, tanh or sigmoid), and the input solves W x = z and
    k x' = dW together, by least squares. The recursion starts at the lowest layer with a bias, whose gradient is k.
    Of scales and signs (the paper's twin data) that reproduce the gradient, the row nearest to a valid one is taken.
    For a larger batch, where none of this holds, it returns one row.

    Deviations: the paper's rank analysis is left out, since the gradient of an affine layer determines its input as
    soon as one neuron has an error (the index distinguishes convolutions); equations of the gradient are divided
    by the size of k, which puts them on one scale with W x = z; more than two classes are allowed.

    Example:
        >>> from seepage.datasets.planted import distinct
        >>> from seepage.models.mlp import mlp
        >>> from seepage.protocols.fedsgd import FedSGD
        >>> data = distinct(rows=20)
        >>> encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
        >>> model = mlp(data.schema, [30], seed=0, bias=False, slope=0.2)
        >>> ran = FedSGD(1).run(model, data.train, encoder, seeds=[1])
        >>> guess = RGap()(ran.view, Knowledge(data.schema, data.statistics, 1), [0])
        >>> bool(torch.isclose(guess.cells, ran.secret.cells, atol=1e-3).all())
        True
    """

    def __call__(self, view: View, knowledge: Knowledge, seeds: Sequence[int]) -> RecordsGuess:
        """Return the guessed records; nothing is random, so ``seeds`` are not used."""
        check(view, knowledge, seeds)
        read, facts = as_gradient(view, knowledge)
        layers = _layers(read)
        candidates = _top(layers[-1], read, knowledge)
        for above, below in zip(reversed(layers[1:]), reversed(layers[:-1]), strict=True):
            candidates = _down(above, below, candidates)
        if candidates.labels is not None:
            candidates = _reproducing(candidates, candidates.labels, read)
        dtype = next(iter(read.gradient.values())).dtype
        encoder = Encoder(facts.schema, facts.statistics, dtype=dtype, device=candidates.inputs.device)
        # The remaining candidates are alternatives: one of them is right.
        best = choose_records(encoder, replace(facts, batch_size=1), candidates.inputs.to(dtype))
        return RecordsGuess(choose_records(encoder, facts, encoder.encode(best)).cpu())


class _AffineLayer(NamedTuple):
    """An affine layer with its parameters, its gradient, and the activation of its outputs."""

    weight: Float[Tensor, "place unit input"]
    bias: Float[Tensor, "place unit"] | None
    gradient: Float[Tensor, "victim unit input"]
    bias_gradient: Float[Tensor, "victim unit"] | None
    activation: nn.Module | None


class _LayerInputs(NamedTuple):
    """Candidates for a layer's inputs, the errors at its outputs, and the labels they assume, if any."""

    inputs: Float[Tensor, "victim candidate input"]
    error: Float[Tensor, "victim candidate unit"]
    labels: Float[Tensor, "victim candidate"] | None


def _layers(view: GradientView) -> list[_AffineLayer]:
    """Return the affine layers from the first one up to the lowest with a bias, or to the last."""
    module = view.model.module
    named = list(module.named_modules(remove_duplicate=False))
    leaves = [(name, part) for name, part in named if not list(part.children())]
    plain = all(type(part) is nn.Sequential for _, part in named if list(part.children()))
    affine = [part for _, part in leaves if isinstance(part, nn.Linear)]
    alone = len({id(part) for part in affine}) == len(affine)
    where = view.parameters or {name: p[None] for name, p in view.model.parameters.items()}
    layers: list[_AffineLayer] = []
    for place, (name, part) in enumerate(leaves):
        fits = type(part) is nn.Linear if place % 2 == 0 else type(part) in ACTIVATIONS
        if not (fits and (place == 0 or (plain and alone))):
            break
        if place % 2 == 1:
            layers[-1] = layers[-1]._replace(activation=part)
            continue
        weight, bias = (f"{name}.{of}" if name else of for of in ("weight", "bias"))
        has_bias = part.bias is not None
        refuse_frozen("rgap", view, [weight, bias] if has_bias else [weight])
        layers.append(
            _AffineLayer(
                where[weight].double(),
                where[bias].double() if has_bias else None,
                view.gradient[weight].double(),
                view.gradient[bias].double() if has_bias else None,
                None,
            )
        )
        if has_bias:
            return layers
    else:
        if len(leaves) % 2 == 1:
            return layers
    raise BadInputError(
        f"rgap goes down a chain of nn.Linear layers with {', '.join(kind.__name__ for kind in ACTIVATIONS)} between "
        f"them, or reads a first nn.Linear with a bias, but model {view.model.name!r} is neither; audit such a model, "
        "or leave the attack out."
    )


def _top(layer: _AffineLayer, view: GradientView, knowledge: Knowledge) -> _LayerInputs:
    """Return the candidates at the layer that the recursion starts at."""
    if layer.bias_gradient is not None:
        error = layer.bias_gradient[:, None]
        return _LayerInputs(error @ layer.gradient / error.square().sum(-1, keepdim=True), error, None)
    head, granted = view.model.head, knowledge.labels
    if head == "regression":
        if granted is None:
            raise BadInputError(
                f"the gradient of model {view.model.name!r} is a record times its error, and a regression's error "
                "depends on its unknown label; rgap takes regressions with granted labels only (labels='true')."
            )
        return _of_squares(layer, granted.to(layer.weight).mean(1))
    if head == "sigmoid":
        # One logit equals the second of two logits whose first is 0.
        both = layer._replace(
            weight=torch.cat([torch.zeros_like(layer.weight), layer.weight], 1),
            gradient=torch.cat([-layer.gradient, layer.gradient], 1),
        )
        candidates = _of_classes(both)
        candidates = candidates._replace(error=candidates.error[..., 1:])
    else:
        candidates = _of_classes(layer)
    if granted is None or knowledge.batch_size > 1:
        return candidates
    assert candidates.labels is not None
    other = (candidates.labels != granted.to(candidates.labels))[..., None]
    return candidates._replace(inputs=candidates.inputs.masked_fill(other, torch.nan))


def _of_squares(layer: _AffineLayer, labels: Float[Tensor, " victim"]) -> _LayerInputs:
    """Solve e (e + 2y) = 2 <w, dw> for the error e = 2 (f - y) of the output f = <w, x>, where dw = e x."""
    product = (layer.weight * layer.gradient).sum((1, 2))
    root = (labels.square() + 2 * product).clamp_min(0).sqrt()
    error = torch.stack([root - labels, -root - labels], 1)[..., None]
    return _LayerInputs(layer.gradient / error, error, labels[:, None].expand(-1, 2))


def _of_classes(layer: _AffineLayer) -> _LayerInputs:
    """Solve for the scale of an output layer under cross-entropy."""
    # The gradient is a u' with a unit vector a; the input is s u and the error a / s, which has to be the softmax of s
    # W u less the label's unit vector. The label y is where a is negative, so that s (1 - p_y) = |a_y|.
    left = torch.linalg.svd(layer.gradient, full_matrices=False)[0][..., 0]
    # A silent unit of the layer below is silent here, to the last bit.
    error = torch.stack([left, -left], 1)
    inputs = error @ layer.gradient
    logits = inputs @ layer.weight.mT
    labels = error.argmin(-1, keepdim=True)
    margins = logits - logits.gather(-1, labels)
    margins = margins.scatter(-1, labels, -torch.inf)
    least = -error.gather(-1, labels).clamp_max(-torch.finfo(error.dtype).tiny)

    def beyond(powers: Float[Tensor, "victim sign place"]) -> Float[Tensor, "victim sign place"]:
        """Return log s (1 - p_y) / |a_y| where s is |a_y| e^power."""
        others = (margins[..., None, :] * (least * powers.exp())[..., None]).logsumexp(-1)
        return powers + nn.functional.logsigmoid(others)

    places = torch.linspace(0, _POWERS, _PLACES, dtype=error.dtype, device=error.device)
    values = beyond(places.expand(*least.shape[:2], -1))
    turns = (values[..., 1:] > 0) != (values[..., :-1] > 0)
    # The first turns come first; where there is none the nearest place stands for it, two roots in one by rounding.
    order = turns * torch.arange(_PLACES - 1, 0, -1, device=error.device)
    rank, chosen = order.topk(_ROOTS, -1)
    nearest = nn.functional.one_hot(values.argmax(-1), _PLACES).bool() & ~turns.any(-1, keepdim=True)
    low, high = places[chosen], places[chosen + 1]
    rising = values.gather(-1, chosen) <= 0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        up = (beyond(middle) <= 0) == rising
        low, high = torch.where(up, middle, low), torch.where(up, high, middle)
    powers = torch.where(rank > 0, (low + high) / 2, torch.nan)
    fallback = torch.where(nearest.any(-1), places[nearest.int().argmax(-1)], torch.nan)[..., None]
    scale = least * torch.cat([powers, fallback], -1).exp()
    return _LayerInputs(
        (scale[..., None] * inputs[:, :, None]).flatten(1, 2),
        (error[:, :, None] / scale[..., None]).flatten(1, 2),
        labels.expand(-1, -1, _ROOTS + 1).flatten(1).to(error.dtype),
    )


def _down(above: _AffineLayer, below: _AffineLayer, candidates: _LayerInputs) -> _LayerInputs:
    """Return the candidates at the layer below one whose input and error are known."""
    assert below.activation is not None
    open_ = None
    if isinstance(below.activation, nn.ReLU):
        # A unit with output 0 has no gradient.
        size = below.gradient.abs().amax(-1)
        open_ = (size > size.amax(-1, keepdim=True) * 1e-12)[:, None]
    outputs, slope = _undone(below.activation, candidates.inputs, open_)
    error = (candidates.error @ above.weight) * slope
    active = (slope > 0)[..., None].to(error.dtype)
    square = error.square().sum(-1, keepdim=True)
    weight = below.weight[:, None] * active
    normal = weight.mT @ weight + torch.eye(weight.shape[-1], dtype=weight.dtype, device=weight.device)
    wanted = (outputs[..., None, :] @ weight)[..., 0, :] + error @ below.gradient / square
    there = wanted.isfinite().all(-1, keepdim=True)
    inputs = torch.linalg.solve(normal.nan_to_num(), wanted.where(there, torch.zeros_like(wanted)))
    return _LayerInputs(inputs.where(there, torch.full_like(inputs, torch.nan)), error, candidates.labels)


def _undone(
    activation: nn.Module,
    outputs: Float[Tensor, "victim candidate unit"],
    open_: Bool[Tensor, "victim one unit"] | None,
) -> tuple[Float[Tensor, "victim candidate unit"], Float[Tensor, "victim candidate unit"]]:
    """Return an activation's inputs and its derivative there, 0 where these are unknown."""
    if open_ is not None:
        slope = open_.to(outputs.dtype).expand_as(outputs)
        return outputs * slope, slope
    if isinstance(activation, nn.LeakyReLU):
        slope = torch.ones_like(outputs).masked_fill(outputs < 0, activation.negative_slope)
        return outputs / slope, slope
    if isinstance(activation, nn.Tanh):
        inside = outputs.clamp(_EDGE - 1, 1 - _EDGE)
        return inside.atanh(), 1 - inside.square()
    inside = outputs.clamp(_EDGE, 1 - _EDGE)
    return inside.logit(), inside * (1 - inside)


def _reproducing(
    candidates: _LayerInputs, labels: Float[Tensor, "victim candidate"], view: GradientView
) -> _LayerInputs:
    """Return the candidates whose own gradient is at most twice as far from the received one as the nearest's."""
    first = next(iter(view.gradient.values()))
    rows = candidates.inputs.to(first.dtype)[:, :, None]
    dummies = gradient(view.model, rows, labels.to(first.dtype)[..., None], view.parameters)
    apart = sum((dummies[name] - g[:, None]).flatten(2).double().square().sum(-1) for name, g in view.gradient.items())
    size = sum(g.flatten(1).double().square().sum(-1) for g in view.gradient.values())
    assert isinstance(apart, Tensor)
    assert isinstance(size, Tensor)
    off = (apart / size[:, None]).sqrt().nan_to_num(nan=torch.inf)
    worse = off > 2 * off.amin(1, keepdim=True) + 100 * torch.finfo(first.dtype).eps
    return candidates._replace(inputs=candidates.inputs.masked_fill(worse[..., None], torch.nan))
