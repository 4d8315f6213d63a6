"""Published tables as data, run by the same runner as any audit."""

from seepage.reproduce.compare import Compared, Difference, Gain, compare, welch
from seepage.reproduce.console import show_comparison
from seepage.reproduce.reproduce import QUICK, Comparison, Selection, reproduce
from seepage.reproduce.split_table import QUICK_RECORDS, SplitTable, load_split_table, reproduce_split, split_tables
from seepage.reproduce.table import Figure, PlannedRun, Printed, PublishedTable, Reading, load_table, tables

__all__ = [
    "QUICK",
    "QUICK_RECORDS",
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
    "SplitTable",
    "compare",
    "load_split_table",
    "load_table",
    "reproduce",
    "reproduce_split",
    "show_comparison",
    "split_tables",
    "tables",
    "welch",
]
