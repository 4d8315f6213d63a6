"""Checks of an audit's own results: a code, a severity and an explanation in ``docs/checks.md`` each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seepage.lazy import lazy_package

if TYPE_CHECKING:
    from seepage.results.checks.every import CHECKS, not_applicable, run_checks
    from seepage.results.checks.explain import explanation, titles
    from seepage.results.checks.facts import Facts, Gap, in_words
    from seepage.results.checks.finding import (
        INCOMPLETE,
        LOWER_BOUNDS,
        SEVERITIES,
        UPPER_BOUNDS,
        Finding,
        Severity,
        Where,
    )
    from seepage.results.checks.registry import Check
    from seepage.results.checks.table import pooled_shares
    from seepage.settings.setting import LEAKED

lazy_package(__name__)

__all__ = [
    "CHECKS",
    "INCOMPLETE",
    "LEAKED",
    "LOWER_BOUNDS",
    "SEVERITIES",
    "UPPER_BOUNDS",
    "Check",
    "Facts",
    "Finding",
    "Gap",
    "Severity",
    "Where",
    "explanation",
    "in_words",
    "not_applicable",
    "pooled_shares",
    "run_checks",
    "titles",
]
