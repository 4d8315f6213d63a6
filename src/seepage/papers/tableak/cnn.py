"""Convolutional network with batch normalisation for encoded rows: CNN of TabLeak, appendix C.3."""

from __future__ import annotations

from torch import nn

from seepage.errors import BadInputError
from seepage.models.batch_norm import BatchNorm
from seepage.models.model import Head, Model, output_width, usual_head
from seepage.registry import models
from seepage.seeds import seeded
from seepage.tabular.schema import Schema

_CHANNELS, _KERNEL, _UNITS = 16, 3, 100


@models.register("cnn_bn", "horizontal")
def cnn_bn(schema: Schema, seed: int = 0, head: Head | None = None) -> Model:
    """Convolution of 16 channels over the encoded columns, batch normalisation, two hidden layers of 100 ReLU units.

    The kernel spans three columns, which the schema has to encode to at least; there is no padding and no bias, which
    the normalisation would undo.
    """
    head = head or usual_head(schema)
    positions = schema.width - _KERNEL + 1
    if positions < 1:
        raise BadInputError(
            f"the convolution of cnn_bn spans {_KERNEL} encoded columns, but the schema has {schema.width}; use "
            "another model."
        )

    def build() -> nn.Module:
        return nn.Sequential(
            nn.Unflatten(1, (1, schema.width)),
            nn.Conv1d(1, _CHANNELS, _KERNEL, bias=False),
            BatchNorm(_CHANNELS),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(_CHANNELS * positions, _UNITS),
            nn.ReLU(),
            nn.Linear(_UNITS, _UNITS),
            nn.ReLU(),
            nn.Linear(_UNITS, output_width(schema, head)),
        )

    return Model(seeded(build, seed), head, "cnn_bn").check(schema)
