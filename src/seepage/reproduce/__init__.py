"""Published tables as data, run by the same runner as any audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seepage.lazy import lazy_package

if TYPE_CHECKING:
    from seepage.reproduce.compare import MARGIN, Agreement, Difference, agreement_of, margin_of, welch
    from seepage.reproduce.console import show_comparison
    from seepage.reproduce.reproduce import Comparison, Selection, reproduce
    from seepage.reproduce.table import Figure, PublishedTable, load_table, tables

lazy_package(__name__)

__all__ = [
    "MARGIN",
    "Agreement",
    "Comparison",
    "Difference",
    "Figure",
    "PublishedTable",
    "Selection",
    "agreement_of",
    "load_table",
    "margin_of",
    "reproduce",
    "show_comparison",
    "tables",
    "welch",
]
