"""What matching alone is worth stands beside the baselines of records, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seepage.auditing import audit
from seepage.datasets import load
from seepage.report.report import Report
from seepage.text import points


def _page(folder: Path, **fields: Any) -> tuple[Report, str]:
    settings: dict[str, Any] = {"batch_sizes": [1, 4, 8], "attacks": "dlg", "victims": 2, "iterations": 2, **fields}
    report = audit("german", "nn1", control=False, workers=1, **settings)
    return report, report.save(folder).read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_gain_of_drawn_rows_is_named_for_each_number_of_records(tmp_path: Path) -> None:
    report, page = _page(tmp_path)
    data = load("german")
    drawn = {
        row.batch_size: row.mean
        for row in report.rows
        if row.attack == "random" and row.metric == "accuracy" and row.column is None
    }
    assert set(drawn) == {1, 4, 8}
    # One record is matched to one row.
    assert "points at 1 record" not in page
    for size in (4, 8):
        mean = drawn[size]
        assert mean is not None
        assert f"{points(mean - data.statistics.agreement(data.schema))} points at {size} records" in page


def test_without_drawn_rows_nothing_is_said(tmp_path: Path) -> None:
    _, page = _page(tmp_path, baselines="mode")
    assert "That alone is worth" not in page
