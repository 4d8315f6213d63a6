"""What a terminal is shown: doubts first, and texts as texts."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Task, TaskID

from seepage.auditing import audit, prepare_all
from seepage.report import progress
from seepage.report.document import Document, Grid, Ruler, Section, heads, rows_of
from seepage.report.progress import outlook
from seepage.report.report import Report
from seepage.report.terminal import show
from seepage.results.checks.finding import Finding
from seepage.run.plan import make_plan
from seepage.run.store import Store
from seepage.settings.horizontal.spec import make_spec


def test_the_rows_of_an_answer_are_lines_and_spare_columns_are_left_out_for_it() -> None:
    names = [f"dp_sgd(epsilon={epsilon})" for epsilon in (8, 3, 1)]
    lines = [[name, "unmix", "whole records read", "100 [48, 100]", "100%", "77.4 [71.4, 83.4]"] for name in names]
    numbers = ("read\nof 100", "whole\nrecords", "task accuracy")
    columns = [
        replace(column, spare=column.title in ("attack", "whole\nrecords"))
        for column in heads("defense", "attack", "verdict", *numbers, numbers=numbers)
    ]
    grid = Grid("Of 100 cells", columns, rows_of(lines), ranks=[1, 2, 3], rows_are="configuration")
    answer = Document("", [], answer=[Section("answer", "", [Ruler((), (), grid)])])
    for width, shown in (
        (80, {"unmix": False, "100%": False}),
        (88, {"unmix": True, "100%": False}),
        (120, {"unmix": True, "100%": True}),
    ):
        written = io.StringIO()
        show(Console(file=written, width=width), answer)
        text = written.getvalue()
        for name in names:
            assert re.search(rf"^{re.escape(name)} .*whole records read .*77.4 \[71.4, 83.4\]", text, re.M), text
        assert {word: word in text for word in shown} == shown


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


def test_the_time_left_stays_on_a_line_of_80_columns() -> None:
    written = io.StringIO()
    with progress.Bar(Console(file=written, width=80, force_terminal=True)) as bar:
        bar.begin(1.0, jobs=100)
        bar.started("negative control: inverting_gradients at batch size 128, dp_sgd(epsilon=3) " + 4 * "and more ")
    drawn = [line for line in written.getvalue().replace("\r", "\n").splitlines() if "0/100" in line]
    assert drawn
    assert all("left" in line and "negative control" in line for line in drawn)


def test_the_time_left_is_that_of_the_forecast_until_the_work_tells() -> None:
    left, clock = progress.TimeLeft(), [0.0]
    task = Task(TaskID(0), "", total=100.0, completed=0.0, _get_time=lambda: clock[0])
    task.start_time = 0.0
    assert left.render(task).plain == "-:--:--"
    left.forecast, clock[0] = 100.0, 20.0
    assert left.render(task).plain == "0:01:20"
    # Alone, this first hundredth would say half an hour and more.
    task.completed = 1.0
    assert 80 < seconds_of(left.render(task).plain) < 300
    task.completed, clock[0] = 50.0, 60.0
    assert left.render(task).plain == "0:01:00"


def seconds_of(clock: str) -> int:
    hours, minutes, seconds = map(int, clock.split(":"))
    return 3600 * hours + 60 * minutes + seconds


HOSTILE = "\x1b[31m[bold red]x[/bold red]\u202e\n\x07"


def printed(report: Report, width: int = 160, verbose: bool = False) -> str:
    file = io.StringIO()
    report.show(Console(file=file, width=width, force_terminal=False), verbose)
    return file.getvalue()


def small() -> Report:
    settings: dict[str, Any] = {"batch_sizes": 2, "attacks": "dlg", "victims": 2, "iterations": 3, "control": False}
    return audit("german", "nn1", **settings)


def test_doubts_come_before_the_figures_and_as_text() -> None:
    report = small()
    findings = [Finding("SEEP001", "error", "First", HOSTILE), Finding("SEEP013", "note", "Last", "plain")]
    text = printed(replace(report, runs=[], findings=findings), verbose=True)
    for figures in ("Read of all cells", "Each configuration in sentences"):
        notes = ("SEEP013",) if figures == "Read of all cells" else ()
        places = [text.index(word) for word in ("Audit of german", "SEEP001", *notes, figures)]
        assert places == sorted(places)
    assert r"\x1b[31m[bold red]x[/bold red]\u202e\n\x07" in text
    assert "\x1b" not in text


def test_the_first_screen_has_verdict_reason_action_and_serious_findings_in_this_order() -> None:
    report = small()
    findings = [Finding("SEEP001", "error", "First", HOSTILE), Finding("SEEP013", "note", "Last", "plain")]
    text = printed(replace(report, runs=[], findings=findings))
    wanted = ("Audit of german", "NOT DECIDED", "the server reads", "No verdict: first (SEEP001).", "What to do")
    places = [text.index(word) for word in (*wanted, "Checks of this audit: 1 finding", "error SEEP001 First.")]
    assert places == sorted(places)
    assert "SEEP013" not in text
    assert "Read of all cells" not in text
    assert len(text.splitlines()) <= 25
    many = [Finding(f"SEEP{code:03}", "warning", "Few repetitions", "...") for code in range(7)]
    text = printed(replace(report, runs=[], findings=many))
    assert "Checks of this audit: 7 findings" in text
    assert text.count("warning SEEP") == 4
    assert "and 3 more (--verbose prints all)" in text


def test_an_error_takes_the_verdict_away_everywhere() -> None:
    report = small()
    broken = [Finding("SEEP004", "error", "The positive control did not leak", "...")]
    for verbose in (False, True):
        text = " ".join(printed(replace(report, runs=[], findings=broken), verbose=verbose).split())
        assert "No verdict: the positive control did not leak (SEEP004)." in text
        assert "not decided" in text.lower()
        assert "SEEP004" not in printed(replace(report, runs=[], findings=[]), verbose=verbose)


@pytest.mark.parametrize("defense", ["none", "gaussian_noise(scale=0.01,seed=12)"])
@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_what_matters_is_readable_at_every_width(width: int, defense: str) -> None:
    report = small()
    rows = [replace(row, attack="inverting_gradients" if row.is_attack else row.attack) for row in report.rows]
    rows += [replace(row, defense=defense) for row in rows] if defense != "none" else []
    planted = replace(report, rows=rows, runs=[], findings=[])
    text = printed(planted, width, verbose=True)
    assert max(map(len, text.splitlines())) <= width
    words = text.split()
    assert {"Attack", "Read", "Best", "baseline", "Lift", "Verdict", "tolerance:"} <= {*words}
    assert all(name in words for name in ("stereotypes", "mode", "random"))
    if width >= 80:
        assert "inverting_gradients" in words
    [score] = [row for row in report.rows if row.is_attack and (row.metric, row.column) == ("accuracy", None)]
    for figure in (score.mean, score.baseline, score.low):
        assert figure is not None
        assert f"{100 * figure:.1f}" in text
    assert "(sensitive)" in text
    screen = printed(planted, width)
    assert max(map(len, screen.splitlines())) <= width
    flat = " ".join(screen.split())
    assert "NOT DECIDED" in flat
    assert "What to do" in flat
    assert f"reads {100 * (score.mean or 0.0):.0f}% of all cells; an informed guess gets" in flat


def test_nothing_is_marked_where_nothing_is_sensitive() -> None:
    plain = audit("synthetic", batch_sizes=2, attacks="dlg", victims=2, iterations=3, control=False)
    assert "sensitive" not in printed(plain)
    assert "(sensitive)" not in printed(plain, verbose=True)


def test_parts_that_are_not_their_authors_own_are_marked_in_tables(tmp_path: Path) -> None:
    few: dict[str, Any] = {"repetitions": 1, "epochs": 1, "leaked": 20, "attacked_records": 20, "control": False}
    layers: dict[str, Any] = {"bottom": [4], "features": 4, "top": [4], "attacks": "ridge_sa"}
    defenses = ["none", "vfldefender"]
    report = audit("german", setting="vertical", passive=[["housing"]], defenses=defenses, **few, **layers)
    for verbose, least in ((False, 1), (True, 2)):
        text = " ".join(printed(report, 240, verbose).split())
        assert text.count("vfldefender (our reading of its abstract)") >= least
        assert "ridge_sa (" not in text
    assert report.save(tmp_path / "out").read_text().count("(our reading of its abstract)") >= 2


@pytest.mark.parametrize("width", range(66, 90))
def test_no_figure_is_cut_at_the_right_edge(width: int) -> None:
    names, figures = ("defense", "attack", "verdict"), ("read\nof 100", "whole\nrecords", "task accuracy")
    lines = [
        [defense, "inverting_gradients", "not decided", "0", "0%", "76.4 [70.5, 82.3]"]
        for defense in ("no defense", "aggregation")
    ]
    grid = Grid("Of 100", heads(*names, *figures, numbers=figures), rows_of(lines))
    file = io.StringIO()
    show(Console(file=file, width=width), Document("", [Section("", "", [grid])]))
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "task accuracy" in text
    assert text.count("76.4 [70.5, 82.3]") == 2
