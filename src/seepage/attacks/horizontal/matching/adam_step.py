"""The distance of a single step of Adam or AdamW and its derivative, in closed form for ReLU networks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seepage.attacks.horizontal.matching.engine import output_error
from seepage.attacks.horizontal.matching.matching import Labels, Losses
from seepage.attacks.horizontal.matching.unrolled import ClosedFormSteps, Epochs, StepRun, through
from seepage.wire.horizontal import UpdateView


class AdamStep(ClosedFormSteps):
    """The distance of the update that one step over all dummy records would have caused, and its derivative.

    A first step moves weights by rate times G / (|G| + epsilon), whose derivative by the gradient G is rate times
    epsilon / (|G| + epsilon)^2, entry by entry; the rest is as in ``Unrolled``, with weights that all clients share.
    """

    @staticmethod
    def fits(view: UpdateView, records: int) -> bool:
        """Return whether clients with so many records took a single step of Adam, over a single batch."""
        training = view.training
        return training.optimizer != "sgd" and training.epochs == len(training.batches(records)) == 1

    def __call__(self, epochs: Epochs, labels: Labels) -> tuple[Losses, Epochs]:
        """Return the distance of each restart and its derivative with respect to the records of the only epoch."""
        training = self._view.training
        with torch.no_grad():
            run = self._forward(self._begin, *self._batch(epochs, labels))
            updates, sizes = self._stepped(run)
            distance = self._distance(updates, epochs.shape[:2])
            by_gradient = [
                by_update.div_(size).div_(size).mul_(training.learning_rate * training.epsilon)
                for by_update, size in zip(self._by_updates(distance, updates), sizes, strict=True)
            ]
            down = self._pull(run, by_gradient)
            left_out = epochs.shape[3] - down.shape[1]
            return distance.loss, nn.functional.pad(down, (0, 0, 0, left_out)).view(epochs.shape)

    def _updates(self, epochs: Tensor, labels: Tensor) -> list[Tensor]:
        return self._stepped(self._forward(self._begin, *self._batch(epochs, labels)))[0]

    def _batch(self, epochs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        # Records of a batch that is dropped move nothing.
        [used] = self._view.training.batches(epochs.shape[3])
        return epochs.flatten(0, 1)[:, 0, used], labels.repeat_interleave(epochs.shape[1], dim=0)[:, used]

    def _stepped(self, run: StepRun) -> tuple[list[Tensor], list[Tensor]]:
        """Return each layer's update, and the size of its gradient plus epsilon."""
        training, updates, sizes = self._view.training, [], []
        for weight, a, e in zip(self._begin, run.inputs, run.errors, strict=True):
            gradient = e.transpose(1, 2) @ a
            if training.optimizer == "adam" and training.weight_decay:
                gradient.add_(weight, alpha=training.weight_decay)
            sizes.append(gradient.abs().add_(training.epsilon))
            update = gradient.div_(sizes[-1]).mul_(training.learning_rate)
            if training.optimizer == "adamw" and training.weight_decay:
                update.add_(weight, alpha=training.learning_rate * training.weight_decay)
            updates.append(update)
        return updates, sizes

    def _pull(self, run: StepRun, by_gradient: list[Tensor]) -> Tensor:
        """Return the derivative with respect to the records."""
        # Effect of moving the weights along it on inputs (pass up) and on errors (pass down).
        along = run.inputs[0] @ by_gradient[0].transpose(1, 2)
        for i in range(1, len(self._begin)):
            moved = through(along, run.inputs[i])
            along = torch.baddbmm(moved @ self._begin[i][:, :-1].T, run.inputs[i], by_gradient[i].transpose(1, 2))
        _, curvature = output_error(
            self._view.model.head, run.outputs, run.labels, along.shape[1], self._view.model.form
        )
        error = curvature(along)
        for i in range(len(self._begin) - 1, -1, -1):
            error = torch.baddbmm(error @ self._begin[i][:, :-1], run.errors[i], by_gradient[i][:, :, :-1])
            if i:
                error = through(error, run.inputs[i])
        return error
