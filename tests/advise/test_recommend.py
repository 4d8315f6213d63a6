"""The search for a configuration: on the invented setting, whose attack reads what noise leaves."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from seepage.advise.page import as_json, recommendation_document, write_recommendation
from seepage.advise.recommend import CONFIRMATIONS, _Advisor, _as_cheap, recommended
from seepage.advise.recommendation import Candidate, Recommendation, cost_of, learnt_of, options_of
from seepage.assessment.decision import ALPHA, least_units
from seepage.assessment.row import ResultRow
from seepage.auditing import prepare_all, run_all
from seepage.errors import BadInputError
from seepage.report.page import page as render_page
from seepage.report.terminal import make_console, show
from seepage.settings.catalogue import settings
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.lever import Lever
from seepage.settings.part import Part
from seepage.settings.setting import Audit, Configuration
from seepage.settings.spec import Spec, Wish
from tests.rows import row
from tests.settings.fifth import CoinAudit, CoinExposure, CoinSpec, CoinView, Listen
from tests.settings.plugged import plugged_in  # noqa: F401

pytestmark = pytest.mark.usefixtures("plugged_in")


def search(folder: Path | None = None, **values: Any) -> Recommendation:
    values = {"recommend": {"below": 0.2}, **values}
    return recommended(CoinSpec.of(**values), folder)


def test_the_weakest_gloves_that_look_safe_are_confirmed_on_fresh_tosses() -> None:
    found = search()
    assert found.outcome == "found"
    chosen = found.chosen
    assert chosen is not None
    assert chosen.confirmed
    assert chosen.lever is not None
    # Noise of 1 in width leaves the sound on its side: (0 or 1) + U(-.5, .5) is read whole.
    assert 1.0 < chosen.strength < 100.0
    assert chosen.worst is not None
    assert chosen.worst.upper < 0.2
    assert found.alpha == ALPHA / CONFIRMATIONS
    assert chosen.worst.n >= least_units(0.2, alpha=found.alpha)
    assert chosen.report is not None
    # The search and the confirmation saw other tosses.
    assert chosen.report.audit.spec.seed == 0
    given = found.given.report
    assert given is not None
    assert given.audit.spec.seed != 0
    assert found.options.startswith("--defense 'gloves:{noise: ")
    assert found.given.status == "as given"
    assert {candidate.status for candidate in found.candidates} >= {"recommended", "leaks"}


def test_after_a_strength_that_leaks_one_before_the_next_safe_one_is_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[_Advisor.__module__], "_HALVINGS", 1)
    gloves = Lever("gloves", 0.03, 30.0, mechanism="gloves", strengths=(("noise",),))
    monkeypatch.setattr(CoinAudit, "levers", lambda self: (gloves,))
    # Few tosses that happen to be missed, so that a strength that leaks looks safe.
    safe = _Advisor._safe

    def lucky(self: _Advisor, candidate: Candidate) -> bool | None:
        return True if candidate.strength == 0.95 else safe(self, candidate)

    monkeypatch.setattr(_Advisor, "_safe", lucky)
    found = search(control=True)
    statuses = {candidate.strength: candidate.status for candidate in found.candidates}
    assert found.chosen is not None
    # The range was halved once, so that the next one that looked safe is its end.
    assert 0.95 < found.chosen.strength < 30.0
    # A longer look shows it, so that no confirmation is spent on it.
    assert statuses[0.95] in ("unclear", "leaks")
    assert not any(candidate.confirmed for candidate in found.candidates if candidate.strength == 0.95)


def test_the_last_confirmation_is_for_the_strongest_that_looks_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[_Advisor.__module__], "CONFIRMATIONS", 1)
    found = search()
    assert [c.strength for c in found.candidates if c.confirmed] == [100.0]


def test_a_search_that_is_run_again_measures_nothing_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = search(tmp_path)

    def never(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(CoinAudit, "expose", never)
    again = search(tmp_path)
    assert [record | {"seconds": None} for record in again.records()] == [
        record | {"seconds": None} for record in first.records()
    ]
    assert again.line == first.line


def test_how_long_the_search_takes_is_said_before_a_change_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    run = sys.modules[_Advisor.__module__].measured

    def watched(audits: list[Audit], *arguments: Any, **options: Any) -> Any:
        # Trials of the plan come before; none of them is kept.
        reports = run(audits, *arguments, **options)
        events.extend(point.defense for audit in audits for point in audit.configurations)
        return reports

    monkeypatch.setattr(sys.modules[_Advisor.__module__], "measured", watched)
    recommended(CoinSpec.of(recommend={"below": 0.2}), say=events.append)
    first = next(i for i, event in enumerate(events) if "to go" in event)
    assert events[first - 1] == "none"
    assert events[first + 1].startswith("gloves")


@pytest.mark.slow
def test_another_limit_in_the_same_folder_shares_the_level(tmp_path: Path) -> None:
    search(tmp_path)
    assert search(tmp_path, recommend={"below": 0.3}).alpha == ALPHA / CONFIRMATIONS / 2


def test_no_change_is_recommended_where_nothing_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    # All coins sound alike, but for those of the control.
    def expose(self: CoinAudit, configuration: Configuration, units: range) -> CoinExposure:
        exposure = CoinExposure(self.spec, units, 0.0, False)
        if self._control != "positive":
            exposure.view = CoinView(torch.ones_like(exposure.sides))
        return exposure

    monkeypatch.setattr(CoinAudit, "expose", expose)
    found = search(recommend={"below": 0.3})
    assert found.outcome == "found"
    assert found.options == ""
    assert "no change is needed" in found.line


def test_none_is_said_where_the_strongest_change_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    thin = Lever("gloves", 0.01, 0.5, mechanism="gloves", strengths=(("noise",),))
    monkeypatch.setattr(CoinAudit, "levers", lambda self: (thin,))
    found = search()
    assert found.outcome == "none"
    assert found.line.startswith("no configuration that was searched")
    assert [candidate.status for candidate in found.candidates] == ["leaks"]
    useless = replace(found.candidates[0], status="learns nothing")
    said = replace(found, candidates=[useless]).line
    assert said.endswith(f"below 20 points with a model that learns; under {useless.words} it learns nothing.")


@pytest.mark.slow
def test_a_budget_that_is_spent_leaves_it_undecided(tmp_path: Path) -> None:
    found = search(tmp_path, time_budget=1e-6)
    assert found.outcome == "undecided"
    assert "run the same command again" in found.line
    # Another budget is the same search, which goes on.
    assert search(tmp_path).outcome == "found"


@pytest.mark.parametrize("below", [False, True])
def test_what_leaves_it_undecided_is_named(below: bool) -> None:
    found = search()
    first = found.candidates[0]
    assert first.report is not None
    assert first.report.decision is not None
    figures = tuple(replace(standing, below=below) for standing in first.standings)
    report = replace(first.report, decision=replace(first.report.decision, figures=figures))
    doubted = replace(first, status="undecided", reason="An attack does worse, so nothing is shown.", report=report)
    line = replace(found, outcome="undecided", candidates=[doubted, *found.candidates[1:]]).line
    assert doubted.worst is not None
    few = f"{doubted.worst.n} tosss do not decide it. Give more (--repetitions), or a larger limit."
    doubt = f"all figures of {doubted.words} stay below it, but an attack does worse, so nothing is shown."
    assert line.endswith(doubt if below else few), line


def test_an_attack_that_loses_leaves_it_undecided_where_no_control_shows_that_it_works() -> None:
    found = search(repetitions=24, control=False)
    assert (found.outcome, found.timed_out) == ("undecided", False)
    assert "but an attack does worse than a baseline (SEEP001)" in found.line
    assert search(repetitions=24, control=True).outcome == "found"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"recommend": None}, "needs a limit of the lift"),
        ({"recommend": {"below": 0.2}, "gate": 0.3}, "leave the gate out"),
        ({"defenses": ["none"]}, "everything that could lower the leakage is given (gloves)"),
        ({"defenses": ["none", {"name": "gloves"}]}, "got 2 values of defenses"),
        ({"repetitions": 5}, "needs at least 24 tosss"),
        ({"recommend": {"below": 1e-4}}, "more than the 2,000"),
        ({"recommend": {"below": 0.2, "column": "top"}}, "unknown column of the gate 'top'"),
        ({"recommend": {"below": 0.2, "whole_records": True}}, "no attack of this audit is scored on whole records"),
    ],
)
def test_what_no_search_could_answer_is_refused_in_a_sentence(values: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError) as refused:
        search(**values)
    assert said in str(refused.value)


@pytest.mark.parametrize("wish", [{"below": 2}, {"below": 0.2, "max_cost": 0}, {"below": 0.2, "worst": 1}, "low"])
def test_a_wish_that_means_nothing_is_refused(wish: object) -> None:
    with pytest.raises(BadInputError):
        CoinSpec.of(recommend=wish)


def test_a_column_and_whole_records_are_not_both_limited() -> None:
    with pytest.raises(BadInputError, match="either a column or whole records"):
        CoinSpec.of(recommend={"below": 0.2, "column": "side", "whole_records": True})


def test_a_setting_without_changes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CoinAudit, "levers", Audit.levers)
    with pytest.raises(BadInputError, match="names nothing that could lower its leakage"):
        search()


def test_an_audit_refuses_a_wish() -> None:
    with pytest.raises(BadInputError, match="run it with 'seepage recommend'"):
        run_all(prepare_all([CoinSpec.of(recommend=0.2)]))


def test_the_page_and_its_figures_say_the_same(tmp_path: Path) -> None:
    found = search(tmp_path)
    write_recommendation(tmp_path, found)
    page = (tmp_path / "recommendation.html").read_text()
    assert render_page(recommendation_document(found)) == page
    assert "What was rejected, and why" in page
    assert "gloves:{noise:" in page.replace("&#39;", "'")
    content = json.loads((tmp_path / "recommendation.json").read_text())
    assert content["outcome"] == "found"
    assert content == json.loads(as_json(found))
    assert content["configurations"][0]["change"] == "no change"
    console = make_console()
    with console.capture() as shown:
        show(console, recommendation_document(found))
    assert "recommended" in shown.get()


def test_the_cheaper_change_is_confirmed_first_and_dear_ones_are_rejected() -> None:
    # What the task loses is planted: thicker gloves cost more, a second pair of the same kind costs nothing.
    found = search()
    chosen = found.chosen
    assert chosen is not None
    row = chosen.strongest
    assert row is not None
    before, after = (replace(row, metric="task_accuracy", mean=mean, n=5) for mean in (0.9, 0.8))
    planted = replace(found, given=replace(found.given, task=before), candidates=[replace(chosen, task=after)])
    assert planted.cost(planted.candidates[0]) == pytest.approx(0.1)
    assert "Task accuracy: 80.0%" in planted.line
    few = replace(planted, candidates=[replace(chosen, task=replace(after, n=2))])
    assert "is not judged" in few.line


def test_every_setting_names_changes_that_its_audit_takes() -> None:
    few = {"rows": 50, "auxiliary": 300, "queries": 50}
    specs: dict[str, Spec] = {
        "horizontal": make_spec(dataset="german", batch_sizes=8),
        "split": settings()["split"].spec.of(dataset="german"),
        "vertical": settings()["vertical"].spec.of(dataset="german"),
        "pooled": settings()["pooled"].spec.of(dataset="german", sensitive="telephone", parties=2, **few),
    }
    for name, spec in specs.items():
        [audit] = prepare_all([spec])
        levers = [lever for lever in audit.levers() if lever.free(spec)]
        assert levers, name
        for lever in levers:
            strength = lever.rounded(lever.strongest)
            changed = lever.applied(spec, strength)
            assert changed != spec
            prepare_all([changed])
            assert options_of(spec, lever, strength).startswith("--")


def test_what_was_given_is_fixed() -> None:
    spec = make_spec(dataset="german", batch_sizes=8, protocol_options={"clients": 2})
    [audit] = prepare_all([spec])
    names = {lever.name for lever in audit.levers() if lever.free(spec)}
    assert "dp_sgd" in names
    assert not {"batch_size"} & names
    fixed = make_spec(dataset="german", defenses=(Part(name="sign"),), batch_sizes=8)
    assert not Lever("dp_sgd", 0.1, 1.0, mechanism="dp_sgd").free(fixed)


def task_of(mean: float, baseline: float | None = 0.7, std: float = 0.01, n: int = 5) -> ResultRow:
    """Return the accuracy of a task over trainings, with the wide intervals that hold for any distribution."""
    low, high = mean - 0.4, min(1.0, mean + 0.4)
    lift: dict[str, Any] = {}
    if baseline is not None:
        lift = {"lift": mean - baseline, "lift_low": low - baseline, "lift_high": high - baseline, "lift_std": std}
    place = {"dataset": "coins", "protocol": "p", "model": "m", "attack": "none", "metric": "task_accuracy"}
    return ResultRow(**place, mean=mean, low=low, high=high, std=std, n=n, baseline=baseline, kind="about", **lift)


def passing(name: str, chance: float, task: ResultRow) -> Candidate:
    return Candidate(Lever(name, 1.0, 2.0), 1.0, "passes", "", task=task, chance=chance, audited=57)


def test_of_what_costs_alike_the_one_that_passes_again_is_recommended() -> None:
    slim, sure, surest = (passing(n, c, task_of(0.76)) for n, c in (("a", 0.5), ("b", 0.93), ("c", 1.0)))
    # Beyond 90% the order of cost decides.
    chosen = [c.words for c in _Advisor._with_recommended([slim, sure, surest]) if c.status == "recommended"]
    assert chosen == ["b(1)"]
    assert [c.status for c in _Advisor._with_recommended([slim])] == ["recommended"]
    assert [c.status for c in _Advisor._with_recommended([replace(slim, status="failed")])] == ["failed"]
    # What is shown to cost more is no alternative.
    assert _as_cheap(slim, passing("d", 1.0, task_of(0.755)))
    assert not _as_cheap(slim, passing("d", 1.0, task_of(0.70)))


def test_the_cheapest_of_those_that_pass_is_recommended_and_among_equals_the_weaker() -> None:
    def noise(strength: float, mean: float, chance: float = 0.95) -> Candidate:
        return replace(passing("noise", chance, task_of(mean)), lever=Lever("noise", 0.1, 10.0), strength=strength)

    def recommended_of(*done: Candidate) -> list[str]:
        return [c.words for c in _Advisor._with_recommended(done) if c.status == "recommended"]

    # Less noise that is shown to cost more is not taken, and a smaller chance does not make another change cheaper.
    assert recommended_of(noise(0.2, 0.70), noise(2.0, 0.76)) == ["noise(2)"]
    assert recommended_of(passing("a", 1.0, task_of(0.70)), noise(2.0, 0.76)) == ["noise(2)"]
    # The costs are not told apart, so that the stronger noise gains nothing by its figure.
    assert recommended_of(noise(0.2, 0.755), noise(2.0, 0.76)) == ["noise(0.2)"]
    assert recommended_of(noise(0.2, 0.755, chance=0.5), noise(2.0, 0.76)) == ["noise(2)"]


def test_a_cost_is_over_trainings_and_test_rows_where_these_are_counted() -> None:
    given = replace(task_of(0.77), settings={"test_rows": 200}, low=0.71, high=0.83)
    changed = replace(task_of(0.74), settings={"test_rows": 200}, low=0.68, high=0.80)
    cost = cost_of(given, changed)
    assert cost is not None
    assert cost.mean == pytest.approx(0.03)
    assert (cost.low, cost.high) == (pytest.approx(0.03 - 0.06 * 2**0.5), pytest.approx(0.03 + 0.06 * 2**0.5))
    over_trainings_alone = cost_of(task_of(0.77), task_of(0.74))
    assert over_trainings_alone is not None
    assert over_trainings_alone.low is not None
    assert over_trainings_alone.low > 0


def test_a_change_under_which_nothing_is_learnt_is_no_recommendation() -> None:
    advisor = _Advisor.__new__(_Advisor)
    advisor.wish = Wish(below=0.2)
    given = Candidate(None, 0.0, "as given", "", task=task_of(0.77))
    refused = advisor._unusable(given, passing("noise", 1.0, task_of(0.705, std=0.02)))
    assert refused is not None
    assert refused.status == "learns nothing"
    assert "70.5% beside 70.0%" in refused.reason
    assert advisor._unusable(given, passing("noise", 1.0, task_of(0.75))) is None
    # Where nothing was learnt before, or nothing is known of a constant answer, that is no reason.
    assert advisor._unusable(replace(given, task=task_of(0.7)), passing("noise", 1.0, task_of(0.7))) is None
    assert advisor._unusable(given, passing("noise", 1.0, task_of(0.7, baseline=None))) is None


def test_the_interval_of_an_accuracy_ends_where_a_rate_does() -> None:
    accuracy = row(metric="task_accuracy", mean=0.5, std=0.6, n=4)
    assert (learnt_of(accuracy).low, learnt_of(accuracy).high) == (0.0, 1.0)
    error = learnt_of(replace(accuracy, metric="task_rmse"))
    assert error.low == 0.0
    assert error.high is not None
    assert error.high > 1.4


def test_costs_are_differences_with_their_interval(recommendation: Recommendation) -> None:
    given = replace(recommendation.given, task=task_of(0.774))
    found = replace(recommendation, given=given)
    small, large = (passing("noise", 1.0, task_of(mean)) for mean in (0.772, 0.72))
    assert "No difference is shown: the cost lies in [" in found.cost_words(small)
    assert "It costs +5.4 points [" in found.cost_words(large) or "It costs +5.4 [" in found.cost_words(large)
    assert "Always giving the same answer has 70.0%." in found.cost_words(large)
    interval = found.cost_interval(large)
    assert interval is not None
    # Distances to the ends of the two intervals of five trainings each, added in squares.
    half = 2.776 * (2 * 0.01**2 / 5) ** 0.5
    assert interval.low == pytest.approx(0.054 - half, abs=1e-4)
    assert "A further audit" not in found.margin_words(small)
    assert "further audit of 57" in found.margin_words(small)
    assert "no safe margin" in found.margin_words(replace(small, chance=0.6))


def test_what_no_number_of_repetitions_shows_is_not_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the exact attack cannot be tried, no confirmation is spent, and nothing is said to be safe."""
    monkeypatch.setattr(sys.modules[_Advisor.__module__], "_proofs_untried", lambda report: True)
    found = search(recommend={"below": 0.9})
    assert found.outcome == "undecided"
    assert not any(candidate.confirmed for candidate in found.candidates)
    assert any("SEEP024" in candidate.reason for candidate in found.candidates)


def test_where_nothing_was_confirmed_the_reasons_are_given(recommendation: Recommendation) -> None:
    open_one = Candidate(Lever("noise", 1.0, 2.0), 1.0, "unclear", "A further audit passes it with 4% only.")
    line = replace(recommendation, outcome="undecided", candidates=[open_one]).line
    assert "nothing was confirmed. noise(1): a further audit passes it with 4% only." in line


def test_a_weaker_strength_stands_where_the_next_learns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longer look goes on to a stronger one, and comes back where that cannot be recommended."""
    noise = Lever("noise", 0.1, 10.0)
    looked = {
        ("noise", strength): Candidate(noise, strength, "not reached", "It looks safe.") for strength in (1.0, 5.0)
    }
    advisor = _Advisor.__new__(_Advisor)
    advisor.looked, advisor.by_units, advisor.ends, advisor.timed_out = looked, True, None, False
    given = Candidate(None, 0.0, "as given", "")
    monkeypatch.setattr(_Advisor, "_longer", 46)
    monkeypatch.setattr(_Advisor, "_with_task", lambda self, candidate: candidate)
    monkeypatch.setattr(_Advisor, "_screened", lambda self, points, units: [looked[points[0][0].name, points[0][1]]])
    monkeypatch.setattr(_Advisor, "_stronger", lambda self, candidate, safe: safe[0])
    monkeypatch.setattr(_Advisor, "_with_chance", lambda self, candidate: replace(candidate, chance=0.7))
    useless = {5.0}
    monkeypatch.setattr(_Advisor, "_unusable", lambda self, given, c: c if c.strength in useless else None)
    assert (advisor._likely_strength(given, noise, [1.0, 5.0]).strength, looked["noise", 1.0].status) == (
        1.0,
        "unclear",
    )
    looked["noise", 1.0] = replace(looked["noise", 1.0], status="not reached")
    useless.clear()
    assert advisor._likely_strength(given, noise, [1.0, 5.0]).strength == 5.0


@pytest.fixture
def recommendation() -> Recommendation:
    return search()


LISTENERS = (Part(name="listen"), Part(name="listen", options={"threshold": 0.6}, label="listen closely"))


def deaf(monkeypatch: pytest.MonkeyPatch, where: Callable[[Listen, CoinView], bool], shared: bool) -> None:
    """Have two default listeners, of which some cannot act."""
    call = Listen.__call__

    def refusing(self: Listen, view: CoinView, seeds: list[int]) -> torch.Tensor:
        if where(self, view):
            raise BadInputError("nothing is heard here.")
        return call(self, view, seeds)

    monkeypatch.setattr(Listen, "__call__", refusing)
    monkeypatch.setattr(CoinAudit, "shared", shared)
    monkeypatch.setattr(CoinSpec, "is_usual", lambda self, name: name not in self.model_fields_set or name == "attacks")


@pytest.mark.parametrize("shared", [True, False])
def test_a_default_attack_that_cannot_act_ends_no_search(monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    deaf(monkeypatch, lambda self, view: self.threshold == 0.6, shared)
    found = search(attacks=LISTENERS)
    assert found.outcome == "found"
    assert found.chosen is not None
    assert found.chosen.report is not None
    [reason] = found.chosen.report.audit.not_tried.values()
    assert reason == "nothing is heard here."
    assert {run.label for run in found.chosen.report.runs if run.is_attack} == {"listen"}


@pytest.mark.parametrize("shared", [True, False])
def test_an_attack_that_is_named_and_cannot_act_ends_a_search(monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    deaf(monkeypatch, lambda self, view: self.threshold == 0.6, shared)
    monkeypatch.setattr(CoinSpec, "is_usual", lambda self, name: name not in self.model_fields_set)
    if shared:
        # Where nothing is tried beforehand, it counts as a job that failed.
        assert search(attacks=LISTENERS).outcome != "found"
        return
    with pytest.raises(BadInputError, match="nothing is heard here"):
        search(attacks=LISTENERS)


@pytest.mark.parametrize(("shared", "all_of_them"), [(True, False), (False, False), (True, True), (False, True)])
def test_a_change_under_which_an_attack_cannot_act_is_not_taken_for_safe(
    monkeypatch: pytest.MonkeyPatch, shared: bool, all_of_them: bool
) -> None:
    def dampened(self: Listen, view: CoinView) -> bool:
        return (all_of_them or self.threshold == 0.6) and bool((view.sounds % 1 != 0).any())

    deaf(monkeypatch, dampened, shared)
    found = search(attacks=LISTENERS)
    assert found.outcome == "none"
    tried = [candidate for candidate in found.candidates if candidate.lever is not None]
    assert tried
    assert {candidate.status for candidate in tried} == {"broken"}
    assert all("nothing is heard here" in candidate.reason for candidate in tried)
