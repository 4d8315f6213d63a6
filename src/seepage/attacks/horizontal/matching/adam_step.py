"""The distance of a single step of Adam or AdamW and its derivative, in closed form for ReLU networks."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.attacks.horizontal.matching.engine import output_error
from seepage.attacks.horizontal.matching.matching import Distance, Matching, target_of
from seepage.attacks.horizontal.matching.unrolled import through, with_ones
from seepage.wire.horizontal import UpdateView


class _Run(NamedTuple):
    """Values of a step that its derivative needs, with the dummy clients as leading axis.

    Attributes:
        inputs: inputs of each layer, with a last column of ones.
        below: size of each layer's gradient plus epsilon.
    """

    inputs: list[Tensor]
    errors: list[Tensor]
    outputs: Tensor
    below: list[Tensor]
    updates: list[Tensor]


class AdamStep:
    """The distance of the update that one step over all dummy records would have caused, and its derivative.

    A first step moves weights by rate times G / (|G| + epsilon), G the gradient, whose derivative with respect to G is
    rate times epsilon / (|G| + epsilon)^2, entry by entry. What that leaves of the distance's derivative is carried on
    to the records as in ``Unrolled``, by one pass up the network and one down; all clients share the weights.
    """

    def __init__(self, view: UpdateView, matching: Matching, layers: list[nn.Linear]) -> None:
        self._view, self._matching = view, matching
        self._weights = [torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach() for layer in layers]
        received = list(view.update.values())
        self._received = [
            torch.cat([w, b[..., None]], dim=2) for w, b in zip(received[::2], received[1::2], strict=True)
        ]
        self._target = target_of(view.update)

    @staticmethod
    def fits(view: UpdateView, records: int) -> bool:
        """Return whether clients with so many records took a single step of Adam, over a single batch."""
        training = view.training
        return training.optimizer != "sgd" and training.epochs == len(training.batches(records)) == 1

    def __call__(
        self,
        epochs: Float[Tensor, "victim restart epoch record encoded"],
        labels: Float[Tensor, "victim record"],
    ) -> tuple[Float[Tensor, "victim restart"], Float[Tensor, "victim restart epoch record encoded"]]:
        """Return the distance of each restart and its derivative with respect to the records of the only epoch."""
        with torch.no_grad():
            batch, repeated = self._batch(epochs, labels)
            run = self._run(batch, repeated)
            distance = self._distance(run.updates, epochs.shape[:2])
            down = self._pull(run, self._by_gradient(run, distance), repeated)
            left_out = epochs.shape[3] - down.shape[1]
            return distance.loss, nn.functional.pad(down, (0, 0, 0, left_out)).view(epochs.shape)

    def loss(
        self, epochs: Float[Tensor, "victim restart epoch record encoded"], labels: Float[Tensor, "victim record"]
    ) -> Float[Tensor, "victim restart"]:
        """Return the distance of each restart."""
        with torch.no_grad():
            return self._distance(self._run(*self._batch(epochs, labels)).updates, epochs.shape[:2]).loss

    def _batch(self, epochs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        # Records of a batch that is dropped move nothing.
        [used] = self._view.training.batches(epochs.shape[3])
        return epochs.flatten(0, 1)[:, 0, used], labels.repeat_interleave(epochs.shape[1], dim=0)[:, used]

    def _run(self, rows: Tensor, labels: Tensor) -> _Run:
        training = self._view.training
        inputs, outputs = [], rows
        for i, weight in enumerate(self._weights):
            inputs.append(with_ones(outputs.clamp_min(0) if i else outputs))
            outputs = inputs[-1] @ weight.T
        error, _ = output_error(self._view.model.head, outputs, labels, rows.shape[1])
        errors = [error]
        for i in range(len(self._weights) - 1, 0, -1):
            error = through(error @ self._weights[i][:, :-1], inputs[i])
            errors.insert(0, error)
        below, updates = [], []
        for weight, a, e in zip(self._weights, inputs, errors, strict=True):
            gradient = e.transpose(1, 2) @ a
            if training.optimizer == "adam" and training.weight_decay:
                gradient.add_(weight, alpha=training.weight_decay)
            below.append(gradient.abs().add_(training.epsilon))
            update = gradient.div_(below[-1]).mul_(training.learning_rate)
            if training.optimizer == "adamw" and training.weight_decay:
                update.add_(weight, alpha=training.learning_rate * training.weight_decay)
            updates.append(update)
        return _Run(inputs, errors, outputs, below, updates)

    def _distance(self, updates: list[Tensor], shape: torch.Size) -> Distance:
        # Weights and bias of a layer count as two tensors.
        split = [
            (own.view(*shape, *own.shape[1:])[..., part], true[:, None, :, part])
            for own, true in zip(updates, self._received, strict=True)
            for part in (slice(None, -1), slice(-1, None))
        ]
        dots = torch.stack([(own * true).sum((2, 3)) for own, true in split], dim=-1)
        squares = torch.stack([own.square().sum((2, 3)) for own, _ in split], dim=-1)
        return self._matching(dots, squares, *self._target)

    def _by_gradient(self, run: _Run, distance: Distance) -> list[Tensor]:
        """Return the distance's derivative with respect to the gradient of each layer."""
        training, derivatives = self._view.training, []
        for i, (update, below, true) in enumerate(zip(run.updates, run.below, self._received, strict=True)):
            inputs = update.shape[2] - 1
            by_dot, by_square = (
                torch.cat([by[..., 2 * i, None].expand(*by.shape[:2], inputs), by[..., 2 * i + 1, None]], -1)
                for by in (distance.by_dot, distance.by_square)
            )
            by_update = (by_dot[:, :, None] * true[:, None]).flatten(0, 1)
            by_update.addcmul_(by_square.flatten(0, 1)[:, None], update, value=2)
            derivatives.append(by_update.div_(below).div_(below).mul_(training.learning_rate * training.epsilon))
        return derivatives

    def _pull(self, run: _Run, by_gradient: list[Tensor], labels: Tensor) -> Tensor:
        """Return the derivative with respect to the records."""
        # Effect of moving the weights along it on inputs (pass up) and on errors (pass down).
        along = run.inputs[0] @ by_gradient[0].transpose(1, 2)
        for i in range(1, len(self._weights)):
            moved = through(along, run.inputs[i])
            along = torch.baddbmm(moved @ self._weights[i][:, :-1].T, run.inputs[i], by_gradient[i].transpose(1, 2))
        _, curvature = output_error(self._view.model.head, run.outputs, labels, along.shape[1])
        error = curvature(along)
        for i in range(len(self._weights) - 1, -1, -1):
            error = torch.baddbmm(error @ self._weights[i][:, :-1], run.errors[i], by_gradient[i][:, :, :-1])
            if i:
                error = through(error, run.inputs[i])
        return error
