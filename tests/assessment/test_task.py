"""Figures of a task beside the best answer that is always the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seepage.assessment.task import of_task, over_constant
from tests.rows import number

NUMBERS = st.lists(st.integers(-40, 40).map(lambda value: value / 4), min_size=1, max_size=30)


@given(labels=NUMBERS, tolerance=st.integers(0, 12).map(lambda value: value / 8))
def test_no_constant_answer_is_better(labels: list[float], tolerance: float) -> None:
    values = np.array(labels)
    best = of_task("task_accuracy", 0.0, values, tolerance)[1].mean
    # Answers are best that just reach a label from above.
    tried = [float((np.abs(values - answer) <= tolerance).mean()) for answer in values + tolerance]
    assert best == max(tried)
    error = number(of_task("task_rmse", 0.0, values)[1].mean)
    tried = [float(np.sqrt(np.square(values - answer).mean())) for answer in np.linspace(-10, 10, 41)]
    assert error <= min(tried) + 1e-12


def test_a_model_is_better_where_it_is_right_more_often_or_errs_less() -> None:
    labels = np.array([0.0, 0.0, 0.0, 1.0])
    for metric, value, gain in (("task_accuracy", 0.5, -0.25), ("auc", 0.7, 0.2), ("task_rmse", 0.25, 0.1830127)):
        figures = of_task(metric, value, labels)
        found = over_constant(figures[0], figures)
        assert found is not None
        assert found[0] == "constant"
        assert found[2].mean == pytest.approx(gain)
    assert over_constant(figures[0], figures[:1]) is None
    assert [figure.mean for figure in of_task("task_accuracy", 0.0, labels[:0])] == [None, None, None]
