"""Figures of guessed records, in settings where a guess is matched with the true records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jaxtyping import Bool
from torch import Tensor

from seepage.assessment import Measurement, Metric, match_records, measure_matched
from seepage.assessment.evidence import evidence_of
from seepage.settings.setting import Outcome
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.wire.horizontal import RecordsGuess
from seepage.wire.secret import RecordsSecret


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
    further: Sequence[Measurement] = (),
) -> Outcome:
    """Return the figures of guessed records, matched by the attacker's statistics.

    ``visible``: whether each record stands above the client's own rounding, None where that is not known. Evidence
    holds cells if ``keep_records``; there is none if that is None, as for a baseline.
    """
    matched = match_records(schema, statistics, secret, guess)
    if visible is not None:
        matched = replace(matched, visible=visible)
    evidence = [] if keep_records is None else evidence_of(matched, statistics, secret.labels, guess, keep_records)
    return Outcome([*measure_matched(matched, metrics), *further], seconds, evidence)
