"""Tables: schema, cells, encoding, public statistics and associations between columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seepage.packages import lazy_package

if TYPE_CHECKING:
    from seepage.tabular.encoder import Encoder
    from seepage.tabular.infer import Inferred, Policy, infer, infer_schema
    from seepage.tabular.rank import batch_rank, rank_ceiling
    from seepage.tabular.reading import open_table, read_frame
    from seepage.tabular.schema import Continuous, Discrete, Schema
    from seepage.tabular.statistics import Marginal, Statistics
    from seepage.tabular.table import Table, frame_of

lazy_package(__name__)

__all__ = [
    "Continuous",
    "Discrete",
    "Encoder",
    "Inferred",
    "Marginal",
    "Policy",
    "Schema",
    "Statistics",
    "Table",
    "batch_rank",
    "frame_of",
    "infer",
    "infer_schema",
    "open_table",
    "rank_ceiling",
    "read_frame",
]
