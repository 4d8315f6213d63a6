"""Records behind figures, against slow and obvious ways of making them."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import tests.rows
from seepage.assessment.evidence import Evidence
from seepage.assessment.row import ResultRow
from seepage.report import frames
from seepage.report.advice import advice, sentences
from seepage.report.document import Document
from seepage.report.leakage import frontier_section
from seepage.report.result import AuditResult
from seepage.report.terminal import show
from seepage.settings.split.audit import SplitAudit
from seepage.settings.split.spec import SplitSpec
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.texts import DAYS
from tests.report import parts
from tests.report.parts import CoinAudit, calibrated

SCHEMA = Schema(
    columns=(
        Discrete(name="sex", categories=("f", "m"), sensitive=True),
        Continuous(name="age", low=0, high=99, tolerance=5, integer=True),
        Discrete(name="town", categories=("a", "b", "c")),
    ),
    target=Discrete(name="ill", categories=("no", "yes")),
)
TASK = ("task_accuracy", "task_rmse")
TINY = Schema(
    columns=(Discrete(name="sex", categories=("f", "m")),), target=Discrete(name="ill", categories=("no", "yes"))
)


def evidence(uncertainty: Any, right: Any, rarity: Any = None, groups: Any = None) -> Evidence:
    held = np.asarray(right, dtype=bool)
    rare = np.zeros(held.shape[:2]) if rarity is None else np.asarray(rarity)
    schema = SCHEMA if held.shape[-1] == 3 else TINY
    doubt = None if uncertainty is None else np.asarray(uncertainty, dtype=np.float32)
    return parts.evidence(schema, held, doubt, rare.astype(np.float32), groups or {})


def row(**changes: Any) -> ResultRow:
    plain: dict[str, Any] = {
        **{"n": 5, "mean": 0.7, "low": 0.66, "high": 0.74, "baseline": 0.5, "baseline_name": "mode"},
        **{"lift": 0.2, "lift_low": 0.16, "lift_high": 0.24, "seconds_per_victim": 1.0},
    }
    return tests.rows.row(**{**plain, **changes})


@pytest.mark.parametrize("seed", range(3))
def test_bins_hold_the_cells_a_loop_would_put_there(seed: int) -> None:
    held = calibrated(SCHEMA, 5, 4, seed)
    made = {one["bin"]: one for one in frames.calibration(held, SCHEMA) if one["kind"] == "discrete"}
    assert held.uncertainty is not None
    for position in range(10):
        right, cells = [0] * 5, [0] * 5
        for v in range(5):
            for r in range(4):
                for c in (0, 2):
                    certainty = 1 - float(held.uncertainty[v, r, c])
                    if min(int(certainty * 10), 9) == position:
                        cells[v] += 1
                        right[v] += bool(held.right[v, r, c])
        if not sum(cells):
            assert position not in made
            continue
        assert made[position]["cells"] == sum(cells)
        assert made[position]["mean"] == pytest.approx(sum(right) / sum(cells))
        assert made[position]["n"] == sum(count > 0 for count in cells)


def test_a_calibrated_attacker_lies_on_the_diagonal() -> None:
    made = frames.calibration(calibrated(SCHEMA, 60, 60, 1), SCHEMA)
    inside = [one["low"] <= one["certainty"] <= one["high"] for one in made if one["kind"] == "discrete"]
    assert sum(inside) >= len(inside) - 1


def test_continuous_certainty_is_the_rank_so_that_scale_does_not_matter() -> None:
    held = calibrated(SCHEMA, 6, 5, 2)
    assert held.uncertainty is not None
    moved = held.uncertainty.copy()
    moved[..., 1] = moved[..., 1] * 7 - 3
    again = replace(held, uncertainty=moved)
    before, after = (
        [one for one in frames.calibration(of, SCHEMA) if one["kind"] == "continuous"] for of in (held, again)
    )
    assert before == after
    assert sum(one["cells"] for one in before) == 30


def test_the_most_certain_share_is_as_right_as_counting_says() -> None:
    # Four certain cells, two of them right, then two right ones of less certainty.
    held = evidence([[[0.0], [0.0], [0.0], [0.0], [0.5], [0.6]]], [[[1], [0], [1], [0], [1], [1]]])
    made = {one["cells"]: one["mean"] for one in frames.coverage(held, TINY, 6)}
    assert made == pytest.approx({1: 0.5, 2: 0.5, 3: 0.5, 4: 0.5, 5: 0.6, 6: 4 / 6})
    assert frames.sure(held, TINY, 0.55) == {"discrete": 1.0}
    assert frames.sure(held, TINY, 0.95) == {"discrete": 0.0}
    assert frames.sure(evidence([[[0.1], [0.9]]], [[[1], [0]]]), TINY) == {"discrete": 0.5}


def test_what_has_no_certainty_has_no_rank() -> None:
    held = evidence([[[np.nan], [0.1]]], [[[1], [1]]])
    assert sum(one["cells"] for one in frames.calibration(held, TINY)) == 1
    assert [one["record"] for one in frames.exposed(held, TINY, {})] == [2]
    none = evidence(None, np.ones((1, 2, 1)))
    assert frames.calibration(none, TINY) == frames.coverage(none, TINY) == frames.exposed(none, TINY, {}) == []


def test_exposed_cells_are_right_certain_and_hard_to_guess() -> None:
    uncertainty = [[[0.0, -5.0, 0.0], [0.5, 2.0, 0.0]]]
    right = [[[1, 1, 1], [1, 1, 0]]]
    rates = {"sex": 0.6, "age": 0.3, "town": 0.2}
    made = frames.exposed(evidence(uncertainty, right), SCHEMA, rates)
    # Of sex, which is sensitive, the surer one; then the column that a baseline gets least often, of the other record.
    assert [(one["record"], one["column"]) for one in made] == [(1, "sex"), (2, "age")]
    assert made[0]["certainty"] == 1
    # The spread of a normal distribution of that entropy.
    spread = made[1]["spread"]
    assert 0.5 * math.log(2 * math.pi * math.e * spread**2) == pytest.approx(2)
    assert made[0]["truth"] is None
    assert "sex" not in [one["column"] for one in frames.exposed(evidence(uncertainty, right), SCHEMA, {"sex": 1.0})]
    assert len(frames.exposed(evidence(uncertainty, right), SCHEMA, rates, 1)) == 1


def test_an_ensemble_that_agrees_entirely_has_no_spread() -> None:
    made = frames.exposed(evidence([[[0.0, -np.inf, 1.0]]], [[[0, 1, 0]]]), SCHEMA, {})
    assert [(one["column"], one["spread"]) for one in made] == [("age", 0.0)]


def test_quarters_split_records_by_rarity() -> None:
    rare = np.arange(16.0).reshape(4, 4)
    right = (np.arange(16) % 4 > 0).reshape(4, 4, 1)
    made = frames.rarity(evidence(np.zeros((4, 4, 1)), right, rare))
    assert [one["records"] for one in made] == [4, 4, 4, 4]
    assert [one["mean"] for one in made] == [0.75] * 4
    assert made[0]["from"] == 0
    assert made[3]["to"] == 15
    assert frames.rarity(evidence(np.zeros((1, 4, 1)), np.ones((1, 4, 1)))) == []


def test_small_groups_are_taken_together() -> None:
    groups = {"sex": {"f": (30, 15), "m": (6, 6), "x": (3, 0)}}
    held = evidence(np.zeros((1, 1, 3)), np.zeros((1, 1, 3)), groups=groups)
    made = frames.subgroups(held, 5, 3)
    assert [(one["category"], one["pooled"], one["records"], one["mean"]) for one in made] == [
        ("f", 0, 10, 0.5),
        (None, 2, 3, pytest.approx(6 / 9)),
    ]
    assert [one["category"] for one in frames.subgroups(held, 1, 3)] == ["f", "m", "x"]


def test_sensitive_columns_come_first_then_the_largest_lift() -> None:
    rows = [row(), *(row(column=name, lift=gain) for name, gain in (("sex", 0.1), ("age", 0.2), ("town", 0.4)))]
    assert [one["column"] for one in frames.columns(rows, (8, "none"), sensitive=("sex",), schema=SCHEMA)] == [
        "sex",
        "town",
        "age",
    ]


def test_the_worst_setting_is_the_one_in_which_most_is_shown_and_not_the_noisiest() -> None:
    rows = [row(), row(batch_size=2, lift=0.45, lift_low=0.4, lift_high=0.47), row(batch_size=4, lift=None)]
    found = frames.worst(frames.overview(rows))
    assert found is not None
    assert (found["batch_size"], found["tier"], found["closed"]) == (2, "mostly read", pytest.approx(0.9))
    noisy = row(batch_size=16, lift=0.3, lift_low=-0.4, lift_high=0.5)
    found = frames.worst(frames.overview([row(), noisy]))
    assert found is not None
    assert found["batch_size"] == 8
    read = row(batch_size=16, metric="exact_match", mean=0.6, baseline=None)
    found = frames.worst(frames.overview([row(), noisy, read]))
    assert found is not None
    assert found["batch_size"] == 16
    assert frames.worst([]) is None


def setting(size: int, upper: float | None, defense: str = "none", closed: float | None = None) -> dict[str, Any]:
    tier = "not decided" if upper is None else "gain shown"
    return {"batch_size": size, "defense": defense, "upper": upper, "closed": closed or upper, "tier": tier}


def test_a_batch_size_is_advised_only_if_all_larger_ones_hold() -> None:
    sweep = [setting(1, 0.9), setting(4, 0.15), setting(8, 0.3), setting(16, 0.1), setting(32, 0.04)]
    assert [one["batch_size"] for one in advice(sweep, {}, {})] == [32, 16, 4]


def test_a_sensitive_column_can_forbid_what_all_cells_allow() -> None:
    sweep = [setting(8, 0.1), setting(16, 0.1)]
    told = advice(sweep, {(8, "none"): 0.6, (16, "none"): None}, {})
    assert [one["batch_size"] for one in told] == [None] * 3
    told = advice(sweep, {(8, "none"): 0.6, (16, "none"): 0.1}, {})
    assert [one["batch_size"] for one in told] == [None, 16, 16]
    # A column of which the half may be read forbids no limit above that.
    told = advice(sweep, {(8, "none"): 0.4, (16, "none"): 0.1}, {})
    assert [one["batch_size"] for one in told] == [None, 16, 8]


def test_the_cheapest_defense_that_suffices_is_advised() -> None:
    sweep = [setting(8, 0.9), setting(8, 0.1, "strong"), setting(8, 0.15, "weak"), setting(8, 0.3, "weaker")]
    by_leak = advice(sweep, {}, {})
    assert [one["defended"] for one in by_leak] == [None, (8, "weak"), (8, "weaker")]
    task: dict[frames.Setting, float] = {(8, "strong"): 0.8, (8, "weak"): 0.7, (8, "weaker"): 0.6}
    assert [one["defended"] for one in advice(sweep, {}, task)][1:] == [(8, "strong")] * 2
    errors = [one["defended"] for one in advice(sweep, {}, task, higher_is_better=False)]
    assert errors[1:] == [(8, "weak"), (8, "weaker")]


def test_without_anything_that_helps_the_advice_says_so() -> None:
    sweep = [setting(8, None), setting(8, 0.95, "noise")]
    told, step = sentences(advice(sweep, {}, {}), [8], ["none", "noise"])
    assert "Nothing that was audited" in told
    assert "--batch-size 32" in step
    assert "stronger defenses" in step


def test_advice_that_is_the_same_for_several_bounds_is_given_once() -> None:
    sweep = [setting(8, 0.6), setting(32, 0.3)]
    told = sentences(advice(sweep, {}, {}), [8, 32], ["none"])
    assert told[0] == "To keep the closed gap of all cells below 5% or 20%: nothing in this sweep does."
    assert told[1] == "To keep the closed gap of all cells below 50%: batch size 32 or more, without a defense."
    assert "--batch-size 128" in told[2]


def test_of_one_record_the_sensitive_cell_is_shown_though_a_baseline_gets_it_more_often() -> None:
    rates = {"sex": 0.9, "age": 0.5, "town": 0.1}
    made = frames.exposed(evidence([[[0.001, 3.0, 0.004]]], [[[1, 0, 1]]]), SCHEMA, rates)
    assert [(one["column"], one["certainty"]) for one in made] == [("sex", 1.0)]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.floats(0.001, 0.3))
def test_less_leakage_never_worsens_the_advice(uppers: list[float], less: float) -> None:
    sweep = [setting(2**i, upper) for i, upper in enumerate(uppers)]
    milder = [setting(2**i, upper - less) for i, upper in enumerate(uppers)]
    for before, after in zip(advice(sweep, {}, {}), advice(milder, {}, {}), strict=True):
        assert before["batch_size"] is None or after["batch_size"] <= before["batch_size"]


def test_the_frontier_joins_leakage_and_task() -> None:
    task = row(metric="task_accuracy", attack="none", kind="about", mean=0.8, baseline=0.6, seconds_per_victim=None)
    rows = [row(), row(defense="noise", lift=0.05), replace(task, defense="noise")]
    [one] = frames.frontier(rows, frames.overview(rows), TASK)
    assert (one["defense"], one["task"], one["closed"]) == ("noise", 0.8, pytest.approx(0.1))


def test_what_a_defense_guarantees_stands_beside_what_it_costs_and_leaves() -> None:
    privacy = {"epsilon": 3.25, "delta": 1e-5, "steps": 1500, "accountant": "Opacus RDP"}
    tasks = [
        row(attack="none", metric="task_accuracy", kind="about", defense=name, settings={"privacy": of})
        for name, of in {"none": None, "dp_sgd": privacy}.items()
    ]
    epsilon = row(attack="none", metric="epsilon", mean=3.25, kind="about", defense="dp_sgd")
    made = frames.frontier([*tasks, epsilon], [row(defense=name).as_dict() for name in ("none", "dp_sgd")], TASK)
    assert [{name: one[name] for name in privacy} for one in made] == [dict.fromkeys(privacy), privacy]
    attacks = [row(defense=name) for name in ("none", "dp_sgd")]
    audit = CoinAudit(utility=TASK)
    lines = _frontier(AuditResult(audit, [*attacks, *tasks, epsilon])).splitlines()
    assert any("none" in line and "–" in line for line in lines)
    assert any("dp_sgd" in line and "3.25 at delta 1e-05 after 1,500 steps by Opacus RDP" in line for line in lines)
    assert "has no configuration with a defense" in _frontier(AuditResult(audit, [row()]))
    # What the figure leaves out is said where it is printed.
    open_end = CoinAudit(utility=TASK, unaccounted="The bound follows the rows.")
    for rows, printed in (([*attacks, *tasks, epsilon], True), ([*attacks, *tasks[:1]], False)):
        result = AuditResult(open_end, rows)
        assert ("The bound follows the rows." in _frontier(result)) == printed


def _frontier(result: AuditResult) -> str:
    """What a terminal is shown of what defenses leave and cost."""
    section = frontier_section(result)
    assert section is not None
    file = io.StringIO()
    show(Console(width=240, file=file), Document("", [section]))
    return file.getvalue()


def test_an_adaptive_bound_is_not_in_the_epsilon_of_split_learning() -> None:
    for defense, said in (("{noise_multiplier: 1}", True), ("{noise_multiplier: 1, rule: own}", False)):
        spec = SplitSpec.of(dataset="german", private_columns=["job"], defenses=[f"cut_noise:{defense}"])
        assert (SplitAudit(spec).about.unaccounted is not None) == said


def test_tolerances_are_in_the_units_that_people_use() -> None:
    days = Continuous(name="born", low=0, high=40_000, tolerance=2404.2, unit=DAYS)
    wage = Continuous(name="wage", low=0, high=1e6, tolerance=24_042.0, unit="EUR, a year")
    job = Discrete(name="job", categories=("a", "b"))
    schema = Schema(
        columns=(days, wage, job),
        target=Discrete(name="ill", categories=("no", "yes")),
    )
    words = frames.tolerances(schema)
    assert words == "A number counts as read by its tolerance: born within 6.6 years, wage within 24,000 EUR."
    assert frames.tolerance(job) == "exact"
