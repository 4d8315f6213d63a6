"""What an audit found, for people."""

from seepage.report.console import make_console, make_table, show_report
from seepage.report.progress import Bar
from seepage.report.report import Report, audit, audit_all, audit_document
from seepage.report.study import StudyReport, run_studies
from seepage.report.summary import summary
from seepage.results.gate import Decision, check_gate, combined, gate

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
