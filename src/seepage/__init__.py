"""seepage measures what collaborative learning on tables gives away.

Example:
    >>> import seepage
    >>> report = seepage.audit("adult", batch_sizes=1, attacks="tableak", victims=2, restarts=2, iterations=50)
    >>> sorted(report.frame()["attack"].unique())
    ['mode', 'random', 'stereotypes', 'tableak']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# Before anything that imports PyTorch.
from seepage import openmp as openmp
from seepage.errors import BadInputError
from seepage.packages import installed, lazy_package

if TYPE_CHECKING:
    from seepage import attacks, guard, models
    from seepage.advise.epsilon import epsilon
    from seepage.advise.recommend import recommend
    from seepage.attacks.horizontal.exact.certifying import write_certificate
    from seepage.auditing import (
        audit,
        audit_document,
        audit_pooled,
        audit_split,
        audit_statistics,
        audit_trees,
        audit_vertical,
    )
    from seepage.captures.capturing import TranscriptWriter, capture, write_weights
    from seepage.captures.parties import PartyTranscripts
    from seepage.datasets.dataset import read_table
    from seepage.participation.isolation import isolated
    from seepage.report.report import Report
    from seepage.tabular.encoder import Encoder
    from seepage.wire.horizontal import GradientView, Knowledge, UpdateView

lazy_package(__name__)

__all__ = [
    "BadInputError",
    "Encoder",
    "GradientView",
    "Knowledge",
    "PartyTranscripts",
    "Report",
    "TranscriptWriter",
    "UpdateView",
    "attacks",
    "audit",
    "audit_document",
    "audit_pooled",
    "audit_split",
    "audit_statistics",
    "audit_trees",
    "audit_vertical",
    "capture",
    "epsilon",
    "guard",
    "isolated",
    "models",
    "read_table",
    "recommend",
    "write_certificate",
    "write_weights",
]
__version__ = installed("seepage")
