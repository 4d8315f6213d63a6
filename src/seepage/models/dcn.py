"""DCNv2 (Wang et al. 2021): cross layers beside a fully connected network, on embedded columns."""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seepage.models.model import Head, Model
from seepage.models.packaged import of_columns
from seepage.registry import models
from seepage.tabular.schema import Schema


class CrossNetwork(nn.Module):
    """Cross layers and a fully connected network in parallel, as in the paper's figure 1b."""

    def __init__(self, cardinalities: list[int], numbers: int, outputs: int, width: int, crosses: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(categories, width) for categories in cardinalities)
        inputs = width * len(cardinalities) + numbers
        self.crosses = nn.ModuleList(nn.Linear(inputs, inputs) for _ in range(crosses))
        self.deep = nn.Sequential(nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.head = nn.Linear(inputs + 64, outputs)

    def forward(self, codes: Int[Tensor, "record column"], numbers: Float[Tensor, "record number"]) -> Tensor:
        """Return the outputs, (record, output)."""
        first = torch.cat([*(table(codes[:, i]) for i, table in enumerate(self.tables)), numbers], 1)
        crossed = first
        for cross in self.crosses:
            crossed = first * cross(crossed) + crossed
        return self.head(torch.cat([crossed, self.deep(first)], 1))


@models.register("dcn_v2", "horizontal")
def dcn_v2(schema: Schema, seed: int = 0, head: Head | None = None, crosses: int = 2, width: int = 8) -> Model:
    """DCNv2 (Wang et al. 2021): cross layers beside a fully connected network of 128 and 64 ReLU units.

    Args:
        crosses: number of cross layers.
        width: size of an embedding.

    Raises:
        BadInputError: an argument does not fit.
    """
    return of_columns(partial(CrossNetwork, width=width, crosses=crosses), schema, seed, head, "dcn_v2")
