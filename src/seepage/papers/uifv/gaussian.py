"""A wide network of one hidden layer whose weights are drawn from a normal distribution."""

from __future__ import annotations

import math

from torch import nn

from seepage.errors import check_count
from seepage.models.model import Head, Model, output_width, usual_head
from seepage.registry import models
from seepage.seeds import seeded
from seepage.tabular.schema import Schema


@models.register("gaussian", "horizontal")
def gaussian(schema: Schema, seed: int = 0, head: Head | None = None, width: int = 20_000) -> Model:
    """One hidden layer of 20,000 ELU units, without biases, with normal weights: the network of the attack ``sqr``.

    The weights have the variance 1 / encoded columns, so that the input of a unit has about variance 1. The output
    layer is initialised by PyTorch's default. ``width`` is the number of units.
    """
    check_count("width", width)
    head = head or usual_head(schema)

    def build() -> nn.Module:
        hidden, output = nn.Linear(schema.width, width, bias=False), nn.Linear(width, output_width(schema, head))
        nn.init.normal_(hidden.weight, std=1 / math.sqrt(schema.width))
        return nn.Sequential(hidden, nn.ELU(), output)

    return Model(seeded(build, seed), head, "gaussian").check(schema)
