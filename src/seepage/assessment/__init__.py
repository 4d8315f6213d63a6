"""Scores of a guess against the secret, with intervals over victims and lift over the best baseline.

A new metric is one file and one line here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from seepage import registry
from seepage.packages import lazy_package

if TYPE_CHECKING:
    from seepage.assessment.certainty import certainties, spreads
    from seepage.assessment.columns import auc, calibration_error, f1, measure_columns
    from seepage.assessment.entropy import Entropy
    from seepage.assessment.features import measure_features
    from seepage.assessment.intervals import Estimate, interval, paired, tau_b
    from seepage.assessment.kendall import Kendall
    from seepage.assessment.matched import Matched, match_records, scales
    from seepage.assessment.measurement import Lift, Measurement, Metric, best_baseline, lift
    from seepage.assessment.measuring import measure, measure_matched
    from seepage.assessment.n_leaked import rows_worth
    from seepage.assessment.quarters import Quarters
    from seepage.assessment.row import ResultRow

# Registered name and module, which is imported when the metric is first made.
registry.metrics.declare(
    {
        "accuracy": "seepage.assessment.accuracy",
        "certified": "seepage.assessment.certified",
        "entropy": "seepage.assessment.entropy",
        "exact_match": "seepage.assessment.exact_match",
        "kendall": "seepage.assessment.kendall",
        "quarters": "seepage.assessment.quarters",
        "rmse": "seepage.assessment.rmse",
    }
)


def create(name: str, **options: object) -> Metric:
    """Return a metric; an unknown name or option is a BadInputError."""
    return cast("Metric", registry.metrics.create(name, **options))


lazy_package(__name__)

__all__ = [
    "Entropy",
    "Estimate",
    "Kendall",
    "Lift",
    "Matched",
    "Measurement",
    "Metric",
    "Quarters",
    "ResultRow",
    "auc",
    "best_baseline",
    "calibration_error",
    "certainties",
    "create",
    "f1",
    "interval",
    "lift",
    "match_records",
    "measure",
    "measure_columns",
    "measure_features",
    "measure_matched",
    "paired",
    "rows_worth",
    "scales",
    "spreads",
    "tau_b",
]
