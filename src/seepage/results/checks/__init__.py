"""The audit doubts itself: checks with a code, a severity and an explanation in ``docs/checks.md``."""

# Each registers its checks on import.
from seepage.results.checks import certainty as certainty
from seepage.results.checks import descent as descent
from seepage.results.checks import jobs as jobs
from seepage.results.checks import model as model
from seepage.results.checks import proofs as proofs
from seepage.results.checks import strength as strength
from seepage.results.checks import table as table
from seepage.results.checks.alarm import SEVERITIES, Alarm, Severity, Where
from seepage.results.checks.explain import explanation
from seepage.results.checks.facts import Facts
from seepage.results.checks.registry import CHECKS, Check, not_applicable, run_checks
from seepage.results.checks.table import pooled_shares
from seepage.settings.setting import LEAKED

__all__ = [
    "CHECKS",
    "LEAKED",
    "SEVERITIES",
    "Alarm",
    "Check",
    "Facts",
    "Severity",
    "Where",
    "explanation",
    "not_applicable",
    "pooled_shares",
    "run_checks",
]
