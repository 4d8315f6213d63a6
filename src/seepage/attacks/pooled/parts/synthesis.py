"""Auxiliary rows for an attacker that holds none: from the columns' marginals and from the model's answers."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.errors import BadInputError
from seepage.shadow.pooling import MarkedRows
from seepage.wire.pooled import PredictionView

SynthesisMethod = Literal["marginals", "answers"]

# Settings of the search: rounds, columns drawn anew in each, and the chance of the class at which it stops.
_ROUNDS, _CHANGED, _ENOUGH = 20, 3, 0.8


def synthesised(how: SynthesisMethod, view: PredictionView, reference: MarkedRows, seed: int) -> MarkedRows:
    """Return the same number of made-up rows as there are reference rows, from single columns' marginals alone.

    Rows get their labels from the model's answers. With ``answers``, rows are changed until the model is confident of a
    class that was drawn beforehand. Source: Zhang, Tople and Ohrimenko (2021), section 4, and Shokri, Stronati, Song
    and Shmatikov (2017), section V.C. Deviations: all rows are changed at once; a row is changed in three columns a
    round, for 20 rounds; wanted classes follow the label's marginal.
    """
    if sum(reference.widths) != reference.inputs.shape[1:].numel():
        raise BadInputError("rows can be made up of tables only; use real auxiliary rows for texts and graphs.")
    generator = torch.Generator().manual_seed(seed)
    rows = _shuffled(reference, generator)
    if how == "answers":
        wanted = reference.labels[torch.randperm(len(reference), generator=generator)]
        return _climbed(view, rows, wanted, generator)
    chances = view.ask(rows.inputs)[0]
    drawn = torch.multinomial(chances.double().clamp(min=1e-12), 1, generator=generator)[:, 0]
    return MarkedRows(rows.inputs, drawn, rows.carries, rows.widths, rows.column)


def _shuffled(rows: MarkedRows, generator: torch.Generator) -> MarkedRows:
    """Return rows in which each column is in an order of its own."""
    parts, carries = [], None
    for position, part in enumerate(rows.inputs.split(list(rows.widths), dim=1)):
        order = torch.randperm(len(rows), generator=generator)
        parts.append(part[order])
        if position == rows.column:
            carries = rows.carries[order]
    if carries is None:
        carries = rows.carries[torch.randperm(len(rows), generator=generator)]
    return MarkedRows(torch.cat(parts, dim=1), rows.labels, carries, rows.widths, rows.column)


def _climbed(
    view: PredictionView, rows: MarkedRows, wanted: Int[Tensor, " row"], generator: torch.Generator
) -> MarkedRows:
    """Change rows while this raises the model's confidence in the wanted classes."""
    count, columns = len(rows), len(rows.widths)

    def sure(inputs: Float[Tensor, "row encoded"]) -> Float[Tensor, " row"]:
        return view.ask(inputs)[0].gather(1, wanted[:, None])[:, 0]

    inputs, carries, chance = rows.inputs, rows.carries, sure(rows.inputs)
    for _ in range(_ROUNDS):
        fresh = _shuffled(rows, generator)
        picked = torch.rand(count, columns, generator=generator).argsort(1) < _CHANGED
        taken = picked.repeat_interleave(torch.tensor(rows.widths), dim=1)
        tried = torch.where(taken, fresh.inputs, inputs)
        # The attribute goes with its column.
        moved = picked[:, rows.column] if rows.column is not None else torch.zeros(count, dtype=torch.bool)
        confidence = sure(tried)
        better = (confidence > chance) & (chance < _ENOUGH)
        inputs = torch.where(better[:, None], tried, inputs)
        carries = torch.where(better & moved, fresh.carries, carries)
        chance = torch.where(better, confidence, chance)
    return MarkedRows(inputs, wanted, carries, rows.widths, rows.column)
