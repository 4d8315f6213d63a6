"""Terminal, page, notebook, files and advice say the same of one audit."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from io import StringIO
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from seepage.assessment.row import ResultRow
from seepage.report.advice import what_to_do
from seepage.report.report import Report, verdicts_of
from seepage.report.sections import render, run_document
from seepage.report.summary import headline
from seepage.report.terminal import MOST_LINES, show
from seepage.results.checks.finding import Finding
from seepage.results.gate import decide
from seepage.results.verdict import GRAVITY, LITTLE, SHOWN, WHOLE_RECORDS
from seepage.run.limits import Limits
from tests.report.test_advice import row
from tests.settings.fifth import CoinAudit, CoinSpec
from tests.settings.plugged import plugged_in  # noqa: F401

pytestmark = pytest.mark.usefixtures("plugged_in")
_CODES = [("SEEP004", "error"), ("SEEP024", "warning"), ("SEEP030", "warning"), ("SEEP013", "note")]


def drawn(draw: np.random.Generator) -> Report:
    """Return a report with figures, intervals and findings of any kind."""
    spec = CoinSpec.of(defenses=["none", {"name": "gloves", "noise": 1.0}], gate={"above": 0.2})
    rows: list[ResultRow] = []
    for defense in ("none", "gloves"):
        baseline = float(draw.choice([0.0, 0.3, 0.6, 0.99]))
        mean = float(draw.choice([baseline, baseline + (1 - baseline) * draw.random(), 1.0]))
        below, above = (draw.random(2) ** 3).tolist()
        lift = mean - baseline
        ends: dict[str, Any] = {"lift_low": lift - below, "lift_high": min(1 - baseline, lift + above)}
        if draw.random() < 0.1:
            ends = {"lift_low": None, "lift_high": None}
        n = int(draw.choice([1, 5, 40]))
        rows.append(row(defense, mean, n=n, baseline=baseline, lift=lift, **ends))
        whole = float(draw.choice([0.0, 0.0, 0.02, 1.0]))
        guessed = float(draw.choice([0.0, 0.0, 0.01]))
        rows.append(
            row(defense, whole, metric="exact_match", n=n, baseline=guessed, lift=whole - guessed, lift_low=whole - 0.2)
        )
    code, severity = _CODES[int(draw.integers(len(_CODES)))]
    findings = [Finding(code, severity, "Something is doubtful", "...")] if draw.random() < 0.4 else []  # pyright: ignore[reportArgumentType]
    audit = CoinAudit(spec)
    decision = decide(Limits(audit), rows, [], findings)
    return Report(audit, rows, (), findings, decision=decision)


def test_no_page_says_two_things_over_200_drawn_results() -> None:
    draw, seen = np.random.default_rng(11), set[str]()
    for _ in range(200):
        report = drawn(draw)
        tiers = {str(entry["defense"]): str(entry["tier"]) for entry in verdicts_of([report])}
        head = headline(report)
        seen.update(tiers.values())
        assert head.tier == tiers["none"]
        assert dict(head.beside[:1]).keys() <= {tiers["gloves"]}
        # The page's banner and its badges, and no badge of another verdict within its first part.
        page = render([report], {})
        banner = re.search(r'<div class="verdict (\w+)"><span class="tier (\w+)">([\w ]+)</span>', page)
        assert banner is not None
        assert banner[1] == banner[2]
        assert banner[3] == head.tier
        part = page.partition('class="part-verdict"')[2].partition("</section>")[0]
        assert set(re.findall(r'class="tier \w+">([\w ]+)</span>', part)) <= set(tiers.values())
        screen = StringIO()
        report.show(Console(file=screen, width=80))
        lines = screen.getvalue().splitlines()
        assert head.tier.upper() in lines[2]
        assert len(lines) <= MOST_LINES
        assert all(len(line) <= 80 for line in lines)
        assert f"<strong>{head.tier}</strong>" in report._repr_html_()
        words = what_to_do(report).words
        if "Nothing has to change" in words:
            assert tiers["none"] == LITTLE
        if tiers["none"] in SHOWN:
            assert "Nothing has to change" not in words
        if tiers["gloves"] == WHOLE_RECORDS:
            assert "Use gloves" not in words
        assert report.decision is not None
        assert (report.decision.outcome == "failed") == (tiers["gloves"] == WHOLE_RECORDS)
        assert report.decision.line[0].upper() + report.decision.line[1:] in page.replace("&#39;", "'")
    # The draws are of all kinds, so that none of this is said of nothing.
    assert seen == set(GRAVITY)


def many() -> Report:
    """Return a report on so many configurations and findings that not all fit on a screen."""
    names = [f"gloves_{number}_of_a_name_that_is_long" for number in range(60)]
    spec = CoinSpec.of(defenses=["none", *({"name": "gloves", "label": name} for name in names)])
    audit = CoinAudit(spec)
    audit.about = replace(audit.about, limits=("These figures hold for one coin. " * 4,))
    means = {name: 0.6 + 0.004 * number for number, name in enumerate(names)}
    rows = [row("none", 0.99), *(row(name, mean) for name, mean in means.items() if name != names[-1])]
    findings = [Finding(f"SEEP{code:03}", "warning", "Something is doubtful", "...") for code in range(40, 60)]
    return Report(audit, rows, (), findings)


def test_the_screen_of_many_configurations_has_at_most_45_lines_and_the_gravest_rows() -> None:
    screen, report = StringIO(), many()
    report.show(Console(file=screen, width=80))
    lines = screen.getvalue().splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line.strip().startswith("no defense")]
    words = " ".join(" ".join(lines).split())
    assert re.search(r"and \d+ configurations more \(--verbose prints all\)", words)
    assert "and 16 more (--verbose prints all)" in words
    # Of 61 the mildest are left out, and what was not reached.
    assert "little read" not in words
    assert "not reached" not in words


def test_five_configurations_come_before_the_words_of_warnings() -> None:
    spec = CoinSpec.of(defenses=["none", *({"name": "gloves", "label": f"gloves_{number}"} for number in range(4))])
    audit = CoinAudit(spec)
    rows = [row("none", 0.99), *(row(f"gloves_{number}", 0.6) for number in range(4))]
    findings = [Finding(f"SEEP{code:03}", "warning", "Something is doubtful", "...") for code in (40, 41)]
    told = ["warning SEEP040 Something is doubtful.", "warning SEEP041 Something is doubtful."]
    for lines, words in ((1, told), (15, [])):
        audit.about = replace(audit.about, limits=("Word. " * 12 * lines,))
        screen = StringIO()
        Report(audit, rows, (), findings).show(Console(file=screen, width=80))
        text = screen.getvalue()
        assert len(text.splitlines()) <= MOST_LINES
        assert [name for name in ("no defense", *(f"gloves_{n}" for n in range(4))) if f"\n{name} " not in text] == []
        assert [line.strip() for line in text.splitlines() if "warning" in line] == words
        assert ("Checks of this audit: 2 findings: SEEP040 and SEEP041 (--verbose prints all)" in text) == (not words)


def test_of_several_audits_the_screen_lists_each_and_shows_the_gravest() -> None:
    mild = Report(CoinAudit(CoinSpec.of(variant="mild")), [row("none", 0.6)])
    grave = Report(CoinAudit(CoinSpec.of(variant="grave")), [row("none", 0.99)])
    screen = StringIO()
    show(Console(file=screen, width=80), run_document([mild, grave]))
    text = " ".join(screen.getvalue().split())
    assert "2 audits; below them the gravest" in text
    assert text.count("mild") == 1
    assert text.count("grave ") == 2
    assert text.count("What to do") == 1


def test_a_printed_command_is_never_broken_within_an_argument() -> None:
    column = "the answer to the question that the interviewer asked last of all, in full"
    report = Report(CoinAudit(CoinSpec.of(data="own.csv", target=column)), [row("none", 0.99)])
    screen = StringIO()
    report.show(Console(file=screen, width=80))
    command = screen.getvalue().partition("  seepage recommend")[2].partition("Checks")[0].partition("Report")[0]
    lines = command.rstrip().splitlines()
    assert all(line.endswith(" \\") for line in lines[:-1]), lines
    assert column in shlex.split(command)


def test_what_was_not_reached_has_the_same_name_on_screen_page_and_in_files() -> None:
    spec = CoinSpec.of(defenses=["none", {"name": "gloves", "noise": 1.0}])
    figures = dict.fromkeys(("mean", "low", "high", "lift", "lift_low", "lift_high", "baseline"))
    left_out = replace(row("gloves", 0.6), status="left_out", n=0, **figures)
    report = Report(CoinAudit(spec), [row("none", 0.99), left_out])
    screen = StringIO()
    report.show(Console(file=screen, width=80))
    assert "not reached" in screen.getvalue()
    assert [entry["tier"] for entry in verdicts_of([report])] == ["mostly read", "not reached"]
    page = render([report], {})
    assert set(re.findall(r'class="tier open">([\w ]+)</span>', page)) == {"not reached"}
    assert report._repr_html_().count("not reached") >= 1


def test_before_anything_is_decided_no_search_for_a_change_is_advised() -> None:
    open_ = row("none", 0.6, n=5, baseline=0.55, lift=0.05, lift_low=-0.3, lift_high=0.4)
    steps = what_to_do(Report(CoinAudit(CoinSpec.of()), [open_]))
    assert "before changing anything" in steps.words
    assert steps.commands == ()
