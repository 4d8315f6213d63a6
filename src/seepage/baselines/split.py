"""Baselines of split learning: guesses of the server without the gradients that came back over the cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from seepage.errors import BadInputError, check_choice, check_count
from seepage.registry import baselines
from seepage.tabular.schema import Column, Discrete, Schema
from seepage.wire.split import CutGuess, CutKnowledge, CutView

Neighbourhood = Literal["features", "output"]
# Number of distances in memory at once.
_AT_ONCE = 2**24


@baselines.register("marginals", "split")
@dataclass(frozen=True)
class Marginals:
    """Each column's most frequent category or median, and the most frequent label, for every record."""

    def __call__(self, view: CutView, knowledge: CutKnowledge, seeds: Sequence[int] = (0,)) -> CutGuess:
        """Return the guess; ``seeds`` are not used."""
        row = torch.tensor([knowledge.statistics.marginals[i].median for i in view.model.private], dtype=torch.float64)
        labels = torch.full((view.records,), knowledge.statistics.target.median, dtype=torch.float64)
        return CutGuess(row.repeat(view.records, 1), labels)


@baselines.register("knn", "split")
@dataclass(frozen=True)
class Nearest:
    """The vote of the most similar auxiliary rows, by the server's own columns or by its activations.

    EXACT's comparison. Its figures show that it uses five neighbours, Euclidean distances and unscaled codes: sorted
    categories are numbered, and numbers stay as they are. Where several values have the most votes, the smallest
    number in that order wins; a continuous column gets the neighbours' median. Whether it scales columns is not stated;
    unscaled, those of large numbers decide alone.

    Attributes:
        on: data that distances are measured in: ``features``: the server's own columns, ``output``: its activations.
        neighbours: number of neighbours that vote.
        scaled: whether each column is divided by its standard deviation over the auxiliary rows first.

    Raises:
        BadInputError: an argument is out of range.
    """

    on: Neighbourhood = "features"
    neighbours: int = 5
    scaled: bool = False

    def __post_init__(self) -> None:
        check_choice("what neighbours are near in:", self.on, Neighbourhood)
        check_count("neighbours", self.neighbours)

    def __call__(self, view: CutView, knowledge: CutKnowledge, seeds: Sequence[int] = (0,)) -> CutGuess:
        """Return the guess; ``seeds`` are not used."""
        rows, model, schema = knowledge.auxiliary, view.model, knowledge.schema
        if rows is None or len(rows) < self.neighbours:
            raise BadInputError(
                f"{self.neighbours} neighbours are to vote, but the attacker holds "
                f"{0 if rows is None else len(rows)} auxiliary rows; grant it at least as many (auxiliary)."
            )
        if self.on == "output":
            auxiliary, records = model.cut(rows.cells).cpu().double(), view.cut.detach().cpu().double()
        else:
            auxiliary = numbered(schema, model.public, rows.cells[:, list(model.public)])
            records = numbered(schema, model.public, view.features)
        if self.scaled:
            spread = auxiliary.std(0, correction=0)
            # A column of one value, and one without any, tells no rows apart.
            spread[spread == 0] = 1.0
            auxiliary, records = auxiliary / spread, records / spread
        near = []
        for part in records.split(max(1, _AT_ONCE // len(auxiliary))):
            # Not by products of rows: large numbers beside small codes would lose these.
            distances = torch.cdist(part, auxiliary, compute_mode="donot_use_mm_for_euclid_dist")
            near.append(distances.topk(self.neighbours, largest=False).indices)
        index = torch.cat(near)
        cells = [_vote(schema.columns[i], rows.cells[:, i][index]) for i in model.private]
        return CutGuess(torch.stack(cells, dim=1), _vote(schema.target, rows.labels[index]))


def numbered(schema: Schema, columns: Sequence[int], cells: Float[Tensor, "row column"]) -> Float[Tensor, "row column"]:
    """Return cells numbered as by label encoders: a discrete cell is the position of its category in sorted order."""
    columns_of_cells = zip([schema.columns[i] for i in columns], cells.unbind(1), strict=True)
    codes = [
        _places(column)[values.long()] if isinstance(column, Discrete) else values
        for column, values in columns_of_cells
    ]
    return torch.stack(codes, dim=1)


def _places(column: Discrete) -> Float[Tensor, " code"]:
    places = torch.empty(column.width, dtype=torch.float64)
    places[torch.tensor(column.sorted_codes)] = torch.arange(column.width, dtype=torch.float64)
    return places


def _vote(column: Column, votes: Float[Tensor, "record vote"]) -> Float[Tensor, " record"]:
    if not isinstance(column, Discrete):
        return votes.median(1).values
    places = _places(column)
    counts = functional.one_hot(places[votes.long()].long(), column.width).sum(1)
    return torch.tensor(column.sorted_codes)[counts.argmax(1)].double()
