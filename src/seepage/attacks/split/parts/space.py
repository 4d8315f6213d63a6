"""Candidates for the private cells: all combinations of values, and a client part's responses to them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seepage.errors import BadInputError, Remedy, check_count
from seepage.models.deepfm import DeepFMClient, Shared
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
        # Whole numbers are listed one by one where all combinations are few. Otherwise numbers are put into at most
        # ``bins`` bins with about equally many rows, whose medians are candidates; fewer where combinations are many.
        check_count("bins", bins)
        values = []
        columns = [knowledge.schema.columns[i] for i in model.private]
        combined = math.prod(column.width for column in columns if isinstance(column, Discrete))
        numbers = [column for column in columns if isinstance(column, Continuous)]
        whole = all(column.integer for column in numbers)
        whole = whole and combined * math.prod(int(column.high - column.low) + 1 for column in numbers) <= _MOST_WHOLE
        if numbers and not whole:
            bins = max(2, min(bins, int((_MOST_BINNED / combined) ** (1 / len(numbers)))))
        for i in model.private:
            column = knowledge.schema.columns[i]
            if isinstance(column, Continuous) and whole:
                row = torch.zeros(int(column.high - column.low) + 1, len(knowledge.schema.columns), dtype=torch.float64)
                row[:, i] = torch.arange(len(row)) + column.low
                values.append(model.scaled(row, [i])[:, 0].cpu())
                continue
            if isinstance(column, Discrete):
                values.append(torch.arange(column.width, dtype=model.dtype))
                continue
            marginal = knowledge.statistics.marginals[i]
            share = (torch.arange(bins, dtype=torch.float64) + 0.5) / bins
            at = torch.searchsorted(marginal.probabilities.cumsum(0), share).clamp(max=len(marginal.values) - 1)
            row = torch.zeros(len(at), len(knowledge.schema.columns), dtype=torch.float64)
            row[:, i] = marginal.values[at]
            values.append(model.scaled(row, [i])[:, 0].unique().cpu())
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


@dataclass(frozen=True)
class Side:
    """Records, or candidates, in the form that a responder prepared."""

    tensors: tuple[Tensor, ...]

    def at(self, index: Tensor) -> Side:
        """Return some of the records or candidates, by position."""
        return Side(tuple(tensor[index] for tensor in self.tensors))

    def across(self) -> Side:
        """Return records as rows of a grid with the candidates as columns."""
        return Side(tuple(tensor[:, None] for tensor in self.tensors))


class Responder(ABC):
    """Responses for records and candidates; their leading axes broadcast, so that pairs and grids use the same call."""

    @property
    @abstractmethod
    def additive(self) -> int | None:
        """Position in the cut of the first coordinate that is added to a logit, one each; None where there are none."""

    @abstractmethod
    def of_cut(self, cut: Float[Tensor, "record cut"]) -> Side:
        """Return prepared records."""

    @abstractmethod
    def of_cells(self, cells: Float[Tensor, "candidate private"]) -> Side:
        """Return prepared candidates."""

    @abstractmethod
    def outputs(self, records: Side, candidates: Side) -> Float[Tensor, "*some output"]:
        """Return logits."""

    @abstractmethod
    def responses(
        self, records: Side, candidates: Side
    ) -> tuple[Float[Tensor, "*some output"], Float[Tensor, "*some output cut"]]:
        """Return logits and their derivatives with respect to the cut."""


def responder(model: SplitModel, closed_form: bool = True) -> Responder:
    """Return the responder of a network's client part: in closed form where one is known, otherwise by autograd."""
    if closed_form and isinstance(model.client, DeepFMClient):
        return _ClosedForm(model.client)
    return _Autograd(model.client)


class _ClosedForm(Responder):
    """Responses of a DeepFM client part, without a graph.

    A record's and a candidate's contributions add up to the first layer's units: each is computed only once.
    """

    def __init__(self, client: DeepFMClient) -> None:
        self._client = client

    @property
    def additive(self) -> int | None:
        return self._client.additive

    @torch.no_grad()
    def of_cut(self, cut: Tensor) -> Side:
        return Side(tuple(self._client.of_cut(cut)))

    @torch.no_grad()
    def of_cells(self, cells: Tensor) -> Side:
        return Side(tuple(self._client.of_cells(cells)))

    @torch.no_grad()
    def outputs(self, records: Side, candidates: Side) -> Tensor:
        return self._client.outputs_of(Shared(*records.tensors), Shared(*candidates.tensors))

    @torch.no_grad()
    def responses(self, records: Side, candidates: Side) -> tuple[Tensor, Tensor]:
        return self._client.responses_of(Shared(*records.tensors), Shared(*candidates.tensors))


class _Autograd(Responder):
    """Responses of any client part, by one backward pass a logit; a user's module is a black box."""

    def __init__(self, client: nn.Module) -> None:
        self._client = client

    @property
    def additive(self) -> int | None:
        return None

    def of_cut(self, cut: Tensor) -> Side:
        return Side((cut,))

    def of_cells(self, cells: Tensor) -> Side:
        return Side((cells,))

    @torch.no_grad()
    def outputs(self, records: Side, candidates: Side) -> Tensor:
        cut, cells, shape = _paired(records, candidates)
        return self._client(cut, cells).unflatten(0, shape)

    def responses(self, records: Side, candidates: Side) -> tuple[Tensor, Tensor]:
        cut, cells, shape = _paired(records, candidates)
        cut = cut.detach().clone().requires_grad_(True)
        logits = self._client(cut, cells)
        outputs = logits.shape[1]
        gradients = [
            torch.autograd.grad(logits[:, k].sum(), cut, retain_graph=k + 1 < outputs)[0] for k in range(outputs)
        ]
        return logits.detach().unflatten(0, shape), torch.stack(gradients, dim=1).unflatten(0, shape)


def _paired(records: Side, candidates: Side) -> tuple[Tensor, Tensor, Sequence[int]]:
    (cut,), (cells,) = records.tensors, candidates.tensors
    shape = torch.broadcast_shapes(cut.shape[:-1], cells.shape[:-1])
    return cut.expand(*shape, -1).flatten(0, -2), cells.expand(*shape, -1).flatten(0, -2), shape


def width_of(model: SplitModel) -> int:
    """Return the approximate number of values of the client part's forward pass for a record."""
    return max(1, sum(p.shape[0] for p in model.client.parameters() if p.dim() > 1))
