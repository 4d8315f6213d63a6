"""Residual network with batch normalisation for encoded rows: ResNet of TabLeak, appendix C.3."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.models.batch_norm import BatchNorm
from seepage.models.model import Head, Model, output_width, usual_head
from seepage.registry import models
from seepage.seeds import seeded
from seepage.tabular.schema import Schema

_UNITS, _BLOCKS = 100, 2


class Residual(nn.Module):
    """A block as in CTGAN: the branch's outputs and its inputs, concatenated (D17)."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, rows: Float[Tensor, "record input"]) -> Float[Tensor, "record output"]:
        """Return the branch's outputs and the inputs, concatenated."""
        return torch.cat([self.branch(rows), rows], dim=1)


@models.register("resnet_bn", "horizontal")
def resnet_bn(schema: Schema, seed: int = 0, head: Head | None = None) -> Model:
    """Two blocks of 100 batch-normalised ReLU units with their inputs concatenated, and an affine layer."""
    head = head or usual_head(schema)

    def build() -> nn.Module:
        blocks: list[nn.Module] = []
        width = schema.width
        for _ in range(_BLOCKS):
            blocks.append(Residual(nn.Sequential(nn.Linear(width, _UNITS), BatchNorm(_UNITS), nn.ReLU())))
            width += _UNITS
        return nn.Sequential(*blocks, nn.Linear(width, output_width(schema, head)))

    return Model(seeded(build, seed), head, "resnet_bn").check(schema)
