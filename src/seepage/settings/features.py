"""Figures of guessed columns of a party that sends features, in settings whose records are known by their order."""

from __future__ import annotations

from seepage.assessment import measure_features
from seepage.assessment.evidence import evidence_of_columns
from seepage.assessment.features import NO_LEAK, right_features
from seepage.settings.setting import Outcome, Scale
from seepage.wire.secret import FeatureTranscript
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge

FEATURE_SCALES = {metric: Scale(None, 0.0, 1.0) for metric in NO_LEAK}
"""Readings of the figures of columns behind features, by metric, where these are no rates of leakage."""


def features_outcome(
    knowledge: FeatureKnowledge, seen: FeatureTranscript, guess: FeatureGuess, seconds: float, keep_records: bool
) -> Outcome:
    """Return the figures of a guess in each training, with those of each record where a figure is their mean."""
    schema, marginals = knowledge.schema, knowledge.marginals
    measured, right = measure_features(schema, seen, guess), right_features(schema, seen.cells, guess.cells)
    trainings = zip(seen.cells, guess.cells, right, seen.labels, strict=True)
    evidence = [evidence_of_columns(schema, marginals, *training, keep_records) for training in trainings]
    return Outcome(measured, seconds, evidence)
