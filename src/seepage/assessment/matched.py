"""A guess matched to the truth, row by row: the input of every metric."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seepage.errors import BadInputError
from seepage.tabular.align import match, pairwise_error, reorder, right_cells
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.text import how_many
from seepage.wire.horizontal import RecordsGuess
from seepage.wire.secret import RecordsSecret

Kind = Literal["discrete", "continuous"]
KINDS: tuple[Kind, ...] = ("discrete", "continuous")


@dataclass(frozen=True)
class Matched:
    """True records and, in the same order, the guessed records that are matched to them; None for what is not known.

    Attributes:
        uncertainty: entropy of the guessed cells.
        scale: standard deviation of each continuous column, NaN for discrete ones.
        certified, given: whether the attack certifies each guessed cell, at all and under the conditions of its proof.
        visible: which true records stand above the client's rounding in the message, see ``visible``.
    """

    schema: Schema
    true: Float[Tensor, "victim record column"]
    guess: Float[Tensor, "victim record column"]
    uncertainty: Float[Tensor, "victim record column"] | None
    scale: Float[Tensor, " column"]
    certified: Bool[Tensor, "victim record column"] | None = None
    given: Bool[Tensor, "victim record column"] | None = None
    visible: Bool[Tensor, "victim record"] | None = None

    @cached_property
    def right(self) -> Bool[Tensor, "victim record column"]:
        """Which cells are right (TabLeak Eq. 6)."""
        return right_cells(self.schema, self.guess, self.true)

    def columns(self, kind: Kind) -> tuple[int, ...]:
        """Return the positions of the columns of ``kind``."""
        return self.schema.discrete if kind == "discrete" else self.schema.continuous


def scales(schema: Schema, statistics: Statistics) -> Float[Tensor, " column"]:
    """Return the standard deviation of each continuous column, NaN for discrete ones."""
    scale = torch.full((len(schema.columns),), torch.nan, dtype=torch.float64)
    for i in schema.continuous:
        scale[i] = statistics.std[schema.blocks[i].start]
    return scale


def matching(
    schema: Schema,
    scale: Float[Tensor, " column"],
    true: Float[Tensor, "victim record column"],
    guessed: Float[Tensor, "victim guess column"],
) -> Int[Tensor, "victim record"]:
    """Return the guessed record that stands for each true one, see ``match_records``."""
    cost = pairwise_error(schema, guessed, true)
    if schema.continuous:
        apart = torch.zeros_like(cost)
        for i in schema.continuous:
            z = (guessed[:, :, None, i] - true[:, None, :, i]).abs() / scale[i]
            apart += 1 - 1 / (1 + z.nan_to_num(torch.inf))
        # Over all records the tie-break adds up to less than one wrong cell.
        weight = 0.5 / (len(schema.columns) * len(schema.continuous) * max(1, true.shape[1]))
        cost = cost + weight * apart
    return match(cost)


def match_records(schema: Schema, statistics: Statistics, secret: RecordsSecret, guess: RecordsGuess) -> Matched:
    """Match guessed to true records, one to one, at the least total error (TabLeak Eq. 6); NaN cells count as wrong.

    Many matchings can share the least error, and scores of single columns would then depend on the
    order in which the records came. Among them, the one with the least distance in the continuous
    columns is taken: the mean over those columns of ``z / (1 + z)``, ``z`` the distance in standard
    deviations. The total error is not touched by it. (The paper leaves the choice open; its code
    takes whichever the solver returns.)
    """
    true, guessed = secret.cells.detach().cpu().double(), guess.cells.detach().cpu().double()
    uncertainty = None if guess.uncertainty is None else guess.uncertainty.detach().cpu().double()
    if len(true) != len(guessed):
        raise BadInputError(
            f"the secret has {how_many(len(true), 'victim')} but the guess {len(guessed)}; "
            "assess a guess against the transcript it was made from."
        )
    if uncertainty is not None and uncertainty.shape != guessed.shape:
        raise BadInputError(
            f"a guess of shape {tuple(guessed.shape)} came with uncertainties of shape {tuple(uncertainty.shape)}; "
            "give one for each cell, or None."
        )
    scale = scales(schema, statistics)
    index = matching(schema, scale, true, guessed)

    def flags(cells: Bool[Tensor, "victim record column"] | None) -> Bool[Tensor, "victim record column"] | None:
        return None if cells is None else reorder(cells.detach().cpu().double(), index) > 0

    return Matched(
        schema=schema,
        true=true,
        guess=reorder(guessed, index),
        uncertainty=None if uncertainty is None else reorder(uncertainty, index),
        scale=scale,
        certified=flags(guess.certified),
        given=flags(guess.given),
    )
