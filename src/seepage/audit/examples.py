"""Reconstructed records beside the truth, for people to see what a rate means."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from seepage.assessment import Matched, certainties, spreads
from seepage.audit.files import write_whole
from seepage.tabular.schema import Discrete
from seepage.tabular.table import frame_of

FILE = "examples.json"
COUNT = 3


@dataclass(frozen=True)
class Cell:
    """One cell of an example.

    Attributes:
        column: its name.
        truth, guess: what it holds and what the attacker says; None for a guess that is no value.
        right: whether the guess counts.
        certainty: of a discrete cell, 1 less its normalised entropy; None without an ensemble.
        spread: of a continuous cell, the ensemble's standard deviation in the column's unit; None
            without an ensemble.
    """

    column: str
    truth: Any
    guess: Any
    right: bool
    certainty: float | None
    spread: float | None


@dataclass(frozen=True)
class Example:
    """One true record and the guess that stands for it.

    Attributes:
        dataset, model, batch_size, attack: the setting.
        victim, record: position of the true record.
        cells: one a column.
    """

    dataset: str
    model: str
    batch_size: int
    attack: str
    victim: int
    record: int
    cells: tuple[Cell, ...]


def examples(matched: Matched, dataset: str, model: str, batch_size: int, attack: str) -> list[Example]:
    """Return the first records of the first victims, whether they were read well or not."""
    shown = []
    doubt = matched.uncertainty
    certainty = spread = None
    if doubt is not None:
        certainty = certainties(matched.schema, doubt, matched.scale)
        spread = spreads(matched.schema, doubt, matched.scale)
    positions = [(v, r) for v in range(len(matched.true)) for r in range(matched.true.shape[1])][:COUNT]
    for victim, record in positions:
        truth = frame_of(matched.schema, matched.true[victim, record : record + 1])
        guess_cells = matched.guess[victim, record : record + 1]
        guess = frame_of(matched.schema, guess_cells) if bool(guess_cells.isfinite().all()) else None
        cells = []
        for i, column in enumerate(matched.schema.columns):
            cells.append(
                Cell(
                    column.name,
                    _value(truth, i),
                    None if guess is None else _value(guess, i),
                    bool(matched.right[victim, record, i]),
                    _finite(certainty, victim, record, i) if isinstance(column, Discrete) else None,
                    _finite(spread, victim, record, i),
                )
            )
        shown.append(Example(dataset, model, batch_size, attack, victim, record, tuple(cells)))
    return shown


def _finite(values: Tensor | None, *at: int) -> float | None:
    if values is None or not math.isfinite(value := float(values[at])):
        return None
    return value


def _value(frame: pd.DataFrame, column: int) -> Any:
    return frame.iloc[:, column].tolist()[0]


def write_examples(folder: Path, shown: list[Example]) -> None:
    """Write examples to the run folder."""
    write_whole(folder / FILE, json.dumps([asdict(example) for example in shown], indent=1, ensure_ascii=False) + "\n")


def read_examples(folder: Path) -> list[Example]:
    """Return the examples of a run folder, none where it has no such file or one that cannot be read."""
    try:
        entries = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return [Example(**{**e, "cells": tuple(Cell(**cell) for cell in e["cells"])}) for e in entries]
    except (OSError, ValueError, TypeError, KeyError):
        return []
