"""What an audit found, for people."""

from seepage.report.console import make_console, make_table, show_report
from seepage.report.progress import Bar
from seepage.report.report import Report, audit, audit_all
from seepage.report.summary import summary

__all__ = ["Bar", "Report", "audit", "audit_all", "make_console", "make_table", "show_report", "summary"]
