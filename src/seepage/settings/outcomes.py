"""Records and columns of several settings as secrets, and the figures of guesses of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from jaxtyping import Bool
from torch import Tensor

from seepage.assessment import Measurement, Metric, match_records, measure_features, measure_matched
from seepage.assessment.evidence import evidence_of, evidence_of_columns
from seepage.assessment.features import NO_LEAK, right_features
from seepage.assessment.three_questions import Questions, questions_of_batches, questions_of_records
from seepage.settings.guessing import AttackedSecret
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
    transcript: FeatureTranscript | ColumnsSecret,
    guess: FeatureGuess,
    keep_records: bool,
    questions: Questions | None = None,
) -> Outcome:
    """Return the figures of a guess in each training, with those of each record where a figure is their mean."""
    schema, marginals = knowledge.schema, knowledge.marginals
    measured, right = measure_features(schema, transcript, guess), right_features(schema, transcript.cells, guess.cells)
    trainings = zip(transcript.cells, guess.cells, right, transcript.labels, strict=True)
    choices = guess.choice or [None] * len(guess.cells)
    evidence = [
        evidence_of_columns(schema, marginals, *training, keep_records, choice)
        for training, choice in zip(trainings, choices, strict=True)
    ]
    answers = [] if questions is None else questions_of_records(questions, transcript.cells, guess.cells)
    return Outcome([*measured, *answers], evidence=evidence)


def attacked_records(
    setting: str,
    statistics: Statistics,
    schema: Schema,
    inputs: tuple[object, object],
    secret: RecordsSecret | None,
    seeds: Sequence[int],
    metrics: Sequence[Metric],
    *,
    attack: Callable[..., object] | None = None,
    visible: Callable[[RecordsGuess], Bool[Tensor, "victim record"] | None] | None = None,
    keep_records: bool | None = None,
    questions: Callable[[], Questions] | None = None,
    further: Callable[[RecordsSecret, RecordsGuess], Sequence[Measurement]] | None = None,
) -> AttackedSecret[RecordsGuess]:
    """Return the records behind the messages of some victims as a secret; None where the truth is not known.

    Guessed records are matched by the attacker's statistics. A guess without any cell has the ``further`` figures
    alone, where a setting has such.

    Args:
        inputs: view and knowledge.
        attack: attack in place of the part's own.
        visible: function that returns whether each record stands above the client's own rounding, where that is known.
        keep_records: whether evidence holds cells; None for no evidence, as for a baseline.
        questions: function that returns the three questions; None where there is no table to ask them of.
        further: figures that only this setting has.
    """

    def score(guess: RecordsGuess) -> Outcome:
        if secret is None:
            return Outcome([])
        more = [] if further is None else further(secret, guess)
        if further is not None and bool(guess.cells.isnan().all()):
            return Outcome(more)
        matched = match_records(schema, statistics, secret, guess)
        if visible is not None:
            matched = replace(matched, visible=visible(guess))
        evidence = [] if keep_records is None else evidence_of(matched, statistics, secret.labels, guess, keep_records)
        answers = [] if questions is None else questions_of_batches(questions(), matched.true, matched.guess)
        return Outcome([*measure_matched(matched, metrics), *answers, *more], evidence=evidence)

    shape = {"victim": len(seeds), "record": None, "column": len(schema.columns)}
    return AttackedSecret(setting, RecordsGuess, lambda: inputs, seeds, score, len(seeds), shape, attack)
