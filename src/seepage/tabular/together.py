"""Prediction of one column of a table from all others together, on rows that were held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.model_selection import KFold, StratifiedKFold

from seepage.errors import BadInputError
from seepage.tabular.schema import Discrete
from seepage.tabular.table import Table

_FOLDS, _DRAWS = 5, 200
# Rows beyond this many change little, and trees on them take minutes.
_MOST_ROWS = 20_000
# Rows of a category, or of the table, that folds need.
_FEWEST = 2 * _FOLDS
_TREES = 60


@dataclass(frozen=True)
class Together:
    """Quality of the prediction of a column from all other columns together, on rows that the model was not fitted to.

    The measure is the area under the ROC curve for categories (of more than two, the mean over each against the
    others), and R squared for numbers. The interval of 95% is by a bootstrap of the rows.
    """

    with_column: str
    measure: Literal["auc", "r2"]
    value: float
    low: float
    high: float
    rows: int

    @property
    def notable(self) -> bool:
        """Whether the interval lies above the value of no association: 0.5 for an area, 0 for a share of variance."""
        return self.low > (0.5 if self.measure == "auc" else 0.0)


def together(table: Table, sensitive: str, seed: int = 0) -> Together | None:
    """Return how well boosted trees predict a column from all others and the target, on held-out rows.

    Returns:
        None where a table is too small: fewer than ten rows, or fewer than two categories with ten rows.
    """
    schema = table.schema
    columns = (*schema.columns, schema.target)
    names = [column.name for column in columns]
    chosen = schema.column(sensitive)
    cells = np.column_stack([*(table.column(i).numpy() for i in range(len(schema.columns))), table.labels.numpy()])
    if len(names) < 2:
        raise BadInputError(f"the table has no column besides {sensitive!r}, so nothing can tell of it.")
    draw = np.random.default_rng(seed)
    if len(cells) > _MOST_ROWS:
        cells = cells[np.sort(draw.choice(len(cells), _MOST_ROWS, replace=False))]
    place = names.index(sensitive)
    observed = cells[:, place]
    if isinstance(chosen, Discrete):
        values, counts = np.unique(observed, return_counts=True)
        frequent = np.isin(observed, values[counts >= _FEWEST])
        cells, observed = cells[frequent], observed[frequent]
        if len(np.unique(observed)) < 2:
            return None
    elif len(observed) < _FEWEST or np.ptp(observed) == 0:
        return None
    others = np.delete(cells, place, axis=1)
    guessed = _held_out(others, observed, isinstance(chosen, Discrete), seed)
    value = _score(observed, guessed)
    draws = [_score(observed[rows], guessed[rows]) for rows in draw.integers(0, len(observed), (_DRAWS, len(observed)))]
    low, high = np.nanquantile(draws, [0.025, 0.975]).tolist()
    return Together(sensitive, "auc" if isinstance(chosen, Discrete) else "r2", value, low, high, len(observed))


def _held_out(others: np.ndarray, observed: np.ndarray, classes: bool, seed: int) -> np.ndarray:
    """Return models' predictions for rows that they were not fitted to: chances of each class, or a number."""
    folds = (StratifiedKFold if classes else KFold)(_FOLDS, shuffle=True, random_state=seed)
    width = len(np.unique(observed)) if classes else 1
    guessed = np.zeros((len(observed), width))
    for fitted, left_out in folds.split(others, observed):
        if classes:
            model = HistGradientBoostingClassifier(max_iter=_TREES, random_state=seed)
            guessed[left_out] = model.fit(others[fitted], observed[fitted]).predict_proba(others[left_out])
        else:
            number = HistGradientBoostingRegressor(max_iter=_TREES, random_state=seed)
            guessed[left_out, 0] = number.fit(others[fitted], observed[fitted]).predict(others[left_out])
    return guessed


def _score(observed: np.ndarray, guessed: np.ndarray) -> float:
    if guessed.shape[1] == 1:
        return float(r2_score(observed, guessed[:, 0])) if np.ptp(observed) else float("nan")
    classes = np.unique(observed)
    if len(classes) < guessed.shape[1]:
        # A draw that lacks a category says nothing of it.
        return float("nan")
    areas = [roc_auc_score(observed == label, guessed[:, i]) for i, label in enumerate(classes)]
    return float(np.mean(areas))
