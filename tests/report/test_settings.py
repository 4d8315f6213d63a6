"""One report for all settings: an invented one, whose rows are no table, gets every part that it has data for."""

from __future__ import annotations

import io
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from seepage.auditing import run_all
from seepage.errors import BadInputError
from seepage.report.frames import overview
from seepage.report.progress import Bar
from seepage.report.report import Report
from seepage.report.sections import render
from seepage.report.summary import headline
from seepage.results.checks.finding import Finding
from seepage.settings.horizontal.audit import HorizontalAudit
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.horizontal.subject import prepare
from tests.report.parts import COIN, FIGURES, PEEK, SETUP, CoinAudit, CoinSpec
from tests.report.test_html import read
from tests.rows import row

PIXEL = "data:image/png;base64,iVBORw0KGgo="


def report_of(audit: CoinAudit) -> Report:
    [report] = run_all([audit])
    return report


# Figures that so many flips decide on.
APART = {("none", COIN): 0.3, ("none", PEEK): 0.95, ("gloves", COIN): 0.3, ("gloves", PEEK): 0.31}
MANY = 60


def decided(**about: Any) -> CoinAudit:
    return CoinAudit(CoinSpec(flips=MANY, control=False, workers=1), figures=APART, spread=0.0, **about)


def test_the_page_shows_verdict_threat_model_leakage_columns_and_cost(tmp_path: Path) -> None:
    audit = decided(threat_model=("The <b>peeker</b> looks.",), sensitive=("a",), dataset="</script>coins")
    [report] = run_all([audit], tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("audit.sqlite", "report.html", "results.csv", "results.json", "provenance.json")
    }
    text = (tmp_path / "report.html").read_text()
    parts = read(text)
    assert "What the peeker learns" in parts["verdict"]
    assert "With no defense the peeker reads 95% of all sides; an informed guess gets 30%." in parts["verdict"]
    assert "The <b>peeker</b> looks." in parts["threat-model"]
    assert "Columns marked as sensitive (★): a." in parts["threat-model"]
    assert "Coins are fair." in parts["threat-model"]
    assert re.search(r"gloves peek 31\.0%", parts["leakage"])
    assert "given away by the glimpse" in parts["leakage"]
    assert re.search(r"a \(sensitive\).* 95\.0%", parts["columns"])
    assert re.search(r"AUC.*Epsilon of a record.*gloves little read .*80\.0%.*2\.5", parts["frontier"])
    assert "below 5%: nothing in this sweep does." in parts["advice"]
    assert "below 20% or 50%: gloves" in parts["advice"]
    # Nothing that only other settings have is promised or missed.
    assert not {"reliability", "exposed", "examples", "groups", "pictures"} & {*parts}
    assert "victim" not in text.split("<body>")[1].split('id="checks"')[0]
    assert "Batch size" not in text.split("<body>")[1].split('id="provenance"')[0]
    assert "</script>coins" not in text.replace("\\u003c", "<").split("<body>")[1].split("provenance")[0]
    assert [(one["defense"], one["tier"]) for one in report.overviews] == [
        ("none", "mostly read"),
        ("gloves", "little read"),
    ]
    assert report.worst is report.overviews[0]


def test_sizes_that_differ_are_told_apart_and_one_that_does_not_is_said_once() -> None:
    swept = report_of(CoinAudit(sizes=(2, 8)))
    assert swept.figures == ["batch-size", "batch-size-2", "columns", "columns-everywhere", "frontier"]
    assert "Marks are numbered by batch size" in read(render([swept], {}))["frontier"]
    single = report_of(CoinAudit(sizes=(8,)))
    assert single.figures == ["defenses", "columns", "columns-everywhere", "frontier"]
    parts = read(render([single], {}))
    assert "The batch size is 8 in all configurations." in parts["threat-model"]
    assert "Batch size" not in parts["columns"] + parts["leakage"] + parts["frontier"]


def test_the_grid_says_which_attacks_apply_and_why_not() -> None:
    report = report_of(CoinAudit())
    # A setting that declares no threat model shows what was run.
    assert [(one.attack, one.applies) for one in report.grid] == [(PEEK, True)]
    assert "peek yes yes" in read(render([report], {}))["threat-model"]
    horizontal = HorizontalAudit(spec := make_spec(dataset="german", batch_sizes=2, attacks="tableak"), prepare(spec))
    grid = {one.attack: one for one in Report(horizontal, []).grid}
    assert grid["tableak"].applies
    refused = next(one for one in grid.values() if not one.applies)
    parts = read(render([Report(horizontal, [])], {}))
    assert f"{refused.attack} no no" in parts["threat-model"]
    assert refused.reason is not None
    assert refused.reason[:200] in parts["threat-model"]
    assert "Nothing could be measured" in parts["verdict"]


def test_checks_that_do_not_apply_are_listed_with_the_reason() -> None:
    report = report_of(CoinAudit())
    omitted = report.not_applicable
    assert omitted
    checks = read(render([report], {}))["checks"]
    for code, reason in omitted.items():
        assert code in checks
        assert reason in checks


def test_controls_are_put_in_words() -> None:
    report = report_of(CoinAudit(control="Nothing hides the planted coin."))
    assert "Positive control: none. It was switched off." in read(render([report], {}))["checks"]
    of_ten: dict[str, Any] = {"batch_size": None, "attack": PEEK, "n": 10, "baseline": 0.5}
    planted = row(**of_ten, mean=0.95, low=0.9, lift=0.45, lift_low=0.4)
    nothing = row(**of_ten, mean=0.5, low=0.4, lift=0.0, lift_low=-0.1)
    works = read(render([replace(report, control=[planted], negative=[nothing])], {}))["checks"]
    assert "Positive control: Nothing hides the planted coin." in works
    assert "peek reads 95.0% and closes 90.0% of the gap" in works
    assert "So the attack works here." in works
    assert "No attack clearly exceeds the best baseline there" in works
    broken = read(render([replace(report, control=[nothing], negative=[planted])], {}))["checks"]
    assert "Something is wrong with peek or its options; the data are not shown to be safe." in broken
    assert "So peek finds what is not there" in broken


def test_several_audits_share_a_page_and_the_gravest_leads() -> None:
    mild = {key: mean for key, mean in FIGURES.items() if key[0] == "gloves"}
    low = CoinAudit(CoinSpec(control=False, workers=1, variant="gloves on"), figures=mild)
    high = CoinAudit(CoinSpec(control=False, workers=1, variant="bare"))
    parts = read(render([report_of(low), report_of(high)], {}))
    assert "The gravest of 2 audits: coins, one flip, model none, bare" in parts["overall"]
    assert "Under gloves the peeker reads 57% of all sides" in parts["a1-verdict"]
    assert "With no defense the peeker reads 92% of all sides" in parts["a2-verdict"]


def test_pictures_are_shown_with_what_was_made_of_them() -> None:
    figures = {key: mean for key, mean in FIGURES.items() if key[0] == "none"}
    page = render([report_of(CoinAudit(picture=PIXEL, figures=figures))], {})
    assert page.count(f'<img src="{PIXEL}"') == 3
    pictures = read(page)["pictures"]
    assert "The first attacked images of the first flip" in pictures
    for words in ("the originals, no defense", "coin (baseline), no defense: 12.5 dB", "peek, no defense: 12.5 dB"):
        assert words in pictures


def test_few_flips_that_are_all_alike_decide_nothing_and_many_do() -> None:
    few = report_of(CoinAudit(spread=0.0, figures=APART))
    assert [one["tier"] for one in few.overviews] == ["not decided", "not decided"]
    assert [one["tier"] for one in report_of(decided()).overviews] == ["mostly read", "little read"]


def test_an_audit_doubts_a_single_repetition_and_what_has_no_baseline() -> None:
    report = report_of(CoinAudit(CoinSpec(flips=1, control=False, workers=1), parts=(PEEK,)))
    assert {"SEEP016", "SEEP007"} <= {finding.code for finding in report.all_findings}
    assert report.worst is not None
    assert report.worst["tier"] == "not decided"


def test_one_whole_record_that_no_baseline_gets_is_enough() -> None:
    score = row(batch_size=None, attack=PEEK, n=1, mean=0.6, baseline=0.5, baseline_name=COIN, lift=0.1)
    assert [one["tier"] for one in overview([score])] == ["not decided"]
    whole = replace(score, metric="exact_match", mean=0.02, baseline=0.0, lift=0.02)
    assert [one["tier"] for one in overview([score, whole])] == ["whole records read"]
    assert [one["tier"] for one in overview([score, replace(whole, mean=0.0)])] == ["not decided"]
    # Where baselines get whole records, too, more of them must be shown.
    guessed = replace(whole, mean=0.9, baseline=0.85, lift=0.05)
    assert [one["tier"] for one in overview([score, guessed])] == ["not decided"]
    shown = replace(guessed, n=400, lift_low=0.01, lift_high=0.09)
    assert [one["tier"] for one in overview([score, shown])] == ["whole records read"]


def test_nearly_all_of_a_single_captured_message_is_mostly_read() -> None:
    score = row(batch_size=None, attack=PEEK, n=1, mean=1.0, baseline=0.5, baseline_name=COIN, lift=0.5, captured=True)
    assert [one["tier"] for one in overview([score])] == ["mostly read"]
    most, some = (replace(score, mean=mean, lift=mean - 0.5) for mean in (0.96, 0.8))
    assert [one["tier"] for one in overview([most])] == ["mostly read"]
    assert [one["tier"] for one in overview([some])] == ["not decided"]
    assert [one["tier"] for one in overview([replace(score, captured=False)])] == ["not decided"]


def test_a_folder_of_another_audit_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_all([CoinAudit(own=True)], folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    with pytest.raises(BadInputError, match="holds an audit with"):
        run_all([CoinAudit(own=True, dataset="other coins")], folder)


def test_nothing_measured_is_said_with_the_reason() -> None:
    broken = report_of(CoinAudit(broken=(PEEK,)))
    assert broken.summary() == (
        "Nothing could be measured, so nothing is known about what leaks. Attacks failed: ValueError: the coin rolled "
        "<under> the table."
    )
    without = report_of(CoinAudit(parts=(SETUP, COIN)))
    assert without.summary().endswith("The audit has no attack; add one.")
    for report in (broken, without):
        assert report.summary() in read(render([report], {}))["verdict"]
        with pytest.raises(BadInputError, match="Nothing could be measured"):
            report.figure("defenses")


def test_a_notebook_shows_verdict_table_and_findings_escaped() -> None:
    report = report_of(CoinAudit(dataset="<i>coins</i>"))
    findings = [Finding("SEEP001", "error", "Below", "It lost to <b>a coin</b>.")]
    html = replace(report, findings=findings)._repr_html_()
    for words in ("&lt;i&gt;coins&lt;/i&gt;", "not decided", "92.0%", "SEEP001", "lost to &lt;b&gt;a coin&lt;/b&gt;."):
        assert words in html
    assert "<i>" not in html
    assert "<script" not in html


def test_figures_are_those_of_the_page(tmp_path: Path) -> None:
    report = report_of(CoinAudit(columns=("<b>a</b>",)))
    assert report.figures == ["defenses", "columns", "columns-everywhere", "frontier"]
    for name in report.figures:
        picture = report.figure(name)
        ElementTree.fromstring(picture.svg)
        # Names of the page's colours are colours here.
        assert "--" not in picture.svg
        assert picture.svg in picture._repr_html_()
    columns = report.figure("columns")
    assert "&lt;b&gt;a&lt;/b&gt;" in columns.svg
    assert "92.0" in columns.svg
    saved = columns.save(tmp_path / "columns.svg").read_text(encoding="utf-8")
    assert saved.strip() == columns.svg
    with pytest.raises(BadInputError, match=r"unknown figure of this report 'colums'; did you mean 'columns'"):
        report.figure("colums")


def test_a_report_is_saved_whole(tmp_path: Path) -> None:
    report = report_of(CoinAudit(own=True))
    path = report.save(tmp_path / "made")
    assert {file.name for file in path.parent.iterdir()} == {"report.html", "results.json", "results.csv"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("width", [60, 100, 160])
def test_the_terminal_serves_any_setting(width: int) -> None:
    report = report_of(CoinAudit(sensitive=("a",)))
    screen, all_of_it = (
        ("coins", "peek", "gloves", "no defense", "AUC", "80.0", "SEEP006"),
        ("coin", "92.0", "2.5", "(sensitive)"),
    )
    for verbose, wanted in ((False, screen), (True, (*screen, *all_of_it))):
        file = io.StringIO()
        report.show(Console(file=file, width=width), verbose)
        text = file.getvalue()
        assert max(map(len, text.splitlines())) <= width
        assert "batch size" not in text.lower()
        for words in wanted:
            assert words in text
    assert "Under gloves the peeker reads 57.0% of all sides" in " ".join(text.split())


def test_a_bar_counts_each_audit_s_own_jobs() -> None:
    bar = Bar(Console(file=io.StringIO(), width=200))
    for jobs in (1, 2):
        bar.begin(float(jobs), jobs)
        bar.started("one")
        bar.ended()
        bar.finished("one", None, 1)
    assert bar._progress.tasks[0].description == "1/2 jobs, 0 running · one"


def _with_label(**about: Any) -> Report:
    """A report in which cells are safe and the label is read."""
    audit = CoinAudit(label="a", target="a", **about)
    report = run_all([audit])[0]
    rows = [
        replace(one, mean=0.6, lift=0.01, lift_low=0.008, lift_high=0.012, lift_std=0.001, baseline=0.59)
        if one.is_attack and one.column is None
        else replace(one, mean=0.99, lift=0.19, lift_low=0.185, lift_high=0.195, lift_std=0.001, baseline=0.8)
        if one.is_attack
        else one
        for one in report.rows
    ]
    return replace(report, rows=rows)


def test_a_label_has_a_verdict_of_its_own_that_counts() -> None:
    report = _with_label()
    first = report.overviews[0]
    assert (first["tier"], first["label_tier"], first["mean"]) == ("mostly read", "mostly read", 0.6)
    assert first["closed"] == pytest.approx(0.19 / 0.2)
    words = (
        "It reads 99% of the labels (a; an informed guess: 80%). Of 100 labels that an informed guess misses, 95 are"
    )
    assert headline(report).words.count(words) == 1
    # The paragraph on cells says nothing graver than that, and the label's sentence follows.
    paragraph = report.summary().partition("\n\n")[0]
    assert "Verdict: little read. Of 100 cells that an informed guess misses, 2 are read" in paragraph
    assert "Of 100 labels" not in paragraph
    assert "Verdict on the label: mostly read." in paragraph
    assert "labels" in report.figures
    for verbose, table in (
        (False, "Of 100 labels that an informed guess misses"),
        (True, "Read of the label a, beside baselines"),
    ):
        text = io.StringIO()
        report.show(Console(file=text, width=120), verbose)
        assert table in text.getvalue()
    assert "Of 100 labels that an informed guess misses, 95 are read" in read(render([report], {}))["verdict"]


def test_a_label_that_another_party_attacks_counts_under_its_name() -> None:
    report = _with_label(label_attacker="A bystander")
    first = report.overviews[0]
    assert (first["tier"], first["label_tier"]) == ("mostly read", "mostly read")
    assert "A bystander reads 99% of the labels (a; an informed guess: 80%)." in headline(report).words
    assert "The label a: a bystander reads 99.0%" in report.summary()
    assert "It reads" not in headline(report).words


def test_an_audit_of_labels_alone_has_a_headline() -> None:
    report = _with_label()
    alone = replace(report, rows=[one for one in report.rows if not (one.is_attack and one.column is None)])
    assert headline(alone).words.startswith("With no defense the peeker reads 99% of the labels (a)")
    assert alone.overviews[0]["tier"] == "mostly read"
    assert "Verdict on the label: mostly read." in alone.summary()
    alone.show(Console(file=io.StringIO(), width=120))
