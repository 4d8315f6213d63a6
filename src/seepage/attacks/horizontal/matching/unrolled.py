"""The derivative of an update's distance through a client's local steps, in closed form for ReLU networks.

Every dummy client trains on its own, so that each has weights of its own after the first step: all of them go through
the steps together, as batched matrix products.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.attacks.horizontal.matching.engine import output_error
from seepage.attacks.horizontal.matching.matching import Distance, Labels, Losses, Matching, target_of
from seepage.wire.horizontal import UpdateView

Epochs = Float[Tensor, "victim restart epoch record encoded"]


class StepRun(NamedTuple):
    """Values of a local step that going back needs, by dummy client; layers' inputs have a last column of ones."""

    inputs: list[Tensor]
    errors: list[Tensor]
    outputs: Tensor
    labels: Tensor


class ClosedFormSteps:
    """The distance of an update of one client that dummy records would have caused in a ReLU network.

    Weights and biases are stored as one matrix a layer, whose last column multiplies a one.
    """

    def __init__(self, view: UpdateView, matching: Matching, layers: list[nn.Linear]) -> None:
        self._view, self._matching = view, matching
        self._begin = [torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach() for layer in layers]
        received = list(view.update.values())
        self._received = [
            torch.cat([w, b[..., None]], dim=2) for w, b in zip(received[::2], received[1::2], strict=True)
        ]
        self._target = target_of(view.update)

    def loss(self, epochs: Epochs, labels: Labels) -> Losses:
        """Return the distance of each restart."""
        with torch.no_grad():
            return self._distance(self._updates(epochs, labels), epochs.shape[:2]).loss

    def _updates(self, epochs: Tensor, labels: Tensor) -> list[Tensor]:
        """Return each dummy client's update, layer by layer."""
        raise NotImplementedError

    def _forward(self, weights: list[Tensor], rows: Tensor, labels: Tensor) -> StepRun:
        inputs, outputs = [], rows
        for i, weight in enumerate(weights):
            inputs.append(nn.functional.pad(outputs.clamp_min(0) if i else outputs, (0, 1), value=1.0))
            outputs = inputs[-1] @ weight.mT
        error, _ = output_error(self._view.model.head, outputs, labels, rows.shape[1], self._view.model.form)
        errors = [error]
        for i in range(len(weights) - 1, 0, -1):
            error = through(error @ weights[i][..., :-1], inputs[i])
            errors.insert(0, error)
        return StepRun(inputs, errors, outputs, labels)

    def _distance(self, updates: list[Tensor], shape: torch.Size) -> Distance:
        # Weights and bias of a layer count as two tensors.
        split = [
            (dummy.view(*shape, *dummy.shape[1:])[..., part], true[:, None, :, part])
            for dummy, true in zip(updates, self._received, strict=True)
            for part in (slice(None, -1), slice(-1, None))
        ]
        dots = torch.stack([(dummy * true).sum((2, 3)) for dummy, true in split], dim=-1)
        squares = torch.stack([dummy.square().sum((2, 3)) for dummy, _ in split], dim=-1)
        return self._matching(dots, squares, *self._target)

    def _by_updates(self, distance: Distance, updates: list[Tensor]) -> list[Tensor]:
        """Return the distance's derivative with respect to the updates."""
        derivatives = []
        for i, (update, true) in enumerate(zip(updates, self._received, strict=True)):
            inputs = update.shape[2] - 1
            by_dot, by_square = (
                torch.cat([by[..., 2 * i, None].expand(*by.shape[:2], inputs), by[..., 2 * i + 1, None]], -1)
                for by in (distance.by_dot, distance.by_square)
            )
            by_update = (by_dot[:, :, None] * true[:, None]).flatten(0, 1)
            derivatives.append(by_update.addcmul_(by_square.flatten(0, 1)[:, None], update, value=2))
        return derivatives


class Unrolled(ClosedFormSteps):
    """The distance of an update by several steps of plain SGD, and its derivative with respect to the records.

    A step maps weights W and records X to W - r G(W, X). So the derivative A by the weights after a step becomes A - r
    H A before it, with H the Hessian of the step's loss, and -r times the mixed derivative of the loss, times A, with
    respect to the records: one pass up the network (the effect of moving the weights along A on the activations) and
    one down (to the errors). The weights before a step are those after it plus r G: only activations and errors are
    kept.
    """

    def __call__(self, epochs: Epochs, labels: Labels) -> tuple[Losses, Epochs]:
        """Return the distance of each restart and its derivative by the records, in the client's order of use."""
        with torch.no_grad():
            weights, steps = self._train(epochs, labels)
            updates = [begin - end for begin, end in zip(self._begin, weights, strict=True)]
            distance = self._distance(updates, epochs.shape[:2])
            # Records of a batch that is dropped have none.
            derivative = torch.zeros_like(epochs)
            flat = derivative.flatten(0, 1)
            local = self._view.training.batches(epochs.shape[3])
            batches = [(epoch, batch) for epoch in range(epochs.shape[2]) for batch in local]
            adjoint = [-by_update for by_update in self._by_updates(distance, updates)]
            for (epoch, batch), step in zip(reversed(batches), reversed(steps), strict=True):
                flat[:, epoch, batch] = self._back(weights, adjoint, step)
            return distance.loss, derivative

    def _updates(self, epochs: Tensor, labels: Tensor) -> list[Tensor]:
        return [begin - end for begin, end in zip(self._begin, self._train(epochs, labels)[0], strict=True)]

    def _train(self, epochs: Tensor, labels: Tensor) -> tuple[list[Tensor], list[StepRun]]:
        """Return each dummy client's weights after its training, and its steps."""
        victims, restarts, count, records, _ = epochs.shape
        rows = epochs.reshape(victims * restarts, count, records, -1)
        repeated_labels = labels.repeat_interleave(restarts, dim=0)
        weights = [w.expand(len(rows), *w.shape).contiguous() for w in self._begin]
        steps = []
        for epoch in range(count):
            for batch in self._view.training.batches(records):
                step = self._forward(weights, rows[:, epoch, batch], repeated_labels[:, batch])
                steps.append(step)
                for w, a, e in zip(weights, step.inputs, step.errors, strict=True):
                    w.baddbmm_(e.transpose(1, 2), a, alpha=-self._view.training.learning_rate)
        return weights, steps

    def _back(self, weights: list[Tensor], adjoint: list[Tensor], step: StepRun) -> Tensor:
        """Go back one step: weights and adjoint become those before it; return the derivative for its records."""
        rate = self._view.training.learning_rate
        for w, a, e in zip(weights, step.inputs, step.errors, strict=True):
            w.baddbmm_(e.transpose(1, 2), a, alpha=rate)
        # Effect of moving the weights along the adjoint on inputs (pass up) and on errors (pass down).
        along = step.inputs[0] @ adjoint[0].transpose(1, 2)
        moved = []
        for i in range(1, len(weights)):
            moved.append(through(along, step.inputs[i]))
            back = weights[i][:, :, :-1].transpose(1, 2)
            along = torch.baddbmm(step.inputs[i] @ adjoint[i].transpose(1, 2), moved[-1], back)
        _, curvature = output_error(
            self._view.model.head, step.outputs, step.labels, along.shape[1], self._view.model.form
        )
        error = curvature(along)
        for i in range(len(weights) - 1, 0, -1):
            down = torch.baddbmm(error @ weights[i][:, :, :-1], step.errors[i], adjoint[i][:, :, :-1])
            adjoint[i].baddbmm_(error.transpose(1, 2), step.inputs[i], alpha=-rate)
            adjoint[i][:, :, :-1].baddbmm_(step.errors[i].transpose(1, 2), moved[i - 1], alpha=-rate)
            error = through(down, step.inputs[i])
        down = torch.baddbmm(error @ weights[0][:, :, :-1], step.errors[0], adjoint[0][:, :, :-1])
        adjoint[0].baddbmm_(error.transpose(1, 2), step.inputs[0], alpha=-rate)
        return down.mul_(-rate)


def through(
    t: Float[Tensor, "*batch input"], inputs: Float[Tensor, "*batch extended"]
) -> Float[Tensor, "*batch input"]:
    """Set entries to zero where the outputs of a ReLU (with a last column of ones) are, and return them."""
    return torch.ops.aten.threshold_backward.grad_input(t, inputs[..., :-1], 0, grad_input=t)
