"""Published tables as data, and the comparison with them."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from seepage.assessment import Estimate
from seepage.audit import grid
from seepage.errors import BadInputError
from seepage.reproduce import Selection, load_table, reproduce, tables
from seepage.reproduce.compare import Difference, welch
from seepage.reproduce.table import Figure
from tests.stores import measurements

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
METHODS = ("tableak", "tableak_no_pooling", "tableak_no_softmax", "inverting_gradients", "dlg", "random")


@pytest.mark.parametrize("name", ["tableak/table17", "tableak/table18"])
def test_a_table_holds_every_printed_figure_and_runs_every_method(name: str) -> None:
    table = load_table(name)
    for labels in ("true", "restored"):
        for method in METHODS:
            for size in SIZES:
                figure = table.figure(labels, method, size)
                assert figure is not None
                assert 0 < figure.mean <= 1
                assert 0 <= figure.std < 0.2
    run = {
        (planned.name, spec.labels, planned.compared.get(part.called, part.called), size)
        for planned, spec in table.specs()
        for part in (*spec.attacks, *(part for part in spec.baselines if part.called in planned.compared))
        for size in spec.batch_sizes
    }
    assert {("faithful", "true", method, size) for method in METHODS for size in SIZES} <= run
    assert {("faithful", "restored", "tableak", size) for size in (8, 16, 32, 64, 128)} <= run
    assert {("default", "true", "tableak", size) for size in SIZES} <= run


@pytest.mark.parametrize(
    ("name", "labels", "method", "size", "mean", "std"),
    [
        ("tableak/table17", "true", "tableak", 32, 0.793, 0.045),
        ("tableak/table17", "true", "inverting_gradients", 128, 0.595, 0.021),
        ("tableak/table17", "restored", "tableak", 8, 0.867, 0.122),
        ("tableak/table17", "true", "random", 1, 0.433, 0.118),
        ("tableak/table18", "true", "tableak", 32, 0.842, None),
        ("tableak/table18", "true", "inverting_gradients", 128, 0.645, None),
        ("tableak/table18", "true", "random", 32, 0.568, None),
    ],
)
def test_figures_are_those_in_print(
    name: str, labels: str, method: str, size: int, mean: float, std: float | None
) -> None:
    figure = load_table(name).figure(labels, method, size)
    assert figure is not None
    assert figure.mean == pytest.approx(mean)
    assert std is None or figure.std == pytest.approx(std)


def test_unknown_tables_are_answered_with_the_nearest() -> None:
    with pytest.raises(BadInputError, match="tableak/table17"):
        load_table("tableak/tabel17")
    assert set(tables()) >= {"tableak/table17", "tableak/table18"}


@given(st.floats(0, 1), st.floats(0.001, 0.2), st.integers(2, 60), st.floats(0, 1), st.floats(0.001, 0.2))
def test_the_difference_is_welchs(mean: float, std: float, n: int, other: float, other_std: float) -> None:
    found = welch(Estimate(mean, None, None, n, std), Figure(mean=other, std=other_std), 50)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    unbiased = other_std * math.sqrt(50 / 49)
    test = stats.ttest_ind_from_stats(mean, std, n, other, unbiased, 50, equal_var=False)
    interval = getattr(test, "confidence_interval", lambda: None)()
    assert found.mean == pytest.approx(mean - other)
    # The interval excludes zero exactly where the test rejects at five percent.
    if abs(test.pvalue - 0.05) > 1e-9:
        assert (found.low > 0 or found.high < 0) == (test.pvalue < 0.05)
    if interval is not None:
        assert (found.low, found.high) == pytest.approx(tuple(interval))


@pytest.mark.parametrize(
    ("difference", "agreement"),
    [
        (Difference(0.019, 0.01, 0.03), "yes"),
        (Difference(0.04, -0.01, 0.09), "yes"),
        (Difference(0.04, 0.01, 0.07), "above"),
        (Difference(-0.04, -0.07, -0.01), "below"),
        (Difference(-0.04, None, None), "undetermined"),
    ],
)
def test_agreement_is_two_points_or_the_interval_whichever_is_wider(difference: Difference, agreement: str) -> None:
    assert difference.agreement == agreement


def test_a_part_is_run_once_kept_and_compared(tmp_path: Path) -> None:
    table = load_table("tableak/table18")
    part = Selection(batch_sizes={2}, attacks={"tableak"}, labels={"true"})
    quick: dict[str, Any] = {"iterations": 20, "restarts": 2, "threads": 1}
    first = reproduce(table, tmp_path / "run", 3, part, **quick)
    assert {(c.run, c.method, c.batch_size, c.n) for c in first.cells} == {
        ("faithful", "tableak", 2, 3),
        ("faithful", "random", 2, 3),
        ("default", "tableak", 2, 3),
    }
    [faithful] = [cell for cell in first.cells if (cell.run, cell.method) == ("faithful", "tableak")]
    assert faithful.published == pytest.approx(table.published["true"]["tableak"][2][0] / 100)
    assert faithful.difference == pytest.approx((faithful.ours or 0) - (faithful.published or 0))
    [gain] = first.gains["default"]
    assert (gain.method, gain.batch_size, gain.gain.n) == ("tableak", 2, 3)

    kept = measurements(tmp_path / "run")
    again = reproduce(table, tmp_path / "run", 3, part, **quick)
    assert again == first
    assert measurements(tmp_path / "run") == kept
    with (tmp_path / "run" / "comparison.csv").open(encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert [float(line["ours"]) for line in written] == pytest.approx([cell.ours for cell in first.cells])


@pytest.mark.parametrize("changes", [{"iterations": 4}, {"seed": 1}, {"model": "nn1"}])
def test_a_folder_of_other_settings_is_left_as_it_was(tmp_path: Path, changes: dict[str, Any]) -> None:
    part = Selection(batch_sizes={2}, attacks={"tableak"}, labels={"true"}, runs={"faithful"})
    quick: dict[str, Any] = {"iterations": 3, "restarts": 2, "threads": 1}
    reproduce(load_table("tableak/table18"), tmp_path, 2, part, **quick)
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for run_missing in (True, False):
        with pytest.raises(BadInputError, match="holds an audit with"):
            reproduce(load_table("tableak/table18"), tmp_path, 2, part, run_missing=run_missing, **{**quick, **changes})
    with pytest.raises(BadInputError, match="holds an audit with"):
        reproduce(load_table("tableak/table17"), tmp_path, 2, part, **quick)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept


def test_victims_of_other_code_are_not_compared_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, part = load_table("tableak/table18"), Selection(batch_sizes={2}, attacks={"dlg"})
    quick: dict[str, Any] = {"iterations": 3, "threads": 1}
    reproduce(table, tmp_path, 2, part, **quick)
    assert reproduce(table, tmp_path, selection=part, run_missing=False, **quick).cells
    monkeypatch.setattr(grid, "own_code", lambda: {"digest": "other", "torch": "9"})
    with pytest.raises(BadInputError, match="measured by other code"):
        reproduce(table, tmp_path, selection=part, run_missing=False, **quick)
    assert not reproduce(table, tmp_path / "new", selection=part, run_missing=False, **quick).cells


def test_runs_of_a_table_may_have_networks_of_their_own(tmp_path: Path) -> None:
    table = load_table("tableak/table18")
    first = table.runs[0]
    small = {"attacks": ["dlg"], "batch_sizes": [2], "iterations": 3}
    runs = (
        first.model_copy(update={"audit": {**first.audit, **small}}),
        first.model_copy(update={"name": "other", "audit": {**first.audit, **small, "model": "nn1"}}),
    )
    made = reproduce(table.model_copy(update={"runs": runs}), None, 2, threads=1)
    assert {row["model"] for row in made.rows} == {"nn3", "nn1"}


def test_a_part_that_does_not_exist_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    table = load_table("tableak/table18")
    with pytest.raises(BadInputError, match="batch size of tableak/table18"):
        reproduce(table, tmp_path / "run", 2, Selection(batch_sizes={3}))
    with pytest.raises(BadInputError, match="no cell"):
        reproduce(table, tmp_path / "run", 2, Selection(batch_sizes={1}, labels={"restored"}))
    assert not (tmp_path / "run").exists()
