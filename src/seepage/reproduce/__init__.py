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
    from seepage.reproduce.reproduce import Comparison, Selection, reproduce
    from seepage.reproduce.table import Figure, PlannedAudit, PublishedTable, Reading, load_table, names, tables

lazy_package(__name__)

__all__ = [
    "MARGIN",
    "Agreement",
    "Compared",
    "Comparison",
    "Difference",
    "Figure",
    "Gain",
    "PlannedAudit",
    "PublishedTable",
    "Reading",
    "Selection",
    "agreement_of",
    "compare",
    "load_table",
    "margin_of",
    "names",
    "reproduce",
    "show_comparison",
    "tables",
    "welch",
]
