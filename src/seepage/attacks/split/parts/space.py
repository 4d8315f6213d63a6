"""Candidates for the private cells: all combinations of the columns' values.

A combination has a number, whose digits are the positions of its values: ``place = (i_1 w_2 + i_2) w_3 + i_3 ...`` with
w_k values of column k, so that the last digit runs fastest. Whole numbers are listed one by one where all combinations
are few. Otherwise numbers are put into bins with about equally many rows, whose medians are candidates; into fewer
where combinations are many, ``bins <= (most / combinations of categories)^(1 / numbers)``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.errors import BadInputError, Remedy, check_count
from seepage.models.deepfm import DeepFMClient
from seepage.models.split import SplitModel
from seepage.tabular.schema import Continuous, Discrete
from seepage.wire.split import CutKnowledge

# Largest number of combinations in which whole numbers are listed one by one, and in which others are put into bins.
_MOST_WHOLE, _MOST_BINNED = 2**13, 2**13


@dataclass(frozen=True)
class Space:
    """The product of the columns' values, counted like a number whose last digit runs fastest."""

    names: tuple[str, ...]
    values: tuple[Float[Tensor, " _value"], ...]  # codes, or numbers scaled to [0, 1]
    labels: int
    binned: tuple[int, ...] = ()  # columns of which only one value a bin is listed

    @classmethod
    def of(cls, model: SplitModel, knowledge: CutKnowledge, bins: int = 16) -> Space:
        """Return the space of a network's private columns."""
        check_count("bins", bins)
        values = []
        columns = [knowledge.schema.columns[i] for i in model.private]
        combined = math.prod(column.width for column in columns if isinstance(column, Discrete))
        numbers = [column for column in columns if isinstance(column, Continuous)]
        whole = all(column.integer for column in numbers)
        whole = whole and combined * math.prod(int(column.high - column.low) + 1 for column in numbers) <= _MOST_WHOLE
        if numbers and not whole:
            bins = max(2, min(bins, int((_MOST_BINNED / combined) ** (1 / len(numbers)))))
        for i, column in zip(model.private, columns, strict=True):
            if isinstance(column, Discrete):
                values.append(torch.arange(column.width, dtype=model.dtype))
                continue
            if whole:
                listed = torch.arange(int(column.high - column.low) + 1) + column.low
            else:
                marginal, share = knowledge.statistics.marginals[i], (torch.arange(bins).double() + 0.5) / bins
                quantiles = torch.searchsorted(marginal.probabilities.cumsum(0), share).clamp(
                    max=len(marginal.values) - 1
                )
                listed = marginal.values[quantiles]
            row = torch.zeros(len(listed), len(knowledge.schema.columns), dtype=torch.float64)
            row[:, i] = listed
            scaled = model.scaled(row, [i])[:, 0].cpu()
            values.append(scaled if whole else scaled.unique())
        binned = () if whole else tuple(k for k, column in enumerate(columns) if isinstance(column, Continuous))
        return cls(model.private_names, tuple(values), model.classes, binned)

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of values of each column."""
        return tuple(len(values) for values in self.values)

    @property
    def size(self) -> int:
        """Number of combinations of cells."""
        return math.prod(self.widths)

    @property
    def configurations(self) -> int:
        """Number of combinations of cells and label."""
        return self.size * self.labels

    @property
    def sizes(self) -> str:
        """Each column with its number of values, as text."""
        return " x ".join(f"{name} ({width})" for name, width in zip(self.names, self.widths, strict=True))

    def codes(self, index: Int[Tensor, "*some"]) -> Int[Tensor, "*some column"]:
        """Return the value of each column in the combinations at some positions."""
        rest, codes = index, []
        for width in reversed(self.widths):
            codes.append(rest % width)
            rest = rest // width
        return torch.stack(codes[::-1], dim=-1)

    def places(self, codes: Int[Tensor, "*some column"]) -> Int[Tensor, "*some"]:
        """Undo ``codes``."""
        index = torch.zeros_like(codes[..., 0])
        for i, width in enumerate(self.widths):
            index = index * width + codes[..., i]
        return index

    def of_codes(self, codes: Int[Tensor, "*some column"]) -> Float[Tensor, "*some column"]:
        """Return the cells of values by their positions in each column."""
        return torch.stack([values.to(codes.device)[codes[..., i]] for i, values in enumerate(self.values)], dim=-1)

    def cells(self, index: Int[Tensor, "*some"]) -> Float[Tensor, "*some column"]:
        """Return the cells of the combinations at some positions."""
        return self.of_codes(self.codes(index))

    def drawn(self, shape: Sequence[int], generator: torch.Generator) -> Int[Tensor, "*some column"]:
        """Return random combinations, as positions in each column."""
        return torch.stack([torch.randint(width, (*shape,), generator=generator) for width in self.widths], dim=-1)

    def chunks(self, size: int) -> Iterator[Int[Tensor, " place"]]:
        """Return all positions in chunks."""
        for start in range(0, self.size, size):
            yield torch.arange(start, min(start + size, self.size))


def check_enumerable(space: Space, budget: int) -> None:
    """Refuse a space that is too large to enumerate."""
    if space.configurations > budget:
        raise BadInputError(
            f"the private columns {space.sizes} and {space.labels} labels make {space.configurations:,} "
            f"configurations, more than the {budget:,} that are gone through one by one; name fewer private columns, "
            "use fewer bins, raise the budget (most), or choose a search, meet or descent: ",
            Remedy("attacks", placeholder="'exact:{search: meet}'"),
            ".",
        )


def check_countable(space: Space) -> None:
    """Refuse a space whose combinations cannot be numbered."""
    if space.configurations > 2**62:
        raise BadInputError(
            f"the private columns {space.sizes} make more configurations than can be numbered (2^62); name "
            "fewer private columns, or use fewer bins."
        )


def not_exact(model: SplitModel, space: Space) -> str | None:
    """Return, as a sentence, why a client part's numbers cannot be answered exactly; None where all cells can."""
    numbers = ", ".join(space.names[k] for k in space.binned)
    if space.binned and not isinstance(model.schema.target, Discrete):
        return (
            f"With a number as target the private numbers {numbers} are not solved for: the likeliest of their bins is "
            "taken."
        )
    if not space.binned or isinstance(model.client, DeepFMClient):
        return None
    return (
        f"The client part ({type(model.client).__name__}) cannot be solved for the private numbers {numbers}: only "
        "DeepFM's layers give the set of all values that replay a message, so that values in bins are tried and the "
        "best is refined."
    )
