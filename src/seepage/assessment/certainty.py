"""The attacker's certainty of single cells, in comparable numbers."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.tabular.schema import Continuous, Schema

PerCell = Float[Tensor, "*batch column"]


def spreads(schema: Schema, uncertainty: PerCell, scale: Float[Tensor, " column"]) -> PerCell:
    """Return the standard deviation behind a continuous cell's entropy, in the column's unit; NaN for discrete ones."""
    deviations = torch.full_like(uncertainty, torch.nan)
    for i in schema.continuous:
        deviations[..., i] = (uncertainty[..., i] - 0.5).exp() / math.sqrt(2 * math.pi) * scale[i]
    return deviations


def certainties(schema: Schema, uncertainty: PerCell, scale: Float[Tensor, " column"]) -> PerCell:
    """Return the attacker's certainty of each cell, in [0, 1]; NaN stays NaN.

    Discrete cells: 1 less the normalised entropy. Continuous cells: the probability that a normal distribution with
    the cell's spread gives to values within the tolerance. Neither is calibrated: attempts can agree and be wrong.
    """
    certainty = 1 - uncertainty
    spread = spreads(schema, uncertainty, scale)
    for i in schema.continuous:
        column = schema.columns[i]
        assert isinstance(column, Continuous)
        # Attempts that agree exactly have no spread.
        inside = torch.erf(column.tolerance / (spread[..., i] * math.sqrt(2)))
        certainty[..., i] = torch.where(spread[..., i] == 0, torch.ones_like(inside), inside)
    return certainty.clamp(0, 1)
