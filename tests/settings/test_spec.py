"""A spec is checked before anything runs, and names the nearest names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seepage import registry
from seepage.devices import find_device
from seepage.errors import BadInputError
from seepage.settings.horizontal.spec import HorizontalSpec, make_spec
from seepage.settings.part import Part


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"attacks": ["tabelak"]}, "did you mean 'tableak'"),
        ({"attacks": ["dlg", "gld"]}, "unknown attack 'gld'"),
        ({"baselines": "modes"}, "did you mean 'mode'"),
        ({"protocol": "fedsdg"}, "did you mean 'fedsgd'"),
        ({"labels": "tru"}, "did you mean 'true'"),
        ({"profile": "faithfull"}, "did you mean 'faithful'"),
        ({"head": "softmx"}, "did you mean 'softmax'"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"device": "cuda:x"}, "unknown device 'cuda:x'"),
        ({"batch_sizes": [8, 0]}, "batch_sizes.1=0"),
        ({"batch_sizes": []}, "at least one batch size"),
        ({"victims": 0}, "victims=0"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**63}, "seed="),
        ({"restarts": 0}, "restarts=0"),
        ({"iterations": "many"}, "iterations='many'"),
        ({"victim": 3}, "did you mean 'victims'"),
        ({"target": "income"}, "no data file was given"),
        ({"data": "people.csv"}, "needs a target"),
        ({"data": "people.csv", "schema_file": "s.yaml", "sensitive": ["age"]}, "say it there instead"),
        ({"defenses": "nnoe"}, "did you mean 'none'"),
        ({"defenses": []}, "at least one defense"),
        ({"metrics": ["accuracy", "rsme"]}, "did you mean 'rmse'"),
        ({"metrics": ["rmse"]}, "add 'accuracy' to metrics"),
        ({"metrics": ["accuracy", "quarters", {"name": "quarters", "options": {"official_count": True}}]}, "a label"),
        ({"model_options": {"seed": 3}}, "is model_seed"),
        ({"threads": 0}, "threads=0"),
        ({"workers": 0}, "workers=0"),
        ({"attacks": {"name": "dlg", "label": "random"}, "baselines": "random"}, "an attack and a baseline"),
        ({"separator": ";"}, "no data file was given"),
        ({"data": "people.csv", "target": "ill", "separator": ";;"}, "separator=';;'"),
        ({"data": "people.csv", "target": "ill", "dataset_options": {"missing": "drop"}}, "registered dataset"),
        ({"attacks": ["dlg", {"name": "dlg", "options": {"iterations": 3}}]}, "give one a label"),
    ],
)
def test_bad_values_are_refused_with_advice(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError) as caught:
        make_spec(**values)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_device_that_is_not_there_is_refused() -> None:
    assert find_device(make_spec(device="cpu").device).type == "cpu"
    with pytest.raises(BadInputError, match="CUDA device"):
        find_device(make_spec(device="cuda:63").device)


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(BadInputError, match=r"tabelak.*victims=0"):
        make_spec(attacks="tabelak", victims=0)


def test_single_values_and_repeats_are_understood() -> None:
    spec = make_spec(batch_sizes=8, attacks="tableak", baselines=["mode", "mode"])
    assert spec.batch_sizes == (8,)
    assert spec.attacks == (Part(name="tableak"),)
    assert spec.baselines == (Part(name="mode"),)
    assert make_spec(batch_sizes=[8, 2, 8]).batch_sizes == (8, 2)


def test_all_metrics_are_the_default() -> None:
    assert [part.name for part in make_spec().metrics] == registry.metrics.names()


def test_a_tree_of_columns_is_a_default_baseline_where_there_are_public_rows_to_learn_it_from() -> None:
    usual = ["stereotypes", "mode", "random"]
    assert [part.name for part in make_spec().baselines] == usual
    assert [part.name for part in make_spec(auxiliary=50).baselines] == [*usual, "chow_liu"]
    assert [part.name for part in make_spec(auxiliary=50, baselines="random").baselines] == ["random"]


def test_a_spec_survives_json() -> None:
    spec = make_spec(
        data="people.csv", target="ill", attacks=[{"name": "dlg", "options": {"step": 0.1}, "label": "mine"}]
    )
    assert HorizontalSpec.model_validate(spec.plain()) == spec


@pytest.mark.parametrize("said", ["tab", "\\t", "\t"])
def test_a_tabulator_can_be_named(said: str, tmp_path: Path) -> None:
    assert make_spec(data=tmp_path / "rows.csv", target="y", separator=said).separator == "\t"
