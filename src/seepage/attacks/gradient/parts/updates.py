"""Updates of several local steps (FedAvg): as one gradient in the middle of the way, or by going the way again."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.gradient.parts.matching import Distance, Matching, target_of
from seepage.knowledge import KnownDefense
from seepage.learning import local_update
from seepage.tabular.align import match, pairwise_error, reorder
from seepage.tabular.encoder import Encoder
from seepage.views import GradientView, UpdateView


def midway(view: UpdateView, records: int, known: KnownDefense) -> tuple[GradientView, KnownDefense]:
    """Return updates as the mean gradients that they are, taken where the clients were on average.

    After T plain steps at rate r the update is r times the sum of T batches' gradients, taken at T places
    on the client's way. The way is nearly straight and both its ends are known, so all of them are taken to be
    at its mean place, the share (T - 1) / 2T of the way; what is neglected is of second order in r. Then
    the update over r T is the mean gradient over all records, whatever the order in which the client went
    through them, and costs an attack no more than FedSGD does.

    Source: SME (Zhu, Yao, Blaschko, ICML 2023), which descends along the share too; it is known in advance here.

    Args:
        view: the received updates.
        records: behind one client's update.
        known: what is known of the defense, which worked on updates.

    Returns:
        Gradients, and the defense as if it had worked on them. Where a defense left nothing but signs, nothing
        is known of how far the client went, and its start is taken.

    Example:
        >>> from torch import nn
        >>> from seepage.learning import LocalTraining
        >>> from seepage.models.model import Model
        >>> model = Model(nn.Linear(1, 1, bias=False), head="regression", name="mine")
        >>> _ = nn.init.zeros_(model.module.weight)
        >>> view = UpdateView(model, {"weight": torch.tensor([[[-1.0]]])}, LocalTraining(2, 8, learning_rate=0.5))
        >>> gradient, _ = midway(view, records=8, known=KnownDefense())
        >>> gradient.gradient["weight"].tolist(), gradient.parameters["weight"].tolist()
        ([[[-1.0]]], [[[0.25]]])
    """
    steps = view.training.steps(records)
    moved = view.training.learning_rate * steps
    gradient = {name: u / moved for name, u in view.update.items()}
    norm = None if known.norm is None else known.norm / moved
    known = replace(known, noise=known.noise / moved, norm=norm)
    share = (steps - 1) / (2 * steps)
    if share == 0 or known.signs:
        return GradientView(view.model, gradient), known
    begin = view.model.parameters
    return GradientView(view.model, gradient, {n: begin[n] - share * u for n, u in view.update.items()}), known


class Simulated:
    """The distance of an update that dummy records would have made, local step by local step.

    Each epoch has records of its own, which are to agree in their mean (Dimitrov et al., TMLR 2022, as TabLeak's
    code uses it): weight / E^2 * the sum over pairs of epochs of |mean rows - mean rows|^2 / d. Any module, by
    backpropagation through the steps; time and memory grow with their number.

    Args:
        view: the received updates, one client each.
        matching: distance between updates.
        weight: of the prior.

    Rows have a record for each epoch and record of the client, epoch after epoch, or are one epoch's, for all.
    """

    def __init__(self, view: UpdateView, matching: Matching, weight: float) -> None:
        self._view, self._matching, self._weight = view, matching, weight
        self._target = target_of(view.update)

    def __call__(
        self, rows: Float[Tensor, "victim restart record encoded"], labels: Float[Tensor, "victim labelled"]
    ) -> tuple[Float[Tensor, "victim restart"], Float[Tensor, "victim restart record encoded"]]:
        """Return the loss of each restart and its derivative in the rows."""
        with torch.enable_grad():
            rows = rows.detach().requires_grad_()
            epochs, dots, squares, distance = self._distance(rows, labels)
            means = epochs.mean(3)
            apart = (means[:, :, :, None] - means[:, :, None]).square().mean(-1).mean((2, 3))
            prior = self._weight * apart
            total = (dots * distance.by_dot + squares * distance.by_square).sum() + prior.sum()
            (derivative,) = torch.autograd.grad(total, rows)
        return distance.loss + prior.detach(), derivative

    def loss(
        self, rows: Float[Tensor, "victim restart record encoded"], labels: Float[Tensor, "victim labelled"]
    ) -> Float[Tensor, "victim restart"]:
        """Return the distance of each restart, without the prior."""
        with torch.no_grad():
            return self._distance(rows, labels)[3].loss

    def _distance(self, rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Distance]:
        training = self._view.training
        victims, restarts, count, width = rows.shape
        records = labels.shape[1]
        epochs = rows.view(victims, restarts, count // records, records, width)
        every = epochs if count > records else epochs.expand(-1, -1, training.epochs, -1, -1)
        repeated = labels[:, None, None].expand(every.shape[:-1])
        dummy = local_update(self._view.model, every.flatten(0, 1), repeated.flatten(0, 1), training)
        split = {name: u.view(victims, restarts, -1) for name, u in dummy.items()}
        received = {name: u.flatten(1)[:, None] for name, u in self._view.update.items()}
        dots = torch.stack([(u * received[name]).sum(-1) for name, u in split.items()], -1)
        squares = torch.stack([u.square().sum(-1) for u in split.values()], -1)
        distance = self._matching(dots.detach(), squares.detach(), *self._target)
        return epochs, dots, squares, distance


def merge_epochs(
    encoder: Encoder, rows: Float[Tensor, "victim restart record encoded"], epochs: int
) -> Float[Tensor, "victim restart one encoded"]:
    """Return the mean of what each epoch's dummy records say, matched to the first epoch's.

    Args:
        encoder: decodes rows for the matching.
        rows: a record for each epoch and record of the client, epoch after epoch.
        epochs: number of them.
    """
    if epochs == 1:
        return rows
    apart = rows.unflatten(2, (epochs, -1)).flatten(0, 1)
    cells = encoder.decode(apart)
    aligned = reorder(apart, match(pairwise_error(encoder.schema, cells, cells[:, :1])))
    return aligned.mean(1).view(*rows.shape[:2], -1, rows.shape[-1])
