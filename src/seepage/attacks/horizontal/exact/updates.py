"""Updates of several local steps (FedAvg): as one gradient in the middle of the way, or by simulating the steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.horizontal.exact.adaptive import first_gradient
from seepage.attacks.horizontal.exact.chains import affine_layers
from seepage.attacks.horizontal.matching.adam_step import AdamStep
from seepage.attacks.horizontal.matching.engine import DifferentiatedEngine, has_closed_form
from seepage.attacks.horizontal.matching.matching import Losses, Matching, PerTensor, Rows, products
from seepage.attacks.horizontal.matching.unrolled import Unrolled
from seepage.learning import LocalTraining, local_update
from seepage.tabular.align import match, pairwise_error, reorder
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, KnownDefense, UpdateView


@dataclass(frozen=True)
class Way:
    """The way of a client through its local steps, seen as one step along a mean gradient."""

    moved: float  # factor of the mean gradient in the update
    share: float  # part of the way behind the client where gradients were taken, on average
    decayed: float = 0.0  # factor of the parameters at the start in the update, by weight decay
    back: float = 0.0  # factor of the update in what weight decay added, as parameters shrink

    @classmethod
    def of(cls, training: LocalTraining, records: int) -> Way:
        """Return the way of a client with so many records."""
        # Steps enter the update by their factors (``LocalTraining.factors``): the gradient for the share of its batches
        # in an accumulation, weight decay times the parameters in full.
        steps = training.steps(records)
        if training.plain or training.optimizer != "sgd":
            # Adam's steps have the rate's length, whatever the gradient.
            constant = training.schedule == "constant"
            moved = training.learning_rate * steps if constant else sum(training.rates(records))
            return cls(float(moved), (steps - 1) / (2 * steps))
        rates, groups, momentum = training.rates(records), training.groups(records), float(training.momentum)
        full = [len(group) / training.accumulation for group in groups] * training.epochs
        factors = training.factors(records)
        moved = sum(c * w for c, w in zip(factors, full, strict=True))
        reached, buffer, places = 0.0, 0.0, []
        for rate, weight in zip(rates, full, strict=True):
            places.append(reached / moved)
            buffer = momentum * buffer + weight
            reached += rate * (weight + momentum * buffer if training.nesterov else buffer)
        share = sum(c * w * place for c, w, place in zip(factors, full, places, strict=True)) / moved
        decay = float(training.weight_decay)
        back = decay * sum(c * place for c, place in zip(factors, places, strict=True))
        return cls(moved, share, decay * sum(factors), back)


def midway(view: UpdateView, records: int, defense: KnownDefense) -> tuple[GradientView, KnownDefense]:
    """Return updates as mean gradients, taken at the clients' mean position.

    T plain steps at rate r return r times the sum of gradients at T points of a nearly straight way, all of which are
    assumed at its mean point, the share (T - 1) / 2T; the error is of second order in r. Momentum, schedules and
    accumulation change the factor and the point (``Way``); weight decay is taken off. One step is exact. Of Adam signs
    are left (``first_gradient``), so that a defense is returned that sends signs; where only signs were sent, the
    length of the way is unknown, and its start is taken. See docs/methods/fedavg.md.

    Source: SME (Zhu, Yao, Blaschko, ICML 2023), which optimises the share too, see ``surrogate``.
    """
    if view.training.optimizer != "sgd":
        return GradientView(view.model, first_gradient(view, records).gradient), replace(
            defense, name=view.training.optimizer if defense.name == "none" else defense.name, signs=True
        )
    step, begin = Way.of(view.training, records), view.model.parameters
    gradient = {name: u / step.moved for name, u in view.update.items()}
    norm = None if defense.norm is None else defense.norm / step.moved
    defense = replace(defense, noise=defense.noise / step.moved, norm=norm)
    if step.decayed and not defense.signs:
        # Entries that were not sent, as zeros, say nothing.
        gradient = {
            name: torch.where(
                (view.update[name] == 0) & (defense.kept < 1),
                g,
                g * (1 + step.back) - begin[name].detach() * (step.decayed / step.moved),
            )
            for name, g in gradient.items()
        }
    if step.share == 0 or defense.signs:
        return GradientView(view.model, gradient), defense
    return GradientView(view.model, gradient, {n: begin[n] - step.share * u for n, u in view.update.items()}), defense


def moved_by(view: UpdateView, records: int) -> float:
    """Return the factor of a mean gradient over all records in an update: rate times steps for plain SGD."""
    return Way.of(view.training, records).moved


class Simulated:
    """The distance of an update that dummy records would have caused, local step by local step.

    Each epoch has records of its own, whose means are to agree (Dimitrov et al., TMLR 2022, as TabLeak's code uses
    it): weight / E^2 * the sum over pairs of epochs of |mean rows - mean rows|^2 / d. Rows have a record for each epoch
    and record of the one client, or are one epoch's, for all.
    """

    def __init__(self, view: UpdateView, matching: Matching, weight: float, records: int) -> None:
        self._engine = _engine(view, matching, records)
        self._epochs, self._weight = view.training.epochs, weight

    def __call__(self, rows: Rows, labels: Float[Tensor, "victim labelled"]) -> tuple[Losses, Rows]:
        """Return the loss of each restart and its derivative with respect to the rows."""
        epochs = rows.unflatten(2, (-1, labels.shape[1]))
        loss, derivative = self._engine(self._all_epochs(epochs), labels)
        if epochs.shape[2] < self._epochs:
            derivative = derivative.sum(2, keepdim=True)
        apart, by_mean = _apart(epochs.mean(3))
        derivative = derivative.add(by_mean[:, :, :, None], alpha=self._weight / epochs.shape[3])
        return loss + self._weight * apart, derivative.flatten(2, 3)

    def loss(self, rows: Rows, labels: Float[Tensor, "victim labelled"]) -> Losses:
        """Return the distance of each restart, without the prior."""
        return self._engine.loss(self._all_epochs(rows.unflatten(2, (-1, labels.shape[1]))), labels)

    def _all_epochs(self, epochs: Tensor) -> Tensor:
        return epochs.expand(-1, -1, self._epochs, -1, -1)


def _engine(view: UpdateView, matching: Matching, records: int) -> Unrolled | AdamStep | Backpropagated:
    """Return the fastest way through the client's steps that there is."""
    layers = affine_layers(view.model.module) if has_closed_form(view.model.form) else None
    if layers is not None and view.training.plain:
        return Unrolled(view, matching, layers)
    if layers is not None and AdamStep.fits(view, records):
        return AdamStep(view, matching, layers)
    return Backpropagated(view, matching)


def _apart(
    means: Float[Tensor, "victim restart epoch encoded"],
) -> tuple[Float[Tensor, "victim restart"], Float[Tensor, "victim restart epoch encoded"]]:
    """Return the distance between epochs' mean rows, and the derivative with respect to them."""
    epochs, width = means.shape[2:]
    away = means - means.mean(2, keepdim=True)
    # The mean over pairs of squared distances is twice the variance.
    return 2 * away.square().sum((2, 3)) / (epochs * width), 4 * away / (epochs * width)


class Backpropagated(DifferentiatedEngine):
    """As above by backpropagation, for any module; rows have an axis of epochs before that of records."""

    def __init__(self, view: UpdateView, matching: Matching) -> None:
        super().__init__(view.model, view.update, matching)
        self._training = view.training

    def _products(self, rows: Tensor, labels: Tensor, *others: Tensor) -> tuple[PerTensor, PerTensor]:
        repeated = labels[:, None, None].expand(rows.shape[:-1]).flatten(0, 1)
        dummy = local_update(self._model, rows.flatten(0, 1), repeated, self._training)
        return products({name: u.unflatten(0, rows.shape[:2]) for name, u in dummy.items()}, self._received)


def merge_epochs(encoder: Encoder, rows: Rows, epochs: int) -> Float[Tensor, "victim restart one encoded"]:
    """Return the mean of the epochs' dummy records, matched to the first epoch's; rows come epoch after epoch."""
    if epochs == 1:
        return rows
    apart = rows.unflatten(2, (epochs, -1)).flatten(0, 1)
    cells = encoder.decode(apart)
    aligned = reorder(apart, match(pairwise_error(encoder.schema, cells, cells[:, :1])))
    return aligned.mean(1).view(*rows.shape[:2], -1, rows.shape[-1])
