"""Published tables as data, run by the same runner as any audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seepage.packages import lazy_package

if TYPE_CHECKING:
    from seepage.reproduce.console import show_comparison
    from seepage.reproduce.reproduce import Selection, TableComparison, reproduce
    from seepage.reproduce.table import PublishedTable, load_table, tables
    from seepage.results.agreement import (
        MARGIN,
        Agreement,
        Difference,
        Judgement,
        PublishedFigure,
        judge,
        margin_of,
        welch,
    )

lazy_package(__name__)

__all__ = [
    "MARGIN",
    "Agreement",
    "Difference",
    "Judgement",
    "PublishedFigure",
    "PublishedTable",
    "Selection",
    "TableComparison",
    "judge",
    "load_table",
    "margin_of",
    "reproduce",
    "show_comparison",
    "tables",
    "welch",
]
