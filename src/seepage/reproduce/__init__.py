"""Published tables as data, run by the same runner as any audit."""

from seepage.reproduce.compare import Compared, Difference, Gain, compare, welch
from seepage.reproduce.console import show_comparison
from seepage.reproduce.reproduce import Comparison, Selection, reproduce
from seepage.reproduce.table import Figure, PlannedRun, PublishedTable, load_table, tables

__all__ = [
    "Compared",
    "Comparison",
    "Difference",
    "Figure",
    "Gain",
    "PlannedRun",
    "PublishedTable",
    "Selection",
    "compare",
    "load_table",
    "reproduce",
    "show_comparison",
    "tables",
    "welch",
]
