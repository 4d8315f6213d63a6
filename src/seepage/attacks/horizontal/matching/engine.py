"""The derivative of a gradient-matching loss with respect to dummy rows, for all victims and restarts at once.

``match`` chooses the engine: networks of known layers (fully connected ReLU networks, and seepage's own with batch
normalisation) get a closed form of matrix products only, any other module double backpropagation. Both return the same
numbers up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.attacks.horizontal.exact.chains import chain_of, parts_of
from seepage.attacks.horizontal.exact.layers import Pass, Size, direction_of
from seepage.attacks.horizontal.matching.matching import (
    Distance,
    Labels,
    Losses,
    Matching,
    PerTensor,
    Rows,
    products,
    target_of,
)
from seepage.learning import gradient
from seepage.models.message import PLAIN, MessageForm
from seepage.models.model import Head, Model
from seepage.wire.horizontal import GradientView


@runtime_checkable
class Engine(Protocol):
    """The matching loss of dummy rows and its derivative with respect to them."""

    def __call__(self, rows: Rows, labels: Float[Tensor, "victim labelled"]) -> tuple[Losses, Rows]:
        """Return the loss of each restart and its derivative with respect to the rows."""
        ...

    def loss(self, rows: Rows, labels: Float[Tensor, "victim labelled"]) -> Losses:
        """Return the loss of each restart."""
        ...


def match(view: GradientView, matching: Matching) -> Engine:
    """Return the fastest engine that fits the view's model."""
    parts = parts_of(view.model.module) if has_closed_form(view.model.form) else None
    return AutogradEngine(view, matching) if parts is None else ClosedFormEngine(view, matching, parts)


class JointEngine:
    """The mean of several engines' losses, so that dummy rows match all of their messages at once."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engines = engines

    def __call__(self, rows: Rows, labels: Labels) -> tuple[Losses, Rows]:
        """Return the loss of each restart and its derivative with respect to the rows."""
        loss, derivative = self._engines[0](rows, labels)
        for engine in self._engines[1:]:
            term, by_rows = engine(rows, labels)
            loss, derivative = loss + term, derivative + by_rows
        return loss / len(self._engines), derivative / len(self._engines)

    def loss(self, rows: Rows, labels: Labels) -> Losses:
        """Return the loss of each restart."""
        return torch.stack([engine.loss(rows, labels) for engine in self._engines]).mean(0)


class DifferentiatedEngine:
    """The distance of a message that dummy rows would have caused, by backpropagation through any module."""

    def __init__(self, model: Model, received: dict[str, Tensor], matching: Matching) -> None:
        self._model, self._received, self._matching = model, received, matching
        self._target = target_of(received)

    def _products(self, rows: Tensor, labels: Tensor, *others: Tensor) -> tuple[PerTensor, PerTensor]:
        raise NotImplementedError

    def _differentiated(self, rows: Tensor, labels: Tensor, *others: Tensor) -> tuple[Losses, tuple[Tensor, ...]]:
        """Return the loss of each restart, and the derivatives with respect to rows and further variables."""
        with torch.enable_grad():
            rows = rows.detach().requires_grad_()
            dots, squares = self._products(rows, labels, *others)
            distance = self._matching(dots.detach(), squares.detach(), *self._target)
            total = (dots * distance.by_dot + squares * distance.by_square).sum()
            return distance.loss, torch.autograd.grad(total, (rows, *others))

    def __call__(self, rows: Tensor, labels: Labels) -> tuple[Losses, Tensor]:
        """Return the loss of each restart and its derivative with respect to the rows."""
        loss, (derivative,) = self._differentiated(rows, labels)
        return loss, derivative

    def loss(self, rows: Tensor, labels: Labels) -> Losses:
        """Return the loss of each restart."""
        with torch.no_grad():
            return self._matching(*self._products(rows, labels), *self._target).loss


class AutogradEngine(DifferentiatedEngine):
    """The distance of gradients, by double backpropagation."""

    def __init__(self, view: GradientView, matching: Matching) -> None:
        super().__init__(view.model, view.gradient, matching)
        self._parameters = view.parameters

    def _products(self, rows: Tensor, labels: Tensor, *others: Tensor) -> tuple[PerTensor, PerTensor]:
        repeated = labels[:, None].expand(rows.shape[:3])
        return products(gradient(self._model, rows, repeated, self._parameters), self._received)


class ClosedFormEngine:
    """Networks of the layers that ``chains.parts_of`` knows, without a graph: only matrix products, see ``layers``.

    In a plain ReLU network, with ``a`` the input of a layer, ``e`` the error at its output and V = c R + 2 s G (R the
    received gradient, G the dummy one, c and s the distance's derivatives by dot product and squared norm), it needs
    one sweep up (a V', through the errors) and one down (e V, through the activations).
    """

    def __init__(self, view: GradientView, matching: Matching, parts: Sequence[nn.Module]) -> None:
        self._matching, self._target = matching, target_of(view.gradient)
        self._head: Head = view.model.head
        self._form = view.model.form
        module = view.model.module
        weights = [p.detach() for p in module.parameters()] if view.parameters is None else [*view.parameters.values()]
        self._chain = chain_of(parts, module, weights, list(view.gradient.values()))

    def __call__(self, rows: Rows, labels: Labels) -> tuple[Losses, Rows]:
        """Return the loss of each restart and its derivative with respect to the rows."""
        with torch.no_grad():
            distance, passes, curvature = self._forward(rows, labels)
            direction = direction_of(distance)
            by_error = passes.push(direction, None)
            return distance.loss, passes.pull(direction, curvature(by_error)).view(rows.shape)

    def loss(self, rows: Rows, labels: Labels) -> Losses:
        """Return the loss of each restart."""
        with torch.no_grad():
            return self._forward(rows, labels)[0].loss

    def _forward(self, rows: Tensor, labels: Tensor) -> tuple[Distance, Pass, Callable[[Tensor], Tensor]]:
        size = Size(*rows.shape[:3])
        passes, outputs = self._chain(size, rows.reshape(-1, rows.shape[-1]))
        repeated = labels[:, None].expand(size).reshape(-1)
        error, curvature = output_error(self._head, outputs, repeated, size.records, self._form)
        passes.back(error, needed=False)
        dots, squares = (torch.stack(products, dim=-1) for products in zip(*passes.products(), strict=True))
        return self._matching(dots, squares, *self._target), passes, curvature


def has_closed_form(form: MessageForm) -> bool:
    """Return whether ``output_error`` has a formula for the loss of a form."""
    return form.loss == "cross_entropy"


def output_error(
    head: Head, outputs: Tensor, labels: Tensor, records: int, form: MessageForm = PLAIN
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return the derivative of the loss by the outputs, and the product of its second derivative with a vector.

    Labels are those of one batch of so many ``records`` after the other, whose loss is the mean in a plain form.
    """
    if head == "regression":
        share = float(form.scale) / (1 if form.reduction == "sum" else records)
        return 2 * (outputs - labels[..., None].to(outputs.dtype)) * share, lambda v: 2 * v * share
    if not form.plain:
        return _output_error(head, outputs, labels, records, form)
    if head == "softmax":
        # Over the first axis all records are worked on at once: PyTorch goes record by record over the last one.
        p = outputs.movedim(-1, 0).softmax(0).movedim(0, -1).contiguous()
        classes = torch.arange(outputs.shape[-1], device=outputs.device)
        error = (p - (labels[..., None] == classes).to(p.dtype)) / records
        return error, lambda v: p * (v - (p * v).sum(-1, keepdim=True)) / records
    p = outputs.sigmoid()
    return (p - labels[..., None].to(p.dtype)) / records, lambda v: p * (1 - p) * v / records


def _output_error(
    head: Head, outputs: Tensor, labels: Tensor, records: int, form: MessageForm
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return ``output_error`` of cross-entropy with weights, smoothing, another reduction or a factor."""
    batches = labels.reshape(-1, records).unbind(0)
    shares = torch.stack([form.share(head, batch.to(outputs.dtype)) for batch in batches])
    share = shares.repeat_interleave(records).view(labels.shape)[..., None]
    classes = 2 if head == "sigmoid" else outputs.shape[-1]
    pulls = form.pulls(classes, outputs)
    code = labels.long()
    total, pulled = pulls.sum(1, keepdim=True)[code] * share, pulls[code][..., -outputs.shape[-1] :] * share
    if head == "sigmoid":
        p = outputs.sigmoid()
        return total * p - pulled, lambda v: total * p * (1 - p) * v
    p = outputs.softmax(-1)
    return total * p - pulled, lambda v: total * p * (v - (p * v).sum(-1, keepdim=True))
