"""What a reply may carry beside the model: usual metrics pass, and nothing that may be a row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from seepage.errors import BadInputError
from seepage.guard.beside import MOST_NUMBERS, check_beside, check_name, counted_records, without_text

USUAL = (
    *("loss", "train_loss", "train-loss", "trainLoss", "eval_loss", "val/loss", "validation.accuracy", "accuracy"),
    *("num-examples", "num_examples", "NUM_STEPS_CURRENT_ROUND", "current_round", "f1", "F1", "f1_score", "macro-F1"),
    *("r2", "RMSE", "mae", "auc", "ROC-AUC", "auroc", "top5_accuracy", "precision_at_10", "lr", "train_time", "TPR"),
)


@pytest.mark.parametrize("name", USUAL)
def test_usual_metrics_pass(name: str) -> None:
    check_beside([(("metrics", name), 0.25)])


@pytest.mark.parametrize(
    "name", ["age", "age_39", "loss_39", "row0", "Private", "", "_", "39", "métrique", "loss=1", "x" * 70]
)
def test_names_of_other_words_do_not_pass_unless_the_policy_lists_them(name: str) -> None:
    with pytest.raises(BadInputError, match="not made of words of usual metrics"):
        check_name(name, name)
    check_name(name, name, [name])
    for place in ((name, "loss"), ("metrics", name)):
        with pytest.raises(BadInputError, match="not made of words"):
            check_beside([(place, 1.0)])
        check_beside([(place, 1.0)], [name])


ROW = [39.0, 7.0, 77516.0, 9.0, 13.0]


@pytest.mark.parametrize(
    "value",
    [
        ROW,
        [0.5],
        tuple(ROW),
        np.array(ROW),
        np.array(0.5),
        torch.tensor(0.5),
        {"loss": 1.0},
        {39},
        "39",
        "a",
        b"39",
        None,
    ],
)
def test_values_that_may_be_rows_do_not_pass_and_are_not_repeated(value: Any) -> None:
    with pytest.raises(BadInputError, match=r"'metrics/loss' holds .*which may be rows") as raised:
        check_beside([(("metrics", "loss"), value)])
    assert "39" not in str(raised.value)
    assert "77516" not in str(raised.value)


@pytest.mark.parametrize("value", [1, 0.5, True, -3, np.float32(0.5), np.int64(7), math.nan, math.inf])
def test_single_numbers_pass(value: Any) -> None:
    check_beside([(("metrics", "loss"), value)])


def test_a_row_as_many_numbers_does_not_pass() -> None:
    def numbers(count: int) -> list[tuple[tuple[str, ...], object]]:
        return [(("metrics", "loss"), 0.5)] * count

    check_beside(numbers(MOST_NUMBERS))
    with pytest.raises(BadInputError, match="at most 16 numbers beside the model, got 17"):
        check_beside(numbers(MOST_NUMBERS + 1))
    with pytest.raises(BadInputError, match="may be rows"):
        check_beside([(("metrics", "loss"), 2**70)])


@pytest.mark.parametrize("value", [1, 8, 8.0, np.int64(8), 2**20])
def test_counts_of_records_in_bounds_are_taken(value: Any) -> None:
    assert counted_records(value, "num-examples", trained=True) == value


@pytest.mark.parametrize("value", [0, -8, 10**12, 2**20 + 1, 8.5, math.nan, math.inf, -math.inf, "8", None, [8], True])
def test_counts_of_records_that_cannot_be_are_refused(value: Any) -> None:
    with pytest.raises(BadInputError, match=r"'num-examples' says how many records .* from 1 to 1,048,576; got"):
        counted_records(value, "num-examples", trained=True)


def test_a_test_may_be_of_no_record_and_of_many() -> None:
    assert counted_records(0, "n", trained=False) == 0
    assert counted_records(5_000_000, "n", trained=False) == 5_000_000
    with pytest.raises(BadInputError, match="from 0 to"):
        counted_records(10**12, "n", trained=False)


def test_an_exception_is_named_without_its_text() -> None:
    with pytest.raises(ValueError, match="Tim from Ely") as raised:
        pd.Series(["Tim from Ely"]).astype(float)
    said = without_text(raised.value)
    assert said.startswith("ValueError was raised at the client")
    assert "Tim" not in said
