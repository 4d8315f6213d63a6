"""TabTransformer (Huang et al. 2020) of PyTorch's own transformer layers."""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seepage.errors import BadInputError
from seepage.models.model import Head, Model
from seepage.models.packaged import of_columns
from seepage.registry import models
from seepage.tabular.schema import Schema

_HEADS = 4


class TabTransformer(nn.Module):
    """Embedded categories attend to each other, in 4 heads; with normalised numbers they enter an MLP."""

    def __init__(self, cardinalities: list[int], numbers: int, outputs: int, width: int, blocks: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(categories, width) for categories in cardinalities)
        layer = nn.TransformerEncoderLayer(width, _HEADS, 4 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, blocks, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(numbers)
        inputs = width * len(cardinalities) + numbers
        self.head = nn.Sequential(
            nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, outputs)
        )

    def forward(self, codes: Int[Tensor, "record column"], numbers: Float[Tensor, "record number"]) -> Tensor:
        """Return the outputs, (record, output)."""
        tokens = torch.stack([table(codes[:, i]) for i, table in enumerate(self.tables)], 1)
        return self.head(torch.cat([self.encoder(tokens).flatten(1), self.norm(numbers)], 1))


@models.register("tab_transformer", "horizontal")
def tab_transformer(schema: Schema, seed: int = 0, head: Head | None = None, blocks: int = 2, width: int = 32) -> Model:
    """TabTransformer (Huang et al. 2020): attention among embedded categories, numbers beside it.

    Args:
        blocks: number of transformer layers.
        width: size of an embedding, a multiple of its 4 heads.

    Raises:
        BadInputError: the table has no discrete column, or an argument does not fit.
    """
    if not schema.discrete:
        raise BadInputError(
            "tab_transformer embeds discrete columns, of which the table has none; choose another network, such as nn3."
        )
    return of_columns(partial(TabTransformer, width=width, blocks=blocks), schema, seed, head, "tab_transformer")
