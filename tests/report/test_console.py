"""What a terminal is shown: doubts first, and texts as texts."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from seepage.audit.checks import Alarm
from seepage.report import Report, audit

HOSTILE = "\x1b[31m[bold red]x[/bold red]\u202e\n\x07"


def printed(report: Report) -> str:
    file = io.StringIO()
    report.show(Console(file=file, width=160, force_terminal=False))
    return file.getvalue()


def small() -> Report:
    settings: dict[str, Any] = {"batch_sizes": 2, "attacks": "dlg", "victims": 2, "iterations": 3, "control": False}
    return audit("german", "nn1", **settings)


def test_doubts_come_before_the_figures_and_as_text() -> None:
    report = small()
    alarms = [Alarm("SEEP001", "error", "First", HOSTILE), Alarm("SEEP013", "note", "Last", "plain")]
    text = printed(Report(report.spec, report.subject, report.rows, [], alarms=alarms))
    places = [text.index(word) for word in ("Audit of german", "SEEP001", "SEEP013", "Share of cells read", "Summary")]
    assert places == sorted(places)
    assert r"\x1b[31m[bold red]x[/bold red]\u202e\n\x07" in text
    assert "\x1b" not in text


def test_an_error_takes_the_tier_away_everywhere() -> None:
    report = small()
    broken = [Alarm("SEEP004", "error", "The positive control did not leak", "...")]
    text = printed(Report(report.spec, report.subject, report.rows, [], alarms=broken))
    assert "Leakage: inconclusive. The positive control did not leak (SEEP004)." in text
    assert "The positive control did not leak (SEEP004)." not in printed(
        Report(report.spec, report.subject, report.rows, [], alarms=[])
    )
