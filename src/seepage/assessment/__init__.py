"""Scores of a guess against the secret, with intervals over victims and lift over the best baseline.

Importing the package registers its metrics; a new one is a new file and a line here.
"""

from seepage.assessment.accuracy import Accuracy
from seepage.assessment.auc import auc
from seepage.assessment.calibration import calibration_error
from seepage.assessment.certainty import certainties, spreads
from seepage.assessment.certified import Certified
from seepage.assessment.columns import Figures, measure_columns
from seepage.assessment.entropy import Entropy
from seepage.assessment.exact_match import ExactMatch
from seepage.assessment.f1 import f1
from seepage.assessment.features import measure_features
from seepage.assessment.intervals import Estimate, clustered, interval, paired, tau_b
from seepage.assessment.kendall import Kendall
from seepage.assessment.lifts import Lift, best_baseline, lift
from seepage.assessment.matched import Matched, match_records, scales
from seepage.assessment.measurement import Association, Measured, Measurement, Metric
from seepage.assessment.measuring import measure, measure_matched
from seepage.assessment.n_leaked import rows_worth, rows_worth_of_error
from seepage.assessment.quarters import Quarters
from seepage.assessment.rmse import RMSE
from seepage.assessment.row import ResultRow

__all__ = [
    "RMSE",
    "Accuracy",
    "Association",
    "Certified",
    "Entropy",
    "Estimate",
    "ExactMatch",
    "Figures",
    "Kendall",
    "Lift",
    "Matched",
    "Measured",
    "Measurement",
    "Metric",
    "Quarters",
    "ResultRow",
    "auc",
    "best_baseline",
    "calibration_error",
    "certainties",
    "clustered",
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
    "rows_worth_of_error",
    "scales",
    "spreads",
    "tau_b",
]
