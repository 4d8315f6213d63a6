"""Audits of trees over columns: figures of both parties, defenses, controls, and input that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import seepage
from seepage.datasets import Dataset
from seepage.errors import BadInputError
from seepage.results.rows import rows_of
from seepage.run.runner import run_audits
from seepage.run.store import Store
from seepage.settings.catalogue import deployment_of
from seepage.settings.setting import Given
from seepage.settings.threat_model import grid_of_attacks
from seepage.settings.trees.audit import prepared
from seepage.settings.trees.columns import ColumnsAudit
from seepage.settings.trees.spec import TreesSpec
from seepage.settings.units import Tables
from tests.attacks.trees.parts import people


def data(classes: int = 2, rows: int = 260) -> Dataset:
    return Dataset("people", people(rows, classes), None, (), "generated", "none needed")


def audit(classes: int = 2, **options: Any) -> ColumnsAudit:
    small: dict[str, Any] = {"rows": 150, "trees": 6, "depth": 4, "repetitions": 1, "workers": 1, "max_bin": 16}
    small |= {"passive": ["income", "city"], "leaked": 30, "known_labels": 30, "baselines": ["constant", "label_mode"]}
    return ColumnsAudit(TreesSpec.of(protocol="secureboost", **{**small, **options}), data(classes))


def figures(made: ColumnsAudit) -> dict[tuple[str, str, str, str | None], float]:
    with Store(None) as store:
        [runs] = run_audits([made], store)
    rows = rows_of(made, runs)
    return {(row.attack, row.defense, row.metric, row.column): row.mean or 0.0 for row in rows}


@pytest.mark.long
def test_both_parties_read_more_than_their_baselines() -> None:
    read = figures(audit(trees=12, baselines=["constant", "own_columns", "label_mode", "label_columns"]))
    assert read["bin_sums", "none", "accuracy", None] > 0.9
    assert read["own_columns", "none", "accuracy", None] < 0.8
    labels = read["node_heads", "none", "accuracy", "y"]
    assert labels > max(read[name, "none", "accuracy", "y"] for name in ("label_mode", "label_columns"))
    assert read["training", "none", "auc", None] > 0.5


@pytest.mark.long
def test_defenses_lower_what_is_read_but_for_noise_on_sums() -> None:
    noise = {"name": "histogram_noise", "deviation": 3, "label": "noise"}
    late = {"name": "first_trees", "rounds": 11, "label": "late"}
    bins = {"name": "max_bin", "bins": 2, "label": "bins"}
    read = figures(audit(trees=12, defenses=["none", noise, late, bins], attacks=["bin_sums"]))
    for label in ("late", "bins"):
        assert read["bin_sums", label, "accuracy", None] < read["bin_sums", "none", "accuracy", None] - 0.1
    # Splits are then on bins whose sums are large by chance, and which rows go left is sent as it is.
    assert read["bin_sums", "noise", "accuracy", None] > 0.9
    assert read["training", "noise", "auc", None] < read["training", "none", "auc", None]


@pytest.mark.parametrize("classes", [1, 3])
def test_other_tasks_are_audited(classes: int) -> None:
    attacks = ["bin_sums", "node_clusters"] if classes > 1 else ["bin_sums", "node_heads"]
    read = figures(audit(classes, attacks=attacks, trees=4))
    assert read["bin_sums", "none", "accuracy", None] > 0.8
    assert (attacks[1], "none", "accuracy", "y") in read
    assert read["training", "none", "task_rmse" if classes == 1 else "task_accuracy", None] > 0


def test_the_control_plants_coins_and_a_label_that_nodes_tell() -> None:
    made = audit()
    control, nothing = made.control(), made.negative()
    assert isinstance(control, ColumnsAudit)
    assert isinstance(nothing, ColumnsAudit)
    scores = {}
    for name, one in (("positive", control), ("negative", nothing)):
        exposure = one.expose(one.configurations[0], range(1))
        for part in one.parts:
            column = part.column
            [score] = [m for m in exposure.measure(part).measured if (m.metric, m.column) == ("accuracy", column)]
            scores[name, part.label] = float(score.values[0])
    assert scores["positive", "bin_sums"] > 0.95
    for label in ("node_heads", "node_clusters"):
        assert scores["positive", label] > 0.85
        assert scores["negative", label] < 0.7
    assert scores["negative", "bin_sums"] < 0.65
    assert max(scores["positive", name] for name in ("constant", "label_mode", "label_columns")) < 0.7


def test_a_control_of_numbers_leaves_label_attacks_out() -> None:
    control = audit(1, attacks=["bin_sums", "node_heads"]).control()
    assert control is not None
    assert [part.label for part in control.parts if part.kind == "attack"] == ["bin_sums"]
    assert any("node_heads" in note for note in control.about.notes)
    assert audit(1, attacks=["node_heads"]).control() is None


def test_known_records_do_not_count() -> None:
    made = audit()
    exposure = made.expose(made.configurations[0], range(1))
    for part in made.parts:
        for figure in [] if part.label == "node_heads" else exposure.measure(part).measured:
            if figure.clusters is not None:
                assert len(figure.clusters[0]) == 120


def test_every_change_that_the_search_may_try_makes_an_audit() -> None:
    made = audit()
    for lever in made.levers():
        for strength in (lever.weakest, lever.strongest):
            assert len(ColumnsAudit(lever.applied(made.spec, strength), data()).configurations) == 1


def test_the_protocol_decides_which_attacks_apply() -> None:
    grid = {one.attack: one.applies for one in grid_of_attacks(deployment_of(audit().spec))}
    assert {name for name, applies in grid.items() if applies} == {"bin_sums", "node_heads", "node_clusters"}
    spec = TreesSpec.of(protocol="secureboost", rows=80, known_labels=0, leaked=0)
    without = ColumnsAudit(spec, data())
    assert {part.label for part in without.parts} == {
        "training", "constant", "median", "label_mode", "bin_sums", "node_clusters"
    }  # fmt: skip
    made = prepared(TreesSpec.of(protocol="secureboost", rows=80), Given(dataset=data()), Tables())
    assert isinstance(made, ColumnsAudit)
    # Of few rows the defaults leave most unknown.
    assert (made.spec.leaked, made.spec.known_labels) == (20, 20)
    made = prepared(TreesSpec.of(protocol="secureboost"), Given(dataset=data()), Tables())
    assert made.spec.rows == (208,)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rows": 300}, "train on 300 rows, but 'people' has 260"),
        ({"leaked": 150}, "leaked=150 records are known of 150"),
        ({"known_labels": 200}, "known_labels=200"),
        ({"clients": 3}, "clients has no meaning where columns are shared out"),
        ({"passive": ["y"]}, "the target 'y' was given to a party as a column"),
        ({"attacks": ["anchor"]}, "The attack 'anchor' takes sums of derivatives"),
        ({"baselines": ["own_marginals"]}, "the baseline 'own_marginals' is for sums of derivatives"),
        ({"baselines": ["own_columns"], "leaked": 0}, "needs leaked records of the target, but none are granted"),
        ({"defenses": ["strip_fields"]}, "'secureboost' does not have"),
        ({"defenses": [{"name": "first_trees", "rounds": 6}]}, "leaves the passive party out of 6 rounds"),
        ({"defenses": [{"name": "first_trees", "rounds": 0}]}, "rounds"),
    ],
)
def test_input_that_cannot_be_used_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        audit(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"passive": ["age"]}, "passive has no meaning where rows are shared out"),
        ({"defenses": ["first_trees"]}, "for parties that share out columns"),
        ({"baselines": ["constant"]}, "the baseline 'constant' is for"),
    ],
)
def test_other_protocols_refuse_what_is_of_columns(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        prepared(TreesSpec.of(rows=20, clients=2, **options), Given(dataset=data()), Tables())


@pytest.mark.long
def test_python_and_a_folder_take_it_and_go_on(tmp_path: Path) -> None:
    frame = people(160).frame
    options: dict[str, Any] = {"rows": [80], "trees": 3, "depth": 3, "repetitions": 2, "workers": 1}
    options |= {"baselines": "constant", "attacks": ["bin_sums", "node_clusters"]}
    options |= {"passive": "age", "leaked": 20, "known_labels": 20, "control": False}
    report = seepage.audit(frame, setting="trees", protocol="secureboost", target="y", out=tmp_path, **options)
    assert {row.protocol for row in report.rows} == {"secureboost"}
    assert {row.column for row in report.rows if row.metric == "accuracy"} == {None, "age", "y"}
    again = seepage.audit(frame, setting="trees", protocol="secureboost", target="y", out=tmp_path, **options)
    assert [row.mean for row in again.rows] == [row.mean for row in report.rows]
    assert "The passive party" in (tmp_path / "report.html").read_text()
