"""How well all other columns together tell of one, on rows that were held out."""

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
    """How well all other columns together tell of a column.

    Attributes:
        with_column: name of the column.
        measure: ``auc`` (area under the ROC curve; of more than two categories, the mean over them, each against the
            others) of a column of categories, ``r2`` of a column of numbers.
        value: the measure on rows that the model was not fitted to.
        low, high: 95% interval, by a bootstrap of the rows.
        rows: number of rows.
    """

    with_column: str
    measure: Literal["auc", "r2"]
    value: float
    low: float
    high: float
    rows: int

    @property
    def notable(self) -> bool:
        """Whether the interval lies above what no association gives: 0.5 for an area, 0 for a share of variance."""
        return self.low > (0.5 if self.measure == "auc" else 0.0)


def together(table: Table, sensitive: str, seed: int = 0) -> Together | None:
    """Return how well boosted trees on all other columns and the target tell of a column, on held-out rows.

    Args:
        table: rows.
        sensitive: name of the column.
        seed: seed of folds and bootstrap.

    Returns:
        None where a table is too small: fewer than ten rows, or fewer than two categories with ten rows.

    Raises:
        BadInputError: there is no such column, or it is the table's only one.

    Example:
        >>> import pandas as pd
        >>> from seepage.tabular.infer import infer_schema
        >>> draw = np.random.default_rng(0)
        >>> rows = pd.DataFrame({"a": draw.integers(0, 2, 200), "b": draw.integers(0, 2, 200), "y": [0, 1] * 100})
        >>> rows["both"] = rows["a"] ^ rows["b"]
        >>> found = together(Table(infer_schema(rows, "y"), rows), "both")
        >>> found.measure, found.value > 0.95
        ('auc', True)
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
    said = cells[:, place]
    if isinstance(chosen, Discrete):
        values, counts = np.unique(said, return_counts=True)
        kept = np.isin(said, values[counts >= _FEWEST])
        cells, said = cells[kept], said[kept]
        if len(np.unique(said)) < 2:
            return None
    elif len(said) < _FEWEST or np.ptp(said) == 0:
        return None
    others = np.delete(cells, place, axis=1)
    guessed = _held_out(others, said, isinstance(chosen, Discrete), seed)
    value = _score(said, guessed)
    draws = [_score(said[rows], guessed[rows]) for rows in draw.integers(0, len(said), (_DRAWS, len(said)))]
    low, high = np.nanquantile(draws, [0.025, 0.975]).tolist()
    return Together(sensitive, "auc" if isinstance(chosen, Discrete) else "r2", value, low, high, len(said))


def _held_out(others: np.ndarray, said: np.ndarray, classes: bool, seed: int) -> np.ndarray:
    """Return what models say of rows that they were not fitted to: chances of each class, or a number."""
    folds = (StratifiedKFold if classes else KFold)(_FOLDS, shuffle=True, random_state=seed)
    width = len(np.unique(said)) if classes else 1
    guessed = np.zeros((len(said), width))
    for fitted, held in folds.split(others, said):
        if classes:
            model = HistGradientBoostingClassifier(max_iter=_TREES, random_state=seed)
            guessed[held] = model.fit(others[fitted], said[fitted]).predict_proba(others[held])
        else:
            number = HistGradientBoostingRegressor(max_iter=_TREES, random_state=seed)
            guessed[held, 0] = number.fit(others[fitted], said[fitted]).predict(others[held])
    return guessed


def _score(said: np.ndarray, guessed: np.ndarray) -> float:
    if guessed.shape[1] == 1:
        return float(r2_score(said, guessed[:, 0])) if np.ptp(said) else float("nan")
    classes = np.unique(said)
    if len(classes) < guessed.shape[1]:
        # A draw that lacks a category says nothing of it.
        return float("nan")
    areas = [roc_auc_score(said == one, guessed[:, i]) for i, one in enumerate(classes)]
    return float(np.mean(areas))
