"""Scores of guessed cells of a passive party in vertical learning; the attacker knows the order of records."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.assessment.columns import calibration_error
from seepage.assessment.measurement import Measurement
from seepage.errors import BadInputError
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.wire.secret import ColumnsSecret, FeatureTranscript
from seepage.wire.vertical import FeatureGuess

Cells = Float[Tensor, "training record"]
Right = Bool[Tensor, "training record"]
# UIFV counts a number within 0.2 of the truth where bounds are -1 and 1: a tenth of the range.
OF_RANGE = 0.1
# The same share of the range between these quantiles, which a few large values do not widen.
_MIDDLE = (0.05, 0.95)


def measure_features(
    schema: Schema, transcript: FeatureTranscript | ColumnsSecret, guess: FeatureGuess
) -> list[Measurement]:
    """Return the figures of a guess, one value a training, NaN where the attack itself failed.

    Accuracies and ``exact_match`` come with the values of the records whose mean they are.

    ``accuracy`` (UIFV): the share of right cells, where a number is right within a tenth of its column's range; over
    all cells, over discrete (``accuracy_discrete``) and continuous ones (``accuracy_continuous``), and by column.
    ``middle_accuracy``: the same with a tenth of the range between the 5th and the 95th percentile of the attacked
    records (for a column without such a range: its schema's tolerance), which a constant does not reach by a long tail
    alone. ``macro_accuracy``: the mean over columns of that, and of a discrete column's mean over its categories, so
    that frequent ones count no more than rare ones. ``coverage``: for each column with radii, the share of cells within
    them, nine tenths where the radii are right. ``replayed``: where a bottom model was inverted, the share of records
    whose cells follow exactly.
    """
    if guess.cells.shape != transcript.cells.shape:
        raise BadInputError(
            f"a guess of shape {tuple(guess.cells.shape)} was held against records of shape "
            f"{tuple(transcript.cells.shape)}; guess the records of the view."
        )
    failed = guess.cells.isnan().flatten(1).any(1)
    if guess.failed is not None:
        failed = failed | guess.failed
    figures: dict[tuple[str, str | None], Tensor] = {}
    scores: dict[tuple[str, str | None], Tensor] = {}
    right, middle, macro = right_features(schema, transcript.cells, guess.cells), [], []
    for i, column in enumerate(schema.columns):
        true, guessed = transcript.cells[..., i], guess.cells[..., i]
        scores["accuracy", column.name] = right[..., i].double()
        figures["accuracy", column.name] = right[..., i].double().mean(1)
        if isinstance(column, Discrete):
            middle.append(right[..., i])
            macro.append(_recall(column, true, right[..., i]))
            if guess.chances is not None and (chances := guess.chances[i]) is not None:
                figures["calibration", column.name] = _calibration(chances, true)
        else:
            middle.append(within(true, guessed, middle_tolerance(column, true)[:, None]))
            macro.append(middle[-1].double().mean(1))
            figures["middle_accuracy", column.name] = macro[-1]
            if guess.radii is not None:
                figures["coverage", column.name] = within(true, guessed, guess.radii[:, i, None]).double().mean(1)
    cells, central = right.double(), torch.stack(middle, dim=-1).double()
    scores["accuracy", None], scores["exact_match", None] = cells.mean(2), cells.amin(-1)
    figures["accuracy", None] = cells.mean((1, 2))
    figures["middle_accuracy", None] = central.mean((1, 2))
    for kind, places in (("discrete", schema.discrete), ("continuous", schema.continuous)):
        if places:
            figures[f"accuracy_{kind}", None] = cells[..., list(places)].mean((1, 2))
    if schema.continuous:
        figures["middle_accuracy_continuous", None] = central[..., list(schema.continuous)].mean((1, 2))
    figures["macro_accuracy", None] = torch.stack(macro).mean(0)
    figures["exact_match", None] = cells.amin(-1).mean(1)
    figures = {key: torch.where(failed, torch.nan, values.double()) for key, values in figures.items()}
    scores = {key: torch.where(failed[:, None], torch.nan, values) for key, values in scores.items()}
    figures["failed", None] = failed.double()
    if guess.replayed is not None:
        figures["replayed", None] = guess.replayed.double().mean(1)
    # A view of all trainings would be sent from a worker as a whole, once for each.
    clusters = {key: tuple(map(torch.clone, values)) for key, values in scores.items()}
    return [
        Measurement(metric, column, values, metric not in NO_LEAK, clusters=clusters.get((metric, column)))
        for (metric, column), values in figures.items()
    ]


# Figures of an answer's quality, which are no leakage.
NO_LEAK = frozenset({"calibration", "coverage", "failed", "replayed"})


def within(true: Cells, guess: Cells, tolerance: float | Float[Tensor, "training 1"]) -> Right:
    """Return whether each guess is near enough; a distance beyond the tolerance by a rounding counts as near."""
    slack = 1 + 8 * torch.finfo(torch.float64).eps
    return (true - guess).abs() <= tolerance * slack


def reach_of(column: Continuous) -> float:
    """Return the distance within which a guessed number is right."""
    return OF_RANGE * (column.high - column.low)


def with_reach(schema: Schema) -> Schema:
    """Return a schema whose numbers are tolerated as far as they count as found, see ``reach_of``."""
    columns = [
        column if isinstance(column, Discrete) else column.model_copy(update={"tolerance": reach_of(column)})
        for column in schema.columns
    ]
    return schema.model_copy(update={"columns": tuple(columns)})


def right_features(
    schema: Schema, true: Float[Tensor, "training record column"], guess: Float[Tensor, "training record column"]
) -> Bool[Tensor, "training record column"]:
    """Return which guessed cells are right: categories that are the same, numbers within a tenth of their range."""
    near = [0.0 if isinstance(column, Discrete) else reach_of(column) for column in schema.columns]
    return torch.stack([within(true[..., i], guess[..., i], reach) for i, reach in enumerate(near)], dim=-1)


def middle_tolerance(column: Continuous, true: Cells) -> Float[Tensor, " training"]:
    """Return a tenth of the range between the 5th and the 95th percentile; the schema's tolerance where that is 0."""
    low, high = torch.quantile(true, torch.tensor(_MIDDLE, dtype=true.dtype), dim=1)
    width = OF_RANGE * (high - low)
    return torch.where(width > 0, width, torch.full_like(width, column.tolerance))


def _recall(column: Discrete, true: Cells, right: Right) -> Float[Tensor, " training"]:
    codes = torch.arange(column.width, dtype=true.dtype)
    is_code = (true[:, None, :] == codes[:, None]).double()
    counts = is_code.sum(-1)
    recall = (is_code * right[:, None, :].double()).sum(-1) / counts.clamp(min=1)
    there = (counts > 0).double()
    return (recall * there).sum(1) / there.sum(1)


def _calibration(chances: Float[Tensor, "training record value"], true: Cells) -> Float[Tensor, " training"]:
    right = (chances.argmax(-1) == true).double()
    errors = [calibration_error(stated, hits) for stated, hits in zip(chances, right, strict=True)]
    return torch.tensor([math.nan if error is None else error for error in errors], dtype=torch.float64)
