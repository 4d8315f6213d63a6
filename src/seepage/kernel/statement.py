"""The statement: which cells of a guess are proved, and what that is conditional on."""

from __future__ import annotations

import functools
import random
import sys
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

# The tolerance of all rules: roundings of single precision by which an entry of a message may differ from the exact
# one, in units of the largest sum of magnitudes behind it.
ROUNDINGS = 4.0
UNIT = 2.0**-24
# The smallest step between numbers of single precision, twice, and the least error of a unit that is used.
SMALLEST, LEAST = 2.0**-148, 1e-20
# What an operation may lose of a number because it is small, the error from which that holds on the way back, and the
# size of numbers beyond which single precision may overflow.
TINY, SEED, HUGE = 1e-30, 1e-8, 1e31
# What is as good as nothing of directions and bounds.
SAME = 1e-7


class RefusedError(ValueError):
    """What a proof would need does not hold; the message is the reason, as a clause."""


@dataclass(frozen=True)
class Certified:
    """Which cells of a guess are proved, and everything that the statement is conditional on.

    Cell (i, c) is certified if every batch that the declaration allows, and whose message is within k roundings of the
    received one, has a record whose cell c is the certified value within the column's tolerance, matched one to one
    over all certified records.

    Attributes:
        cells: bool (record, column), whether each cell is certified.
        given: bool (record, column), whether it is certified only given what ``fixed`` names.
        conditions: sentences on the declaration that the statement is conditional on.
        fixed: what is held fixed for the cells in ``given``.
        doubt: why nothing, or less than the attack claims, is certified; None without a reason.
        replayed: for messages of single records, 1 where some record that is allowed replays the message, 0 where none
            does, NaN where a wrong message may be replayed, too; None for messages of many records.
    """

    cells: Tensor
    given: Tensor
    conditions: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    doubt: str | None = None
    replayed: Tensor | None = None

    def take(self, order: Tensor) -> Certified:
        """Return the same statement about records in another order, or some; -1 is one that nothing was said of."""
        known = (order >= 0)[:, None]
        cells, given = self.cells[order.clamp(min=0)] & known, self.given[order.clamp(min=0)] & known
        seen = None if self.replayed is None else self.replayed[order.clamp(min=0)].masked_fill(~known[:, 0], torch.nan)
        return Certified(cells, given, self.conditions, self.fixed, self.doubt, seen)

    def given_that(self, fixed: str) -> Certified:
        """Return the weaker statement that holds only with something more held fixed."""
        none, given = torch.zeros_like(self.cells), self.cells | self.given
        return Certified(none, given, self.conditions, (*self.fixed, fixed), self.doubt, self.replayed)

    def first(self, columns: int) -> Certified:
        """Return the same statement about the first columns alone."""
        cells, given = self.cells[:, :columns], self.given[:, :columns]
        return Certified(cells, given, self.conditions, self.fixed, self.doubt, self.replayed)


def refused(cells: object, columns: object, doubt: str) -> Certified:
    """Return that no cell of a witness of any form is certified, and the reason."""
    sizes = [len(one) if isinstance(one, (list, tuple)) else 0 for one in (cells, columns)]
    if isinstance(cells, Tensor) and cells.dim():
        sizes[0] = len(cells)
    return nothing(sizes[0], sizes[1], doubt)


def as_numbers(thing: object, what: str, shape: tuple[int | None, ...], most: float = torch.inf) -> Tensor:
    """Return a tensor of a shape in double precision; refuse what has another form, or is not finite and below a size.

    None stands for any number of entries.
    """
    if not isinstance(thing, Tensor) or thing.is_complex() or thing.layout != torch.strided:
        raise RefusedError(f"{what} is no tensor of numbers")
    if thing.dim() != len(shape) or any(n not in (None, m) for n, m in zip(shape, thing.shape, strict=True)):
        wanted = " x ".join("any" if n is None else str(n) for n in shape)
        raise RefusedError(f"{what} has the shape {tuple(thing.shape)}, not {wanted}")
    found = thing.detach().to("cpu", torch.float64)
    if not bool((found.abs() < most).all()):
        raise RefusedError(f"{what} has an entry that is no number, or too large")
    return found


def nothing(records: int, columns: int, doubt: str | None = None) -> Certified:
    """Return that no cell is certified, and the reason."""
    none = torch.zeros(records, columns, dtype=torch.bool)
    return Certified(none, none, doubt=doubt)


class EncodedColumn(NamedTuple):
    """A column as it enters the network: standardised one-hot entries, or a number, which has no categories."""

    name: str
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    categories: tuple[object, ...] | None = None
    low: float = 0.0
    high: float = 1.0
    tolerance: float = 0.0
    integer: bool = False


class Layout(NamedTuple):
    """Entries of an encoded row.

    Attributes:
        mean, scale: numbers by which the client standardises each entry; it may round them to single precision.
        number: whether each entry is a number, of which ``low`` and ``span`` are bounds and range.
        column, category: for each entry of a category, its place among columns with categories, and in its column.
    """

    mean: Tensor
    scale: Tensor
    number: Tensor
    low: Tensor
    span: Tensor
    column: Tensor
    category: Tensor


@functools.lru_cache(maxsize=4)
def _layout(columns: tuple[EncodedColumn, ...]) -> Layout:
    each = lambda values: torch.tensor(list(values), dtype=torch.float64)  # noqa: E731
    numbers = [one for one in columns if one.categories is None]
    widths = [len(one.categories) for one in columns if one.categories is not None]
    return Layout(
        each(x for one in columns for x in one.mean),
        each(x for one in columns for x in one.scale),
        torch.tensor([one.categories is None for one in columns for _ in one.mean], dtype=torch.bool),
        each(one.low for one in numbers),
        each(one.high - one.low for one in numbers),
        torch.tensor([c for c, width in enumerate(widths) for _ in range(width)], dtype=torch.long),
        torch.tensor([k for width in widths for k in range(width)], dtype=torch.long),
    )


class Declaration(NamedTuple):
    """How a message came about, as far as it is no part of the message: the verifier's own, never the prover's.

    Attributes:
        columns: columns in the order of the client's encoder.
        records: number of records of the message.
        head: ``softmax``, ``sigmoid`` or ``regression``: mean cross-entropy, its binary form, mean squared error.
        target: bounds of a number as target.
        steps, rate: local steps of plain SGD over all records, and their learning rate; None for a gradient.
        precision: number format of the message.
        defense: name of what changed it before it was sent.
    """

    columns: tuple[EncodedColumn, ...]
    records: int
    head: str
    target: tuple[float, float] = (0.0, 0.0)
    steps: int = 1
    rate: float | None = None
    precision: str = "float32"
    defense: str = "none"

    @property
    def numbers(self) -> list[EncodedColumn]:
        """Columns without categories."""
        return [column for column in self.columns if column.categories is None]

    @property
    def layout(self) -> Layout:
        """Entries of a row as the network takes it."""
        return _layout(self.columns)

    def of(self, name: str) -> Tensor:
        """Return an attribute of each number's column."""
        return torch.tensor([float(getattr(column, name)) for column in self.numbers], dtype=torch.float64)

    def rows(self, cells: Tensor) -> Tensor:
        """Return encoded rows (record, entry) of cells (record, column): codes, or values of numbers."""
        parts = [
            cell[:, None] if column.categories is None else one_hot(cell, len(column.categories))
            for column, cell in zip(self.columns, cells.double().unbind(1), strict=True)
        ]
        return (torch.cat(parts, 1) - self.layout.mean) / self.layout.scale

    def describe(self) -> tuple[str, ...]:
        """Return as sentences what a statement about this message is conditional on."""
        how = "the mean gradient" if self.rate is None else f"{self.steps} steps of plain SGD at rate {self.rate:g}"
        each = [
            f"{c.name} ({len(c.categories)} categories)"
            if c.categories is not None
            else f"{c.name} ({c.low:g} to {c.high:g}, within {c.tolerance:g})"
            for c in self.columns
        ]
        return (
            f"The message is {how} over exactly {self.records} records, each of the same weight, in float32, with "
            f"{ROUNDINGS:g} roundings of an operation, and n of a sum of n terms, in any order.",
            f"The loss is that of a {self.head} head, and no defense changed the message.",
            f"Rows are encoded as declared, and no category is unknown: {', '.join(each)}, in this order.",
        )


def random_states() -> list[object]:
    """Return the states of all common generators of random numbers."""
    numpy = sys.modules.get("numpy")
    drawn = () if numpy is None else numpy.random.get_state()
    drawn = [one if isinstance(one, (str, int, float)) else one.tobytes() for one in drawn]
    return [bytes(torch.get_rng_state().tolist()), random.getstate(), drawn]


def one_hot(codes: Tensor, width: int) -> Tensor:
    """Return codes as rows with a single 1, in double precision."""
    return functional.one_hot(codes.long(), width).double()
