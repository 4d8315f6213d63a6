"""Agreement of guesses, and of their chances, with the truth in one column."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from scipy.stats import rankdata
from torch import Tensor

from seepage.tabular.schema import Discrete

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
    at = (sure * bins).ceil().clamp(1, bins).long() - 1
    gaps = torch.zeros(bins, dtype=torch.float64).index_add(0, at, sure - right.double())
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
