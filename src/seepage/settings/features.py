"""The figures of guessed columns of a party that sends features, in settings whose records are known by their order."""

from __future__ import annotations

from seepage.assessment import Figures, measure_features
from seepage.assessment.evidence import evidence_of_columns
from seepage.assessment.features import NO_LEAK, right_features
from seepage.settings.setting import Scale
from seepage.settings.units import UnitFigures
from seepage.wire.secret import FeatureTranscript
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge

FEATURE_SCALES = {metric: Scale(None, 0.0, 1.0) for metric in NO_LEAK}
"""Readings of the figures of columns behind features, by metric, where these are no rates of leakage."""


def features_figures(
    known: FeatureKnowledge, seen: FeatureTranscript, guess: FeatureGuess, seconds: float, keep_records: bool
) -> list[UnitFigures]:
    """Return the figures of a guess in each training, with those of each record where they are its mean.

    Args:
        known: knowledge of the attacker, with the schema and the marginals of the attacked columns.
        seen: what was seen of the attacked records, and their secret.
        guess: guess of the same records.
        seconds: time for a record.
        keep_records: whether evidence may hold cells.

    Raises:
        BadInputError: the guess is of other records.
    """
    measured = measure_features(known.schema, seen, guess)
    right, units = right_features(known.schema, seen.cells, guess.cells), []
    for k in range(len(seen.cells)):
        values = {(one.metric, one.column): float(one.values[k]) for one in measured}
        figures: Figures = {key: None if value != value else value for key, value in values.items()}
        each = {(one.metric, one.column): one.clusters[k].tolist() for one in measured if one.clusters is not None}
        evidence = evidence_of_columns(
            known.schema, known.marginals, seen.cells[k], guess.cells[k], right[k], seen.labels[k], keep_records
        )
        units.append(UnitFigures(figures, seconds, each=each, evidence=evidence))
    return units
