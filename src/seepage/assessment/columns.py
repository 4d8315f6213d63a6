"""Scores of guessed columns and labels in split learning; records need no matching, since the server knows them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from seepage.assessment.agreement import calibration_error, f1, share_explained
from seepage.assessment.measurement import Measurement
from seepage.errors import BadInputError
from seepage.tabular.schema import Discrete, Schema
from seepage.wire.secret import CutTranscript
from seepage.wire.split import CutGuess


def measure_columns(schema: Schema, private: Sequence[int], seen: CutTranscript, guess: CutGuess) -> list[Measurement]:
    """Return the figures of a guess in one training, with those of each record where a figure is their mean.

    ``accuracy`` of each private column (a continuous cell is right within the column's tolerance), of the label (by
    the target's name) and of all private cells; ``f1`` of each discrete column and their mean, and ``r2`` of a number
    as label; ``exact_match``, the share of records with all private cells and the label right; ``calibration`` of each
    column with chances. Where gradients were compared, also ``likely``, the share of answers that replay the message as
    no other is expected to, and ``ties``, the share of answers that others fit equally well. ``certified_cells`` is the
    share of cells that are proved, ``certified_wrong`` the share of these that are wrong, and ``still_possible`` the
    mean share of a column's values that are shown to replay a message.
    """
    if guess.cells.shape != seen.cells.shape:
        raise BadInputError(
            f"a guess of {len(guess.cells)} records and {guess.cells.shape[1]} columns was held against "
            f"{len(seen.cells)} and {seen.cells.shape[1]}; guess the records of the view."
        )
    figures, f1_scores, right = [], [], []
    for k, i in enumerate(private):
        column, true, guessed = schema.columns[i], seen.cells[:, k], guess.cells[:, k]
        tolerance = 0.0 if isinstance(column, Discrete) else column.tolerance
        hits = ((true - guessed).abs() <= tolerance).double()
        right.append(hits)
        figures.append(Measurement.of_unit("accuracy", column.name, hits.mean(), hits))
        if isinstance(column, Discrete):
            score = f1(column, true, guessed)
            figures.append(Measurement.of_unit("f1", column.name, score))
            f1_scores += [] if score is None else [score]
            if guess.chances is not None:
                sure = guess.chances[k].argmax(1)
                error = calibration_error(guess.chances[k], (sure == true).double())
                figures.append(Measurement.of_unit("calibration", column.name, error))
    by_record = torch.stack(right)
    figures.append(Measurement.of_unit("accuracy", None, by_record.flatten().mean(), by_record.mean(0)))
    if f1_scores:
        figures.append(Measurement.of_unit("f1", None, sum(f1_scores) / len(f1_scores)))
    target = schema.target
    near = 0.0 if isinstance(target, Discrete) else target.tolerance
    labelled = ((guess.labels - seen.labels).abs() <= near).double()
    figures.append(Measurement.of_unit("accuracy", target.name, labelled.mean(), labelled))
    if isinstance(target, Discrete):
        figures.append(Measurement.of_unit("f1", target.name, f1(target, seen.labels, guess.labels)))
    else:
        figures.append(Measurement.of_unit("r2", target.name, share_explained(guess.labels, seen.labels)))
    if guess.label_chances is not None:
        sure = (guess.label_chances.argmax(1) == seen.labels).double()
        figures.append(Measurement.of_unit("calibration", target.name, calibration_error(guess.label_chances, sure)))
    whole = torch.stack([*right, labelled]).amin(0)
    figures.append(Measurement.of_unit("exact_match", None, whole.mean(), whole))
    figures += shown_figures(schema, private, guess)
    if guess.certified is not None and bool(guess.certified.any()):
        wrong = 1 - torch.stack(right, 1)[guess.certified]
        figures.append(Measurement.of_unit("certified_wrong", None, wrong.mean()))
    return figures


def shown_figures(schema: Schema, private: Sequence[int], guess: CutGuess) -> list[Measurement]:
    """Return a guess's own figures, without the truth: likely, tied, certified and still possible values."""
    figures = []
    if guess.likely is not None:
        figures.append(Measurement.of_unit("likely", None, guess.likely.double().mean()))
    if guess.ties is not None:
        figures.append(Measurement.of_unit("ties", None, (guess.ties > 1).double().mean()))
    for metric, cells in (("certified_cells", guess.certified), ("still_possible", guess.mass)):
        if cells is None:
            continue
        for name, values in [*((schema.columns[i].name, cells[:, k]) for k, i in enumerate(private)), (None, cells)]:
            shown = values.double()[~values.double().isnan()]
            figures.append(Measurement.of_unit(metric, name, shown.mean()))
    return figures
