"""What an audit found, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seepage.lazy import lazy_package

if TYPE_CHECKING:
    from seepage.report.console import show_report
    from seepage.report.progress import Bar
    from seepage.report.report import Report, audit, audit_all, audit_document
    from seepage.report.study import StudyReport, run_studies
    from seepage.report.summary import summary
    from seepage.report.terminal import make_console, make_table
    from seepage.results.gate import Decision, check_gate, combined, gate

lazy_package(__name__)

__all__ = [
    "Bar",
    "Decision",
    "Report",
    "StudyReport",
    "audit",
    "audit_all",
    "audit_document",
    "check_gate",
    "combined",
    "gate",
    "make_console",
    "make_table",
    "run_studies",
    "show_report",
    "summary",
]
