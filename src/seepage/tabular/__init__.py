"""Tables: what their columns may hold, what they hold, and the vectors a network sees."""

from seepage.tabular.encoder import Encoder
from seepage.tabular.infer import infer_schema, read_frame
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.statistics import Marginal, Statistics
from seepage.tabular.table import Table, frame_of

__all__ = [
    "Continuous",
    "Discrete",
    "Encoder",
    "Marginal",
    "Schema",
    "Statistics",
    "Table",
    "frame_of",
    "infer_schema",
    "read_frame",
]
