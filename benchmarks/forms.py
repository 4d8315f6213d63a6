"""Networks as their users write them, for benchmarks: forms, activations, embeddings, attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from seepage.datasets.dataset import Dataset
from seepage.models.embedding import adapted
from seepage.models.model import Model, output_width, usual_head
from seepage.seeds import seeded
from seepage.tabular.schema import Discrete, Schema

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "leaky_relu": functional.leaky_relu,
    "gelu": functional.gelu,
    "elu": functional.elu,
    "silu": functional.silu,
    "tanh": torch.tanh,
}
# What a network does beside affine layers and activations.
FORMS = ("chain", "residual", "wide and deep", "biasless", "embeddings")
# How else people write the same, and blocks that are normalised by the batch.
WRITTEN = ("weight norm", "batch norm", "products", "argmax")
# Two groups of columns that meet in the outputs, or in the last layer.
TOWERS = ("towers", "joined towers")


class Chain(nn.Module):
    """Affine layers with activations in a forward method of its own, and dropout behind each of them."""

    def __init__(
        self,
        inputs: int,
        widths: Sequence[int],
        outputs: int,
        activation: str,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        sizes = [inputs, *widths]
        self.layers = nn.ModuleList([nn.Linear(a, b, bias) for a, b in pairwise(sizes)])
        self.last, self.activation = nn.Linear(sizes[-1], outputs), ACTIVATIONS[activation]
        self.dropout = dropout

    def forward(self, rows: Tensor) -> Tensor:
        """Return the outputs."""
        for layer in self.layers:
            rows = functional.dropout(self.activation(layer(rows)), self.dropout, self.training)
        return self.last(rows)


class WideAndDeep(Chain):
    """A linear model beside a chain."""

    def __init__(self, inputs: int, widths: Sequence[int], outputs: int, activation: str) -> None:
        super().__init__(inputs, widths, outputs, activation)
        self.wide = nn.Linear(inputs, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the outputs."""
        return self.wide(rows) + super().forward(rows)


class Residual(nn.Module):
    """Blocks of layer normalisation and two affine layers, each added to what it takes."""

    def __init__(
        self, inputs: int, width: int, blocks: int, outputs: int, activation: str, by_batch: bool = False
    ) -> None:
        super().__init__()
        norm = nn.BatchNorm1d if by_batch else nn.LayerNorm
        self.first, self.last = nn.Linear(inputs, width), nn.Linear(width, outputs)
        self.norms = nn.ModuleList([norm(width) for _ in range(blocks)])
        self.up = nn.ModuleList([nn.Linear(width, 2 * width) for _ in range(blocks)])
        self.down = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(blocks)])
        self.end, self.activation = norm(width), ACTIVATIONS[activation]

    def forward(self, rows: Tensor) -> Tensor:
        """Return the outputs."""
        hidden = self.first(rows)
        for norm, up, down in zip(self.norms, self.up, self.down, strict=True):
            hidden = hidden + down(self.activation(up(norm(hidden))))
        return self.last(self.activation(self.end(hidden)))


class Products(nn.Module):
    """A chain of products with matrices of its own."""

    def __init__(self, inputs: int, widths: Sequence[int], outputs: int, activation: str) -> None:
        super().__init__()
        sizes = [inputs, *widths, outputs]
        self.weights = nn.ParameterList([torch.randn(a, b) / a**0.5 for a, b in pairwise(sizes)])
        self.biases = nn.ParameterList([torch.randn(b) / b**0.5 for b in sizes[1:]])
        self.activation = ACTIVATIONS[activation]

    def forward(self, rows: Tensor) -> Tensor:
        """Return the outputs."""
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            rows = (self.activation(rows) if place else rows) @ weight + bias
        return rows


class Towers(nn.Module):
    """A chain for each half of the columns: what both return is added up, or goes to one last layer."""

    def __init__(self, schema: Schema, widths: Sequence[int], outputs: int, activation: str, joined: bool) -> None:
        super().__init__()
        half = schema.blocks[len(schema.blocks) // 2].start if len(schema.blocks) > 1 else schema.width
        self.parts = [slice(0, half), slice(half, schema.width)] if half < schema.width else [slice(0, half)]
        after = widths[-1] if joined else outputs
        self.chains = nn.ModuleList([Chain(p.stop - p.start, widths, after, activation) for p in self.parts])
        self.last = nn.Linear(after * len(self.parts), outputs) if joined else None
        self.activation = ACTIVATIONS[activation]

    def forward(self, rows: Tensor) -> Tensor:
        """Return the outputs."""
        found = [chain(rows[:, part]) for chain, part in zip(self.chains, self.parts, strict=True)]
        return torch.stack(found).sum(0) if self.last is None else self.last(self.activation(torch.cat(found, 1)))


class Argmax(nn.Module):
    """A chain behind embeddings that are picked by the largest entry of each column's block of the encoded row."""

    def __init__(self, schema: Schema, widths: Sequence[int], outputs: int, activation: str) -> None:
        super().__init__()
        self.blocks = [schema.blocks[i] for i in schema.discrete]
        self.numbers = [schema.blocks[i].start for i in schema.continuous]
        self.inner = Embeddings(schema, widths, outputs, activation)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the outputs."""
        codes = [rows[:, block].argmax(1) for block in self.blocks]
        none = torch.zeros(len(rows), 0, dtype=torch.long)
        return self.inner(torch.stack(codes, 1) if codes else none, rows[:, self.numbers])


class Embeddings(nn.Module):
    """A chain behind embeddings of the categories, half as wide as there are categories."""

    def __init__(self, schema: Schema, widths: Sequence[int], outputs: int, activation: str) -> None:
        super().__init__()
        counts = [column.width for column in schema.columns if isinstance(column, Discrete)]
        sizes = [min(50, (count + 1) // 2) for count in counts]
        self.tables = nn.ModuleList([nn.Embedding(count, size) for count, size in zip(counts, sizes, strict=True)])
        self.chain = Chain(sum(sizes) + len(schema.continuous), widths, outputs, activation)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Return the outputs."""
        parts = [table(codes[:, i]) for i, table in enumerate(self.tables)]
        return self.chain(torch.cat([*parts, numbers], 1))


class Transformer(nn.Module):
    """Feature tokens and blocks of attention after FT-Transformer (Gorishniy et al. 2021), read at the first token."""

    def __init__(self, schema: Schema, width: int, blocks: int, outputs: int) -> None:
        super().__init__()
        counts = [column.width for column in schema.columns if isinstance(column, Discrete)]
        self.tables = nn.ModuleList([nn.Embedding(count, width) for count in counts])
        self.numbers = nn.Parameter(torch.randn(2, len(schema.continuous), width) / width**0.5)
        self.start = nn.Parameter(torch.randn(1, width) / width**0.5)
        self.blocks = nn.ModuleList([Block(width, at > 0, at + 1 == blocks) for at in range(blocks)])
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, outputs)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Return the outputs."""
        cells = torch.stack([table(codes[:, i]) for i, table in enumerate(self.tables)], 1)
        values = numbers[..., None] * self.numbers[0] + self.numbers[1]
        tokens = torch.cat([self.start.expand(len(codes), 1, -1), cells, values], 1)
        for block in self.blocks:
            tokens = block(tokens)
        return self.last(functional.relu(self.norm(tokens[:, 0])))


class Block(nn.Module):
    """Attention over tokens and a layer for each; the last block has one query, the first no normalisation in front."""

    def __init__(self, width: int, normalised: bool, last: bool) -> None:
        super().__init__()
        self.before = nn.LayerNorm(width) if normalised else nn.Identity()
        self.between, self.only_first = nn.LayerNorm(width), last
        self.query, self.key, self.value, self.mixed = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the tokens after attention."""
        normed = self.before(tokens)
        asked, tokens = (normed[:, :1], tokens[:, :1]) if self.only_first else (normed, tokens)
        heads = [
            layer(part).unflatten(2, (8, -1)).transpose(1, 2)
            for layer, part in ((self.query, asked), (self.key, normed), (self.value, normed))
        ]
        mixed = functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        tokens = tokens + self.mixed(mixed)
        return tokens + self.down(functional.relu(self.up(self.between(tokens))))


def network(data: Dataset, form: str, activation: str, widths: Sequence[int], seed: int, dropout: float = 0.0) -> Model:
    """Return a network of a form at its initialisation.

    Args:
        data: table that the network is for.
        form: one of ``FORMS``, ``WRITTEN`` or ``TOWERS``, or ``transformer``.
        activation: one of ``ACTIVATIONS``.
        widths: widths of the hidden layers; width and number of blocks of a residual network or a transformer.
        seed: seed of the initialisation.
        dropout: rate of dropout in a chain.
    """
    schema, head = data.schema, usual_head(data.schema)
    outputs = output_width(schema, head)

    def build() -> nn.Module:
        if form == "embeddings":
            return Embeddings(schema, widths, outputs, activation)
        if form == "transformer":
            return Transformer(schema, widths[0], len(widths), outputs)
        if form in ("residual", "batch norm"):
            return Residual(schema.width, widths[0], len(widths), outputs, activation, form == "batch norm")
        if form == "products":
            return Products(schema.width, widths, outputs, activation)
        if form in TOWERS:
            return Towers(schema, widths, outputs, activation, form == "joined towers")
        if form == "argmax":
            return Argmax(schema, widths, outputs, activation)
        if form == "wide and deep":
            return WideAndDeep(schema.width, widths, outputs, activation)
        chain = Chain(schema.width, widths, outputs, activation, bias=form != "biasless", dropout=dropout)
        if form == "weight norm":
            for layer in chain.layers:
                weight_norm(layer)
        return chain

    return Model(adapted(seeded(build, seed), schema, data.statistics), head, form).masked(schema.width)
