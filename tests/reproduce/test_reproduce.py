"""Published tables as data, and the comparison with them."""

from __future__ import annotations

import csv
import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from seepage.assessment import Estimate, Measurement
from seepage.errors import BadInputError
from seepage.reproduce.compare import beside, judged_anew
from seepage.reproduce.reproduce import Selection, reproduce
from seepage.reproduce.table import Place, PublishedTable, load_table, names, tables
from seepage.results.agreement import Agreement, Difference, PublishedFigure, judge, margin_of, welch
from seepage.run.runner import stored_runs
from seepage.run.store import Store
from seepage.settings.horizontal import audit as horizontal
from seepage.settings.horizontal.audit import HorizontalAudit
from seepage.settings.horizontal.spec import HorizontalSpec
from seepage.settings.horizontal.subject import prepare
from tests.stores import measurements

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
METHODS = ("tableak", "tableak_no_pooling", "tableak_no_softmax", "inverting_gradients", "dlg", "random")


FEDSGD = ["tableak/table17", "tableak/table18", "tableak/table19", "tableak/table20"]


@pytest.mark.parametrize("name", FEDSGD)
def test_a_table_holds_every_printed_figure_and_runs_every_method(name: str) -> None:
    table = load_table(name)
    for labels in ("true", "restored"):
        for method in METHODS:
            for size in SIZES:
                figure = table.figure({"labels": labels, "method": method, "batch_size": size})
                assert figure is not None
                assert figure.std is not None
                assert 0 < figure.mean <= 1
                assert 0 <= figure.std < 0.25
    run = {
        (run, place["labels"], place["method"], place["batch_size"])
        for audit in table.planned()
        for called, run in audit.shown.items()
        for at in audit.configurations
        for place in [audit.place(called, configuration=at)]
    }
    assert {("faithful", "true", method, size) for method in METHODS for size in SIZES} <= run
    assert {("faithful", "restored", "tableak", size) for size in (8, 16, 32, 64, 128)} <= run
    assert {("default", "true", "tableak", size) for size in SIZES} <= run


def at(table: str, **place: str | int) -> Any:
    return table, place


@pytest.mark.parametrize(
    ("cell", "mean", "std"),
    [
        (at("table6", defense="noise_0.01", method="tableak"), 0.580, 0.023),
        (at("table6", defense="noise_0.1", method="network_task_accuracy"), 0.841, 0.002),
        (at("table10", model="linear", method="tableak"), 0.445, 0.019),
        (at("table9", dataset="lawschool", model="nn3"), 0.900, 0.001),
        (at("table10", model="cnn_bn", method="gradinversion"), 0.728, 0.027),
        (at("table14", method="random", batch_size=64), 0.207, 0.004),
        (at("table16", dataset="adult", method="inverting_gradients", iterations=10), 0.605, 0.0137),
        (at("table16", dataset="adult", method="tableak", iterations=10000), 0.837, 0.0291),
        (at("table17", labels="true", method="tableak", batch_size=32), 0.793, 0.045),
        (at("table17", labels="true", method="inverting_gradients", batch_size=128), 0.595, 0.021),
        (at("table17", labels="restored", method="tableak", batch_size=8), 0.867, 0.122),
        (at("table17", labels="true", method="random", batch_size=1), 0.433, 0.118),
        (at("table18", labels="true", method="tableak", batch_size=32), 0.842, None),
        (at("table18", labels="true", method="inverting_gradients", batch_size=128), 0.645, None),
        (at("table18", labels="true", method="random", batch_size=32), 0.568, None),
        (at("table19", labels="true", method="tableak", batch_size=32), 0.849, None),
        (at("table20", labels="true", method="dlg", batch_size=32), 0.516, None),
        (at("table25", kind="discrete", figure="accuracy", batch_size=32), 0.915, 0.041),
        (at("table29", kind="continuous", quarter="bottom", batch_size=32), 0.436, None),
        (at("table29", kind="discrete", quarter="top", batch_size=32), 0.991, None),
        (at("table33", dataset="adult", restarts=1), 0.718, 0.046),
        (at("table33", dataset="health_heritage", restarts=30), 0.701, 0.040),
        (at("table34", dataset="adult", pooling="median", batch_size=32), 0.776, 0.048),
    ],
)
def test_figures_are_those_in_print(cell: tuple[str, dict[str, str | int]], mean: float, std: float | None) -> None:
    table, place = cell
    figure = load_table(f"tableak/{table}").figure({**place})
    assert figure is not None
    assert figure.mean == pytest.approx(mean)
    assert std is None or figure.std == pytest.approx(std)


def test_entropies_are_no_rates_and_correlations_have_no_spread() -> None:
    table = load_table("tableak/table25")
    at = {"kind": "discrete", "batch_size": 32}
    assert table.figure({**at, "figure": "entropy"}, "plain") == PublishedFigure(mean=0.39, std=0.06)
    assert table.figure({**at, "figure": "kendall_tau"}, "plain") == PublishedFigure(mean=-0.55, std=None)
    assert table.figure({**at, "figure": "kendall_tau", "batch_size": 1}, "plain") is None


TABLEAK = [table for table in tables().values() if table.setting == "horizontal"]


def leaves(published: Any, depth: int, place: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    if depth == 0:
        return {place: published}
    return {k: v for key, inner in published.items() for k, v in leaves(inner, depth - 1, (*place, key)).items()}


@pytest.mark.parametrize("table", TABLEAK, ids=lambda table: table.name)
def test_every_printed_figure_is_run_and_every_place_is_one_of_a_cell(table: PublishedTable) -> None:
    printed = leaves(table.published, len(table.axes))
    run = {
        tuple(audit.place(called, metric, at).get(axis) for axis in table.axes)
        for audit in table.planned()
        for called in audit.shown
        for metric in table.metrics
        for at in audit.configurations
    }
    assert all(None not in place for place in run)
    missing = {place for place in printed if place not in run}
    # Attacks without restored labels stand for the others, which would take as long again.
    if "labels" in table.axes:
        missing = {place for place in missing if place[0] != "restored"}
    assert missing == set()
    assert not table.published or any(place in printed for place in run)
    assert sum(place in run for place in printed) >= len(printed) / 3
    for place in printed:
        where = dict(zip(table.axes, place, strict=True))
        rate = "figure" not in where or where["figure"] == "accuracy"
        figure = table.figure(where, "percent" if rate else "plain")
        assert figure is not None
        assert (0 <= figure.mean <= 1) if rate else (-6 < figure.mean < 3)


def test_unknown_tables_are_answered_with_the_nearest() -> None:
    with pytest.raises(BadInputError, match="tableak/table17"):
        load_table("tableak/tabel17")
    assert set(tables()) >= {"tableak/table17", "tableak/table18"}


def test_a_table_is_read_once_and_has_the_name_of_its_file() -> None:
    assert load_table("tableak/table18") is load_table("tableak/table18") is tables()["tableak/table18"]
    assert [table.name for table in tables().values()] == list(names())
    assert list(names()).index("tableak/table9") < list(names()).index("tableak/table10")


@given(st.floats(0, 1), st.floats(0.001, 0.2), st.integers(2, 60), st.floats(0, 1), st.floats(0.001, 0.2))
def test_the_difference_is_welchs(mean: float, std: float, n: int, other: float, other_std: float) -> None:
    found = welch(Estimate(mean, None, None, n, std), PublishedFigure(mean=other, std=other_std), 50)
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


@given(st.floats(0, 1), st.floats(0.001, 0.2), st.integers(2, 200), st.floats(0, 1), st.floats(0.001, 0.2))
def test_agreement_is_the_margin_beyond_the_bounds_of_welch(
    mean: float, std: float, n: int, other: float, other_std: float
) -> None:
    ours, published = Estimate(mean, None, None, n, std), PublishedFigure(mean=other, std=other_std)
    one, two = std**2 / n, other_std**2 / 49
    freedom = (one + two) ** 2 / (one**2 / (n - 1) + two**2 / 49)
    reach = float(stats.t.ppf(0.95, freedom)) * math.sqrt(one + two)
    # Two points where that is found in four of five repeats of like means, by the normal approximation.
    margin = 0.02 if math.sqrt(one + two) * (1.6449 + 1.2816) <= 0.02 else 0.05
    away = abs(mean - other)
    if (
        abs(math.sqrt(one + two) * 2.9264 - 0.02) < 1e-5
        or min(abs(away + reach - margin), abs(away - reach - margin)) < 1e-9
    ):
        return
    found = judge(ours, published, 50)
    assert margin_of(ours, published, 50) == found.margin == margin
    if away + reach < margin:
        assert found.agreement == "agrees"
    elif away - reach > margin:
        assert (found.agreement, found.direction) == ("differs", "below" if mean < other else "above")
    else:
        # The print alone, with no doubt about ours, is wider than the margin.
        hopeless = float(stats.t.ppf(0.95, 49)) * math.sqrt(two) >= margin
        assert found.agreement == ("not judgeable" if hopeless else "open")
        assert found.needed is None or (not hopeless and found.needed > n)


@pytest.mark.parametrize(
    ("ours", "published", "agreement"),
    [
        (Estimate(1.0, None, None, 3, 0.0), PublishedFigure(mean=1.0, std=0.0), "agrees"),
        (Estimate(1.0, None, None, 3, 0.0), PublishedFigure(mean=0.9, std=0.0), "differs"),
        (Estimate(1.0, None, None, 3, 0.0), PublishedFigure(mean=0.2, std=None), "shown above"),
        (Estimate(0.1, None, None, 3, 0.02), PublishedFigure(mean=0.2, std=None), "shown below"),
        (Estimate(0.2, None, None, 3, 0.02), PublishedFigure(mean=0.21, std=None), "shown within"),
        (Estimate(0.2, None, None, 3, 0.1), PublishedFigure(mean=0.21, std=None), "open"),
        (Estimate(0.5, None, None, 1, None), PublishedFigure(mean=0.2, std=0.1), "open"),
        (Estimate(0.5, None, None, 20, 0.01), PublishedFigure(mean=0.55, std=0.4), "not judgeable"),
        (Estimate(0.5, 0.46, 0.54, 20, None), PublishedFigure(mean=0.2, std=0.1), "differs"),
    ],
)
def test_a_print_without_a_deviation_is_taken_at_its_word(
    ours: Estimate, published: PublishedFigure, agreement: Agreement
) -> None:
    assert judge(ours, published, 50).agreement == agreement


def test_what_an_open_cell_needs_tells_by_the_same_figures() -> None:
    for published in (PublishedFigure(mean=0.82, std=None), PublishedFigure(mean=0.82, std=0.05)):
        few = judge(Estimate(0.8, None, None, 4, 0.08), published, 50)
        assert few.agreement == "open"
        assert few.needed is not None
        outcomes = [
            judge(Estimate(0.8, None, None, n, 0.08), published, 50).agreement for n in (few.needed - 1, few.needed)
        ]
        assert outcomes == ["open", "agrees" if published.std else "shown within"]
    # Where the difference is the margin no number of units tells.
    assert judge(Estimate(0.75, None, None, 4, 0.08), PublishedFigure(mean=0.8, std=None), 50).needed is None


@given(st.integers(0, 100))
def test_a_share_has_the_deviation_of_its_targets(right: int) -> None:
    share = PublishedFigure(mean=right / 100, std=None).as_share(100)
    assert share.basis == "binomial"
    assert share.std == pytest.approx(math.sqrt((right + 2) / 104 * (102 - right) / 104))
    printed = PublishedFigure(mean=right / 100, std=0.1)
    assert printed.as_share(100) is printed


def test_the_deviation_of_an_estimate_follows_from_its_interval() -> None:
    half = float(stats.t.ppf(0.975, 11)) * 0.05 / math.sqrt(12)
    known, shown = Estimate(0.8, None, None, 12, 0.05), Estimate(0.8, 0.8 - half, 0.8 + half, 12, None)
    for published in (
        PublishedFigure(mean=0.80, std=0.05),
        PublishedFigure(mean=0.83, std=0.05),
        PublishedFigure(mean=0.90, std=0.05),
    ):
        assert judge(known, published, 50).agreement == judge(shown, published, 50).agreement
    # What twelve victims are for: a deviation of five points on both sides.
    assert judge(known, PublishedFigure(mean=0.80, std=0.05), 50).agreement == "agrees"


def test_only_the_papers_own_method_stands_beside_the_print() -> None:
    table, ours = load_table("tableak/table17"), Estimate(0.79, None, None, 20, 0.04)
    place: dict[str, str | int] = {"labels": "true", "method": "tableak", "batch_size": 32}
    first, other = (beside(table, run, {**place}, "accuracy", ours, 1) for run in ("faithful", "default"))
    assert (first.published, first.published_n, first.margin, first.agreement) == (0.793, 50, 0.05, "agrees")
    assert (other.published, other.published_n, other.difference, other.agreement) == (None, None, None, None)


@pytest.mark.parametrize(
    ("kind", "printed", "std", "margin", "agreement"),
    [
        ("discrete", 0.39, 0.06, 0.05, "agrees"),
        ("discrete", 0.39 + 0.1, 0.06, 0.05, "differs"),
        # Five points of the 5.9 nats that the paper's continuous entropies range over.
        ("continuous", 0.17, 0.31, 0.295, "agrees"),
        ("continuous", 0.17 + 0.5, 0.31, 0.295, "differs"),
    ],
)
def test_an_entropy_has_a_margin_of_its_range_and_no_direction(
    kind: str, printed: float, std: float, margin: float, agreement: str
) -> None:
    place: Place = {"kind": kind, "figure": "entropy", "batch_size": 32}
    ours = Estimate(printed, None, None, 20, std)
    found = beside(load_table("tableak/table25"), "faithful", place, f"entropy_{kind}", ours, 1)
    assert (found.margin, found.agreement, found.direction) == (pytest.approx(margin), agreement, None)


def test_a_rank_correlation_over_all_batches_has_no_outcome() -> None:
    place: Place = {"kind": "discrete", "figure": "kendall_tau", "batch_size": 32}
    ours = Estimate(-0.4, None, None, 20, None)
    found = beside(load_table("tableak/table25"), "faithful", place, "kendall_discrete", ours, 1)
    assert found.difference is not None
    assert (found.margin, found.agreement) == (None, "not judgeable")


def test_a_part_is_run_once_kept_and_compared(tmp_path: Path) -> None:
    table = load_table("tableak/table18")
    part = Selection(batch_sizes={2}, attacks={"tableak"}, labels={"true"})
    quick: dict[str, Any] = {"iterations": 20, "restarts": 2, "threads": 1}
    first = reproduce(table, tmp_path / "run", 3, part, **quick)
    assert {(c.run, c.place["method"], c.place["batch_size"], c.n) for c in first.cells} == {
        ("faithful", "tableak", 2, 3),
        ("faithful", "random", 2, 3),
        ("default", "tableak", 2, 3),
    }
    [faithful] = [cell for cell in first.cells if (cell.run, cell.place["method"]) == ("faithful", "tableak")]
    published: Any = table.published
    assert faithful.published == pytest.approx(published["true"]["tableak"][2][0] / 100)
    assert faithful.difference == pytest.approx((faithful.ours or 0) - (faithful.published or 0))
    [gain] = first.gains["default"]
    assert (gain.place["method"], gain.place["batch_size"], gain.gain.n) == ("tableak", 2, 3)

    kept = measurements(tmp_path / "run")
    again = reproduce(table, tmp_path / "run", 3, part, **quick)
    assert again == first
    assert measurements(tmp_path / "run") == kept
    with (tmp_path / "run" / "comparison.csv").open(encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert [float(line["ours"]) for line in written] == pytest.approx([cell.ours for cell in first.cells], rel=1e-5)
    assert [line["batch_size"] for line in written] == ["2", "2", "2"]
    assert {line["rows"] for line in written} == {"1000"}
    # What rewrites the files of results finds the same.
    for line in written:
        anew = judged_anew(table, line)
        assert list(anew) == list(line)
        same = ("published", "agreement", "direction", "basis", "needed", "cause", "reason")
        assert {name: anew[name] for name in same} == {name: line[name] for name in same}


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
    monkeypatch.setattr(horizontal, "own_code", lambda: {"digest": "other", "torch": "9"})
    with pytest.raises(BadInputError, match="measured by other code"):
        reproduce(table, tmp_path, selection=part, run_missing=False, **quick)
    assert not reproduce(table, tmp_path / "new", selection=part, run_missing=False, **quick).cells


def test_runs_of_a_table_may_have_networks_of_their_own(tmp_path: Path) -> None:
    table = load_table("tableak/table18")
    first = table.audits[0]
    small = {"attacks": ["dlg"], "batch_sizes": [2], "iterations": 3}
    runs = (
        first.model_copy(update={"spec": {**first.spec, **small}}),
        first.model_copy(update={"name": "other", "spec": {**first.spec, **small, "model": "nn1"}}),
    )
    made = reproduce(table.model_copy(update={"audits": runs}), None, 2, threads=1)
    assert {row.model for row in made.rows} == {"nn3", "nn1"}


def test_a_difference_from_a_print_without_spread_has_the_interval_of_ours() -> None:
    found = welch(Estimate(-0.5, -0.7, -0.3, 10), PublishedFigure(mean=-0.6, std=None), 50)
    assert found is not None
    assert (found.mean, found.low, found.high) == pytest.approx((0.1, -0.1, 0.3))
    assert welch(Estimate(-0.5, None, None, 3), PublishedFigure(mean=-1.0, std=None), 50) == Difference(0.5, None, None)


def test_a_sweep_is_an_audit_for_each_combination_and_axes_choose_among_them(tmp_path: Path) -> None:
    table = load_table("tableak/table33")
    assert {(audit.spec.dataset, audit.axes_of()["restarts"]) for audit in table.planned()} == set(
        itertools.product(("adult", "german", "lawschool", "health_heritage"), (1, 5, 10, 15, 20, 25, 30))
    )
    part = Selection(only={"dataset": {"german"}, "restarts": {"1", "5"}})
    quick: dict[str, Any] = {"iterations": 3, "threads": 1, "batch_sizes": (2,)}
    # Data that was not asked for need not be there.
    made = reproduce(table, tmp_path, 2, part, data_folder=tmp_path, **quick)
    assert [cell.place for cell in made.cells] == [{"dataset": "german", "restarts": n} for n in (1, 5)]
    assert [cell.published for cell in made.cells] == pytest.approx([0.790, 0.816])
    # The rest of a run folder stays and is compared beside what comes next.
    more = Selection(only={"dataset": {"adult"}, "restarts": {"5"}})
    again = reproduce(table, tmp_path, 2, more, data_folder=tmp_path, **quick)
    assert [tuple(cell.place.values()) for cell in again.cells] == [("adult", 5), ("german", 1), ("german", 5)]


def test_the_task_is_trained_and_stands_beside_what_leaks(tmp_path: Path) -> None:
    table = load_table("tableak/table6")
    [first, _] = table.audits
    task = {"learning_rates": [0.1], "epochs": 2, "max_steps": None, "replicas": 2, "fresh": True}
    small = {**first.spec, "attacks": ["inverting_gradients"], "dataset": "german", "batch_sizes": [8]}
    table = table.model_copy(update={"audits": (first.model_copy(update={"spec": small, "task": task}),)})
    said: list[str] = []
    part = Selection(only={"defense": {"none", "noise_0.1"}})
    made = reproduce(table, tmp_path, 2, part, say=said.append, iterations=3, threads=1)
    assert len(said) == 2
    places = {(cell.place["defense"], cell.place["method"]): cell for cell in made.cells}
    assert set(places) == set(
        itertools.product(("none", "noise_0.1"), ("inverting_gradients", "network_task_accuracy"))
    )
    learnt = places["none", "network_task_accuracy"]
    assert (learnt.n, learnt.published, learnt.seconds_per_victim) == (2, 0.846, None)
    assert learnt.ours_std is not None
    assert learnt.ours_std > 0
    held = reproduce(table, tmp_path, 2, run_missing=False, say=said.append, iterations=3, threads=1)
    assert learnt in held.cells
    assert len(said) == 2


def test_entropy_tables_compare_each_metric_with_its_own_figures(tmp_path: Path) -> None:
    quick: dict[str, Any] = {"iterations": 5, "restarts": 3, "threads": 1, "dataset": "german"}
    part = Selection(batch_sizes={4})
    made = reproduce(load_table("tableak/table26"), tmp_path / "entropy", 6, part, **quick)
    cells = {(str(c.place["kind"]), str(c.place["figure"])): c for c in made.cells}
    assert set(cells) == set(itertools.product(("discrete", "continuous"), ("accuracy", "entropy", "kendall_tau")))
    rows = {row.metric: row for row in made.rows if row.is_attack and row.column is None}
    for (kind, figure), cell in cells.items():
        assert cell.ours == rows[f"{figure.replace('_tau', '')}_{kind}"].mean
        assert cell.unit == ("percent" if figure == "accuracy" else "plain")
    assert cells["discrete", "entropy"].published == pytest.approx(0.06)
    assert cells["continuous", "kendall_tau"].difference == pytest.approx(
        (cells["continuous", "kendall_tau"].ours or 0) + 0.19
    )
    # The other table of the same cells takes what is there.
    other = load_table("tableak/table30")
    made = reproduce(other, tmp_path / "entropy", selection=part, run_missing=False, **quick)
    places = {(c.place["kind"], c.place["quarter"]): c.published is None for c in made.cells}
    described = {("discrete", f"{end}_as_described"): True for end in ("top", "bottom")}
    assert places == dict.fromkeys(itertools.product(("discrete", "continuous"), ("top", "bottom")), False) | described


def test_a_grid_counts_by_its_best_point_and_by_that_of_a_pilot(tmp_path: Path) -> None:
    table = load_table("tableak/table11")
    quick: dict[str, Any] = {"iterations": 40, "threads": 1, "batch_sizes": (2,)}
    part = Selection(attacks={"grad_inversion"}, only={"model": {"linear"}})
    made = reproduce(table, tmp_path, 4, part, **quick)
    # All victims of a group are attacked together, but those asked for count.
    best, pilot = made.cells
    assert [cell.run for cell in made.cells] == ["faithful", "faithful, tuned on a pilot"]
    assert best.place == pilot.place == {"model": "linear", "method": "gradinversion"}
    assert best.n == pilot.n == 3
    # The pilot's choice is not what is printed.
    assert (best.published, pilot.published) == (pytest.approx(0.587, abs=0.2), None)
    with Store(tmp_path) as store:
        spec = next(
            one.spec
            for one in table.planned(victims=4, **quick)
            if one.planned.grid and one.axes_of()["model"] == "linear"
        )
        assert isinstance(spec, HorizontalSpec)
        runs = [run for run in stored_runs(HorizontalAudit(spec, prepare(spec)), store) if run.is_attack]
    points = torch.stack([next(m.values for m in run.measured if isinstance(m, Measurement)) for run in runs])
    assert points.shape == (7, 4)
    assert best.ours == pytest.approx(float(points[:, 1:].mean(1).max()))
    assert pilot.ours == pytest.approx(float(points[points[:, 0].argmax(), 1:].mean()))
    assert (best.ours or 0) >= (pilot.ours or 0)


def test_a_table_may_print_nothing_but_the_accuracy_of_the_task(tmp_path: Path) -> None:
    table = load_table("tableak/table9")
    runs = tuple(
        run.model_copy(update={"task": {**(run.task or {}), "epochs": 2, "replicas": 3}}) for run in table.audits
    )
    table = table.model_copy(update={"audits": runs})
    made = reproduce(table, tmp_path, 1, Selection(only={"dataset": {"german"}, "model": {"nn1", "nn2"}}))
    assert [(cell.place["model"], cell.n) for cell in made.cells] == [("nn1", 3), ("nn2", 3)]
    assert [cell.published for cell in made.cells] == pytest.approx([0.800, 0.795])
    assert all(0.6 < (cell.ours or 0) < 0.9 for cell in made.cells)
    assert reproduce(table, tmp_path, 1, run_missing=False).cells == made.cells


def test_a_part_that_does_not_exist_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    table = load_table("tableak/table18")
    with pytest.raises(BadInputError, match="batch size of tableak/table18"):
        reproduce(table, tmp_path / "run", 2, Selection(batch_sizes={3}))
    with pytest.raises(BadInputError, match="unknown axis of tableak/table18: 'batchsize'; did you mean 'batch_size'"):
        reproduce(table, tmp_path / "run", 2, Selection(only={"batchsize": {"3"}}))
    with pytest.raises(BadInputError, match="unknown method of tableak/table18: 'dgl'; did you mean 'dlg'"):
        reproduce(table, tmp_path / "run", 2, Selection(only={"method": {"dgl"}}))
    with pytest.raises(BadInputError, match="no cell"):
        reproduce(table, tmp_path / "run", 2, Selection(batch_sizes={1}, labels={"restored"}))
    assert not (tmp_path / "run").exists()
