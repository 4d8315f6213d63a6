"""Vertical learning as one network of linear layers with one graph from the labels to all parties' columns."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seepage.models.vertical import Stack, VerticalModel


def layers(stack: Stack, which: int) -> nn.Sequential:
    """Return one network of a stack."""
    made: list[nn.Module] = []
    for weight, bias in zip(stack.weights, stack.biases, strict=True):
        layer = nn.Linear(weight.shape[1], weight.shape[2])
        layer.weight.data, layer.bias.data = weight[which].detach().T.clone(), bias[which, 0].detach().clone()
        made += [layer, nn.ReLU()]
    return nn.Sequential(*made[:-1])


def trained(
    model: VerticalModel, which: int, cells: Tensor, labels: Tensor, epochs: int, size: int, rate: float, seed: int
) -> list[nn.Sequential]:
    """Return one training's bottom models and top model after training them as one network."""
    parts = [layers(part, which) for part in (*model.bottoms, model.top) if isinstance(part, Stack)]
    inputs = model.encoded(cells)
    optimiser = torch.optim.Adam([p for part in parts for p in part.parameters()], lr=rate)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for batch in torch.randperm(len(cells), generator=generator).split(size):
            features = [part(one[batch]) for part, one in zip(parts, inputs, strict=False)]
            logits = parts[-1](torch.cat(features, dim=-1))[:, 0]
            loss = nn.functional.binary_cross_entropy_with_logits(logits, labels[batch].float())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return parts
