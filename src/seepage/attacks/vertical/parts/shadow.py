"""Shadow of the target's bottom model, trained through the frozen top model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.models.split import for_loss
from seepage.models.vertical import PartLayout, Stack, losses_of
from seepage.wire.vertical import FeatureAuxiliary, FeatureView

_RATE = 1e-3


def shadow(
    view: FeatureView,
    rows: FeatureAuxiliary,
    encoded: Float[Tensor, "training row encoded"],
    hidden: Sequence[int],
    epochs: int,
    batch_size: int,
    seeds: Sequence[int],
    layout: PartLayout | None = None,
) -> nn.Module:
    """Return shadows of the target's bottom model: networks with which the top model predicts labels."""
    widths = (encoded.shape[-1], *hidden, view.received.shape[-1])
    networks = Stack(widths, seeds) if layout is None else layout.bottom(seeds)
    optimiser = torch.optim.Adam(networks.parameters(), lr=_RATE, fused=True)
    labels = for_loss(view.model.partition.schema.target, rows.labels)
    order = [torch.Generator().manual_seed(seed) for seed in seeds]
    start = torch.arange(len(seeds))[:, None]
    for _ in range(epochs):
        shuffled = torch.stack([torch.randperm(rows.rows, generator=rng) for rng in order])
        for batch in shuffled.split(batch_size, dim=1):
            mine = networks(encoded[start, batch])
            features = [mine if feature is None else feature[start, batch] for feature in rows.features]
            losses = losses_of(view.model.head, view.model.top(torch.cat(features, dim=-1)), labels[start, batch])
            gradients = torch.autograd.grad(losses.mean(1).sum(), list(networks.parameters()))
            for parameter, gradient in zip(networks.parameters(), gradients, strict=True):
                parameter.grad = gradient
            optimiser.step()
    return networks.requires_grad_(False)
