"""Published tables as data, run by the same runner as any audit."""

from seepage.reproduce.compare import Compared, Difference, Gain, compare, welch
from seepage.reproduce.console import show_comparison
from seepage.reproduce.reproduce import QUICK, Comparison, Selection, reproduce
from seepage.reproduce.table import Figure, PlannedRun, PublishedTable, Reading, load_table, tables

__all__ = [
    "QUICK",
    "Compared",
    "Comparison",
    "Difference",
    "Figure",
    "Gain",
    "PlannedRun",
    "PublishedTable",
    "Reading",
    "Selection",
    "compare",
    "load_table",
    "reproduce",
    "show_comparison",
    "tables",
    "welch",
]
