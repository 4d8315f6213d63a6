"""Registry of the checks by code, and their execution."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from seepage.results.checks.facts import Facts, Need
from seepage.results.checks.finding import SEVERITIES, Finding, Severity, Where


@dataclass(frozen=True)
class Fault:
    """A problem that a check yields: a finding without code and title; ``severity`` if not the check's usual one."""

    message: str
    where: tuple[Where, ...] = ()
    severity: Severity | None = None


@dataclass(frozen=True)
class Check:
    """One check; where a fact that it ``needs`` beside the rows is missing, it does not apply."""

    code: str
    severity: Severity
    title: str
    find: Callable[[Facts], Iterable[Fault]]
    needs: tuple[Need, ...] = ()


CHECKS: dict[str, Check] = {}

Find = Callable[[Facts], Iterable[Fault]]


def check(code: str, severity: Severity, title: str, *needs: Need) -> Callable[[Find], Find]:
    """Register the decorated function as a check."""

    def add(find: Find) -> Find:
        assert code not in CHECKS, f"{code} is taken"
        CHECKS[code] = Check(code, severity, title, find, needs)
        return find

    return add


def run_checks(facts: Facts) -> list[Finding]:
    """Return the findings of all checks, errors first, then by code."""
    findings = [
        Finding(check.code, finding.severity or check.severity, check.title, finding.message, finding.where)
        for check in CHECKS.values()
        if not any(map(facts.lacks, check.needs))
        for finding in check.find(facts)
    ]
    return sorted(findings, key=lambda finding: (SEVERITIES.index(finding.severity), finding.code))


def not_applicable(facts: Facts) -> dict[str, str]:
    """Return the codes of checks that do not apply to an audit, with the reason."""
    reasons = {
        check.code: [reason for need in check.needs if (reason := facts.lacks(need)) is not None]
        for check in CHECKS.values()
    }
    return {code: "; ".join(lacking) for code, lacking in reasons.items() if lacking}
