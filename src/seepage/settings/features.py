"""Figures of guessed columns of a party that sends features, in settings whose records are known by their order."""

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
    knowledge: FeatureKnowledge, seen: FeatureTranscript, guess: FeatureGuess, seconds: float, keep_records: bool
) -> list[UnitFigures]:
    """Return the figures of a guess in each training, with those of each record where a figure is their mean.

    Args:
        seconds: time for a record.
        keep_records: whether evidence may hold cells.

    Raises:
        BadInputError: the guess is of other records.
    """
    measured = measure_features(knowledge.schema, seen, guess)
    right, units = right_features(knowledge.schema, seen.cells, guess.cells), []
    for k in range(len(seen.cells)):
        values = {(figure.metric, figure.column): float(figure.values[k]) for figure in measured}
        figures: Figures = {key: None if value != value else value for key, value in values.items()}
        each = {
            (figure.metric, figure.column): figure.clusters[k].tolist()
            for figure in measured
            if figure.clusters is not None
        }
        evidence = evidence_of_columns(
            knowledge.schema, knowledge.marginals, seen.cells[k], guess.cells[k], right[k], seen.labels[k], keep_records
        )
        units.append(UnitFigures(figures, seconds, each=each, evidence=evidence))
    return units
