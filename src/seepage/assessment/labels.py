"""Scores of guessed labels, of records whose order the attacker knows."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.assessment.auc import auc
from seepage.assessment.calibration import calibration_error
from seepage.assessment.f1 import f1
from seepage.assessment.measurement import Measurement
from seepage.errors import BadInputError
from seepage.tabular.schema import Column, Discrete
from seepage.wire.labels import LabelGuess


def measure_labels(
    target: Column,
    true: Float[Tensor, "training record"],
    guess: LabelGuess,
    counted: Bool[Tensor, "training record"] | None = None,
) -> list[Measurement]:
    """Return the figures of guessed labels, one value a training, all under the target's name.

    ``accuracy`` with the values of the records whose mean it is; a number is right within the target's tolerance. Of
    numbers also ``r2``; of classes ``f1``, ``calibration`` where there are chances, and of two classes with chances
    ``label_auc``, the area under the curve of the chance of the last class in sorted order. As many records are counted
    in each training; all if ``counted`` is None.
    """
    if guess.labels.shape != true.shape:
        raise BadInputError(
            f"labels of shape {tuple(guess.labels.shape)} were guessed of records of shape {tuple(true.shape)}; guess "
            "the records of the view."
        )
    counted = torch.ones_like(true, dtype=torch.bool) if counted is None else counted
    tolerance = 0.0 if isinstance(target, Discrete) else target.tolerance
    right = [
        ((guessed - label).abs() <= tolerance)[which].double()
        for guessed, label, which in zip(guess.labels.cpu().double(), true.cpu(), counted, strict=True)
    ]
    accuracies = torch.stack([hits.mean() for hits in right])
    measurements = [Measurement("accuracy", target.name, accuracies, True, (0.0, 1.0), tuple(right))]
    if not isinstance(target, Discrete):
        shares = [share_explained(guess.labels[k][which], true[k][which]) for k, which in enumerate(counted)]
        return [
            *measurements,
            Measurement("r2", target.name, torch.tensor(shares, dtype=torch.float64), True, (0.0, 1.0)),
        ]
    figures: dict[str, list[float | None]] = {"f1": []}
    for k, which in enumerate(counted):
        truth, guessed = true[k][which].cpu(), guess.labels[k][which].cpu()
        figures["f1"].append(f1(target, truth, guessed))
        if guess.chances is not None:
            chances = guess.chances[k][which].cpu()
            figures.setdefault("calibration", []).append(
                calibration_error(chances, (chances.argmax(1) == truth).double())
            )
            if target.width == 2:
                positive = target.sorted_codes[-1]
                figures.setdefault("label_auc", []).append(auc(chances[:, positive], truth == positive))
    return measurements + [
        Measurement(
            metric,
            target.name,
            torch.tensor([math.nan if value is None else value for value in values], dtype=torch.float64),
            metric != "calibration",
            (0.0, 1.0),
        )
        for metric, values in figures.items()
    ]


def share_explained(guess: Float[Tensor, " record"], truth: Float[Tensor, " record"]) -> float:
    """Return the share of the variance of numbers that a guess explains, at least 0; NaN where all are the same."""
    guess, truth = guess.cpu().double(), truth.cpu().double()
    spread = (truth - truth.mean()).square().sum()
    return max(0.0, float(1 - (guess - truth).square().sum() / spread)) if float(spread) else math.nan
