"""seepage measures what collaborative learning on tables gives away.

Example:
    >>> import seepage
    >>> report = seepage.audit("adult", batch_sizes=1, attacks="tableak", victims=2, restarts=2, iterations=50)
    >>> sorted(report.frame()["attack"].unique())
    ['likeliest', 'mode', 'random', 'tableak']
"""

from seepage import openmp as openmp

# isort: split
from seepage.auditing import audit, audit_document
from seepage.captures.captured import capture
from seepage.errors import BadInputError
from seepage.report.report import Report
from seepage.versions import installed

__all__ = ["BadInputError", "Report", "audit", "audit_document", "capture"]
__version__ = installed("seepage")
