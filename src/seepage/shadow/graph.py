"""Many graph convolutional networks of one shape, trained at once, each on a part of one graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import sparse
from torch import Tensor

from seepage.errors import BadInputError
from seepage.shadow.learner import Trained, check_recipe, check_rows, in_parts

# Edges and cells of the parts that are processed at once.
_ENTRIES = 2**22


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes with features, and undirected edges: a symmetric adjacency matrix without loops, weights 1."""

    features: sparse.csr_array
    edges: sparse.csr_array

    def __post_init__(self) -> None:
        if _shape(self.edges) != (len(self), len(self)):
            raise BadInputError(f"a graph of {len(self)} nodes came with edges of shape {self.edges.shape}.")

    def __len__(self) -> int:
        return _shape(self.features)[0]

    @property
    def width(self) -> int:
        """Number of features."""
        return _shape(self.features)[1]

    @classmethod
    def of(cls, features: Any, pairs: np.ndarray) -> Graph:
        """Return the graph with an edge for each pair of nodes, in either order, however often it is given."""
        rows = _rows(features)
        count = _shape(rows)[0]
        if len(pairs) and not 0 <= int(pairs.min()) <= int(pairs.max()) < count:
            raise BadInputError(f"edges are between the nodes 0 to {count - 1}; got one up to {int(pairs.max())}.")
        a, b = pairs.reshape(-1, 2).T
        joined = a != b
        ones = np.ones(int(joined.sum()), dtype=np.float32)
        edges = sparse.coo_array((ones, (a[joined], b[joined])), shape=(count, count)).tocsr()
        return cls(rows, _rows((edges + edges.T).astype(bool)))

    def part(self, nodes: np.ndarray) -> tuple[sparse.csr_array, sparse.csr_array]:
        """Return the features of some nodes and the propagation between them: ``D^-1/2 (A + I) D^-1/2``."""
        joined = self.edges[nodes][:, nodes] + sparse.eye_array(len(nodes), format="csr")
        root = np.asarray(joined.sum(1)).ravel() ** -0.5
        return _rows(self.features[nodes]), _rows(joined.multiply(root[:, None]).multiply(root[None, :]))


def _rows(matrix: Any) -> sparse.csr_array:
    rows: Any = sparse.csr_array(matrix)
    return rows.astype(np.float32)


def _shape(matrix: sparse.csr_array) -> tuple[int, int]:
    assert matrix.shape is not None
    return int(matrix.shape[0]), int(matrix.shape[1])


def _matrix(of: Sequence[sparse.csr_array]) -> Tensor:
    """Return a block-diagonal sparse matrix."""
    joined = sparse.block_diag(of, format="coo")
    places = torch.from_numpy(np.stack([joined.row, joined.col]).astype(np.int64))
    data = torch.from_numpy(joined.data)
    return torch.sparse_coo_tensor(places, data, joined.shape, check_invariants=True).coalesce()


@dataclass(frozen=True)
class StackedGraph(Trained):
    """Graph convolutional networks with one hidden layer, each with weights of its own, on parts of one graph."""

    graph: Graph
    first: Float[Tensor, "model feature hidden"]
    first_bias: Float[Tensor, "model hidden"]
    second: Float[Tensor, "model hidden label"]
    second_bias: Float[Tensor, "model label"]

    names: ClassVar[tuple[str, ...]] = ("first", "first_bias", "second", "second_bias")

    def answers(self, inputs: Int[Tensor, "query 1"]) -> Float[Tensor, "model query label"]:
        """Return every model's chances of each class for nodes, on the subgraph of these nodes alone."""
        features, propagation = (_matrix([part]) for part in self.graph.part(inputs[:, 0].numpy()))
        count, width = len(self), self.first.shape[2]
        hidden = torch.sparse.mm(features, self.first.transpose(0, 1).flatten(1))
        hidden = torch.sparse.mm(propagation, hidden).view(-1, count, width) + self.first_bias
        out = torch.einsum("nmh,mhl->nml", hidden.relu(), self.second)
        out = torch.sparse.mm(propagation, out.flatten(1)).view(-1, count, out.shape[2]) + self.second_bias
        return torch.softmax(out.transpose(0, 1), dim=2)


@dataclass(frozen=True, eq=False)
class Convolutional:
    """Recipe of graph convolutional networks: Adam on the mean cross-entropy of all of a model's nodes.

    A model's nodes form a graph of their own: its nodes and the edges between them, whichever party contributed each
    node. ``inputs`` of rows are node numbers.

    Source: Zhang, Tople and Ohrimenko (2021), appendix: 16 hidden units, Adam at 0.01, weight decay 5e-4; the layer is
    Kipf and Welling's (2017), ``D^-1/2 (A + I) D^-1/2 X W + b``. Epochs are not stated there; no dropout here. The
    layer is a product with one sparse matrix for many models at once.
    """

    classes: int
    graph: Graph
    hidden: int = 16
    epochs: int = 200
    learning_rate: float | int = 0.01
    weight_decay: float | int = 5e-4

    def __post_init__(self) -> None:
        counts = {"hidden": self.hidden, "epochs": self.epochs}
        check_recipe(self.classes, counts, {"learning_rate": self.learning_rate}, {"weight_decay": self.weight_decay})

    def describe(self) -> dict[str, object]:
        """Return the recipe as plain values."""
        fields = ("classes", "hidden", "epochs", "learning_rate", "weight_decay")
        return {"model": "gcn", "nodes": len(self.graph), **{name: getattr(self, name) for name in fields}}

    def initial(self, seeds: Sequence[int]) -> StackedGraph:
        """Return untrained models: weights drawn uniformly after Glorot and Bengio (2010), no biases."""
        generators = [torch.Generator().manual_seed(seed % 2**63) for seed in seeds]
        parameters = []
        for inner, outer in ((self.graph.width, self.hidden), (self.hidden, self.classes)):
            drawn = torch.stack([torch.rand(inner, outer, generator=generator) for generator in generators])
            parameters += [(2 * drawn - 1) * (6 / (inner + outer)) ** 0.5, torch.zeros(len(seeds), outer)]
        return StackedGraph(self.graph, *parameters)

    def train(
        self,
        inputs: Int[Tensor, "row 1"],
        labels: Int[Tensor, " _row"],
        chosen: Int[Tensor, "model trained"],
        seeds: Sequence[int],
    ) -> StackedGraph:
        """Train one model on each line of ``chosen`` positions of rows, see ``Learner``."""
        check_rows(inputs, labels, chosen, seeds, self.classes)
        nodes = inputs[:, 0].numpy()
        if nodes.min() < 0 or nodes.max() >= len(self.graph):
            raise BadInputError(
                f"nodes are numbers from 0 to {len(self.graph) - 1}; got {nodes.min()} to {nodes.max()}."
            )
        entries = (self.graph.features.nnz + self.graph.edges.nnz) / len(self.graph) + self.hidden
        at_once = max(1, int(_ENTRIES / (chosen.shape[1] * entries + self.hidden * self.graph.width)))
        classes = labels.long()
        return in_parts(
            lambda part: self._train(nodes[chosen[part].numpy()], classes[chosen[part]], seeds[part]),
            *(len(seeds), at_once, self.learning_rate),
        )

    def _train(self, nodes: np.ndarray, labels: Int[Tensor, "model node"], seeds: Sequence[int]) -> StackedGraph:
        models = self.initial(seeds)
        parts = [self.graph.part(line) for line in nodes]
        features, propagation = (_matrix([part[i] for part in parts]) for i in range(2))
        turned = features.t().coalesce()
        rate, decay = self.learning_rate, self.weight_decay
        optimiser = torch.optim.Adam(list(models.parameters), lr=rate, weight_decay=decay, fused=True)
        count, size = nodes.shape
        for _ in range(self.epochs):
            # The chain rule by hand: products with sparse matrices, of which only dense factors have gradients.
            hidden = torch.sparse.mm(propagation, torch.sparse.mm(features, models.first.flatten(0, 1)))
            hidden = (hidden.view(count, size, -1) + models.first_bias[:, None]).relu_()
            out = torch.sparse.mm(propagation, torch.bmm(hidden, models.second).flatten(0, 1))
            delta = torch.softmax(out.view(count, size, -1) + models.second_bias[:, None], dim=2)
            delta.scatter_add_(2, labels[..., None], delta.new_full((count, size, 1), -1.0)).div_(size)
            models.second_bias.grad = delta.sum(1)
            # Propagation is symmetric.
            back = torch.sparse.mm(propagation, delta.flatten(0, 1)).view(count, size, -1)
            models.second.grad = torch.bmm(hidden.mT, back)
            inner = torch.bmm(back, models.second.mT).mul_(hidden > 0)
            models.first_bias.grad = inner.sum(1)
            inner = torch.sparse.mm(propagation, inner.flatten(0, 1))
            models.first.grad = torch.sparse.mm(turned, inner).view_as(models.first)
            optimiser.step()
        return models
