"""What is said before an audit begins."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from seepage.auditing import prepare_all
from seepage.report import progress
from seepage.report.progress import outlook
from seepage.run.plan import make_plan
from seepage.run.store import Store
from seepage.settings.horizontal.spec import make_spec


def test_a_long_plan_names_what_takes_most_of_it() -> None:
    fields = {"dataset": "german", "batch_sizes": [1, 2], "attacks": "dlg", "victims": 1, "iterations": 2}
    audits = prepare_all([make_spec(**fields, control=False)])
    plan = make_plan(audits, Store(None))
    attacks = [job for job in plan.jobs if plan.series[job.series[0]].is_attack]
    longest = next(job for job in attacks if plan.series[job.series[0]].configuration.batch_size == 2)
    for seconds, said in ((5000.0, True), (5.0, False)):
        long = replace(plan, seconds_of={job.name: seconds * (3 if job is longest else 0.01) for job in plan.jobs})
        told = outlook(long)
        assert ("of it is dlg: leave that out or some columns (--drop COLUMN)" in told) == said, told
        assert ("--time-budget" in told) == said
    limited = prepare_all([make_spec(**fields, control=False, time_budget="5m")])
    assert "--time-budget" not in outlook(
        replace(plan, audits=tuple(limited), seconds_of=dict.fromkeys(plan.seconds_of, 9e3))
    )


def test_what_is_left_is_named_where_one_of_several_attacks_takes_long() -> None:
    fields = {"dataset": "german", "batch_sizes": [1], "victims": 1, "iterations": 2}
    audits = prepare_all([make_spec(**fields, attacks=("dlg", "inverting_gradients"), control=False)])
    plan = make_plan(audits, Store(None))
    slow = {job.name: 9e3 if plan.series[job.series[0]].part.label == "dlg" else 1.0 for job in plan.jobs}
    assert "of it is dlg: leave that out (--attack inverting_gradients)" in outlook(replace(plan, seconds_of=slow))


def test_a_log_says_what_is_being_done_after_the_last_job(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(progress, "_LOG_SECONDS", 0.0)
    with progress.Bar(Console(file=written, width=200)) as bar:
        bar.begin(1.0, jobs=1)
        bar.started("dlg")
        bar.ended()
        bar.started("training at batch size 8, dp_sgd")
    assert "1 of 1 jobs done after" in written.getvalue()
    assert "now training at batch size 8, dp_sgd." in written.getvalue()
