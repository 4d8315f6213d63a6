"""Figures of guessed private columns and labels of split learning, of records whose order the server knows."""

from __future__ import annotations

from collections.abc import Sequence

from seepage.assessment import measure_columns
from seepage.assessment.evidence import evidence_of_columns
from seepage.settings.setting import Outcome, Scale
from seepage.tabular.align import right_cells
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.wire.secret import CutTranscript
from seepage.wire.split import CutGuess

_NO_LEAK = ("calibration", "ties", "likely", "replayed", "certified_cells", "still_possible")
COLUMN_SCALES = {
    "r2": Scale(True, 0.0, 1.0),
    "certified_wrong": Scale(False, 0.0, 1.0),
    **dict.fromkeys(_NO_LEAK, Scale(None, 0.0, 1.0)),
}
"""Readings of the figures of private columns, by metric, where these are no rates of leakage."""


def columns_outcome(
    schema: Schema,
    private: Sequence[int],
    statistics: Statistics,
    seen: CutTranscript,
    guess: CutGuess,
    seconds: float,
    keep_records: bool,
) -> Outcome:
    """Return the figures of a guess of one training, with those of each record where a figure is their mean."""
    measured = measure_columns(schema, private, seen, guess)
    some = schema.model_copy(update={"columns": tuple(schema.columns[i] for i in private)})
    marginals, right = [statistics.marginals[i] for i in private], right_cells(some, guess.cells, seen.cells)
    evidence = evidence_of_columns(some, marginals, seen.cells, guess.cells, right, seen.labels, keep_records)
    return Outcome(measured, seconds, [evidence])
