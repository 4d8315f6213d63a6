"""``seepage.audit`` takes tables and specs in every form that callers have them."""

from __future__ import annotations

import numpy as np
import pytest

from seepage.auditing import audit
from seepage.errors import BadInputError
from seepage.settings.horizontal_spec import make_spec
from seepage.settings.split_spec import SplitSpec

QUICK = {"batch_sizes": 2, "attacks": "dlg", "iterations": 3, "victims": 2, "control": False}


def test_a_spec_says_everything_itself() -> None:
    report = audit(make_spec(dataset="german", **QUICK))
    assert report.audit.about.dataset == "german"
    assert {row.attack for row in report.rows if row.is_attack} == {"dlg"}
    split = audit(SplitSpec.of(dataset="german", private_columns="housing", repetitions=1, epochs=1, control=False))
    assert {row.setting for row in split.rows} == {"split"}
    with pytest.raises(BadInputError, match="a spec says everything itself"):
        audit(make_spec(dataset="german"), victims=3)


def test_an_array_is_a_table_whose_columns_are_numbered() -> None:
    drawn = np.random.default_rng(0).normal(size=(60, 3))
    table = np.column_stack([drawn, drawn[:, 0] > 0])
    report = audit(table, target="x3", **QUICK)
    assert report.audit.about.columns == ("x0", "x1", "x2")
    with pytest.raises(BadInputError, match="got 1 axes"):
        audit(np.zeros(3), target="x0")
