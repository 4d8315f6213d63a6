"""Populations of pooled learning other than tables: texts or graph nodes, with attributes whose share may be secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from scipy import sparse
from torch import Tensor

from seepage.errors import BadInputError, unknown_name
from seepage.shadow.graph import Graph
from seepage.shadow.pooling import MarkedRows


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts as rows of word numbers, padded with 0, with labels, and whether each carries an attribute of some name."""

    name: str
    words: Int[Tensor, "text position"]
    vectors: Float[Tensor, "word embedding"]
    labels: Int[Tensor, " text"]
    classes: tuple[str, ...]
    marks: Mapping[str, Bool[Tensor, " text"]]
    target: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def marked(self, attribute: str) -> MarkedRows:
        """Return the texts in the form that models take, with an attribute marked, which models do not see."""
        return MarkedRows(self.words, self.labels, attribute_mask(self.marks, attribute, self.name))


@dataclass(frozen=True, eq=False)
class Nodes:
    """Nodes of a graph, with labels, and whether each carries an attribute of some name.

    Of attributes that are a feature themselves, ``features`` has its position.
    """

    name: str
    graph: Graph
    labels: Int[Tensor, " node"]
    classes: tuple[str, ...]
    marks: Mapping[str, Bool[Tensor, " node"]]
    features: Mapping[str, int]
    target: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def marked(self, attribute: str) -> MarkedRows:
        """Return the numbers of all nodes as rows, with an attribute marked."""
        return MarkedRows(
            torch.arange(len(self))[:, None], self.labels, attribute_mask(self.marks, attribute, self.name)
        )

    def visible(self, attribute: str, keep: bool) -> Graph:
        """Return the graph as models see it: without the feature that is the attribute itself, unless it is kept."""
        position = self.features.get(attribute)
        if keep or position is None:
            return self.graph
        features = sparse.csc_array(self.graph.features)
        columns = [i for i in range(self.graph.width) if i != position]
        return Graph(features[:, columns].tocsr(), self.graph.edges)


Population = Texts | Nodes


def attribute_mask(marks: Mapping[str, Bool[Tensor, " row"]], attribute: str, name: str) -> Bool[Tensor, " row"]:
    """Return whether each row carries an attribute."""
    if attribute not in marks:
        raise unknown_name(f"attribute of {name}:", attribute, marks)
    carries = marks[attribute]
    if bool(carries.all()) or not bool(carries.any()):
        raise BadInputError(
            f"{int(carries.sum())} of {len(carries)} rows of {name} carry the attribute {attribute!r}: one value "
            "here, and no distribution to be kept secret; choose another."
        )
    return carries
