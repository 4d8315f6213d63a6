"""The answer of a gate as JUnit XML, which continuous integration shows as tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args
from xml.etree import ElementTree

from seepage.report.result import AuditResult
from seepage.results.checks.every import CHECKS
from seepage.results.checks.finding import Finding
from seepage.results.gate import Decision, figure_in_words
from seepage.text import clean, points

_LONGEST = 2000
# What JUnit has beside a pass, and what a gate's outcome is there: an error is a test that could not answer.
State = Literal["failure", "error", "skipped"]
_STATES: tuple[State, ...] = get_args(State)
_OUTCOMES: dict[str, State] = {"failed": "failure", "refused": "error", "undecided": "error"}


@dataclass(frozen=True)
class _Case:
    group: str
    name: str
    state: State | None = None
    message: str = ""
    output: str = ""


def junit(reports: Sequence[AuditResult], page: Path | None = None) -> str:
    """Return JUnit XML: a suite for each audit, a case for its gate, for each limited figure and for each check.

    A suite has no failure and no error exactly where the exit status of the command is 0. A gate shown to be above its
    limit is a failure; what stays undecided, and failed jobs, are errors. Findings are the output of their case, since
    the gate weighs them itself.
    """
    root = ElementTree.Element("testsuites", name="seepage")
    cases_of_all: list[_Case] = []
    for report in reports:
        suite, cases = ElementTree.SubElement(root, "testsuite", name=title_of(report)), _cases(report)
        _count(suite, cases)
        cases_of_all += cases
        if page is not None:
            properties = ElementTree.SubElement(suite, "properties")
            ElementTree.SubElement(properties, "property", name="report", value=clean(page.as_posix(), _LONGEST))
        for case in cases:
            element = ElementTree.SubElement(suite, "testcase", classname=f"seepage.{case.group}", name=case.name)
            if case.state is not None:
                ElementTree.SubElement(element, case.state, message=case.message)
            if case.output:
                ElementTree.SubElement(element, "system-out").text = case.output
    _count(root, cases_of_all)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def title_of(report: AuditResult) -> str:
    """Return which audit a report is about, in one line."""
    about, setting = report.audit.about, report.audit.setting
    variant = () if report.audit.spec.variant is None else (report.audit.spec.variant,)
    return ", ".join(clean(name, 80) for name in (setting, about.dataset, about.protocol, about.model, *variant))


def _count(element: ElementTree.Element, cases: Sequence[_Case]) -> None:
    element.set("tests", str(len(cases)))
    for name, state in zip(("failures", "errors", "skipped"), _STATES, strict=True):
        element.set(name, str(sum(case.state == state for case in cases)))


def _cases(report: AuditResult) -> list[_Case]:
    cases = [] if report.decision is None else _gate_cases(report, report.decision)
    failed = [f"{clean(run.label)}: {clean(failure.message, 400)}" for run in report.failed for failure in run.failures]
    cases.append(_Case("jobs", "every job is done", "error" if failed else None, clean("; ".join(failed), _LONGEST)))
    if report.findings is not None:
        lacking = report.not_applicable
        cases += [_check_case(code, lacking.get(code), report.all_findings) for code in sorted(CHECKS)]
    return cases


def _gate_cases(report: AuditResult, decision: Decision) -> list[_Case]:
    gate = report.audit.spec.gate
    assert gate is not None
    limit = f"{100 * gate.above:.1f} points"
    state = _OUTCOMES.get(decision.outcome)
    line = clean(decision.line, _LONGEST)
    cases = [_Case("gate", f"leakage stays below {limit}", state, "" if state is None else line, line)]
    for standing in decision.figures:
        # A gate that passed is about its figures alone; one that did not says of each whether it is the reason.
        outcome = None if standing.below else "failure" if standing.above else "error"
        words = (
            f"mean lift {points(standing.mean)} points, at most {points(standing.upper)}, n={standing.n}; limit {limit}"
        )
        name = clean(figure_in_words(standing.figure, report.audit), 400)
        cases.append(_Case("gate.figures", name, outcome, "" if outcome is None else words, words))
    return cases


def _check_case(code: str, lacking: str | None, findings: Sequence[Finding]) -> _Case:
    reported = [finding for finding in findings if finding.code == code]
    output = "\n".join(
        clean(f"{finding.severity}: {finding.title}. {finding.message}", _LONGEST) for finding in reported
    )
    name = f"{code}: {CHECKS[code].title}"
    if lacking is not None:
        return _Case("checks", name, "skipped", clean(lacking, _LONGEST))
    return _Case("checks", name, output=output or "not found")
