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

    ``accuracy`` with those of the records that it is the mean of; a number is right within the target's tolerance. Of
    numbers also ``r2``, the share of their variance that the guess explains, 0 where it explains none. Of classes also
    ``f1``; ``calibration`` where there are chances; and of two classes with chances ``label_auc``, the area under the
    curve of the chance of the last class in sorted order.

    Args:
        target: column of the labels.
        true: true labels.
        guess: guess of the same records.
        counted: records that count, as many in each training; all if None.

    Raises:
        BadInputError: the guess is of other records.

    Example:
        >>> ill = Discrete(name="ill", categories=(0, 1))
        >>> guess = LabelGuess(torch.tensor([[0.0, 1.0, 1.0, 0.0]]).double())
        >>> [found, *_] = measure_labels(ill, torch.tensor([[0.0, 1.0, 0.0, 0.0]]).double(), guess)
        >>> found.metric, found.column, found.values.tolist()
        ('accuracy', 'ill', [0.75])
    """
    if guess.labels.shape != true.shape:
        raise BadInputError(
            f"labels of shape {tuple(guess.labels.shape)} were guessed of records of shape {tuple(true.shape)}; guess "
            "the records of the view."
        )
    counted = torch.ones_like(true, dtype=torch.bool) if counted is None else counted
    tolerance = 0.0 if isinstance(target, Discrete) else target.tolerance
    right = [
        ((said - held).abs() <= tolerance)[which].double()
        for said, held, which in zip(guess.labels.cpu().double(), true.cpu(), counted, strict=True)
    ]
    accuracies = torch.stack([one.mean() for one in right])
    found = [Measurement("accuracy", target.name, accuracies, True, (0.0, 1.0), tuple(right))]
    if not isinstance(target, Discrete):
        shares = [share_explained(guess.labels[k][which], true[k][which]) for k, which in enumerate(counted)]
        return [*found, Measurement("r2", target.name, torch.tensor(shares, dtype=torch.float64), True, (0.0, 1.0))]
    figures: dict[str, list[float | None]] = {"f1": []}
    for k, which in enumerate(counted):
        held, said = true[k][which].cpu(), guess.labels[k][which].cpu()
        figures["f1"].append(f1(target, held, said))
        if guess.chances is not None:
            chances = guess.chances[k][which].cpu()
            figures.setdefault("calibration", []).append(
                calibration_error(chances, (chances.argmax(1) == held).double())
            )
            if target.width == 2:
                positive = target.sorted_codes[-1]
                figures.setdefault("label_auc", []).append(auc(chances[:, positive], held == positive))
    return found + [
        Measurement(
            metric,
            target.name,
            torch.tensor([math.nan if value is None else value for value in values], dtype=torch.float64),
            metric != "calibration",
            (0.0, 1.0),
        )
        for metric, values in figures.items()
    ]


def share_explained(said: Float[Tensor, " record"], held: Float[Tensor, " record"]) -> float:
    """Return the share of the variance of numbers that a guess explains; NaN where they are all the same.

    Args:
        said: guessed numbers.
        held: true numbers.

    Example:
        >>> share_explained(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 3.0]))
        1.0
    """
    said, held = said.cpu().double(), held.cpu().double()
    spread = (held - held.mean()).square().sum()
    return max(0.0, float(1 - (said - held).square().sum() / spread)) if float(spread) else math.nan
