"""What may be called certified: the one place that builds ``Certified``, from a message, a declaration and a witness.

Attacks are provers: they may guess, search and be wrong. The kernel is the checker. It knows nothing of how a witness
was found, and imports PyTorch and the standard library only. ``seepage verify`` calls the same functions.
"""

from seepage.kernel.counts import (
    CountTable,
    Equations,
    Split,
    Step,
    Totals,
    bounds,
    certify_counts,
    certify_groups,
    cross_tables,
    design,
    equations,
    narrowed,
    patterns_of,
)
from seepage.kernel.cuts import certify_cut, joined
from seepage.kernel.doubts import coarse
from seepage.kernel.gradients import certify
from seepage.kernel.statement import (
    ROUNDINGS,
    UNIT,
    Certified,
    Declaration,
    EncodedColumn,
    RefusedError,
    nothing,
)
from seepage.kernel.summaries import QUANTILES, Summary
from seepage.kernel.sums import Grown, Sums, certify_sums

KERNEL_VERSION = 5
"""Raised by hand when what the kernel certifies changes: figures on proofs of another version are not this one's."""

__all__ = [
    "KERNEL_VERSION",
    "QUANTILES",
    "ROUNDINGS",
    "UNIT",
    "Certified",
    "CountTable",
    "Declaration",
    "EncodedColumn",
    "Equations",
    "Grown",
    "RefusedError",
    "Split",
    "Step",
    "Summary",
    "Sums",
    "Totals",
    "bounds",
    "certify",
    "certify_counts",
    "certify_cut",
    "certify_groups",
    "certify_sums",
    "coarse",
    "cross_tables",
    "design",
    "equations",
    "joined",
    "narrowed",
    "nothing",
    "patterns_of",
]
