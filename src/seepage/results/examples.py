"""Reconstructed records beside the truth, as illustrations of a rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from seepage.assessment import certainties, scales, spreads
from seepage.assessment.evidence import SHOWN, Evidence
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import frame_of


@dataclass(frozen=True)
class Cell:
    """One cell: certainty is 1 less the normalised entropy (discrete), spread is in the column's unit."""

    column: str
    truth: object
    guess: object
    right: bool
    certainty: float | None
    spread: float | None


@dataclass(frozen=True)
class Example:
    """A true record and its guess."""

    batch_size: int | None
    defense: str
    attack: str
    cells: tuple[Cell, ...]


def examples(
    schema: Schema, statistics: Statistics, evidence: Evidence, run: tuple[int | None, str, str]
) -> list[Example]:
    """Return the first records of the first victims, read well or not; none where records are not kept."""
    if evidence.true is None or evidence.guess is None:
        return []
    shown = []
    certainty = spread = None
    if evidence.uncertainty is not None:
        doubt, scale = torch.tensor(evidence.uncertainty, dtype=torch.float64), scales(schema, statistics)
        certainty, spread = certainties(schema, doubt, scale), spreads(schema, doubt, scale)
    positions = [(v, r) for v in range(evidence.victims) for r in range(evidence.true.shape[1])][:SHOWN]
    for victim, record in positions:
        only = slice(record, record + 1)
        truth = frame_of(schema, torch.tensor(evidence.true[victim, only]))
        guess_cells = torch.tensor(evidence.guess[victim, only])
        guess = frame_of(schema, guess_cells) if bool(guess_cells.isfinite().all()) else None
        cells = (
            Cell(
                column.name,
                _value(truth, i),
                None if guess is None else _value(guess, i),
                bool(evidence.right[victim, record, i]),
                _finite(certainty, victim, record, i) if isinstance(column, Discrete) else None,
                _finite(spread, victim, record, i),
            )
            for i, column in enumerate(schema.columns)
        )
        shown.append(Example(*run, tuple(cells)))
    return shown


def _finite(values: Tensor | None, *at: int) -> float | None:
    return None if values is None or not math.isfinite(value := float(values[at])) else value


def _value(frame: pd.DataFrame, column: int) -> object:
    return frame.iloc[:, column].tolist()[0]
