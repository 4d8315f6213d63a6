"""Tree files of real training runs are read; those that cannot be are refused with a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost

from seepage.protocols.trees import encoded
from seepage.tabular.statistics import Statistics
from tests.attacks.trees.parts import people
from tests.commands import Run, commands


@pytest.fixture
def seepage(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    table = people(200)
    (tmp_path / "people.yaml").write_text(table.schema.to_yaml())
    table.frame.to_csv(tmp_path / "public.csv", index=False)
    own = table.rows(np.arange(60))
    own.frame.to_csv(tmp_path / "own.csv", index=False)
    rows = encoded(table.schema, Statistics.of(table), own.cells)
    # A client of Flower's bagging: two rounds of local boosting, a slice of the model in each message.
    given: dict[str, Any] = {"objective": "binary:logistic", "base_score": 0.5, "nthread": 1}
    matrix = xgboost.DMatrix(rows, label=own.labels.numpy())
    booster = xgboost.train(given, matrix, 2)
    (tmp_path / "client").mkdir()
    for number in range(2):
        booster[number : number + 1].save_model(tmp_path / "client" / f"round_{number}.json")
    booster[:1].save_model(tmp_path / "first.json")
    xgboost.train({**given, "eta": 0.1}, matrix, 1).save_model(tmp_path / "slow.json")
    xgboost.train({**given, "booster": "dart"}, matrix, 1).save_model(tmp_path / "dart.json")
    narrow = xgboost.DMatrix(rows[:, :3], label=own.labels.numpy())
    xgboost.train(given, narrow, 1).save_model(tmp_path / "narrow.json")
    regression = xgboost.train({"nthread": 1}, matrix, 1)
    regression.save_model(tmp_path / "regression.json")
    masked = json.loads((tmp_path / "first.json").read_text())
    masked["learner"]["gradient_booster"]["model"]["trees"][0]["sum_hessian"] = []
    (tmp_path / "masked.json").write_text(json.dumps(masked))
    (tmp_path / "rubbish.json").write_text("{")
    return commands(capfd, monkeypatch, tmp_path)


READ = ("--schema", "people.yaml", "--data", "public.csv", "--out", "read")


@pytest.mark.parametrize("files", ["first.json", "client"])
def test_trees_of_a_client_are_read(seepage: Any, tmp_path: Path, files: str) -> None:
    code, out, _ = seepage("attack", files, *READ, "--truth", "own.csv")
    assert code == 0
    assert "a client with 60 rows" in out
    found = json.loads((tmp_path / "read" / "results.json").read_text())
    assert np.sum(found["leaf_counts"]) == 60
    incomes = set(pd.read_csv(tmp_path / "own.csv")["income"])
    assert set(found["thresholds"]["income"]) <= incomes
    assert found["thresholds"]["income"]
    [score] = [
        row for row in found["rows"] if row["is_attack"] and (row["metric"], row["column"]) == ("accuracy", None)
    ]
    assert score["mean"] > 0.3
    assert score["baseline_name"] is not None
    assert len((tmp_path / "read" / "reconstruction.csv").read_text().splitlines()) == 61


def test_masked_sums_are_recovered_where_the_number_of_rows_is_known(seepage: Any, tmp_path: Path) -> None:
    code, _, error = seepage("attack", "masked.json", *READ)
    assert (code, "--batch-size" in error) == (2, True)
    assert seepage("attack", "masked.json", *READ, "--batch-size", 60)[0] == 0
    found = json.loads((tmp_path / "read" / "results.json").read_text())
    written = json.loads((tmp_path / "first.json").read_text())
    true = written["learner"]["gradient_booster"]["model"]["trees"][0]["sum_hessian"]
    np.testing.assert_allclose(found["sum_hessian"][0], true, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("dart.json", *READ), "booster 'dart'"),
        (("narrow.json", *READ), "trees of 3 columns"),
        (("regression.json", *READ), "learn numbers"),
        (("rubbish.json", *READ), "no JSON"),
        (("missing.json", *READ), "does not exist; give the path"),
        (("slow.json", *READ), "--learning-rate"),
        (("first.json", *READ, "--model", "nn3"), "leave out --model"),
        (("first.json", *READ, "--learning-rate", 0), "must be greater than 0"),
        (("first.json", *READ, "--truth", "public.csv"), "200 rows"),
        (("first.json", "--schema", "people.yaml", "--out", "read"), "--data"),
    ],
)
def test_what_cannot_be_read_is_refused(seepage: Any, arguments: tuple[object, ...], said: str) -> None:
    code, _, error = seepage("attack", *arguments)
    assert code == 2
    assert said in " ".join(error.split())
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("options", "weights", "target", "said", "never"),
    [
        ({"tree_method": "exact"}, None, 2, "no values of its rows", "split at"),
        ({"tree_method": "hist"}, None, 2, "tree_method is hist", "values of its rows:"),
        ({"scale_pos_weight": 2}, None, 2, "weighted rows of each class in", " rows of each class are"),
        ({}, 3, 2, "with 180 weighted rows", "with 180 rows"),
        ({"objective": "reg:squarederror"}, None, 1, "weighted rows in the first tree's", "of each class"),
        ({"objective": "multi:softprob", "num_class": 2}, None, 2, "with 60 weighted rows", "mistake"),
    ],
)
def test_trees_are_said_to_tell_no_more_than_they_do(
    seepage: Any, tmp_path: Path, options: dict[str, Any], weights: int | None, target: int, said: str, never: str
) -> None:
    table = people(200, target)
    (tmp_path / "people.yaml").write_text(table.schema.to_yaml())
    table.frame.to_csv(tmp_path / "public.csv", index=False)
    own = table.rows(np.arange(60))
    rows = encoded(table.schema, Statistics.of(table), own.cells)
    weighing = None if weights is None else np.full(60, weights)
    given = {"objective": "binary:logistic", "base_score": 0.5, "nthread": 1, **options}
    matrix = xgboost.DMatrix(rows, label=own.labels.numpy(), weight=weighing)
    xgboost.train(given, matrix, 3).save_model(tmp_path / "made.json")
    code, out, error = seepage("attack", "made.json", *READ)
    assert code == 0, error
    out = " ".join(out.split())
    assert said in out
    assert never not in out


def test_numbers_on_another_scale_are_no_values_of_rows(seepage: Any, tmp_path: Path) -> None:
    table = people(200)
    own = table.rows(np.arange(60))
    rows = encoded(table.schema, Statistics.of(table), own.cells)
    rows[:, :2] = (rows[:, :2] - rows[:, :2].mean(0)) / rows[:, :2].std(0)
    given: dict[str, Any] = {"objective": "binary:logistic", "base_score": 0.5, "nthread": 1}
    xgboost.train(given, xgboost.DMatrix(rows, label=own.labels.numpy()), 3).save_model(tmp_path / "made.json")
    assert seepage("attack", "made.json", *READ)[0] == 0
    assert json.loads((tmp_path / "read" / "results.json").read_text())["thresholds"] == {}


def test_rules_that_are_not_read_are_named_beside_the_recipe(seepage: Any, tmp_path: Path) -> None:
    table = people(200)
    rows = encoded(table.schema, Statistics.of(table), table.cells)
    given = {"objective": "binary:logistic", "base_score": 0.5, "nthread": 1, "reg_alpha": 1}
    xgboost.train(given, xgboost.DMatrix(rows, label=table.labels.numpy()), 2).save_model(tmp_path / "made.json")
    code, _, error = seepage("attack", "made.json", *READ)
    assert (code, "reg_alpha" in error) == (2, True)
