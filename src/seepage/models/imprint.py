"""A network that a malicious server crafts so that its first layer sorts records into bins of one random measure."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.errors import BadInputError, check_count
from seepage.models.model import Head, Model, output_width, usual_head
from seepage.registry import models
from seepage.seeds import seeded
from seepage.tabular.schema import Schema


@models.register("imprint", "horizontal")
def imprint(schema: Schema, seed: int = 0, head: Head | None = None, bins: int = 400) -> Model:
    """A malicious server's network: each neuron counts the records above a threshold of one random measure.

    All rows of the first layer are the same random direction h; the biases are the negated quantiles of h x, were
    that standard normal (Fowl et al., ICLR 2022, "Robbing the Fed", with one measure drawn at random). All columns of
    the second layer are the same, so that each neuron passes on the same error: the difference of two
    neighbours' gradients then holds nothing but the records between their thresholds.

    The server is active and malicious, not honest-but-curious: clients could inspect the network that they receive.

    Args:
        bins: number of neurons of the first layer.

    Raises:
        BadInputError: there are fewer than two bins.
    """
    check_count("bins", bins)
    if bins < 2:
        raise BadInputError(f"records are sorted into at least 2 bins, got bins={bins}.")
    head = head or usual_head(schema)
    outputs = output_width(schema, head)

    def build() -> nn.Module:
        first, second = nn.Linear(schema.width, bins), nn.Linear(bins, outputs)
        with torch.no_grad():
            first.weight.copy_(measure(schema.width).expand(bins, -1))
            first.bias.copy_(-thresholds(bins))
            second.weight.copy_(second.weight[:, :1].expand(-1, bins))
        return nn.Sequential(first, nn.ReLU(), second)

    crafted = "sends a network whose first layer it crafted so that records can be read off it (Robbing the Fed)"
    return Model(seeded(build, seed), head, "imprint", crafted).check(schema)


def measure(width: int) -> Float[Tensor, " encoded"]:
    """Return a random direction, from PyTorch's global generator: standardised rows have about variance 1 along it."""
    return torch.randn(width) / math.sqrt(width)


def thresholds(count: int) -> Float[Tensor, " threshold"]:
    """Return evenly spread quantiles of a standard normal distribution."""
    return torch.special.ndtri((torch.arange(count, dtype=torch.float64) + 0.5) / count).float()
