"""Default parts that cannot act on a network or a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from seepage.attacks.trees.bin_sums import BinSums
from seepage.auditing import audit, fitting, spec_of
from seepage.errors import BadInputError
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.split.spec import SplitSpec
from seepage.settings.units import with_few_leaked

# Only two factors of each layer are trained: no bias of the output, from which labels could be restored.
ADAPTED = """
import torch
from torch import nn

class Adapted(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.first = nn.Parameter(torch.randn(3, inputs))
        self.second = nn.Parameter(torch.zeros(outputs, 3))

    def forward(self, rows):
        return self.base(rows) + rows @ self.first.T @ self.second.T

class Net(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(Adapted(inputs, 16), nn.ReLU(), Adapted(16, outputs))
"""


@pytest.mark.long
def test_a_default_defense_that_cannot_act_is_not_tried_and_the_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "adapted.py").write_text(ADAPTED)
    monkeypatch.chdir(tmp_path)
    spec = make_spec(
        dataset="german",
        model="adapted.py:Net",
        batch_sizes=2,
        victims=1,
        restarts=1,
        iterations=2,
        control=False,
        attacks=["inverting_gradients"],
        defenses=["none", {"name": "dp_sgd", "clip_norm": 1.0, "noise_multiplier": 0.01}],
    )
    [fitted] = fitting([spec], given=["attacks"])
    [name] = fitted.not_tried
    assert "sends none of its own" in fitted.not_tried[name]
    assert [point.defense for point in fitted.configurations] == ["none"]
    # One that was named is left for the plan, which refuses it.
    [named] = fitting([spec])
    assert named.not_tried == {}
    assert len(named.configurations) == 2


def test_the_default_leaks_half_of_few_records_and_a_number_that_is_given_stays() -> None:
    usual = SplitSpec(dataset="german", topology="vanilla")
    for attacked, leaked in ((64, 32), (30, 15), (1, 0), (65, 64)):
        assert with_few_leaked(usual, usual.leaked, attacked).leaked == leaked
    given = usual.model_copy(update={"leaked": 64})
    assert with_few_leaked(given, given.leaked, 30) is given


def people(rows: int) -> pd.DataFrame:
    """Return a table with numbers, categories, and a number and a class to learn."""
    random = np.random.default_rng(rows)
    age = random.integers(20, 80, rows)
    return pd.DataFrame(
        {
            "age": age,
            "job": random.choice(["cook", "nurse", "clerk"], rows),
            "sex": random.choice(["f", "m"], rows),
            "pay": age * 10.5 + random.normal(0, 30, rows).round(2),
            "ill": random.choice(["no", "yes"], rows),
        }
    )


SMALL: dict[str, Any] = {
    **{"setting": "trees", "protocol": "secureboost", "repetitions": 1, "trees": 2},
    **{"workers": 1, "control": False, "baselines": ["constant", "label_mode"]},
}


@pytest.mark.long
def test_a_default_attack_that_does_not_fit_the_target_is_not_tried_and_one_that_is_named_is_refused() -> None:
    frame = people(60).drop(columns="ill")
    report = audit(frame, target="pay", **SMALL)
    assert list(report.audit.not_tried) == ["node_clusters"]
    assert "is a number" in report.audit.not_tried["node_clusters"]
    with pytest.raises(BadInputError, match="node_clusters"):
        audit(frame, target="pay", attacks=["bin_sums", "node_clusters"], **SMALL)


@pytest.mark.long
def test_a_default_part_that_cannot_act_once_it_runs_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise BadInputError("no sum of this table can be read; give more rows.")

    monkeypatch.setattr(BinSums, "__call__", refuses)
    frame = people(60).drop(columns="pay")
    report = audit(frame, target="ill", **SMALL)
    assert report.audit.not_tried == {"bin_sums": "no sum of this table can be read; give more rows."}
    assert not report.failed
    assert {run.label for run in report.runs if run.is_attack} == {"node_heads", "node_clusters"}
    named = audit(frame, target="ill", attacks=["bin_sums", "node_heads"], **SMALL)
    assert (named.audit.not_tried, [run.label for run in named.failed]) == ({}, ["bin_sums"])
    # A mistake of a program is none of the table's.
    monkeypatch.setattr(BinSums, "__call__", lambda *_, **__: 1 / 0)
    assert [run.label for run in audit(frame, target="ill", **SMALL).failed] == ["bin_sums"]


@pytest.mark.parametrize(("setting", "options"), [("split", {"topology": "vanilla"}), ("vertical", {})])
def test_the_control_of_a_small_table_has_rows_to_learn_from(setting: str, options: dict[str, str]) -> None:
    spec, frame, _ = spec_of(people(20), None, setting, None, {"target": "ill", **options})
    [fitted] = fitting([spec], dataset=frame)
    control = fitted.control()
    assert control is not None
    assert control.dataset is not None
    assert len(control.dataset.all) == 320
