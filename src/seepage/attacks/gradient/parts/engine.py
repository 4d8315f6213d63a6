"""The derivative of a gradient-matching loss in the dummy rows, for all victims and restarts at once.

``match`` picks the engine: fully connected ReLU networks get a closed form made of matrix products
only, any other module double backpropagation. Both return the same numbers up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.attacks.gradient.parts.matching import Distance, Matching, target_of
from seepage.attacks.gradient.parts.products import times, times_each
from seepage.learning import gradient
from seepage.models.model import Head
from seepage.views import GradientView


@runtime_checkable
class Engine(Protocol):
    """The matching loss of dummy rows and its derivative in them."""

    def __call__(
        self, rows: Float[Tensor, "victim restart record encoded"], labels: Float[Tensor, "victim labelled"]
    ) -> tuple[Float[Tensor, "victim restart"], Float[Tensor, "victim restart record encoded"]]:
        """Return the loss of each restart and its derivative in the rows."""
        ...

    def loss(
        self, rows: Float[Tensor, "victim restart record encoded"], labels: Float[Tensor, "victim labelled"]
    ) -> Float[Tensor, "victim restart"]:
        """Return the loss of each restart."""
        ...


def match(view: GradientView, matching: Matching) -> Engine:
    """Return the fastest engine that fits the view's model."""
    layers = affine_layers(view.model.module)
    return Autograd(view, matching) if layers is None else ClosedForm(view, matching, layers)


def affine_layers(module: nn.Module) -> list[nn.Linear] | None:
    """Return the affine layers of a plain ReLU network, or None where the module is anything else.

    Example:
        >>> len(affine_layers(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))) or [])
        2
        >>> affine_layers(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))) is None
        True
    """
    parts = [module] if isinstance(module, nn.Linear) else list(module) if type(module) is nn.Sequential else []
    kinds = [nn.Linear if i % 2 == 0 else nn.ReLU for i in range(len(parts))]
    if len(parts) % 2 == 0 or any(type(part) is not kind for part, kind in zip(parts, kinds, strict=True)):
        return None
    layers = [part for part in parts if isinstance(part, nn.Linear)]
    distinct = len({id(layer) for layer in layers}) == len(layers)
    return layers if distinct and not any(_is_special(part) for part in (module, *parts)) else None


def _is_special(part: nn.Module) -> bool:
    """Whether a module does more than its type says: hooks, or parameters that are made from others."""
    hooks = (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks)
    own = [name for name, _ in part.named_parameters(recurse=False)]
    return any(hooks) or (isinstance(part, nn.Linear) and own != ["weight", "bias"])


class Autograd:
    """Double backpropagation through any module."""

    def __init__(self, view: GradientView, matching: Matching) -> None:
        self._view, self._matching, self._target = view, matching, target_of(view.gradient)

    def _distance(self, rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Distance]:
        repeated = labels[:, None].expand(rows.shape[:3])
        dummy = gradient(self._view.model, rows, repeated, self._view.parameters)
        received = self._view.gradient
        dots = torch.stack([(g.flatten(2) * received[n].flatten(1)[:, None]).sum(-1) for n, g in dummy.items()], -1)
        squares = torch.stack([g.flatten(2).square().sum(-1) for g in dummy.values()], -1)
        distance = self._matching(dots.detach(), squares.detach(), *self._target)
        return dots, squares, distance

    def __call__(
        self, rows: Float[Tensor, "victim restart record encoded"], labels: Float[Tensor, "victim record"]
    ) -> tuple[Float[Tensor, "victim restart"], Float[Tensor, "victim restart record encoded"]]:
        """Return the loss of each restart and its derivative in the rows."""
        with torch.enable_grad():
            rows = rows.detach().requires_grad_()
            dots, squares, distance = self._distance(rows, labels)
            total = (dots * distance.by_dot + squares * distance.by_square).sum()
            (derivative,) = torch.autograd.grad(total, rows)
        return distance.loss, derivative

    def loss(
        self, rows: Float[Tensor, "victim restart record encoded"], labels: Float[Tensor, "victim record"]
    ) -> Float[Tensor, "victim restart"]:
        """Return the loss of each restart."""
        with torch.no_grad():
            return self._distance(rows, labels)[2].loss


class ClosedForm:
    """Fully connected ReLU networks, by hand.

    With ``a`` the input of a layer and ``e`` the error at its output, the layer's gradient is
    G = e'a (weights) and e'1 (bias). The derivative of a distance in G is V = c R + 2 s G, with R the
    received gradient and c, s the distance's derivatives in dot product and squared norm. So one
    sweep up the network (a V', through the errors) and one down (e V, through the activations)
    give the derivative in the rows: no graph, only matrix products.

    Where a batch has few records, G (units x inputs) is never formed: norms and pullbacks follow
    from the records' Gram matrices aa' and ee'.
    """

    def __init__(self, view: GradientView, matching: Matching, layers: list[nn.Linear]) -> None:
        self._matching, self._target = matching, target_of(view.gradient)
        self._head: Head = view.model.head
        received = list(view.gradient.values())
        if view.parameters is None:
            held = [part.detach() for layer in layers for part in (layer.weight, layer.bias)]
        else:
            held = list(view.parameters.values())
        self._layers = [
            _Layer(
                weight=weight,
                bias=bias,
                received=gradient,
                received_bias=gradient_bias,
                weight_back=weight.transpose(-2, -1).contiguous(),
                received_back=gradient.transpose(1, 2).contiguous(),
            )
            for weight, bias, gradient, gradient_bias in zip(
                held[::2], held[1::2], received[::2], received[1::2], strict=True
            )
        ]

    def __call__(
        self, rows: Float[Tensor, "victim restart record encoded"], labels: Float[Tensor, "victim record"]
    ) -> tuple[Float[Tensor, "victim restart"], Float[Tensor, "victim restart record encoded"]]:
        """Return the loss of each restart and its derivative in the rows."""
        with torch.no_grad():
            distance, passes, curvature = self._forward(rows, labels)
            # Up: how the distance changes with each layer's error.
            by_error = passes[0].push(distance, 0)
            for i in range(1, len(passes)):
                through = _through(passes[i].mask(by_error), passes[i].layer.weight)
                by_error = through.add_(passes[i].push(distance, i))
            # Down: how it changes with each layer's output, then with its input.
            by_input = passes[-1].pull(distance, len(passes) - 1, curvature(by_error))
            for i in range(len(passes) - 2, -1, -1):
                by_input = passes[i].pull(distance, i, passes[i + 1].mask(by_input))
            return distance.loss, by_input.view(rows.shape)

    def loss(
        self, rows: Float[Tensor, "victim restart record encoded"], labels: Float[Tensor, "victim record"]
    ) -> Float[Tensor, "victim restart"]:
        """Return the loss of each restart."""
        with torch.no_grad():
            return self._forward(rows, labels)[0].loss

    def _forward(self, rows: Tensor, labels: Tensor) -> tuple[Distance, list[_Pass], Callable[[Tensor], Tensor]]:
        victims, restarts, records, _ = rows.shape
        shape = (victims, restarts, records)
        passes: list[_Pass] = []
        outputs = rows.reshape(victims * restarts * records, -1)
        for layer in self._layers:
            inputs = outputs.relu_() if passes else outputs
            passes.append(_Pass(layer, shape, inputs))
            outputs = _through(inputs, layer.weight, layer.bias)
        error, curvature = output_error(self._head, outputs, labels[:, None].expand(shape).reshape(-1), records)
        for i in range(len(passes) - 1, -1, -1):
            passes[i].error = error
            if i > 0:
                error = passes[i].mask(_through(error, passes[i].layer.weight_back))
        products = [each.products() for each in passes]
        dots = torch.stack([dot for pair, _ in products for dot in pair], dim=-1)
        squares = torch.stack([square for _, pair in products for square in pair], dim=-1)
        return self._matching(dots, squares, *self._target), passes, curvature


@dataclass(frozen=True)
class _Layer:
    weight: Float[Tensor, "*victim unit input"]
    bias: Float[Tensor, "*victim unit"]
    received: Float[Tensor, "victim unit input"]
    received_bias: Float[Tensor, "victim unit"]
    weight_back: Float[Tensor, "*victim input unit"]
    received_back: Float[Tensor, "victim input unit"]


class _Pass:
    """One layer's share of a step: its inputs, its errors and what follows from them.

    Tensors are kept flat, (victim*restart*record, width), and viewed by victim for products with
    the received gradient, by restart for products within a batch.
    """

    error: Tensor

    def __init__(self, layer: _Layer, shape: tuple[int, int, int], inputs: Tensor) -> None:
        self.layer, self.inputs = layer, inputs
        self.victims, self.restarts, self.records = shape
        # Forming G costs units x inputs a record, the Gram route records x (units + inputs).
        self._by_gram = 3 * self.records < max(layer.weight.shape[-2:])

    def mask(self, t: Tensor) -> Tensor:
        """Set ``t`` to zero where the input, the output of a ReLU, is; return it."""
        return torch.ops.aten.threshold_backward.grad_input(t, self.inputs, 0, grad_input=t)

    def products(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return dot products with the received gradient and squared norms, for weight and bias."""
        a, e = self._by_restart(self.inputs), self._by_restart(self.error)
        self.total = e.sum(1).view(self.victims, self.restarts, -1)
        dot_bias = (self.total @ self.layer.received_bias[..., None])[..., 0]
        if self._by_gram:
            self.along = times_each(self._by_victim(self.inputs), self.layer.received)
            dot = _dot(e, self._by_restart(self.along)).view(self.victims, self.restarts)
            self.inputs_gram, self.error_gram = a @ a.transpose(1, 2), e @ e.transpose(1, 2)
            square = _dot(self.inputs_gram, self.error_gram)
        else:
            self.dummy = e.transpose(1, 2) @ a
            flat = self.dummy.view(self.victims, self.restarts, -1)
            dot = (flat @ self.layer.received.reshape(self.victims, -1, 1))[..., 0]
            square = torch.linalg.vector_norm(flat, dim=-1).square()
        return (dot, dot_bias), (square.view(self.victims, self.restarts), self.total.square().sum(-1))

    def push(self, distance: Distance, i: int) -> Tensor:
        """Return the distance's derivative in this layer's error, the way through lower layers left out."""
        by_dot, by_square = distance.by_dot[..., 2 * i], 2 * distance.by_square[..., 2 * i]
        bias = distance.by_dot[..., 2 * i + 1, None] * self.layer.received_bias[:, None]
        bias = torch.addcmul(bias, distance.by_square[..., 2 * i + 1, None], self.total, value=2)
        bias = bias.view(-1, 1, bias.shape[-1])
        a = self._by_restart(self.inputs)
        if self._by_gram:
            e = self._by_restart(self.error)
            result = torch.baddbmm(bias, self.inputs_gram * by_square.reshape(-1, 1, 1), e)
            result.addcmul_(by_dot.reshape(-1, 1, 1), self._by_restart(self.along))
        else:
            self.direction = torch.addcmul(
                by_dot[..., None, None] * self.layer.received[:, None],
                by_square[..., None, None],
                self.dummy.view(self.victims, self.restarts, *self.dummy.shape[1:]),
            ).view_as(self.dummy)
            result = torch.baddbmm(bias, a, self.direction.transpose(1, 2))
        return result.view(self.error.shape)

    def pull(self, distance: Distance, i: int, by_output: Tensor) -> Tensor:
        """Return the derivative in this layer's inputs; needs ``push`` before it."""
        result = _through(by_output, self.layer.weight_back)
        e = self._by_restart(self.error)
        if self._by_gram:
            by_dot, by_square = distance.by_dot[..., 2 * i], 2 * distance.by_square[..., 2 * i]
            scaled = self._by_victim(e * by_dot.reshape(-1, 1, 1))
            self._by_victim(result).add_(times_each(scaled, self.layer.received_back))
            gram = self.error_gram * by_square.reshape(-1, 1, 1)
            self._by_restart(result).baddbmm_(gram, self._by_restart(self.inputs))
        else:
            self._by_restart(result).baddbmm_(e, self.direction)
        return result

    def _by_restart(self, t: Tensor) -> Tensor:
        return t.view(self.victims * self.restarts, self.records, -1)

    def _by_victim(self, t: Tensor) -> Tensor:
        return t.view(self.victims, self.restarts * self.records, -1)


def _through(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return rows, victim after victim, times the weights that all victims share or each has of its own."""
    if weight.dim() == 2:
        return times(rows, weight, bias)
    result = times_each(rows.view(len(weight), -1, rows.shape[-1]), weight)
    return (result if bias is None else result.add_(bias[:, None])).view(-1, weight.shape[-2])


def _dot(left: Tensor, right: Tensor) -> Tensor:
    """Return the sum of products over all but the first axis, as a matrix product: one pass, nothing stored."""
    return torch.bmm(left.reshape(len(left), 1, -1), right.reshape(len(right), -1, 1)).view(-1)


def output_error(
    head: Head, outputs: Tensor, labels: Tensor, records: int
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return the mean loss's derivative in the outputs, and the product of its second derivative with a vector."""
    if head == "softmax":
        p = outputs.softmax(-1)
        error = (p - nn.functional.one_hot(labels.long(), outputs.shape[-1])) / records
        return error, lambda v: p * (v - (p * v).sum(-1, keepdim=True)) / records
    if head == "sigmoid":
        p = outputs.sigmoid()
        return (p - labels[..., None].to(p.dtype)) / records, lambda v: p * (1 - p) * v / records
    return 2 * (outputs - labels[..., None].to(outputs.dtype)) / records, lambda v: 2 * v / records
