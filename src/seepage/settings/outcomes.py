"""Figures of guessed records and columns in several settings, as outcomes of their parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jaxtyping import Bool
from torch import Tensor

from seepage.assessment import Measurement, Metric, match_records, measure_features, measure_matched
from seepage.assessment.evidence import evidence_of, evidence_of_columns
from seepage.assessment.features import NO_LEAK, right_features
from seepage.assessment.three_questions import Questions, questions_of_batches, questions_of_records
from seepage.settings.setting import Outcome, Scale
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.wire.horizontal import RecordsGuess
from seepage.wire.secret import ColumnsSecret, FeatureTranscript, RecordsSecret
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge

FEATURE_SCALES = dict.fromkeys(NO_LEAK, Scale(None, 0.0, 1.0))
"""Readings of the figures of columns behind features, by metric, where these are no rates of leakage."""


def features_outcome(
    knowledge: FeatureKnowledge,
    seen: FeatureTranscript | ColumnsSecret,
    guess: FeatureGuess,
    seconds: float,
    keep_records: bool,
    questions: Questions | None = None,
) -> Outcome:
    """Return the figures of a guess in each training, with those of each record where a figure is their mean."""
    schema, marginals = knowledge.schema, knowledge.marginals
    measured, right = measure_features(schema, seen, guess), right_features(schema, seen.cells, guess.cells)
    trainings = zip(seen.cells, guess.cells, right, seen.labels, strict=True)
    choices = guess.choice or [None] * len(guess.cells)
    evidence = [
        evidence_of_columns(schema, marginals, *training, keep_records, choice)
        for training, choice in zip(trainings, choices, strict=True)
    ]
    answers = [] if questions is None else questions_of_records(questions, seen.cells, guess.cells)
    return Outcome([*measured, *answers], seconds, evidence)


def records_outcome(
    schema: Schema,
    statistics: Statistics,
    secret: RecordsSecret,
    guess: RecordsGuess,
    metrics: Sequence[Metric],
    seconds: float | None = None,
    *,
    visible: Bool[Tensor, "victim record"] | None = None,
    keep_records: bool | None = None,
    questions: Questions | None = None,
    further: Sequence[Measurement] = (),
) -> Outcome:
    """Return the figures of guessed records, matched by the attacker's statistics.

    ``visible``: whether each record stands above the client's own rounding, None where that is not known. Evidence
    holds cells if ``keep_records``; there is none if that is None, as for a baseline. ``questions``: None
    where there is no table to ask them of.
    """
    matched = match_records(schema, statistics, secret, guess)
    if visible is not None:
        matched = replace(matched, visible=visible)
    evidence = [] if keep_records is None else evidence_of(matched, statistics, secret.labels, guess, keep_records)
    answers = [] if questions is None else questions_of_batches(questions, matched.true, matched.guess)
    return Outcome([*measure_matched(matched, metrics), *answers, *further], seconds, evidence)
