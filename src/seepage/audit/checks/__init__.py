"""The audit doubts itself: checks with a code, a severity and an explanation in ``docs/checks.md``."""

# Each registers its checks on import.
from seepage.audit.checks import certainty as certainty
from seepage.audit.checks import descent as descent
from seepage.audit.checks import jobs as jobs
from seepage.audit.checks import model as model
from seepage.audit.checks import proofs as proofs
from seepage.audit.checks import strength as strength
from seepage.audit.checks import table as table
from seepage.audit.checks.alarm import SEVERITIES, Alarm, Severity, Where
from seepage.audit.checks.control import LEAKED, control_of
from seepage.audit.checks.explain import explanation
from seepage.audit.checks.facts import Facts
from seepage.audit.checks.registry import CHECKS, Check, run_checks
from seepage.audit.checks.table import pooled_shares

__all__ = [
    "CHECKS",
    "LEAKED",
    "SEVERITIES",
    "Alarm",
    "Check",
    "Facts",
    "Severity",
    "Where",
    "control_of",
    "explanation",
    "pooled_shares",
    "run_checks",
]
