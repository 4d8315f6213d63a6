"""Masks of dropout that the client drew and the attacker does not know, sought with the records or drawn again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.horizontal.matching.engine import Engine
from seepage.attacks.horizontal.matching.matching import Labels, Losses, Rows
from seepage.models.dropout import Drops
from seepage.seeds import stream

Masks = Literal["variables", "drawn", "ignored"]

_RATE = 0.05  # learning rate of the masks, in shares of what a kept value is multiplied by
_WEIGHT = 0.1  # weight of the squared distance of each place's share of kept values from the expected one


class MaskedEngine:
    """A distance between gradients of a network that drops values, by masks that nobody sends.

    Under ``variables``, masks are optimised jointly with the records, as in the dropout inversion attack of Scheliga et
    al. (arXiv 2208.06163): a step of Adam a call, clipped to what a mask can be; a penalty holds each place's share of
    kept values near the expected one. Under ``drawn``, every call draws new masks, so that the descent follows the
    mean.

    Deviations: step and weight are ours, found on tables; masks are of rows, not of images.
    """

    def __init__(
        self, engine: Engine, drops: Drops, masks: Literal["variables", "drawn"], seeds: Sequence[int]
    ) -> None:
        self._engine, self._drops, self._kind = engine, drops, masks
        self._generators = [torch.Generator().manual_seed(stream(seed, 0, "dropout masks")) for seed in seeds]
        self._begun: tuple[torch.nn.Parameter, torch.optim.Optimizer] | None = None

    @property
    def masks(self) -> Float[Tensor, "victim restart record mask"] | None:
        """Learnt masks; None where none are learnt or none were needed yet."""
        return None if self._begun is None else self._begun[0].detach()

    def __call__(self, rows: Rows, labels: Labels) -> tuple[Losses, Rows]:
        """Return the loss of each restart and its derivative with respect to the rows, and move the masks."""
        if self._kind == "drawn":
            loss, derivative = self._engine(torch.cat([rows, self._drawn(rows)], -1), labels)
            return loss, derivative[..., : rows.shape[-1]]
        if self._begun is None:
            masks = torch.nn.Parameter(self._drawn(rows))
            self._begun = masks, torch.optim.Adam([masks], lr=_RATE)
        masks, adam = self._begun
        factors = self._drops.factors.to(masks)
        loss, derivative = self._engine(torch.cat([rows, masks.detach()], -1), labels)
        masks.grad = derivative[..., rows.shape[-1] :] + self._penalty(masks.detach())
        adam.step()
        with torch.no_grad():
            masks.copy_(masks.clamp_min(0).minimum(factors))
        return loss, derivative[..., : rows.shape[-1]]

    def loss(self, rows: Rows, labels: Labels) -> Losses:
        """Return the loss of each restart with the masks that it learnt; without dropout where there are none."""
        masks = self.masks
        if masks is None or masks.shape[:3] != rows.shape[:3]:
            return self._engine.loss(rows, labels)
        return self._engine.loss(torch.cat([rows, masks], -1), labels)

    def _drawn(self, rows: Tensor) -> Tensor:
        drawn = [self._drops.draw(rows.shape[1:3], generator) for generator in self._generators]
        return torch.stack(drawn).to(rows)

    def _penalty(self, masks: Tensor) -> Tensor:
        """Return the derivative of the penalty: each place's mean over records and values is expected to be 1."""
        derivatives = []
        for part in masks.split([place.size for place in self._drops.places], -1):
            off = part.mean((2, 3), keepdim=True) - 1
            derivatives.append((2 * _WEIGHT / (part.shape[2] * part.shape[3]) * off).expand_as(part))
        return torch.cat(derivatives, -1)


def joined(engines: Sequence[MaskedEngine]) -> Float[Tensor, "victim restart record mask"] | None:
    """Return the masks that engines learnt for parts of the restarts, in their order; None where they learnt none."""
    masks = [engine.masks for engine in engines if engine.masks is not None]
    return torch.cat(masks, 1) if len(masks) == len(engines) else None
