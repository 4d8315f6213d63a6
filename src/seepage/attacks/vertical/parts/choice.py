"""The choice between answers, column by column, by pairs of features and cells that none of them was fitted on."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.baselines.vertical import NEAR, constants
from seepage.models.inverse import Calibration
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Discrete, Schema
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge

_ENOUGH = 30  # number of pairs from which the same pairs right mean that attack and constant read alike


def mixed(first: FeatureGuess, second: FeatureGuess, take: Bool[Tensor, "training column"]) -> FeatureGuess:
    """Return a guess whose columns are those of the second where ``take`` says so, and of the first elsewhere."""
    chances = None
    if first.chances is not None and second.chances is not None:
        chances = tuple(
            None if a is None or b is None else torch.where(take[:, i, None, None], b, a)
            for i, (a, b) in enumerate(zip(first.chances, second.chances, strict=True))
        )
    radii = None
    if first.radii is not None and second.radii is not None:
        radii = torch.where(take, second.radii, first.radii)
    cells = torch.where(take[:, None], second.cells, first.cells)
    assert first.failed is not None
    assert second.failed is not None
    failed = (first.failed & ~take.all(-1)) | (second.failed & take.any(-1))
    return replace(first, cells=cells, chances=chances, radii=radii, failed=failed)


def right_pairs(
    schema: Schema, guess: Float[Tensor, "training pair column"], true: Float[Tensor, "training pair column"]
) -> Bool[Tensor, "training pair column"]:
    """Return which cells are right: categories that are the same, and numbers within a tenth of the column's range.

    Example:
        >>> from seepage.datasets.planted import distinct
        >>> schema = distinct(rows=11, continuous=1, discrete=1).schema
        >>> right_pairs(schema, torch.tensor([[[4.0, 3.0]]]), torch.tensor([[[5.0, 2.0]]])).tolist()
        [[[True, False]]]
    """
    return (guess - true).abs() <= _near(schema)


def _near(schema: Schema) -> Float[Tensor, " column"]:
    # Categories are at least 1 apart.
    allowed = [0.5 if isinstance(c, Discrete) else NEAR * (c.high - c.low) for c in schema.columns]
    return torch.tensor(allowed, dtype=torch.float64)


def or_constants(
    guess: FeatureGuess,
    right: Bool[Tensor, "training pair column"],
    cells: Float[Tensor, "training pair column"],
    encoder: Encoder,
    knowledge: FeatureKnowledge,
) -> tuple[FeatureGuess, Bool[Tensor, "training column"]]:
    """Return a guess with constants in the columns that the attack reads no better than these, and which they are."""
    # It does where the share of pairs that it has right, without having been fitted on them, is larger by more than the
    # standard error of a constant's share; where both have the same right, at least 30 of them, the attack answers. The
    # constants are the baseline ``constant``'s: a network answers numbers by their mean, seldom near most of them.
    schema = encoder.schema
    row = constants(knowledge)
    gained = right.double() - right_pairs(schema, row.expand_as(cells), cells).double()
    share = torch.stack(
        [
            marginal.near(row[i], float(allowed))
            for i, (marginal, allowed) in enumerate(zip(knowledge.marginals, _near(schema), strict=True))
        ]
    )
    error = (share * (1 - share) / gained.shape[1]).sqrt()
    same = (gained == 0).all(1) & (gained.shape[1] >= _ENOUGH)
    take = (gained.mean(1) <= error) & ~same
    chances = tuple(
        marginal.probabilities.expand(*guess.cells.shape[:2], -1) if isinstance(column, Discrete) else None
        for column, marginal in zip(schema.columns, knowledge.marginals, strict=True)
    )
    errors = Calibration.of(encoder, encoder.encode(row.expand_as(cells)), encoder.encode(cells))
    constant = FeatureGuess(
        row.expand_as(guess.cells), chances, errors.widths(encoder), torch.zeros(len(cells), dtype=torch.bool)
    )
    return mixed(guess, constant, take), take
