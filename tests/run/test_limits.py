"""Units are added until every figure of a gate is decided, alike whatever carries them out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seepage.assessment.decision import least_units
from seepage.assessment.gain import Reference, References
from seepage.assessment.measurement import Measurement
from seepage.auditing import prepare_all, run_all
from seepage.run import runner
from seepage.run.limits import Limits, budgeted, predicted_best
from seepage.run.runner import Listener
from seepage.settings.catalogue import setting as find_setting
from seepage.settings.horizontal.spec import HorizontalSpec
from seepage.settings.setting import Configuration
from seepage.settings.spec import Gate
from seepage.settings.split.spec import SplitSpec
from tests.report.parts import COIN, PEEK, CoinAudit, CoinSpec

SAFE = {("none", COIN): 0.5, ("none", PEEK): 0.52}


def spec(above: float = 0.2, **fields: Any) -> CoinSpec:
    gate = {name: fields.pop(name) for name in ("column", "deployed", "worst") if name in fields}
    made = CoinSpec.of(gate={"above": above, **gate}, control=False, **{"workers": 1, **fields})
    budget = budgeted(made)
    assert isinstance(budget, CoinSpec)
    return budget


def measured(values: list[float], metric: str = "accuracy", column: str | None = None, **more: Any) -> Measurement:
    return Measurement(metric, column, torch.tensor(values, dtype=torch.float64), True, (0.0, 1.0), **more)


def looked(attack: list[float], *baselines: list[float], above: float = 0.2, budget: int | None = None) -> Limits:
    """Return limits that saw one attack beside some baselines."""
    audit = CoinAudit(spec(above, flips=budget or len(attack)), figures=SAFE)
    limits = Limits(audit)
    beside = {f"baseline {i}": [measured(values)] for i, values in enumerate(baselines)}
    limits.look(lambda configuration, name, figures: ([measured(attack)], beside))
    return limits


def test_only_figures_that_can_decide_are_asked_for() -> None:
    asked = []
    limits = Limits(CoinAudit(spec(column="a", flips=5), figures=SAFE, sensitive=("a",)))
    limits.look(lambda configuration, name, figures: (asked.append(list(figures)) or [measured([0.5] * 5)], {}))
    assert asked == [[("accuracy", "a"), ("certified", None)]]


def test_the_budget_is_three_times_the_least_number_unless_one_was_named() -> None:
    assert [spec(above).flips for above in (0.2, 0.1, 0.05)] == [57, 120, 243]
    assert spec(0.2, flips=7).flips == 7
    # Less than a tenth is shown with 36 or more.
    assert spec(0.5, worst=[0.02, 0.5]).flips >= 183
    assert budgeted(HorizontalSpec.of()).victims == HorizontalSpec.of().victims


def test_settings_with_many_members_add_repetitions_only_where_new_trainings_are_judged() -> None:
    few = SplitSpec.of(dataset="adult", private_columns=["sex"], gate={"above": 0.2})
    assert budgeted(few).repetitions == few.repetitions
    many = SplitSpec.of(dataset="adult", private_columns=["sex"], gate={"above": 0.2, "over_trainings": True})
    assert budgeted(many).repetitions == 57


def test_few_units_with_small_lifts_show_nothing_and_enough_do() -> None:
    assert not looked([0.5] * 18, [0.5] * 18).passed
    assert looked([0.5] * 19, [0.5] * 19).passed
    # One victim in ten is read whole: the mean is below the limit, but five victims may all be of the others.
    assert not looked([0.5] * 5, [0.5] * 5, budget=57).ended


def test_what_is_read_is_shown_with_few_units() -> None:
    limits = looked([1.0] * 20, [0.3] * 20, budget=57)
    assert limits.failed
    assert limits.ended
    assert not limits.passed


def test_the_baseline_is_not_chosen_on_the_units_that_are_judged() -> None:
    chosen = predicted_best(np.array([[0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0]]))
    # The best baseline so far is always the wrong one here, and the first unit has the worst one.
    assert chosen.tolist() == [0.0, 0.0, 0.0, 0.0]
    draw = np.random.default_rng(0)
    coins = draw.integers(0, 2, (8, 400)).astype(float)
    # Of eight baselines that know nothing the best one afterwards exceeds a half by more than the predicted one.
    assert predicted_best(coins).mean() < coins.mean(1).max() - 0.02
    single = draw.random((1, 30))
    np.testing.assert_array_equal(predicted_best(single), single[0])


@pytest.mark.long
def test_a_false_pass_is_as_rare_as_promised_with_many_baselines_and_looks() -> None:
    draw = np.random.default_rng(1)
    passes = 0
    for _ in range(150):
        baselines = draw.integers(0, 2, (4, 60)).astype(float)
        # The mean lift is the limit itself.
        attack = (draw.random(60) < 0.7).astype(float)
        passed = False
        for n in (15, 30, 60):
            passed = passed or looked(list(attack[:n]), *map(list, baselines[:, :n]), budget=60).passed
        passes += passed
    # 2.5% of 150 is 3.75; more than 10 have a probability below 0.2%.
    assert passes <= 10


def test_members_of_each_training_are_judged_on_their_own() -> None:
    class Trainings(CoinSpec):
        member = "record"

    audit = CoinAudit(Trainings.of(gate={"above": 0.2}, flips=2, control=False), figures=SAFE)
    good, bad = torch.full((30,), 0.5), torch.tensor([1.0, 0.0] * 15)
    attack = measured([0.5, 0.5], clusters=(good, bad))
    baseline = measured([0.5, 0.5], clusters=(good, torch.full((30,), 0.5)))
    limits = Limits(audit)
    limits.look(lambda configuration, name, figures: ([attack], {"plain": [baseline]}))
    assert {figure.sample: standing.below for figure, standing in limits.standings.items()} == {0: True, 1: False}
    assert {standing.n for standing in limits.standings.values()} == {30}
    assert not limits.passed
    fine = Limits(audit)
    fine.look(lambda configuration, name, figures: ([replace(attack, clusters=(good, good))], {"plain": [baseline]}))
    assert fine.passed


def test_every_figure_counts_not_only_that_of_the_highest_mean() -> None:
    audit = CoinAudit(spec(flips=60), figures=SAFE, sensitive=("a",))
    half = [0.5] * 60
    limits = Limits(audit)
    limits.look(
        lambda configuration, name, figures: (
            [measured(half), measured(half, "exact_match"), measured([0.9, 0.5] * 30, column="a")],
            {"plain": [measured(half), measured(half, "exact_match"), measured(half, column="a")]},
        )
    )
    standings = {(figure.metric, figure.column): one.below for figure, one in limits.standings.items()}
    assert standings == {("accuracy", None): True, ("exact_match", None): True, ("accuracy", "a"): False}
    assert not limits.passed


def test_defended_configurations_are_the_deployed_ones_unless_named() -> None:
    figures = {**SAFE, ("gloves", COIN): 0.5, ("gloves", PEEK): 0.5}
    assert [one.defense for one in Limits(CoinAudit(spec(), figures=figures)).deployed] == ["gloves"]
    assert [one.defense for one in Limits(CoinAudit(spec(), figures=SAFE)).deployed] == ["none"]
    named = Limits(CoinAudit(spec(deployed=["none"]), figures=figures))
    assert [one.defense for one in named.deployed] == ["none"]


@pytest.mark.parametrize(
    ("setting", "defense", "options"),
    [
        ("horizontal", "gaussian_noise:{scale: 0.1}", {"batch_sizes": (1, 2)}),
        ("split", "label_flip:{probability: 0.1}", {"private_columns": ("purpose",)}),
        ("vertical", "bottleneck:{width: 1}", {}),
        ("pooled", "label_only", {"sensitive": "sex", "dataset": "adult"}),
    ],
)
def test_the_reference_is_known_by_what_it_does_in_every_setting(
    setting: str, defense: str, options: dict[str, Any]
) -> None:
    plugin = find_setting(setting)
    gate = {"above": 0.2}
    defenses = [{"name": "none", "label": "as it was"}, defense]
    [audit] = prepare_all([plugin.spec.of(**{"dataset": "german", **options}, defenses=defenses, gate=gate)], None)
    names = {configuration.defense for configuration in Limits(audit).deployed}
    assert names == {defense.partition(":")[0]}
    [alone] = prepare_all([plugin.spec.of(**{"dataset": "german", **options}, defenses=defenses[:1], gate=gate)], None)
    assert {configuration.defense for configuration in Limits(alone).deployed} == {"as it was"}


class Counting(Listener):
    def __init__(self, stop: int = 10**6) -> None:
        self.count, self.left = 0, stop

    def started(self, what: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        self.count += 1


def test_units_are_added_until_it_is_certain_and_no_further() -> None:
    audit = CoinAudit(spec(), figures=SAFE, spread=0.0005)
    counting = Counting()
    [report] = run_all([audit], None, counting)
    assert report.decision is not None
    assert report.decision.outcome == "passed"
    [n] = {row.n for row in report.rows if row.is_attack}
    assert least_units(0.2) <= n < 57
    assert {row.status for row in report.rows} <= {"ok", "undefined"}
    leaks = CoinAudit(spec(), figures={("none", COIN): 0.1, ("none", PEEK): 0.95}, spread=0.0005)
    [report] = run_all([leaks])
    assert report.decision is not None
    assert report.decision.outcome == "failed"
    assert {row.n for row in report.rows if row.is_attack} != {57}


def test_a_budget_that_was_named_is_never_exceeded() -> None:
    [report] = run_all([CoinAudit(spec(flips=10), figures=SAFE, spread=0.0005)])
    assert report.decision is not None
    assert report.decision.outcome == "undecided"
    assert {row.n for row in report.rows if row.is_attack} == {10}
    assert "10 flips" in report.decision.line


def test_a_configuration_that_is_not_deployed_gets_ten_units() -> None:
    figures = {**SAFE, ("gloves", COIN): 0.5, ("gloves", PEEK): 0.5}
    [report] = run_all([CoinAudit(spec(), figures=figures, spread=0.0005)])
    counts = {row.defense: row.n for row in report.rows if row.is_attack}
    assert counts["none"] == 10
    assert counts["gloves"] >= 19


@pytest.mark.slow
def test_killed_or_not_and_with_any_number_of_workers_the_decision_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = CoinAudit(spec(flips=20), figures=SAFE, spread=0.0005)
    [whole] = run_all([audit])
    with pytest.raises(KeyboardInterrupt):
        run_all([audit], tmp_path, Counting(15))
    [resumed] = run_all([audit], tmp_path)
    assert resumed.rows == whole.rows
    assert resumed.decision == whole.decision
    monkeypatch.setattr(runner, "_WORTH_WORKERS_SECONDS", 0.0)
    [apart] = run_all([CoinAudit(spec(workers=2, flips=20), figures=SAFE, spread=0.0005)])
    assert apart.decision == whole.decision


def test_limits_of_one_folder_share_the_level(tmp_path: Path) -> None:
    audit = CoinAudit(spec(0.2, flips=40), figures=SAFE, spread=0.0005)
    [first] = run_all([audit], tmp_path)
    [second] = run_all([CoinAudit(spec(0.21, flips=40), figures=SAFE, spread=0.0005)], tmp_path)
    assert first.decision is not None
    assert second.decision is not None
    # At half the level the same units bound the lift less tightly.
    assert max(one.upper for one in second.decision.figures) > 0
    [alone] = run_all([CoinAudit(spec(0.21, flips=40), figures=SAFE, spread=0.0005)])
    assert alone.decision is not None
    assert max(one.n for one in alone.decision.figures) <= max(one.n for one in second.decision.figures)
    assert second.decision.figures != alone.decision.figures


def test_looks_end_at_the_budget_and_begin_with_few() -> None:
    looks = Limits(CoinAudit(spec(), figures=SAFE)).looks
    assert looks[0] == 5
    assert looks[1] == 19
    assert looks[-1] == 57
    assert looks == sorted(set(looks))
    assert Limits(CoinAudit(spec(worst=[0.2, 0.5]), figures=SAFE)).looks == [57]
    assert Limits(CoinAudit(spec(flips=3), figures=SAFE)).looks == [3]


def test_units_that_lack_a_figure_are_left_out() -> None:
    nan = float("nan")
    limits = looked([0.5] * 20 + [nan], [0.5] * 21)
    assert [one.n for one in limits.standings.values()] == [20]
    assert limits.standings[next(iter(limits.standings))].figure.configuration == Configuration("none")
    assert Gate(above=0.2).column is None


def test_a_baseline_that_is_nearly_known_lets_fewer_units_pass() -> None:
    audit = CoinAudit(spec(), figures=SAFE)
    half = [0.55, 0.5, 0.45, 0.5] * 3
    known: dict[int | None, References] = {None: {"plain": {("accuracy", None): Reference(0.5, 0.495, 0.505, 1000)}}}

    def seen(scores: list[float]) -> Any:
        return lambda configuration, name, figures: ([measured(scores)], {"plain": [measured(half[: len(scores)])]})

    alone, beside = Limits(audit), Limits(audit, references=known)
    alone.look(seen(half))
    beside.look(seen(half))
    assert (alone.passed, beside.passed) == (False, True)
    assert beside.looks[1] < alone.looks[1]
    [standing] = beside.standings.values()
    assert 0 < standing.upper < 0.2
    # What is above the limit passes beside it no sooner.
    above = Limits(audit, references=known)
    above.look(seen([0.75] * 12))
    assert not above.passed


@pytest.mark.long
def test_a_false_pass_beside_a_known_baseline_is_as_rare_as_promised() -> None:
    draw, passes = np.random.default_rng(2), 0
    known: dict[int | None, References] = {None: {"plain": {("accuracy", None): Reference(0.5, 0.495, 0.505, 1000)}}}
    for _ in range(200):
        limits = Limits(CoinAudit(spec(flips=60), figures=SAFE), references=known)
        # Units are read whole or not at all, and the mean lift is the limit itself.
        scores, baseline = (draw.random(60) < 0.7).astype(float), draw.normal(0.5, 0.05, 60).clip(0, 1)
        for n in (5, 8, 19, 60):
            pair = [measured(list(scores[:n]))], {"plain": [measured(list(baseline[:n]))]}
            limits.look(lambda configuration, name, figures, pair=pair: pair)
        passes += limits.passed
    # 2.5% of 200 is 5; more than 13 have a probability below 0.1%.
    assert passes <= 13
