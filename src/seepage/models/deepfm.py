"""DeepFM in two parts, as EXACT's authors split it (Guo et al. 2017; Qiu et al. 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.errors import BadInputError, check_count
from seepage.models.split import SplitHead, SplitModel, categories_of, outputs_of, positions, usual_split_head
from seepage.registry import models
from seepage.seeds import seeded
from seepage.tabular.schema import Schema

# DeepCTR-Torch initialises embeddings, first-order weights and hidden layers with this standard deviation.
_STD = 1e-4


class Fields(nn.Module):
    """Embeddings and first-order weights of columns with these numbers of categories, None for a continuous one."""

    def __init__(self, widths: Sequence[int | None], dim: int, outputs: int) -> None:
        super().__init__()
        self.discrete = [i for i, width in enumerate(widths) if width is not None]
        self.dense = [i for i, width in enumerate(widths) if width is None]
        sizes = [width for width in widths if width is not None]
        self.embeddings = nn.ModuleList(nn.Embedding(width, dim) for width in sizes)
        self.first_order = nn.ModuleList(nn.Embedding(width, outputs) for width in sizes)
        self.dense_weight = nn.Parameter(torch.empty(len(self.dense), outputs))
        for table in (*self.embeddings, *self.first_order):
            nn.init.normal_(table.weight, std=_STD)  # pyright: ignore[reportArgumentType]
        nn.init.normal_(self.dense_weight, std=_STD)
        self.dim = dim

    def embedded(self, cells: Float[Tensor, "record column"]) -> Float[Tensor, "record field dim"]:
        """Return the embeddings of the discrete columns."""
        if not self.discrete:
            return cells.new_zeros(len(cells), 0, self.dim)
        codes = cells.long()
        return torch.stack([e(codes[:, i]) for e, i in zip(self.embeddings, self.discrete, strict=True)], dim=1)

    def numbers(self, cells: Float[Tensor, "record column"]) -> Float[Tensor, "record dense"]:
        """Return the continuous columns."""
        return cells[:, self.dense]

    def linear(self, cells: Float[Tensor, "record column"]) -> Float[Tensor, "record output"]:
        """Return the sum of first-order terms."""
        total = self.numbers(cells) @ self.dense_weight
        codes = cells.long()
        for table, i in zip(self.first_order, self.discrete, strict=True):
            total = total + table(codes[:, i])
        return total


class DeepFMServer(nn.Module):
    """The server's part: it sends embeddings and numbers, or a ReLU ``tower`` of both, and its first-order terms."""

    def __init__(self, widths: Sequence[int | None], dim: int, outputs: int, tower: Sequence[int], logit: bool) -> None:
        super().__init__()
        self.own = Fields(widths, dim, outputs)
        sizes = pairwise((dim * len(self.own.discrete) + len(self.own.dense), *tower))
        self.tower = nn.Sequential(*(layer for size in sizes for layer in (nn.Linear(*size), nn.ReLU())))
        self.logit = logit
        if not logit:
            # They receive no gradient.
            for parameter in (self.own.dense_weight, *self.own.first_order.parameters()):
                parameter.requires_grad_(False)

    def forward(self, cells: Float[Tensor, "record column"]) -> Float[Tensor, "record cut"]:
        """Return the activations that are sent."""
        sent = self.tower(torch.cat([self.own.embedded(cells).flatten(1), self.own.numbers(cells)], dim=1))
        return torch.cat([sent, self.own.linear(cells)], dim=1) if self.logit else sent


class Shared(NamedTuple):
    """Terms of the client part that depend on the record's cut alone (with biases), or on the candidate's cells."""

    first: Tensor
    vectors: Tensor
    squares: Tensor
    linear: Tensor
    fields: Tensor


class DeepFMClient(nn.Module):
    """The client's part: embeddings of its columns, second-order terms, hidden layers, output.

    The cut is laid out as embeddings of ``fields`` columns, ``plain`` numbers and, with ``logit``, a first-order term a
    logit. Of several logits, each weighs the second-order terms by a vector of its own.
    """

    def __init__(
        self,
        fields: int,
        plain: int,
        widths: Sequence[int | None],
        dim: int,
        hidden: Sequence[int],
        outputs: int,
        logit: bool,
    ) -> None:
        super().__init__()
        self.fields, self.plain, self.logit, self.dim = fields, plain, logit, dim
        self.own = Fields(widths, dim, outputs)
        self.inputs = fields * dim + plain
        size = self.inputs + dim * len(self.own.discrete) + len(self.own.dense)
        self.hidden = nn.ModuleList()
        for width in hidden:
            layer = nn.Linear(size, width)
            nn.init.normal_(layer.weight, std=_STD)
            self.hidden.append(layer)
            size = width
        self.out = nn.Linear(size, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.second_order = nn.Parameter(torch.ones(dim, outputs), requires_grad=outputs > 1)

    def forward(
        self, cut: Float[Tensor, "record cut"], cells: Float[Tensor, "record private"]
    ) -> Float[Tensor, "record output"]:
        """Return the logits."""
        return self._logits(cut, self.own.embedded(cells), self.own.numbers(cells), self.own.linear(cells))

    def relaxed(
        self, cut: Float[Tensor, "record cut"], shares: Sequence[Float[Tensor, "record _value"]]
    ) -> Float[Tensor, "record output"]:
        """Return the logits where discrete columns hold mixtures of their values, and there are no other columns."""
        embeddings, first = (
            [table.weight for table in tables if isinstance(table, nn.Embedding)]
            for tables in (self.own.embeddings, self.own.first_order)
        )
        mine = torch.stack([share @ table for share, table in zip(shares, embeddings, strict=True)], dim=1)
        linear = torch.stack([share @ table for share, table in zip(shares, first, strict=True)]).sum(0)
        return self._logits(cut, mine, cut.new_zeros(len(cut), 0), linear)

    def _logits(self, cut: Tensor, mine: Tensor, numbers: Tensor, linear: Tensor) -> Tensor:
        theirs = cut[:, : self.fields * self.dim].unflatten(1, (self.fields, self.dim))
        vectors = theirs.sum(1) + mine.sum(1)
        pairs = (vectors.square() - theirs.square().sum(1) - mine.square().sum(1)) / 2
        units = torch.cat([cut[:, : self.inputs], mine.flatten(1), numbers], dim=1)
        for layer in self.hidden:
            units = torch.relu(layer(units))
        logits = self.out(units) + pairs @ self.second_order + linear + self.bias
        return logits + cut[:, self.inputs :] if self.logit else logits

    @property
    def additive(self) -> int | None:
        """Position in the cut of the first coordinate that is added to the logits; None where there is none."""
        return self.inputs if self.logit else None

    def of_cut(self, cut: Float[Tensor, "record cut"]) -> Shared:
        """Return the terms of records, which hold for any private cells."""
        weight, bias = self.hidden[0].weight, self.hidden[0].bias
        assert isinstance(weight, Tensor)
        assert isinstance(bias, Tensor)
        theirs = cut[:, : self.fields * self.dim].unflatten(1, (self.fields, self.dim))
        linear = cut[:, self.inputs :] if self.logit else cut.new_zeros(len(cut), len(self.bias))
        return Shared(
            torch.addmm(bias, cut[:, : self.inputs], weight[:, : self.inputs].T),
            theirs.sum(1),
            theirs.square().sum(1),
            linear,
            theirs.flatten(1),
        )

    def of_cells(self, cells: Float[Tensor, "candidate private"]) -> Shared:
        """Return the terms of candidates for the private columns, which hold for any record."""
        weight = self.hidden[0].weight
        assert isinstance(weight, Tensor)
        mine = self.own.embedded(cells)
        inputs = torch.cat([mine.flatten(1), self.own.numbers(cells)], dim=1)
        return Shared(
            inputs @ weight[:, self.inputs :].T,
            mine.sum(1),
            mine.square().sum(1),
            self.own.linear(cells) + self.bias,
            cells.new_zeros(len(cells), 0),
        )

    def outputs_of(self, record: Shared, candidate: Shared) -> Float[Tensor, "*some output"]:
        """Return the logits of pairs of a record and a candidate; leading axes broadcast."""
        return self._forward(record, candidate, keep=False)[0]

    def responses_of(
        self, record: Shared, candidate: Shared
    ) -> tuple[Float[Tensor, "*some output"], Float[Tensor, "*some output cut"]]:
        """Return logits and their derivatives with respect to the cut, in closed form; leading axes broadcast."""
        logits, active = self._forward(record, candidate, keep=True)
        weights = [layer.weight for layer in self.hidden]
        outer = self.out.weight
        derivatives = []
        for k in range(len(outer)):
            back = outer[k]
            for weight, on in zip(reversed(weights), reversed(active), strict=True):
                assert isinstance(weight, Tensor)
                first = weight is weights[0]
                back = torch.where(on, back, 0) @ (weight[:, : self.inputs] if first else weight)
            if self.fields:
                vectors = record.vectors + candidate.vectors
                others = vectors.repeat(*[1] * (vectors.dim() - 1), self.fields) - record.fields
                back[..., : self.fields * self.dim] += others * self.second_order[:, k].repeat(self.fields)
            if self.logit:
                ones = back.new_zeros(*back.shape[:-1], len(outer))
                ones[..., k] = 1
                back = torch.cat([back, ones], dim=-1)
            derivatives.append(back)
        return logits, torch.stack(derivatives, dim=-2)

    def _forward(self, record: Shared, candidate: Shared, keep: bool) -> tuple[Tensor, list[Tensor]]:
        units = record.first + candidate.first
        active = []
        for i, layer in enumerate(self.hidden):
            if i:
                units = layer(units)
            units = torch.relu_(units)
            if keep:
                active.append(units > 0)
        vectors = record.vectors + candidate.vectors
        pairs = (vectors.square_() - record.squares - candidate.squares) / 2
        logits = self.out(units) + pairs @ self.second_order + candidate.linear
        return logits + record.linear if self.logit else logits, active


@models.register("deepfm", "split")
def deepfm(
    schema: Schema,
    private: Sequence[str],
    seed: int,
    hidden: Sequence[int] = (256, 128),
    dim: int = 4,
    tower: Sequence[int] = (),
    logit: bool = True,
    head: SplitHead | None = None,
) -> SplitModel:
    """Return DeepFM with the embeddings of the server's columns on one side of the cut and all else on the other.

    The logit is the sum of first-order terms, of second-order terms (inner products of embeddings of discrete
    columns) and of hidden ReLU layers over embeddings and numbers (Guo et al. 2017, equations 1 to 4). The paper
    says that the client owns "the last layers" with the weights of the cut layer; so the server here sends its
    embeddings, its numbers and its sum of first-order terms, and hidden layers and second-order terms are the
    client's. Initialisation as in DeepCTR-Torch, whose defaults the paper's settings are: embeddings, first-order
    weights and hidden layers normal with standard deviation 0.0001, the last layer without bias.

    Deviation: with several classes, of which the paper has no example, second-order terms are weighed by one vector a
    class, since the same number added to all logits changes nothing.

    Args:
        private: names of the client's columns.
        hidden: units of the client's hidden layers.
        dim: size of an embedding.
        tower: units of ReLU layers that the server computes before the cut. Its embeddings then do not cross, and
            second-order terms are those of the client's columns alone.
        logit: whether the server's sum of first-order terms crosses the cut (a coordinate whose gradient is that of
            the loss by the logit).

    Raises:
        BadInputError: a column is unknown, none or all are private, or the network has no hidden layer.

    Example:
        >>> from seepage.datasets.planted import telling
        >>> data = telling(rows=20)
        >>> model = deepfm(data.schema, ["noise_0"], seed=0, hidden=(8, 4))
        >>> model.cut(data.train.cells).shape[0], model.probabilities(data.train.cells).shape
        (20, torch.Size([20, 2]))
    """
    for width in (*hidden, *tower, dim):
        check_count("a width of the network", width)
    if not hidden:
        raise BadInputError(
            "the client part of DeepFM needs at least one hidden layer, got none; give hidden=(256, 128)."
        )
    mine = positions(schema, private)
    theirs = [i for i in range(len(schema.columns)) if i not in mine]
    used = head or usual_split_head(schema.target)
    outputs = outputs_of(schema.target, used)

    def build() -> tuple[nn.Module, nn.Module]:
        server = DeepFMServer(categories_of(schema, theirs), dim, outputs, tower, logit)
        fields, plain = (0, tower[-1]) if tower else (len(server.own.discrete), len(server.own.dense))
        return server, DeepFMClient(fields, plain, categories_of(schema, mine), dim, hidden, outputs, logit)

    server, client = seeded(build, seed)
    return SplitModel(server, client, schema, mine, used, "deepfm")
