"""Audits from end to end, from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from torch import nn

from seepage.auditing import audit, prepare_all, run_all
from seepage.errors import BadInputError
from seepage.report.report import Report
from seepage.seeds import seeded
from seepage.settings.horizontal.audit import HorizontalAudit
from seepage.settings.horizontal.spec import make_spec
from seepage.tabular.infer import infer_schema
from seepage.tabular.schema import Continuous
from tests.stores import measurements

TINY: dict[str, Any] = {
    "batch_sizes": 2,
    "attacks": "dlg",
    "victims": 2,
    "iterations": 3,
}


def house_prices() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    area = draw.uniform(30, 200, 60).round(2)
    return pd.DataFrame(
        {
            "area": area,
            "town": draw.choice(["north", "south", "west"], 60),
            "price": (area * 2.5 + draw.normal(0, 10, 60)).round(2),
        }
    )


def network() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1)), seed=0)


def head_of(report: Report) -> str:
    assert isinstance(report.audit, HorizontalAudit)
    return report.audit.subject.model.head


@pytest.mark.slow
def test_a_modules_head_follows_the_table_that_is_audited(tmp_path: Path) -> None:
    frame = house_prices()
    frame.to_csv(tmp_path / "prices.csv", index=False)
    told: dict[str, Any] = {**TINY, "target": "price", "labels": "true"}
    of_frame = audit(frame, network(), **told)
    of_file = audit(tmp_path / "prices.csv", network(), **told)
    assert [head_of(report) for report in (of_frame, of_file)] == ["regression", "regression"]
    means = [[row.mean for row in report.rows] for report in (of_frame, of_file)]
    assert means[0] == means[1]


@pytest.mark.slow
def test_a_head_is_that_of_the_outputs_unless_it_is_named() -> None:
    module = seeded(lambda: nn.Linear(63, 1), seed=0)
    assert head_of(audit("german", module, head="sigmoid", **TINY)) == "sigmoid"
    assert head_of(audit("german", module, **TINY)) == "sigmoid"
    with pytest.raises(BadInputError, match="last layer"):
        audit("german", module, head="softmax", **TINY)


@pytest.mark.parametrize("order", [("adult", "german"), ("german", "adult")])
def test_every_setting_of_a_sweep_is_tried_before_the_first_runs(tmp_path: Path, order: tuple[str, str]) -> None:
    specs = [make_spec(**{**TINY, "dataset": name, "batch_sizes": 900, "victims": 1}) for name in order]
    audits = prepare_all(specs)
    with pytest.raises(BadInputError, match="larger than the client's 800 rows"):
        run_all(audits, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_audits_of_a_sweep_are_kept_under_their_own_keys(tmp_path: Path) -> None:
    specs = [make_spec(**{**TINY, "dataset": "german", "model": name}) for name in ("nn1", "linear")]
    first = run_all(prepare_all(specs), tmp_path)
    kept = measurements(tmp_path)
    again = run_all(prepare_all(specs), tmp_path)
    assert [report.rows for report in again] == [report.rows for report in first]
    assert measurements(tmp_path) == kept


def test_a_target_of_one_value_is_refused() -> None:
    frame = house_prices().assign(sold="yes")
    with pytest.raises(BadInputError, match="nothing to learn"):
        audit(frame, target="sold", **TINY)
    schema = infer_schema(house_prices(), "price")
    assert isinstance(schema.target, Continuous)
    with pytest.raises(BadInputError, match="'price' is the same in all 60 rows"):
        audit(house_prices().assign(price=schema.target.low), "nn3", schema=schema, labels="true", **TINY)


def test_options_of_a_loader_are_refused_with_rows_that_were_passed() -> None:
    with pytest.raises(BadInputError, match="rows were passed"):
        audit(house_prices(), target="town", dataset_options={"missing": "drop"}, **TINY)


def test_without_baselines_the_summary_says_that_nothing_was_compared() -> None:
    told = {**TINY, "iterations": 300, "control": False}
    text = audit("german", baselines=(), **told).summary()
    assert "Verdict: not decided. No verdict: there is no baseline to compare with." in text
    assert "more than the best baseline" not in text
