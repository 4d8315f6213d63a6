"""Forests are read as xgboost writes and uses them; what is no such model is refused with one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xgboost

from seepage.errors import BadInputError
from seepage.wire.forest import read_forest


def trained(parameters: dict[str, Any], rounds: int = 4) -> tuple[xgboost.Booster, np.ndarray]:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 3)).astype(np.float32)
    labels = (rows[:, 0] + rng.normal(size=200) > 0).astype(float) + (rows[:, 1] > 1) * (
        parameters.get("num_class", 2) - 2
    )
    matrix = xgboost.QuantileDMatrix(rows, label=labels, nthread=1)
    return xgboost.train({"nthread": 1, "max_depth": 3, **parameters}, matrix, rounds), rows


def content() -> dict[str, Any]:
    booster, _ = trained({"objective": "binary:logistic"}, 2)
    return json.loads(bytes(booster.save_raw("json")))


@pytest.mark.parametrize(
    "parameters",
    [
        {"objective": "binary:logistic"},
        {"objective": "binary:logistic", "base_score": 0.5},
        {"objective": "multi:softprob", "num_class": 3},
        {"objective": "multi:softmax", "num_class": 3, "num_parallel_tree": 2},
        {"objective": "reg:squarederror"},
    ],
)
def test_margins_are_those_of_xgboost(parameters: dict[str, Any]) -> None:
    booster, rows = trained(parameters)
    forest = read_forest(bytes(booster.save_raw("json")))
    raw = booster.predict(xgboost.DMatrix(rows), output_margin=True).reshape(len(rows), -1)
    np.testing.assert_allclose(forest.margins(rows), raw, atol=1e-6)
    assert len(forest.rounds) == 4
    half = booster.predict(xgboost.DMatrix(rows), output_margin=True, iteration_range=(0, 2)).reshape(len(rows), -1)
    np.testing.assert_allclose(forest.first(2).margins(rows), half, atol=1e-6)


def test_fields_are_those_of_the_file_and_can_be_left_out() -> None:
    written = content()
    forest = read_forest(written)
    trees = written["learner"]["gradient_booster"]["model"]["trees"]
    for tree, one in zip(forest.trees, trees, strict=True):
        assert tree.hessian is not None
        np.testing.assert_array_equal(tree.hessian, one["sum_hessian"])
    stripped = forest.stripped(("sum_hessian", "loss_changes")).trees[0]
    assert stripped.hessian is None
    assert stripped.gain is None
    assert stripped.weight is not None


def test_boxes_hold_the_rows_that_reach_a_node() -> None:
    booster, rows = trained({"objective": "binary:logistic"})
    tree = read_forest(bytes(booster.save_raw("json"))).trees[0]
    boxes = tree.boxes(3)
    for node, here in enumerate(tree.members(rows)):
        inside = ((rows >= boxes[node, :, 0]) & (rows < boxes[node, :, 1])).all(1)
        np.testing.assert_array_equal(np.flatnonzero(inside), here)


def booster_of(written: dict[str, Any]) -> dict[str, Any]:
    return written["learner"]["gradient_booster"]


def first_tree(written: dict[str, Any]) -> dict[str, Any]:
    return booster_of(written)["model"]["trees"][0]


BAD: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda w: w.pop("learner"), "no model of xgboost"),
    (lambda w: booster_of(w).update(name="dart"), "trees that are dropped"),
    (lambda w: booster_of(w).update(name="gblinear"), "linear boosters"),
    (lambda w: w["learner"]["objective"].update(name="rank:ndcg"), "descends 'rank:ndcg'"),
    (lambda w: w["learner"]["learner_model_param"].update(num_target="2"), "2 targets"),
    (lambda w: w["learner"]["learner_model_param"].update(base_score="[NaN]"), "base score"),
    (lambda w: w["learner"]["learner_model_param"].update(num_feature="1"), "beyond the 1"),
    (lambda w: first_tree(w).update(categories=[1, 2]), "sets of categories"),
    (lambda w: first_tree(w)["tree_param"].update(size_leaf_vector="3"), "several values"),
    (lambda w: first_tree(w).pop("split_indices"), "split_indices"),
    (lambda w: first_tree(w)["left_children"].__setitem__(0, 999), "no tree"),
    (lambda w: first_tree(w)["right_children"].__setitem__(0, 1), "none or several"),
    (lambda w: first_tree(w)["sum_hessian"].pop(), "differ in length"),
    (lambda w: first_tree(w)["split_conditions"].__setitem__(0, float("nan")), "not finite"),
]


@pytest.mark.parametrize(("damage", "said"), BAD)
def test_what_is_no_such_model_is_refused(damage: Callable[[dict[str, Any]], object], said: str) -> None:
    written = content()
    damage(written)
    with pytest.raises(BadInputError, match=said) as raised:
        read_forest(written, "model.json")
    # Only a field that is not there is said to be missing.
    assert ("lacks or garbles" in str(raised.value)) == (said == "split_indices")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '"learner"', "\x00"])
def test_rubbish_is_refused(text: str) -> None:
    with pytest.raises(BadInputError, match="file"):
        read_forest(text, "the file")
