"""Scores of guessed columns and labels in split learning, and agreement of guesses with the truth in one column."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from scipy.stats import rankdata
from torch import Tensor

from seepage.assessment.measurement import Measurement
from seepage.errors import BadInputError
from seepage.tabular.schema import Discrete, Schema
from seepage.wire.secret import CutTranscript
from seepage.wire.split import CutGuess

PerRecord = Float[Tensor, " record"]


def auc(scores: PerRecord, positive: Bool[Tensor, " record"]) -> float | None:
    """Return the probability that a positive record scores above a negative one (Mann-Whitney, ties count half)."""
    ones = int(positive.sum())
    zeros = len(positive) - ones
    if not ones or not zeros:
        return None
    ranks = torch.from_numpy(rankdata(scores.double().cpu().numpy()))
    return float((ranks[positive.cpu()].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def calibration_error(chances: Float[Tensor, "record value"], right: PerRecord, bins: int = 15) -> float | None:
    """Return the expected calibration error of the likeliest values (Guo et al. 2017, equation 3), if any.

    Records are put into bins of equal width by the chance of their likeliest value; the error is the mean over
    records of the distance between a bin's mean chance and its share of right answers.
    """
    if not len(right):
        return None
    sure = chances.max(1).values.double()
    bin_of = (sure * bins).ceil().clamp(1, bins).long() - 1
    gaps = torch.zeros(bins, dtype=torch.float64).index_add(0, bin_of, sure - right.double())
    return float(gaps.abs().sum() / len(right))


def f1(column: Discrete, truth: PerRecord, guess: PerRecord) -> float | None:
    """Return the F1 of a column: of its positive category where there are two, otherwise the mean over categories.

    EXACT does not state the averaging; its figures show that it is this one (it says "0 when all predicted 0", and
    its label-DP rows are the closed form of a binary F1). The positive category is the last in sorted order, as label
    encoders number them: ``Male``, ``yes``, ``>50K``. The mean is over the categories that occur in the truth or in
    the guess; None where no category counts.
    """
    true, guessed = truth.long(), guess.long()
    codes = [column.sorted_codes[-1]] if column.width == 2 else range(column.width)
    scores = []
    for code in codes:
        if either := int((true == code).sum()) + int((guessed == code).sum()):
            scores.append(2 * int(((true == code) & (guessed == code)).sum()) / either)
    return sum(scores) / len(scores) if scores else None


def share_explained(guess: PerRecord, truth: PerRecord) -> float:
    """Return the share of the variance of numbers that a guess explains, at least 0; NaN where all are the same."""
    guess, truth = guess.cpu().double(), truth.cpu().double()
    spread = (truth - truth.mean()).square().sum()
    return max(0.0, float(1 - (guess - truth).square().sum() / spread)) if float(spread) else math.nan


def measure_columns(
    schema: Schema, private: Sequence[int], transcript: CutTranscript, guess: CutGuess
) -> list[Measurement]:
    """Return the figures of a guess in one training, with those of each record where a figure is their mean.

    ``accuracy`` of each private column (a continuous cell is right within the column's tolerance), of the label (by
    the target's name) and of all private cells; ``f1`` of each discrete column and their mean, and ``r2`` of a number
    as label; ``exact_match``, the share of records with all private cells and the label right; ``calibration`` of each
    column with chances. Where gradients were compared, also ``likely``, the share of answers that replay the message as
    no other is expected to, and ``ties``, the share of answers that others fit equally well. ``certified_cells`` is the
    share of cells that are proved, ``certified_wrong`` the share of these that are wrong, and ``still_possible`` the
    mean share of a column's values that are shown to replay a message.
    """
    if guess.cells.shape != transcript.cells.shape:
        raise BadInputError(
            f"a guess of {len(guess.cells)} records and {guess.cells.shape[1]} columns was held against "
            f"{len(transcript.cells)} and {transcript.cells.shape[1]}; guess the records of the view."
        )
    figures, f1_scores, right = [], [], []
    for k, i in enumerate(private):
        column, true, guessed = schema.columns[i], transcript.cells[:, k], guess.cells[:, k]
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
    labelled = ((guess.labels - transcript.labels).abs() <= near).double()
    figures.append(Measurement.of_unit("accuracy", target.name, labelled.mean(), labelled))
    if isinstance(target, Discrete):
        figures.append(Measurement.of_unit("f1", target.name, f1(target, transcript.labels, guess.labels)))
    else:
        figures.append(Measurement.of_unit("r2", target.name, share_explained(guess.labels, transcript.labels)))
    if guess.label_chances is not None:
        sure = (guess.label_chances.argmax(1) == transcript.labels).double()
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
