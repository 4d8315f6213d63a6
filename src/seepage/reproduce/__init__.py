"""Published tables as data, run by the same runner as any audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seepage.lazy import lazy_package

if TYPE_CHECKING:
    from seepage.reproduce.compare import (
        MARGIN,
        Agreement,
        Compared,
        Difference,
        Gain,
        agreement_of,
        compare,
        margin_of,
        welch,
    )
    from seepage.reproduce.console import show_comparison
    from seepage.reproduce.reproduce import QUICK, Comparison, Selection, reproduce
    from seepage.reproduce.study_table import StudyTable, load_study_table, reproduce_study, study_tables
    from seepage.reproduce.table import Figure, PlannedRun, Printed, PublishedTable, Reading, load_table, tables

lazy_package(__name__)

__all__ = [
    "MARGIN",
    "QUICK",
    "Agreement",
    "Compared",
    "Comparison",
    "Difference",
    "Figure",
    "Gain",
    "PlannedRun",
    "Printed",
    "PublishedTable",
    "Reading",
    "Selection",
    "StudyTable",
    "agreement_of",
    "compare",
    "load_study_table",
    "load_table",
    "margin_of",
    "reproduce",
    "reproduce_study",
    "show_comparison",
    "study_tables",
    "tables",
    "welch",
]
