"""Audits of federated trees: figures, defenses with their cost, controls, and input that cannot be used."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import seepage
from seepage.assessment.row import ResultRow
from seepage.datasets import Dataset
from seepage.errors import BadInputError
from seepage.packages import MissingExtraError
from seepage.results.rows import rows_of
from seepage.run.runner import run_audits
from seepage.run.store import Store
from seepage.settings.setting import Configuration
from seepage.settings.trees.audit import TreesAudit
from seepage.settings.trees.spec import TreesSpec
from tests.attacks.trees.parts import categories, people


def data(classes: int = 2, rows: int = 320) -> Dataset:
    return Dataset("people", people(rows, classes), None, (), "generated", "none needed")


def audit(classes: int = 2, **options: Any) -> TreesAudit:
    small = {"rows": 30, "clients": 3, "trees": 4, "repetitions": 1, "workers": 1}
    return TreesAudit(TreesSpec.of(**{**small, **options}), data(classes))


def rows(audit: TreesAudit) -> dict[tuple[str, str, str], ResultRow]:
    with Store(None) as store:
        [runs] = run_audits([audit], store)
    return {(row.attack, row.defense, row.metric): row for row in rows_of(audit, runs) if row.column is None}


def figures(audit: TreesAudit) -> dict[tuple[str, str, str], float | None]:
    return {key: row.mean for key, row in rows(audit).items()}


def test_a_missing_xgboost_is_said_before_anything_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(MissingExtraError, match="xgboost is not installed; pip install 'seepage\\[trees\\]'"):
        audit()
    monkeypatch.setitem(sys.modules, "xgboost", ModuleType("xgboost"))
    with pytest.raises(MissingExtraError, match=r"xgboost .*cannot be used"):
        audit()


@pytest.mark.slow
def test_defenses_change_what_is_read_and_what_is_learnt() -> None:
    found = figures(
        audit(
            trees=6,
            defenses=[
                "none",
                {"name": "histogram_noise", "deviation": 20},
                {"name": "min_child_weight", "weight": 4, "label": "leaves"},
                {"name": "max_bin", "bins": 2, "label": "bins"},
                {"name": "shared_cuts", "bins": 2, "label": "cuts"},
            ],
        )
    )

    def score(defense: str) -> float:
        value = found["anchor", defense, "accuracy"]
        assert value is not None
        return value

    labels = {label for _, label, _ in found}
    noise = next(label for label in labels if label.startswith("histogram_noise"))
    assert score("none") > 0.8
    for label in (noise, "leaves", "bins", "cuts"):
        assert score(label) < score("none")
    assert (found["anchor", noise, "certified"] or 0.0) == 0
    assert (found["training", noise, "epsilon"] or 0.0) > 0
    assert found.get(("training", "none", "epsilon")) is None
    area, noisy = found["training", "none", "auc"], found["training", noise, "auc"]
    assert area is not None
    assert noisy is not None
    assert area > noisy


@pytest.mark.parametrize("protocol", ["bagging", "cyclic"])
def test_tree_files_give_facts_beside_records(protocol: str) -> None:
    strip = {"name": "strip_fields", "fields": ["sum_hessian"], "label": "masked"}
    found = figures(audit(protocol=protocol, defenses=["none", strip, {"name": "strip_fields", "label": "all"}]))
    assert found["hessians", "none", "hidden_sums"] == 1.0
    assert (found["hessians", "masked", "hidden_sums"] or 0.0) > 0.9
    assert found["hessians", "all", "hidden_sums"] == 0.0
    assert found["leaf_counts", "none", "leaf_counts"] == found["leaf_counts", "masked", "leaf_counts"] == 1.0
    assert (found["thresholds", "none", "values_right"] or 0.0) > 0.9
    assert found["timberstrike", "none", "accuracy"] is not None
    assert ("thresholds", "none", "accuracy") not in found


@pytest.mark.parametrize(("classes", "metric"), [(1, "task_rmse"), (3, "task_accuracy")])
def test_other_tasks_are_audited(classes: int, metric: str) -> None:
    made = audit(classes, repetitions=1, defenses=["none", {"name": "histogram_noise", "deviation": 0.5}])
    by = rows(made)
    found = {key: row.mean for key, row in by.items()}
    assert (found["anchor", "none", "accuracy"] or 0.0) > 0.8
    # Trees learn more than always giving the same answer.
    assert (by["training", "none", metric].lift or 0.0) > 0
    label = next(label for _, label, _ in found if label != "none")
    # Derivatives of a regression have no bound, so that noise guarantees nothing.
    assert (found.get(("training", label, "epsilon")) is None) == (classes == 1)


def test_sums_of_several_clients_are_of_all_their_records() -> None:
    made = audit(summed=2, repetitions=1)
    exposure = made.expose(made.configurations[0], range(1))
    assert exposure.federations[0].cells.shape == (60, 5)
    assert made.granted(made.configurations[0], made.parts[-1])["batch_size"] == 60


def test_numbers_of_rows_are_swept_and_told_apart() -> None:
    made = audit(rows=[20, 30])
    assert made.configurations == (Configuration("none", 20), Configuration("none", 30))
    first, second = (made.identity(one, made.parts[0]) for one in made.configurations)
    assert first != second


@pytest.mark.parametrize("protocol", ["histogram", "bagging"])
def test_every_change_that_the_search_may_try_makes_an_audit(protocol: str) -> None:
    made = audit(protocol=protocol)
    for lever in made.levers():
        for strength in (lever.weakest, lever.strongest):
            changed = lever.applied(made.spec, strength)
            assert len(TreesAudit(changed, data()).configurations) == 1


def test_the_control_has_shuffled_columns_and_a_number_in_each_row() -> None:
    made = audit()
    control, nothing = made.planted(swapped=False), made.planted(swapped=True)
    assert control is not None
    assert nothing is not None
    planted, own = control.data.all, made.data.all
    assert planted.schema.names[:-1] == own.schema.names
    assert sorted(planted.column(5).tolist()) == list(range(len(planted)))
    for column in range(5):
        assert set(planted.column(column).tolist()) <= set(own.column(column).tolist())
    there = {tuple(cells) for cells in own.cells.tolist()}
    assert np.mean([tuple(cells[:-1]) in there for cells in planted.cells.tolist()]) < 0.2
    [score] = [m for m in _measured(control) if (m.metric, m.column) == ("accuracy", None)]
    [empty] = [m for m in _measured(nothing) if (m.metric, m.column) == ("accuracy", None)]
    assert score.values.tolist() == [1.0]
    assert float(empty.values.max()) < 0.8
    assert audit(protocol="bagging").control() is None


def test_the_control_of_a_table_of_categories_has_no_number() -> None:
    table = Dataset("people", categories(320, 2), None, (), "generated", "none needed")
    control = TreesAudit(audit().spec, table).planted(swapped=False)
    assert control is not None
    assert not control.data.schema.continuous
    [score] = [m for m in _measured(control) if (m.metric, m.column) == ("accuracy", None)]
    assert score.values.tolist() == [1.0]


def test_little_that_is_read_through_noise_is_no_evidence_while_sums_tell_more() -> None:
    noise = [{"name": "histogram_noise", "deviation": size, "label": str(size)} for size in (0.5, 100)]
    made = TreesAudit(audit(defenses=noise).spec, Dataset("people", categories(320, 2), None, (), "generated", "none"))
    for configuration, doubted in zip(made.configurations, (True, False), strict=True):
        part = next(part for part in made.parts if part.label == "anchor")
        [evidence] = made.expose(configuration, range(1)).measure(part).evidence
        assert evidence.regime is not None
        assert evidence.regime[0].startswith("not tried: paths of ") == doubted


def _measured(made: TreesAudit) -> Any:
    exposure = made.expose(made.configurations[0], range(1))
    return exposure.measure(next(part for part in made.parts if part.label == "anchor")).measured


def test_python_and_a_folder_take_it(tmp_path: Path) -> None:
    frame = people(200).frame
    options: dict[str, Any] = {"rows": [20], "clients": 2, "trees": 2, "repetitions": 2, "workers": 1, "control": False}
    report = seepage.audit(frame, setting="trees", target="y", out=tmp_path, **options)
    assert {row.setting for row in report.rows} == {"trees"}
    assert report.findings is not None
    assert not {"SEEP004", "SEEP021"} & {one.code for one in report.findings}
    again = seepage.audit(frame, setting="trees", target="y", out=tmp_path, **options)
    assert again.rows == report.rows


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rows": 200}, "3 clients with 200 rows each hold 600 rows"),
        ({"summed": 4}, "there are 3"),
        ({"summed": 2, "protocol": "bagging"}, "not added up"),
        ({"defenses": ["strip_fields"]}, "send sums"),
        ({"defenses": [{"name": "histogram_noise", "deviation": 1}], "protocol": "bagging"}, "send tree files"),
        ({"defenses": [{"name": "histogram_noise", "deviation": -1}]}, "above 0"),
        ({"defenses": [{"name": "histogram_noise", "deviation": float("inf")}]}, "above 0"),
        ({"defenses": [{"name": "max_bin", "bins": 1}]}, "at least 2"),
        ({"defenses": [{"name": "shared_cuts", "bins": 0}]}, "bins"),
        ({"defenses": [{"name": "min_child_weight", "weight": 0}]}, "above 0"),
        ({"base_score": 1.5}, "between 0 and 1"),
        ({"base_score": float("nan")}, "base_score"),
        ({"attacks": ["timberstrike"]}, "takes tree files"),
        ({"depth": 0}, "depth"),
        ({"rows": []}, "rows"),
        ({"protocol": "dart"}, "protocol"),
        ({"device": "cuda"}, "CPU alone"),
    ],
)
def test_what_cannot_be_used_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        audit(**options)


def test_what_an_attack_returns_wrongly_is_said(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("class Bad:\n    def __call__(self, view, knowledge, seeds):\n        return 3\n")
    made = audit(attacks=f"{tmp_path / 'bad.py'}:Bad")
    exposure = made.expose(made.configurations[0], range(1))
    with pytest.raises(BadInputError, match=r"'Bad' returned an object of type int where .*RecordsGuess is expected"):
        exposure.measure(next(part for part in made.parts if part.kind == "attack"))


def test_a_target_with_one_category_is_refused() -> None:
    made = data()
    schema = made.schema
    target = schema.target.model_copy(update={"categories": (0,)})
    table = people(320).of_cells(made.all.cells, made.all.labels * 0)
    frame = table.frame
    from_one = type(made.all)(schema.model_copy(update={"target": target}), frame)
    with pytest.raises(BadInputError, match="one category"):
        TreesAudit(TreesSpec(rows=(30,), clients=2), Dataset("people", from_one, None, (), "generated", "none"))
