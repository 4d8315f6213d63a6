"""Same seed, same figures, whatever else is in the audit and however often it was stopped."""

from __future__ import annotations

import itertools
import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from seepage import registry, sources
from seepage.auditing import prepare_all, run_all
from seepage.errors import BadInputError
from seepage.models.model import Model
from seepage.results.rows import rows_of
from seepage.run import runner
from seepage.run.plan import NEGATIVE, POSITIVE, Job, Plan, Series, _unless_failing, _urgency, make_plan
from seepage.run.runner import Listener, Run, run_audits, stored_runs
from seepage.run.store import Store
from seepage.settings.horizontal import audit as horizontal
from seepage.settings.horizontal.audit import HorizontalAudit
from seepage.settings.horizontal.spec import HorizontalSpec, make_spec
from seepage.settings.horizontal.subject import Subject, prepare
from seepage.settings.setting import Configuration, Exposure, Outcome, PlannedPart, Progress
from seepage.wire.horizontal import GradientView, Knowledge, RecordsGuess
from tests.parts import register
from tests.report.parts import COIN, PEEK, SURE, CoinAudit, CoinSpec, Flips
from tests.stores import measurements

TINY: dict[str, Any] = {
    "dataset": "german",
    "model": "nn1",
    "batch_sizes": [2, 3],
    "attacks": ["tableak", "dlg"],
    "victims": 3,
    "restarts": 2,
    "iterations": 4,
    "workers": 1,
}


@pytest.fixture(scope="module")
def subject() -> Subject:
    return prepare(make_spec(**TINY))


@pytest.fixture(scope="module")
def outcome(subject: Subject) -> list[Run]:
    """An audit that nothing stopped."""
    return audited(subject)


@pytest.fixture(scope="module")
def whole(outcome: list[Run]) -> dict[tuple[int | None, str, str, str | None], list[float]]:
    return values(outcome)


def values(runs: list[Run]) -> dict[tuple[int | None, str, str, str | None], list[float]]:
    return {
        (run.configuration.batch_size, run.label, m.metric, m.column): (m.values).tolist()
        for run in runs
        for m in run.measured
    }


BASELINES = tuple(part.name for part in HorizontalSpec().baselines)


def audited(
    subject: Subject, place: Store | Path | None = None, listener: Listener | None = None, **changes: Any
) -> list[Run]:
    """Audit into a store that is open already, or into a folder's for this while."""
    audits = [HorizontalAudit(make_spec(**{**TINY, **changes}), subject)]
    if isinstance(place, Store):
        [runs] = run_audits(audits, place, listener)
    else:
        with Store(place) as store:
            [runs] = run_audits(audits, store, listener)
    return runs


def assert_equal(one: dict[Any, list[float]], other: dict[Any, list[float]]) -> None:
    assert one.keys() == other.keys()
    for key, value in one.items():
        torch.testing.assert_close(torch.tensor(value), torch.tensor(other[key]), rtol=0, atol=0, equal_nan=True)


@pytest.mark.long
def test_the_same_seed_gives_the_same_figures_and_another_gives_others(
    subject: Subject, whole: dict[Any, list[float]]
) -> None:
    assert_equal(whole, values(audited(subject)))
    assert whole != values(audited(subject, seed=1))


def test_a_victim_is_the_same_whatever_runs_with_it(subject: Subject, whole: dict[Any, list[float]]) -> None:
    alone = values(audited(subject, batch_sizes=[3], attacks=["dlg"], victims=2))
    for key, value in alone.items():
        if not key[2].startswith("kendall"):
            torch.testing.assert_close(
                torch.tensor(value), torch.tensor(whole[key][:2]), rtol=0, atol=1e-6, equal_nan=True
            )


def test_attacks_and_baselines_meet_the_same_victims(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[tuple[str, int], list[torch.Tensor]] = {}

    def spying(name: str) -> Any:
        def attack(
            view: GradientView, knowledge: Knowledge, seeds: Sequence[int], progress: Any = None
        ) -> RecordsGuess:
            gradients = torch.cat([g.flatten(1) for g in view.gradient.values()], dim=1)
            seen.setdefault((name, knowledge.batch_size), []).append(gradients)
            return RecordsGuess(torch.zeros(view.victims, knowledge.batch_size, len(knowledge.schema.columns)).double())

        return attack

    for name in ("one", "two"):
        register(monkeypatch, registry.attacks, name, lambda name=name: spying(name), "horizontal")
    audited(subject, attacks=["one", "two"])
    for size in (2, 3):
        # Without a sign of progress, the trial of each attack on a group of victims is its job.
        gradients = [*seen["one", size], *seen["two", size]]
        assert len(gradients) == 2
        assert all(torch.equal(g, gradients[0]) for g in gradients)
        assert len(gradients[0]) == 3


def test_granted_labels_reach_the_attack_and_restored_ones_do_not(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted: list[torch.Tensor | None] = []

    def attack(view: GradientView, knowledge: Knowledge, seeds: Sequence[int], progress: Any = None) -> RecordsGuess:
        granted.append(knowledge.labels)
        return RecordsGuess(torch.zeros(view.victims, knowledge.batch_size, len(knowledge.schema.columns)).double())

    register(monkeypatch, registry.attacks, "nosy", lambda: attack, "horizontal")
    quiet = {"attacks": ["nosy"], "restarts": None, "iterations": None}
    audited(subject, **quiet)
    assert all(labels is None for labels in granted)
    granted.clear()
    outcome = audited(subject, labels="true", **quiet)
    assert all(labels is not None for labels in granted)
    assert {(run.is_attack, run.knowledge["labels"]) for run in outcome} == {(True, "true"), (False, "not used")}


class Interrupting(Listener):
    """Stops the audit at the n-th begin or end of a job, as a user's Ctrl-C would."""

    def __init__(self, after: int) -> None:
        self.left = after

    def started(self, what: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt

    def finished(self, what: str, figure: float | None, units: int) -> None:
        # What a trial has measured begins nowhere.
        self.started(what)


@pytest.mark.long
@pytest.mark.parametrize("after", [0, 1, 6])
def test_a_stopped_audit_continues_to_the_same_figures(
    subject: Subject, whole: dict[Any, list[float]], tmp_path: Path, after: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        audited(subject, tmp_path, Interrupting(after))
    resumed = audited(subject, tmp_path)
    assert_equal(values(resumed), whole)


def test_what_is_measured_is_not_measured_again(subject: Subject, tmp_path: Path) -> None:
    audited(subject, tmp_path)
    audited(subject, tmp_path, Interrupting(0))
    with pytest.raises(KeyboardInterrupt):
        audited(subject, tmp_path, Interrupting(0), iterations=5)


def test_more_victims_keep_the_first_ones(subject: Subject, tmp_path: Path) -> None:
    store = Store(tmp_path)
    few = values(audited(subject, store, victims=2))
    many = values(audited(subject, store, victims=4))
    for key, value in few.items():
        if not key[2].startswith("kendall"):
            torch.testing.assert_close(
                torch.tensor(value), torch.tensor(many[key][:2]), rtol=0, atol=1e-6, equal_nan=True
            )


def test_held_runs_take_the_victims_that_are_there(subject: Subject, tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert stored_runs(HorizontalAudit(make_spec(**TINY), subject), store) == []
    audited(subject, store, victims=2, attacks=["dlg"])
    found = stored_runs(HorizontalAudit(make_spec(**{**TINY, "victims": 50}), subject), store)
    assert {(run.configuration.batch_size, run.label) for run in found} == {
        (size, name) for size in (2, 3) for name in (*BASELINES, "dlg")
    }
    # A group of victims is attacked whole, so there may be more of them than were asked for.
    assert all(run.units == tuple(range(len(run.units))) and len(run.units) >= 2 for run in found)


def test_victims_measured_by_other_code_are_measured_again(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec(**{**TINY, "attacks": ["dlg"]})
    with Store(tmp_path) as store:
        run_audits([HorizontalAudit(spec, subject)], store)
        monkeypatch.setattr(horizontal, "own_code", lambda: {"digest": "other", "torch": torch.__version__})
        assert stored_runs(HorizontalAudit(spec, subject), store) == []
        with pytest.raises(KeyboardInterrupt):
            run_audits([HorizontalAudit(spec, subject)], store, Interrupting(0))


def test_the_code_digest_follows_the_source_of_what_determines_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*sources._DETERMINING, "report"):
        (tmp_path / name).write_text("0") if name.endswith(".py") else (tmp_path / name).mkdir()
    # A list that names what is not there any more would miss what it was moved to.
    assert all((sources._PACKAGE / name).exists() for name in sources._DETERMINING)
    monkeypatch.setattr(sources, "_PACKAGE", tmp_path)
    digests = []
    for file, text in (("attacks/a.py", "1"), ("attacks/a.py", "2"), ("report/r.py", "3"), ("learning.py", "4")):
        (tmp_path / file).write_text(text)
        digests.append(sources.own_code.__wrapped__()["digest"])
    assert digests[0] != digests[1] == digests[2] != digests[3]


def test_a_plug_ins_source_is_part_of_the_setting(subject: Subject, tmp_path: Path) -> None:
    assert sources.foreign_code(registry.attacks["tableak"].factory) is None
    assert sources.foreign_code(registry.baselines.of("horizontal")["random"].factory) is None
    assert sources.foreign_code(Quiet) is not None


class Summing(Listener):
    announced = done = 0.0

    def begin(self, work: float, jobs: int) -> None:
        self.announced = work

    def advance(self, work: float) -> None:
        self.done += work


class Quiet:
    """A plug-in attack that takes no options and reports no progress."""

    def __call__(self, view: GradientView, knowledge: Knowledge, seeds: Sequence[int]) -> RecordsGuess:
        return RecordsGuess(torch.zeros(view.victims, knowledge.batch_size, len(knowledge.schema.columns)).double())


@pytest.mark.parametrize("profile", ["default", "faithful"])
def test_a_plug_in_without_options_or_progress_runs_and_the_bar_reaches_its_end(
    subject: Subject, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    register(monkeypatch, registry.attacks, "quiet", Quiet, "horizontal")
    summing = Summing()
    outcome = audited(subject, None, summing, attacks=["quiet", "dlg"], profile=profile)
    assert {run.label: run.units for run in outcome}["quiet"] == (0, 1, 2)
    assert summing.done == pytest.approx(summing.announced)


def test_a_factory_of_any_options_is_given_them(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []

    def passing_on(**options: Any) -> Any:
        given.append(options)
        return registry.attacks.create("tableak", **options)

    register(monkeypatch, registry.attacks, "passing_on", passing_on, "horizontal")
    audited(subject, attacks=["passing_on"], batch_sizes=2, victims=1, profile="faithful")
    assert given[-1] == {"profile": "faithful", "iterations": 4, "restarts": 2}


class Twice(nn.Module):
    """Two layers of the same weights under several forwards."""

    def __init__(self, bend: Any, offset: float = 0.0) -> None:
        super().__init__()
        self.one = nn.Linear(63, 5)
        self.two = nn.Linear(5, 2)
        self.offset: torch.Tensor
        self.register_buffer("offset", torch.tensor(offset))
        self.bend = bend
        with torch.no_grad():
            for i, parameter in enumerate(self.parameters()):
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.two(self.bend(self.one(rows))) + 0 * self.offset


def test_equal_weights_with_another_forward_or_buffer_are_another_model() -> None:
    spec = make_spec(**TINY)
    modules = [Twice(torch.relu), Twice(torch.tanh), Twice(torch.relu, offset=1.0), Twice(torch.relu)]
    digests = [prepare(spec, model=module).model_digest for module in modules]
    assert digests[0] == digests[3]
    assert len(set(digests)) == 3


def test_the_model_digest_does_not_depend_on_threads(subject: Subject) -> None:
    threads = torch.get_num_threads()
    digests = set()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            digests.add(prepare(make_spec(**{**TINY, "model": "nn3"})).model_digest)
    finally:
        torch.set_num_threads(threads)
    assert len(digests) == 1


def test_progress_adds_up_to_what_was_announced(subject: Subject) -> None:
    adding = Summing()
    audited(subject, None, adding)
    assert adding.announced > 0
    assert adding.done == pytest.approx(adding.announced)


def test_restarts_leave_attacks_of_one_start_alone(subject: Subject) -> None:
    outcome = audited(subject, attacks=["tableak", "tableak_no_pooling", "dlg"], restarts=3)
    restarts = {run.label: run.settings["configuration"]["restarts"] for run in outcome if run.is_attack}
    assert restarts == {"tableak": 3, "tableak_no_pooling": 1, "dlg": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_sizes": [2, 801]}, "larger than the client's 800 rows"),
        ({"attacks": [{"name": "dlg", "options": {"stepp": 1}}]}, "did you mean 'step'"),
        ({"baselines": [{"name": "random", "options": {"draws": 1}}]}, "argument of baseline 'random'"),
    ],
)
def test_settings_that_cannot_run_leave_nothing_behind(
    subject: Subject, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInputError, match=message):
        audited(subject, tmp_path / "run", **changes)
    assert list(tmp_path.iterdir()) == []


def test_a_zero_gradient_is_refused_before_anything_is_kept(tmp_path: Path) -> None:
    class Deaf(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(63, 2))

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return rows @ (self.weight * 0)

    spec: HorizontalSpec = make_spec(**{**TINY, "model": "deaf", "labels": "true"})
    deaf = prepare(spec, model=Model(Deaf(), "softmax", "deaf"))
    with pytest.raises(BadInputError, match="zero everywhere"):
        run_audits([HorizontalAudit(spec, deaf)], Store(tmp_path / "run"))
    assert list(tmp_path.iterdir()) == []


def test_rows_hold_the_paired_lift_over_the_best_baseline(subject: Subject, outcome: list[Run]) -> None:
    made = rows_of(HorizontalAudit(make_spec(**TINY), subject), outcome)
    scored = values(outcome)
    for row in made:
        if row.metric != "accuracy" or row.seconds_per_victim is None:
            continue
        size, column = row.batch_size, row.column
        assert size is not None
        own = scored[size, row.attack, "accuracy", column]
        guesses = {name: scored[size, name, "accuracy", column] for name in BASELINES}
        best = max(guesses, key=lambda name: sum(guesses[name]))
        assert row.mean == pytest.approx(sum(own) / 3)
        assert row.baseline == pytest.approx(sum(guesses[best]) / 3)
        assert row.lift == pytest.approx(sum(a - b for a, b in zip(own, guesses[best], strict=True)) / 3)


@pytest.mark.slow
def test_figures_do_not_depend_on_the_number_of_workers(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = values(audited(subject, tmp_path / "one", workers=1, victims=9))
    monkeypatch.setattr(runner, "_WORTH_WORKERS_SECONDS", 0.0)
    with Store(tmp_path / "two") as store:
        [apart] = run_audits([HorizontalAudit(make_spec(**{**TINY, "workers": 2, "victims": 9}), subject)], store)
        assert_equal(here, values(apart))
    with Store(tmp_path / "one") as one, Store(tmp_path / "two") as two:
        for run in stored_runs(HorizontalAudit(make_spec(**TINY), subject), one):
            [other] = [
                r
                for r in stored_runs(HorizontalAudit(make_spec(**TINY), subject), two)
                if (r.configuration.batch_size, r.label) == (run.configuration.batch_size, run.label)
            ]
            assert run.losses == other.losses
            if run.evidence is not None and other.evidence is not None:
                for name in ("right", "uncertainty", "rarity", "true", "guess"):
                    found = getattr(run.evidence, name)
                    assert (found is None) == (getattr(other.evidence, name) is None)
                    assert found is None or found.tobytes() == getattr(other.evidence, name).tobytes()


NETS = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(nn.Linear(inputs, 6), nn.ReLU(), nn.Linear(6, outputs))
"""


@pytest.mark.slow
def test_a_network_of_ones_own_reaches_the_workers_in_a_fresh_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "_WORTH_WORKERS_SECONDS", 0.0)
    found = []
    for workers in (2, 1):
        spec = make_spec(**{**TINY, "model": "nets.py:Net", "victims": 9, "control": False, "workers": workers})
        [report] = run_all(prepare_all([spec], tmp_path / f"run-{workers}"), tmp_path / f"run-{workers}")
        assert not report.failed
        found.append(measurements(tmp_path / f"run-{workers}"))
    assert found[0] == found[1]
    assert found[0]["scores"]


class Moody:
    """Fails, in the trial and in the job."""

    def __call__(self, view: GradientView, knowledge: Knowledge, seeds: Sequence[int]) -> RecordsGuess:
        raise ValueError("not today")


def test_a_job_that_fails_is_recorded_and_stops_no_other(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, registry.attacks, "moody", Moody, "horizontal")
    spec = make_spec(**{**TINY, "attacks": ["moody", "dlg"], "batch_sizes": 2})
    with Store(tmp_path) as store:
        [outcome] = run_audits([HorizontalAudit(spec, subject)], store)
        by_name = {run.label: run for run in outcome}
        assert by_name["dlg"].status == "ok"
        assert by_name["moody"].status == "failed"
        [failure] = by_name["moody"].failures
        assert failure.message == "ValueError: not today"
        assert "raise ValueError" in failure.traceback
        [row] = [row for row in rows_of(HorizontalAudit(spec, subject), outcome) if row.attack == "moody"]
        assert (row.status, row.mean, row.n) == ("failed", None, 0)
    # The cause mended, the same command finishes.
    register(monkeypatch, registry.attacks, "moody", Quiet, "horizontal")
    monkeypatch.setattr("seepage.settings.part.foreign_code", lambda factory: None)
    with Store(tmp_path) as store:
        [outcome] = run_audits([HorizontalAudit(spec, subject)], store)
        assert {run.label: run.status for run in outcome}["moody"] == "ok"


class Deadly:
    """Ends its own process, as the kernel does when memory runs out; but not the one of the tests."""

    def __init__(self, killed: bool = True) -> None:
        self.killed, self.spared = killed, os.getpid()

    def __call__(
        self, view: GradientView, knowledge: Knowledge, seeds: Sequence[int], progress: Progress | None = None
    ) -> RecordsGuess:
        if self.killed and os.getpid() != self.spared:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.killed and progress is not None:
            # Slow enough for its trial to be stopped: one that runs to its end is the measurement.
            progress(0.001)
            time.sleep(1.1)
            progress(0.001)
        return RecordsGuess(torch.zeros(view.victims, knowledge.batch_size, len(knowledge.schema.columns)).double())


@pytest.mark.long
def test_a_job_that_kills_its_worker_costs_itself_only(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, killed in (("deadly", True), ("harmless", False)):
        register(monkeypatch, registry.attacks, name, lambda killed=killed: Deadly(killed), "horizontal")
    monkeypatch.setattr(runner, "_WORTH_WORKERS_SECONDS", 0.0)
    outcome = audited(subject, None, attacks=["deadly", "harmless"], batch_sizes=2, victims=1, workers=2)
    found = {run.label: run for run in outcome}
    assert found["harmless"].status == "ok"
    assert found["deadly"].status == "failed"
    assert "killed, or out of memory" in found["deadly"].failures[0].message
    assert {run.status for run in outcome if not run.is_attack} == {"ok"}
    # Workers change no figure.
    here = audited(subject, None, attacks=["deadly", "harmless"], batch_sizes=2, victims=1, workers=1)
    assert_equal(
        *(values([run for run in runs if run.label != "deadly"]) for runs in (outcome, here)),
    )


def test_a_budget_gives_every_setting_its_first_victims_and_says_what_it_leaves_out(subject: Subject) -> None:
    spec = make_spec(**{**TINY, "victims": 40, "iterations": 30})
    with Store(None) as store:
        # A clock on which a twentieth of a second passes at each look: how fast the machine is changes nothing.
        clock = partial(next, itertools.count(step=0.05))
        whole = make_plan([HorizontalAudit(spec, subject)], store, clock=clock)
        assert whole.spare == []
        assert whole.seconds is not None
        budget = whole.seconds / 3
        plan = make_plan([HorizontalAudit(spec, subject)], store, budget=budget, clock=clock)
        series = plan.series
        length = [plan.seconds_of[job.name] or 0.0 for job in plan.jobs if series[job.series[0]].is_attack]
        assert sum(length) <= 1.5 * budget * 2 + 1
        left = {series[i].label for job in plan.spare for i in job.series}
        assert left
        planned = {i: [job.units.start for job in plan.jobs if job.series == (i,)] for i in range(len(series))}
        for i, one in enumerate(series):
            assert planned[i] == sorted(planned[i])
            if not one.is_attack:
                assert one.label not in left


class Apart(CoinAudit):
    """Coins whose parts are measured each by itself; what each measurement takes passes on a clock."""

    shared = False

    def __init__(self, *arguments: Any, seconds: dict[str, float], now: list[float], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.seconds, self.now = seconds, now
        self.seen: list[tuple[str, str, int]] = []

    def expose(self, configuration: Configuration, units: range) -> Exposure:
        flips, audit = super().expose(configuration, units), self

        class Timed(Exposure):
            def measure(self, part: PlannedPart, progress: Progress | None = None) -> Outcome:
                audit.seen.append((part.label, configuration.defense, units.start))
                for _ in range(10):
                    audit.now[0] += audit.seconds[part.label] / 10
                    if progress is not None:
                        progress(0.1)
                return flips.measure(part, progress)

        return Timed()


class Stops(Listener):
    def __init__(self) -> None:
        self.stops: list[tuple[str, float, str]] = []

    def stopped(self, what: str, share: float, of: str) -> None:
        self.stops.append((what, share, of))


def test_the_first_attack_comes_first_in_every_configuration_where_time_is_limited() -> None:
    points = [Configuration(name) for name in ("noise", "none")]
    variants = (NEGATIVE, None, POSITIVE)
    series, jobs = [], []
    for place, variant in enumerate(variants):
        audit = CoinAudit(CoinSpec(variant=variant), parts=(COIN, PEEK, SURE))
        for point in points if variant is None else points[1:]:
            for part in audit.parts:
                series.append(Series(place, audit, point, part, {}, "", 5))
                for begin in (0, 5):
                    units = range(begin, begin + 5)
                    jobs.append(Job(len(jobs), (len(series) - 1,), place, point, units, (part,), 1))
    ordered = sorted(jobs, key=lambda job: _urgency(job, series))
    order = [(variants[j.audit], j.configuration.defense, j.parts[0].label, j.units.start) for j in ordered]
    assert order[:4] == [
        (None, "none", PEEK, 0),
        (None, "noise", PEEK, 0),
        (None, "noise", COIN, 0),
        (None, "none", COIN, 0),
    ]
    assert {place[0] for place in order[4:8]} == {POSITIVE}
    assert {place[2] for place in order[4:8]} == {COIN, PEEK}
    assert [place[:3] for place in order[8:12]] == [(POSITIVE, "none", SURE)] * 2 + [
        (None, "noise", SURE), (None, "none", SURE)
    ]  # fmt: skip
    assert {place[3] for place in order[12:18]} == {5}
    assert {place[0] for place in order[18:]} == {NEGATIVE}


def limited(audit: Apart, budget: float, listener: Listener | None = None, store: Store | None = None) -> list[Run]:
    def clock() -> float:
        return audit.now[0]

    store = store or Store(None)
    plan = make_plan([audit], store, budget=budget, clock=clock)
    left = budget - clock()
    [runs] = run_audits([audit], store, listener, plan, left, clock=clock)
    return runs


def apart(seconds: dict[str, float], **named: Any) -> Apart:
    figures = {(defense, part): 0.9 for defense in ("none", "noise") for part in (COIN, PEEK, SURE)}
    spec = CoinSpec(control=False, workers=1, flips=1)
    return Apart(spec, parts=(COIN, PEEK, SURE), figures=figures, seconds=seconds, now=[0.0], **named)


def test_baselines_follow_the_attacks_that_they_are_compared_with() -> None:
    audit = apart({COIN: 4.0, PEEK: 4.0, SURE: 4.0})
    runs = limited(audit, 9.5)
    # Two of the first attack fill the time; without their baselines they would say nothing.
    assert {(run.label, run.configuration.defense) for run in runs if run.units} == {
        (PEEK, "none"), (PEEK, "noise"), (COIN, "none"), (COIN, "noise")
    }  # fmt: skip
    assert {run.status for run in runs if not run.units} == {"left_out"}


@pytest.mark.parametrize(
    ("exact", "seconds", "runs_late"), [(True, 0.5, True), (True, 1.5, False), (False, 0.5, False)]
)
def test_an_exact_attack_of_less_than_a_second_runs_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, exact: bool, seconds: float, runs_late: bool
) -> None:
    monkeypatch.setattr(Apart, "exact", lambda self, part: exact and part.label == SURE)
    audit = apart({COIN: 0.1, PEEK: 3.0, SURE: seconds})
    with Store(None) as store:
        plan = make_plan([audit], store, budget=100.0, clock=lambda: audit.now[0])
        # All time is gone once everything was planned, and what was measured for it is lost.
        planned = replace(plan, ready={}, seconds_of={name: s or seconds for name, s in plan.seconds_of.items()})
        [runs] = run_audits([audit], store, plan=planned, budget=-1.0, clock=lambda: audit.now[0])
    measured = {(run.label, run.configuration.defense) for run in runs if run.is_attack and run.units}
    assert measured == ({(SURE, "noise"), (SURE, "none")} if runs_late else set())


def test_a_job_stops_at_the_end_of_the_time_and_says_how_far_it_is(tmp_path: Path) -> None:
    audit, stops = apart({COIN: 0.0, PEEK: 2.0, SURE: 20.0}), Stops()
    with Store(tmp_path) as store:
        runs = limited(audit, 14.0, stops, store)
        # The other attack is stopped, as often as it begins.
        assert {(run.label, run.status) for run in runs} == {(COIN, "ok"), (PEEK, "ok"), (SURE, "left_out")}
        assert audit.now[0] <= 14.0 + 2.0
        assert all(what.startswith(SURE) and 0 < share < 1 and of == "1 flip" for what, share, of in stops.stops)
        audit.seen.clear()
        runs = limited(audit, 1000.0, None, store)
    assert {run.status for run in runs} == {"ok"}
    # What was measured is not measured again.
    assert {label for label, *_ in audit.seen} == {SURE}


@pytest.mark.parametrize(
    ("forecast", "planned", "measured"),
    # What took longer is expected to do so again; what took less leaves time for jobs that did not fit by forecast.
    [(1.0, 5, 2), (30.0, 1, 2), (30.0, 3, 2)],
)
def test_what_was_measured_counts_for_more_than_a_forecast(forecast: float, planned: int, measured: int) -> None:
    now = [0.0]

    class Slow(CoinAudit):
        def expose(self, configuration: Configuration, units: range) -> Exposure:
            now[0] += 10.0
            return super().expose(configuration, units)

    audit = Slow(CoinSpec(control=False, workers=1), parts=(PEEK,), figures={("none", PEEK): 0.9})
    [part] = audit.parts
    series = [Series(0, audit, Configuration(), part, {}, "", 1)]
    jobs = [Job(i, (0,), 0, Configuration(), range(i, i + 1), (part,), 1) for i in range(5)]
    seconds: dict[int, float | None] = {**dict.fromkeys(range(5), forecast), 0: 1.0}
    plan = Plan((audit,), series, jobs[:planned], seconds, jobs[planned:], 1, {}, (5,))
    with Store(None) as store:
        [[outcome]] = run_audits([audit], store, plan=plan, budget=25.0, clock=lambda: now[0])
    assert (outcome.units, outcome.status, now) == (tuple(range(measured)), "left_out", [10.0 * measured])


class Endless(CoinAudit):
    """Measures its first two units at once, and ends with others only when it is stopped."""

    def expose(self, configuration: Configuration, units: range) -> Exposure:
        flips = super().expose(configuration, units)

        class Slow(Exposure):
            def measure(self, part: PlannedPart, progress: Progress | None = None) -> Outcome:
                for _ in range(600 if units.start > 1 else 0):
                    time.sleep(0.1)
                    assert progress is not None
                    progress(0.001)
                return flips.measure(part, progress)

        return Slow()


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_a_job_is_given_up_once_the_time_is_over(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    monkeypatch.setattr(runner, "_WORTH_WORKERS_SECONDS", 0.0)
    audit = Endless(CoinSpec(control=False, workers=workers), parts=(PEEK,), figures={("none", PEEK): 0.9})
    [part] = audit.parts
    series = [Series(0, audit, Configuration(), part, {}, "", 1)]
    jobs = [Job(i, (0,), 0, Configuration(), range(i, i + 1), (part,), 1) for i in range(5)]
    plan = Plan((audit,), series, jobs, dict.fromkeys(range(5), 0.1), [], workers, {}, (5,))
    with Store(None) as store:
        [[outcome]] = run_audits([audit], store, plan=plan, budget=1.0)
    # None where a busy machine takes that second to start the workers.
    assert outcome.units in ((), (0,), (0, 1))
    assert (outcome.status, outcome.failures) == ("left_out", ())


def test_a_trial_that_ran_to_its_end_counts() -> None:
    exposed = list[range]()

    class Silent(CoinAudit):
        shared = False

        def expose(self, configuration: Configuration, units: range) -> Exposure:
            exposed.append(units)
            now[0] += 10.0
            return super().expose(configuration, units)

    now = [0.0]
    audit = Silent(CoinSpec(control=False, workers=1), parts=(PEEK,), figures={("none", PEEK): 0.9})
    with Store(None) as store:
        plan = make_plan([audit], store, budget=15.0, clock=lambda: now[0])
        assert [len(plan.ready), len(exposed)] == [1, 1]
        [[outcome]] = run_audits([audit], store, plan=plan, budget=5.0, clock=lambda: now[0])
        # No unit twice.
        assert [units.start for units in exposed] == [*range(len(exposed))] == list(outcome.units)
        assert outcome.status == "left_out"
    exposed.clear()
    with Store(None) as store:
        plan = make_plan([audit], store, clock=lambda: now[0])
        assert [len(plan.ready), len(exposed)] == [1, 1]
        [[outcome]] = run_audits([audit], store, plan=plan)
    assert [units.start for units in exposed] == [*range(len(exposed))] == list(outcome.units)


def test_forecasts_count_messages_and_scores_of_all_units() -> None:
    class Slow(Flips):
        def measure(self, part: PlannedPart, progress: Progress | None = None) -> Outcome:
            if progress is not None:
                for _ in range(4):
                    now[0] += 1.0
                    progress(0.25)
            now[0] += 2.0 * len(self.units)
            return super().measure(part)

    class Scored(CoinAudit):
        shared = False

        def group(self, configuration: Configuration, part: PlannedPart) -> int:
            return 3

        def expose(self, configuration: Configuration, units: range) -> Exposure:
            now[0] += len(units)
            return Slow(self, configuration, units)

    now = [0.0]
    figures = {("none", COIN): 0.5, ("none", PEEK): 0.9}
    audit = Scored(CoinSpec(control=False, workers=1, flips=3), parts=(COIN, PEEK), figures=figures)
    with Store(None) as store:
        plan = make_plan([audit], store, clock=lambda: now[0])
    seconds = {audit.parts[job.series[0]].label: plan.seconds_of[job.name] for job in plan.jobs}
    assert seconds == {COIN: 3 * (1 + 2), PEEK: 4 + 3 * (1 + 2)}


def test_no_job_begins_when_the_time_is_over(subject: Subject) -> None:
    [outcome] = run_audits([HorizontalAudit(make_spec(**TINY), subject)], Store(None), budget=0.0)
    assert {run.status for run in outcome} == {"left_out"}
    assert {row.status for row in rows_of(HorizontalAudit(make_spec(**TINY), subject), outcome)} == {"left_out"}


@pytest.mark.slow
def test_a_defended_setting_is_one_of_its_own(subject: Subject) -> None:
    noisy = {"name": "gaussian_noise", "options": {"scale": 10.0}, "label": "noise"}
    outcome = audited(subject, defenses=["none", noisy], attacks=["dlg"], batch_sizes=2, iterations=200, victims=8)
    accuracy = {
        (run.configuration.defense, run.label): m.estimate().mean
        for run in outcome
        for m in run.measured
        if (m.metric, m.column) == ("accuracy", None)
    }
    assert accuracy["none", "mode"] == accuracy["noise", "mode"]
    assert (accuracy["noise", "dlg"] or 0) < (accuracy["none", "dlg"] or 0) - 0.1


@pytest.mark.parametrize(
    ("scale", "reason"), [(1e39, "is beyond float32"), (2e38, "the message holds -?inf in its entry")]
)
def test_a_configuration_that_fails_in_its_trial_is_recorded_and_the_others_are_measured(
    subject: Subject, scale: float, reason: str
) -> None:
    noisy = {"name": "gaussian_noise", "options": {"scale": scale}, "label": "noise"}
    outcome = audited(subject, defenses=[noisy, "none"], attacks=["dlg"], batch_sizes=2)
    found = {(run.configuration.defense, run.label): run for run in outcome}
    assert found["none", "dlg"].status == "ok"
    assert found["none", "dlg"].units == (0, 1, 2)
    [failure] = found["noise", "dlg"].failures
    assert re.search(reason, failure.message)
    assert found["noise", "dlg"].units == ()


def test_a_shared_exposure_that_fails_in_its_forecast_stops_no_other() -> None:
    def failing() -> float:
        raise ArithmeticError("not this one")

    clock = iter((3.0, 5.0, 5.0, 5.0)).__next__
    assert _unless_failing(failing, clock) == 2.0
    assert _unless_failing(lambda: None, clock) is None

    def mistaken() -> float:
        raise BadInputError("too large")

    with pytest.raises(BadInputError, match="too large"):
        _unless_failing(mistaken, clock)
