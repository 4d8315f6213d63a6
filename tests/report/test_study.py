"""The report of a study, its doubts and its gate, on planted figures."""

from __future__ import annotations

import io
import re
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from seepage.settings.study import StudyPart

from seepage.errors import BadInputError
from seepage.report import Bar, gate, run_studies
from seepage.report.frames import overview
from seepage.report.study import study_alarms
from seepage.settings.spec import Part
from seepage.settings.studies import make_study, study_kind
from seepage.settings.study_spec import StudySpec
from tests.report.test_html import read
from tests.rows import row
from tests.settings.test_study import planted

SPEC = StudySpec(dataset="coins")


def test_the_page_shows_threat_model_verdict_attacks_columns_and_cost(tmp_path: Path) -> None:
    study = replace(planted([]), facts=("The <b>attacker</b> peeks.",), sensitive=("a",), dataset="</script>coins")
    [report] = run_studies([(SPEC, study)], tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {
        *("audit.sqlite", "report.html", "results.csv", "results.json", "provenance.json")
    }
    text = (tmp_path / "report.html").read_text()
    parts = read(text)
    # All units gain the same, so that the lift's interval is a point and shows nothing.
    assert report.worst is not None
    assert report.worst["tier"] == "inconclusive"
    assert "reads 91% of all private cells, with no defense" in parts["verdict"]
    assert "would have guessed 51%" in parts["verdict"]
    assert "The <b>attacker</b> peeks." in parts["threat-model"]
    assert "Columns marked as sensitive (★): a." in parts["threat-model"]
    assert re.search(r"gloves peek 56\.0%", parts["attacks"])
    assert re.search(r"a \(sensitive\).* 91\.0%", parts["columns"])
    assert "AUC" in parts["defenses"]
    assert "</script>coins" not in text.replace("\\u003c", "<").split("<body>")[1].split("provenance")[0]
    assert "victim" not in parts["verdict"]


def test_several_studies_share_a_page_and_the_gravest_leads(tmp_path: Path) -> None:
    low = replace(planted([]), defenses={"gloves": {"thick": True}}, variant="gloves on")
    run_studies([(SPEC, low), (SPEC, replace(planted([]), variant="bare", identity={"coins": 2}))], tmp_path)
    parts = read((tmp_path / "report.html").read_text())
    assert "The gravest of 2 audits: coins, toss, bare" in parts["overall"]
    assert "reads 56% of all private cells, under gloves" in parts["a1-verdict"]
    assert "reads 91% of all private cells, with no defense" in parts["a2-verdict"]


def test_a_gate_reads_the_rows_of_a_study() -> None:
    attack = StudyPart(Part(name="peek"), "attack")
    [report] = run_studies([(SPEC, replace(planted([]), parts=(*planted([]).parts[:2], attack)))])
    assert gate(report.rows, above=0.1, alarms=report.alarms).failed
    passed = gate(report.rows, above=0.9)
    assert "shows nothing: all 3 victims are alike" in passed.line
    assert "(coins, none, no defense)" in passed.line
    with pytest.raises(BadInputError, match="unknown column of the gate"):
        gate(report.rows, above=0.1, column="b")


def test_a_study_doubts_a_single_repetition_and_what_has_no_guess() -> None:
    [report] = run_studies([(SPEC, replace(planted([], units=1), parts=planted([]).parts[2:]))])
    assert [alarm.code for alarm in report.alarms] == ["SEEP016", "SEEP007"]
    assert report.worst is not None
    assert report.worst["tier"] == "inconclusive"


def test_a_study_says_how_open_its_verdict_is() -> None:
    [report] = run_studies([(SPEC, planted([], units=2))])
    alarms = {alarm.code: alarm for alarm in report.alarms}
    assert "so intervals are wide" in alarms["SEEP007"].message
    score = row(batch_size=None, attack="peek", n=5, mean=0.7, low=0.4, high=1.0)
    score = replace(score, baseline=0.5, baseline_name="coin", lift=0.2, lift_low=-0.1, lift_high=0.5)
    study = replace(report.study, units=5)
    [alarm] = study_alarms(study, [score])
    assert alarm.code == "SEEP006"
    assert "open under none: none to total" in alarm.message
    whole = replace(score, metric="exact_match", mean=0.6, baseline=0.1, lift=0.5)
    assert study_alarms(study, [score, whole]) == []
    guessed = replace(whole, baseline=0.5, lift=0.1)
    assert [alarm.code for alarm in study_alarms(study, [score, guessed])] == ["SEEP006"]
    assert study_alarms(study, [replace(score, lift_low=0.45)]) == []


def test_records_read_whole_are_a_total_leak_without_an_interval() -> None:
    score = row(batch_size=None, attack="peek", n=1, mean=1.0, baseline=0.5, baseline_name="coin", lift=0.5)
    assert [one["tier"] for one in overview([score])] == ["inconclusive"]
    assert [one["tier"] for one in overview([score, replace(score, metric="exact_match")])] == ["total"]
    guessed = replace(score, metric="exact_match", mean=0.9, baseline=0.85, lift=0.05)
    assert [one["tier"] for one in overview([score, guessed])] == ["inconclusive"]


def test_a_folder_of_another_study_is_left_alone(tmp_path: Path) -> None:
    study = replace(planted([]), own=True)
    run_studies([(SPEC, study)], tmp_path / "run")
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "run").iterdir()} == {0o600}
    run_studies([(SPEC, replace(study, units=2))], tmp_path / "run")
    with pytest.raises(BadInputError, match="holds an audit of other rows or with other settings"):
        run_studies([(SPEC, replace(study, identity={"coins": 2}))], tmp_path / "run")


def test_settings_are_named_and_checked() -> None:
    with pytest.raises(BadInputError, match="did you mean 'split'"):
        study_kind("spilt")
    with pytest.raises(BadInputError, match="units: Input should be greater than or equal to 1, got 0"):
        make_study("split", units=0)


def test_a_bar_counts_each_study_s_own_jobs() -> None:
    told = io.StringIO()
    bar = Bar(Console(file=told, width=200))
    for jobs in (1, 2):
        bar.begin(float(jobs), jobs)
        bar.started("one")
        bar.finished("one", None, 1)
    assert bar._progress.tasks[0].description == "1/2 jobs, 0 running · one"
