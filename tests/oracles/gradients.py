"""Losses, gradients, matching and relaxation, one batch at a time, by plain backpropagation."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from seepage.models.model import Model
from seepage.tabular.schema import Discrete, Schema


def loss_of(head: str, outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean loss, record by record, from the formulas."""
    losses = []
    for output, label in zip(outputs, labels, strict=True):
        if head == "softmax":
            losses.append(torch.logsumexp(output, 0) - output[int(label)])
        elif head == "sigmoid":
            p = 1 / (1 + (-output[0]).exp())
            losses.append(-(label * p.log() + (1 - label) * (1 - p).log()))
        else:
            losses.append((output[0] - label) ** 2)
    return torch.stack(losses).mean()


def gradient_of(model: Model, rows: Tensor, labels: Tensor) -> list[Tensor]:
    """Return one batch's gradient, a tensor a parameter; differentiable in ``rows``."""
    module = copy.deepcopy(model.module)
    loss = loss_of(model.head, module(rows), labels)
    return list(torch.autograd.grad(loss, list(module.parameters()), create_graph=True))


def distance_of(kind: str, dummy: Sequence[Tensor], received: Sequence[Tensor]) -> Tensor:
    """Return the distance of two gradients."""
    if kind == "cosine":
        a = torch.cat([g.flatten() for g in dummy])
        b = torch.cat([g.flatten() for g in received])
        return 1 - (a @ b) / (a.norm() * b.norm())
    return torch.stack([((a - b) ** 2).mean() for a, b in zip(dummy, received, strict=True)]).sum()


def matching(
    kind: str, model: Model, received: Mapping[str, Tensor], rows: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Return loss (victim, restart) and derivative in the rows, by double backpropagation of each batch."""
    losses, derivatives = torch.zeros(rows.shape[:2], dtype=rows.dtype), torch.zeros_like(rows)
    for v in range(rows.shape[0]):
        for r in range(rows.shape[1]):
            batch = rows[v, r].clone().requires_grad_()
            loss = distance_of(kind, gradient_of(model, batch, labels[v]), [g[v] for g in received.values()])
            losses[v, r] = loss.detach()
            derivatives[v, r] = torch.autograd.grad(loss, batch)[0]
    return losses, derivatives


def relaxed(
    schema: Schema,
    mean: Tensor,
    std: Tensor,
    z: Tensor,
    softmax: bool = True,
    sigmoid: bool = True,
    standardised_logits: bool = False,
) -> Tensor:
    """Return standardised rows, one column after the other."""
    parts = []
    for column, block in zip(schema.columns, schema.blocks, strict=True):
        own, m, s = z[..., block], mean[block], std[block]
        if isinstance(column, Discrete):
            logits = own * s + m if standardised_logits else own
            parts.append((torch.softmax(logits, -1) - m) / s if softmax else own)
        else:
            low, high = (column.low - m) / s, (column.high - m) / s
            parts.append(low + (high - low) * torch.sigmoid(own) if sigmoid else own)
    return torch.cat(parts, -1)


class Widths(nn.Module):
    """A network that is no sequence of layers: a skip connection around a smooth unit."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.inner = nn.Linear(inputs, 7)
        self.last = nn.Linear(7 + inputs, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        return self.last(torch.cat([torch.tanh(self.inner(rows)), rows], dim=-1))
