"""Scores of guessed labels, of records whose order the attacker knows."""

from __future__ import annotations

import math
from collections import defaultdict

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.assessment.columns import auc, calibration_error, f1, share_explained
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
    measurements = [Measurement("accuracy", target.name, accuracies, clusters=tuple(right))]
    figures: dict[str, list[float | None]] = defaultdict(list)
    for k, which in enumerate(counted):
        truth, guessed = true[k][which].cpu(), guess.labels[k][which].cpu()
        if not isinstance(target, Discrete):
            figures["r2"].append(share_explained(guessed, truth))
            continue
        figures["f1"].append(f1(target, truth, guessed))
        if guess.chances is not None:
            chances = guess.chances[k][which].cpu()
            figures["calibration"].append(calibration_error(chances, (chances.argmax(1) == truth).double()))
            if target.width == 2:
                positive = target.sorted_codes[-1]
                figures["label_auc"].append(auc(chances[:, positive], truth == positive))
    for metric, scores in figures.items():
        values = torch.tensor([math.nan if value is None else value for value in scores], dtype=torch.float64)
        measurements.append(Measurement(metric, target.name, values, metric != "calibration"))
    return measurements
