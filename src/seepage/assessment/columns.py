"""Scores of guessed columns and labels in split learning; records need no matching, since the server knows them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seepage.assessment.calibration import calibration_error
from seepage.assessment.f1 import f1
from seepage.assessment.labels import share_explained
from seepage.errors import BadInputError
from seepage.tabular.schema import Discrete, Schema
from seepage.wire.secret import CutTranscript
from seepage.wire.split import CutGuess

# Figure by metric and column; the column is None for all private columns together.
Figures = dict[tuple[str, str | None], float | None]
# Values of the records whose mean a figure is, by the same key.
OfRecords = dict[tuple[str, str | None], list[float]]


def measure_columns(
    schema: Schema, private: Sequence[int], seen: CutTranscript, guess: CutGuess
) -> tuple[Figures, OfRecords]:
    """Return the figures of a guess, and those of each record where a figure is their mean.

    ``accuracy`` of each private column (a continuous cell is right within the column's tolerance), of the label (by
    the target's name) and of all private cells; ``f1`` of each discrete column and their mean, and ``r2`` of a number
    as label; ``exact_match``, the share of records with all private cells and the label right; ``calibration`` of each
    column with chances. Where gradients were compared, also ``likely``, the share of answers that replay the message as
    no other is expected to, and ``ties``, the share of answers that others fit equally well. ``certified_cells`` is the
    share of cells that are proved, ``certified_wrong`` the share of these that are wrong, and ``still_possible`` the
    mean share of a column's values that are shown to replay a message.

    Args:
        private: positions of the private columns in the schema.

    Raises:
        BadInputError: the guess is of another number of records.
    """
    if guess.cells.shape != seen.cells.shape:
        raise BadInputError(
            f"a guess of {len(guess.cells)} records and {guess.cells.shape[1]} columns was held against "
            f"{len(seen.cells)} and {seen.cells.shape[1]}; guess the records of the view."
        )
    figures: Figures = {}
    scores: dict[tuple[str, str | None], Tensor] = {}
    right = []
    for k, i in enumerate(private):
        column, true, guessed = schema.columns[i], seen.cells[:, k], guess.cells[:, k]
        tolerance = 0.0 if isinstance(column, Discrete) else column.tolerance
        right.append(((true - guessed).abs() <= tolerance).double())
        scores["accuracy", column.name] = right[-1]
        figures["accuracy", column.name] = _mean(right[-1])
        if isinstance(column, Discrete):
            figures["f1", column.name] = f1(column, true, guessed)
            if guess.chances is not None:
                sure = guess.chances[k].argmax(1)
                figures["calibration", column.name] = calibration_error(guess.chances[k], (sure == true).double())
    scores["accuracy", None] = torch.stack(right).mean(0)
    figures["accuracy", None] = _mean(torch.stack(right).flatten())
    scores_f1 = [value for (metric, _), value in figures.items() if metric == "f1" and value is not None]
    if scores_f1:
        figures["f1", None] = sum(scores_f1) / len(scores_f1)
    target = schema.target
    near = 0.0 if isinstance(target, Discrete) else target.tolerance
    labelled = ((guess.labels - seen.labels).abs() <= near).double()
    scores["accuracy", target.name] = labelled
    figures["accuracy", target.name] = _mean(labelled)
    if isinstance(target, Discrete):
        figures["f1", target.name] = f1(target, seen.labels, guess.labels)
    else:
        explained = share_explained(guess.labels, seen.labels)
        figures["r2", target.name] = None if explained != explained else explained
    if guess.label_chances is not None:
        sure = (guess.label_chances.argmax(1) == seen.labels).double()
        figures["calibration", target.name] = calibration_error(guess.label_chances, sure)
    scores["exact_match", None] = torch.stack([*right, labelled]).amin(0)
    figures["exact_match", None] = _mean(scores["exact_match", None])
    figures |= shown_figures(schema, private, guess)
    if guess.certified is not None and bool(guess.certified.any()):
        figures["certified_wrong", None] = _mean(1 - torch.stack(right, 1)[guess.certified])
    return figures, {key: values.tolist() for key, values in scores.items()}


def shown_figures(schema: Schema, private: Sequence[int], guess: CutGuess) -> Figures:
    """Return a guess's own figures, without the truth: likely, tied, certified and still possible values."""
    figures: Figures = {}
    if guess.likely is not None:
        figures["likely", None] = _mean(guess.likely.double())
    if guess.ties is not None:
        figures["ties", None] = _mean((guess.ties > 1).double())
    for metric, cells in (("certified_cells", guess.certified), ("still_possible", guess.mass)):
        if cells is None:
            continue
        for name, values in [*((schema.columns[i].name, cells[:, k]) for k, i in enumerate(private)), (None, cells)]:
            shown = values.double()[~values.double().isnan()]
            figures[metric, name] = _mean(shown)
    return figures


def _mean(values: Tensor) -> float | None:
    return float(values.mean()) if len(values) else None
