"""Terminal, page, notebook, files and advice say the same of one audit."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from seepage.assessment.row import ResultRow
from seepage.report.advice import what_to_do
from seepage.report.html import render
from seepage.report.report import Report, verdicts_of
from seepage.report.summary import headline
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
        report.show(Console(file=screen, width=100))
        assert head.tier.upper() in screen.getvalue().splitlines()[2]
        assert f"<strong>{head.tier}</strong>" in report._repr_html_()
        words = " ".join(what_to_do(report))
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
