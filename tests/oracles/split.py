"""Split learning written as plainly as can be: one record and one configuration at a time, by autograd."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from seepage.models.split import SplitModel
from seepage.tabular.schema import Discrete


def loss_gradient(model: SplitModel, cut: Tensor, cells: Tensor, label: int) -> Tensor:
    """Return the gradient of one record's cross-entropy by its activations."""
    here = cut.detach().clone().requires_grad_(True)
    logits = model.client(here[None], cells[None])[0]
    if model.head == "sigmoid":
        logits = torch.stack([torch.zeros_like(logits[0]), logits[0]])
    loss = torch.logsumexp(logits, 0) - logits[label]
    return torch.autograd.grad(loss, here)[0]


def configurations(model: SplitModel) -> list[tuple[tuple[int, ...], int]]:
    """Return all combinations of private codes and label."""
    widths = []
    for i in model.private:
        column = model.schema.columns[i]
        assert isinstance(column, Discrete)
        widths.append(range(column.width))
    return [(codes, label) for codes in itertools.product(*widths) for label in range(model.classes)]


def distances(model: SplitModel, cut: Tensor, received: Tensor, clip: float | None = None) -> dict[tuple, float]:
    """Return each configuration's distance from a received gradient."""
    found = {}
    for codes, label in configurations(model):
        gradient = loss_gradient(model, cut, torch.tensor(codes, dtype=cut.dtype), label)
        if clip is not None and gradient.norm() > clip:
            gradient = gradient * clip / gradient.norm()
        found[codes, label] = float((gradient - received).norm())
    return found
