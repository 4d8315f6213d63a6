"""Linear and fully connected ReLU networks: Linear and NN1..NN5 of TabLeak, appendix C.3."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from seepage.errors import BadInputError
from seepage.models.model import Head, Model, output_width, usual_head
from seepage.registry import models
from seepage.seeds import seeded
from seepage.tabular.schema import Schema


def mlp(
    schema: Schema,
    widths: Sequence[int],
    seed: int,
    name: str = "mlp",
    head: Head | None = None,
    bias: bool = True,
    slope: float | int = 0,
) -> Model:
    """Return a fully connected ReLU network with PyTorch's default initialisation; a ``slope`` makes ReLUs leaky."""
    head = head or usual_head(schema)
    if not 0 <= slope < 1:
        raise BadInputError(f"the slope of a leaky ReLU is a number from 0 to below 1, got slope={slope!r}.")

    def build() -> nn.Module:
        layers: list[nn.Module] = []
        for inputs, width in pairwise((schema.width, *widths, output_width(schema, head))):
            layers += [nn.Linear(inputs, width, bias=bias), nn.LeakyReLU(slope) if slope else nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    return Model(seeded(build, seed), head, name).check(schema)


@models.register("linear", "horizontal")
def linear(schema: Schema, seed: int = 0, head: Head | None = None, bias: bool = True) -> Model:
    """One affine layer (two logits as in the official code; one with head=sigmoid, as in the paper)."""
    return mlp(schema, (), seed, "linear", head, bias)


@models.register("nn1", "horizontal")
def nn1(schema: Schema, seed: int = 0, head: Head | None = None, bias: bool = True, slope: float | int = 0) -> Model:
    """One hidden layer of 50 ReLU units."""
    return mlp(schema, (50,), seed, "nn1", head, bias, slope)


@models.register("nn2", "horizontal")
def nn2(schema: Schema, seed: int = 0, head: Head | None = None, bias: bool = True, slope: float | int = 0) -> Model:
    """One hidden layer of 100 ReLU units."""
    return mlp(schema, (100,), seed, "nn2", head, bias, slope)


@models.register("nn3", "horizontal")
def nn3(schema: Schema, seed: int = 0, head: Head | None = None, bias: bool = True, slope: float | int = 0) -> Model:
    """Two hidden layers of 100 ReLU units (TabLeak's default network)."""
    return mlp(schema, (100, 100), seed, "nn3", head, bias, slope)


@models.register("nn4", "horizontal")
def nn4(schema: Schema, seed: int = 0, head: Head | None = None, bias: bool = True, slope: float | int = 0) -> Model:
    """Three hidden layers of 200 ReLU units."""
    return mlp(schema, (200, 200, 200), seed, "nn4", head, bias, slope)


@models.register("nn5", "horizontal")
def nn5(schema: Schema, seed: int = 0, head: Head | None = None, bias: bool = True, slope: float | int = 0) -> Model:
    """Three hidden layers of 400 ReLU units (TabLeak's large network)."""
    return mlp(schema, (400, 400, 400), seed, "nn5", head, bias, slope)


@models.register("wide", "horizontal")
def wide(schema: Schema, seed: int = 0, head: Head | None = None, bias: bool = True, slope: float | int = 0) -> Model:
    """One hidden layer of 400 ReLU units: where a record alone behind a gradient is easily read (positive controls)."""
    return mlp(schema, (400,), seed, "wide", head, bias, slope)
