"""The strongest attack at twice its steps: the same attack on the same units, asked for only where it makes sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import seepage
from seepage.registry import attacks
from seepage.report.report import Report
from seepage.results.checks.descent import steps_of
from seepage.settings.horizontal.audit import HorizontalExposure

_SMALL: dict[str, Any] = {"workers": 1, "device": "cpu", "seed": 5, "baselines": "mode"}


def audited(**options: Any) -> Report:
    chosen: dict[str, Any] = {**_SMALL, "batch_sizes": 4, "victims": 3, **options}
    return seepage.audit("german", **chosen)


def accuracy(report: Report) -> float:
    [row] = [row for row in report.rows if row.is_attack and (row.metric, row.column) == ("accuracy", None)]
    assert row.mean is not None
    return row.mean


def codes(report: Report) -> list[str]:
    return [finding.code for finding in report.findings or ()]


def test_an_attack_with_too_few_steps_is_told_by_what_it_reads_with_twice_as_many() -> None:
    few = audited(attacks="tableak", restarts=2, iterations=25)
    [twice] = few.longer
    assert (twice.options, twice.units) == ({"iterations": 50}, 3)
    assert twice.read == pytest.approx(accuracy(few))
    # An audit of its own with as many steps is the independent truth.
    assert twice.at_twice == pytest.approx(
        accuracy(audited(attacks="tableak", restarts=2, iterations=50, control=False))
    )
    assert ("SEEP031" in codes(few)) == (twice.at_twice - twice.read > 0.02)
    assert "SEEP031" in codes(few)
    assert "An attack reads more at twice its steps, so this is a lower bound." in repr(few)


def test_only_the_strongest_attack_of_an_audit_with_controls_is_run_again() -> None:
    assert audited(attacks="dlg", iterations=3, control=False).longer == []
    both = audited(attacks=["tableak", "dlg"], iterations=10, restarts=2, victims=2)
    assert [result.where.attack for result in both.longer] == ["tableak"]
    # An exact attack has no steps to double.
    assert steps_of(attacks.of("horizontal").create("spear")) == {}


@pytest.mark.slow
def test_nothing_is_run_again_where_all_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    report = audited(attacks=["unmix", "dlg"], iterations=3, victims=2)
    assert max(row.mean or 0.0 for row in report.rows if row.attack == "unmix" and row.metric == "accuracy") == 1
    assert report.longer == []


def test_a_run_that_is_continued_has_its_result_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = audited(attacks="dlg", iterations=4, out=tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(HorizontalExposure, "measure", lambda *_, **__: pytest.fail("ran again"))
        assert audited(attacks="dlg", iterations=4, out=tmp_path).longer == first.longer != []


@pytest.mark.slow
def test_other_settings_double_what_their_attacks_call_steps() -> None:
    gia = {"name": "gia", "options": {"steps": 20}}
    few: dict[str, Any] = {"repetitions": 2, "baselines": "constant", "epochs": 1}
    options: dict[str, Any] = {**_SMALL, **few, "setting": "vertical", "attacks": gia}
    [result] = seepage.audit("german", **options).longer
    assert (result.options, result.units) == ({"steps": 40}, 1)
    options |= {"repetitions": 1, "control": False}
    once = seepage.audit("german", **options)
    assert result.read == pytest.approx(accuracy(once), abs=0.01)
    assert steps_of(attacks.of("vertical").create("uifv_qa")) == {"steps": 1000, "epochs": 60}
