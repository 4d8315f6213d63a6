"""The attacker's certainty of single cells, in comparable numbers."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.tabular.schema import Continuous, Schema


def spreads(
    schema: Schema, uncertainty: Float[Tensor, "*batch column"], scale: Float[Tensor, " column"]
) -> Float[Tensor, "*batch column"]:
    """Return the standard deviation behind the entropy of a continuous cell, in the column's unit.

    Entropies are those of normal distributions, see ``RecordsGuess.uncertainty``; NaN for discrete columns.

    Args:
        scale: standard deviation with which each continuous column is standardised.

    Example:
        >>> age = Continuous(name="age", low=0, high=99, tolerance=5)
        >>> one_nat = torch.tensor([[0.5 + 0.5 * math.log(2 * math.pi)]])
        >>> spreads(Schema(columns=(age,), target=age.model_copy(update={"name": "y"})), one_nat, torch.tensor([10.0]))
        tensor([[10.]])
    """
    deviations = torch.full_like(uncertainty, torch.nan)
    for i in schema.continuous:
        deviations[..., i] = (uncertainty[..., i] - 0.5).exp() / math.sqrt(2 * math.pi) * scale[i]
    return deviations


def certainties(
    schema: Schema, uncertainty: Float[Tensor, "*batch column"], scale: Float[Tensor, " column"]
) -> Float[Tensor, "*batch column"]:
    """Return the attacker's certainty of each cell, in [0, 1].

    Discrete cells: 1 less the normalised entropy. Continuous cells: the probability that a normal distribution with
    the cell's spread gives to values within the tolerance. Neither is calibrated: attempts can agree and be wrong.

    Args:
        uncertainty: entropy of the guessed cells; NaN stays NaN.
        scale: standard deviation with which each continuous column is standardised.
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
