"""The gate's answer as JUnit XML and as SARIF."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from seepage.auditing import run_all
from seepage.cli.exits import Exit
from seepage.report.junit import junit
from seepage.report.report import Report
from seepage.report.sarif import sarif
from seepage.results.checks.every import CHECKS
from seepage.results.checks.finding import Finding, Where, titles
from tests.report.parts import COIN, HOSTILE, PEEK, CoinAudit
from tests.run.test_limits import SAFE, spec

# What SARIF 2.1.0 knows of the objects that are written here; ``!`` is required. Its schema allows no other names but
# in property bags.
SHAPE: dict[str, Any] = {
    "$schema": str,
    "version!": ["2.1.0"],
    "runs!": [
        {
            "tool!": {
                "driver!": {
                    "name!": str,
                    "version": str,
                    "rules": [
                        {
                            "id!": str,
                            "shortDescription": {"text!": str},
                            "fullDescription": {"text!": str},
                            "help": {"text!": str},
                            "defaultConfiguration": {"level": ["none", "note", "warning", "error"]},
                            "properties": {"tags": [str]},
                        }
                    ],
                }
            },
            "invocations": [{"executionSuccessful!": bool, "exitCode": int}],
            "results": [
                {
                    "ruleId": str,
                    "ruleIndex": int,
                    "level": ["none", "note", "warning", "error"],
                    "message!": {"text!": str},
                    "locations": [
                        {
                            "physicalLocation": {
                                "artifactLocation": {"uri": str},
                                "region": {"startLine": int},
                            },
                            "logicalLocations": [{"fullyQualifiedName": str}],
                        }
                    ],
                    "partialFingerprints": {"seepage/v1": str},
                }
            ],
            "properties": {"gates": [{"audit": str, "outcome": str, "line": str}]},
        }
    ],
}


def check_shape(value: Any, shape: Any, where: str = "log") -> None:
    if isinstance(shape, dict):
        assert isinstance(value, dict), where
        known = {name.rstrip("!"): (name.endswith("!"), inner) for name, inner in shape.items()}
        assert value.keys() <= known.keys(), where
        assert {name for name, (required, _) in known.items() if required} <= value.keys(), where
        for name, inner in value.items():
            check_shape(inner, known[name][1], f"{where}.{name}")
    elif isinstance(shape, list) and isinstance(shape[0], str):
        assert value in shape, where
    elif isinstance(shape, list):
        assert isinstance(value, list), where
        for i, item in enumerate(value):
            check_shape(item, shape[0], f"{where}[{i}]")
    else:
        assert type(value) is shape, where


def report_of(
    peek: float = 0.52, findings: list[Finding] | None = None, coin: float = SAFE["none", COIN], **more: Any
) -> Report:
    figures = {**SAFE, ("none", PEEK): peek, ("none", COIN): coin}
    audit = CoinAudit(spec(), figures=figures, spread=0.0005, **more)
    [report] = run_all([audit])
    return report if findings is None else replace(report, findings=findings)


def log(*reports: Report, status: Exit = Exit.DONE, about: Path = Path("audit.yaml")) -> dict[str, Any]:
    written = json.loads(sarif(reports, status, about))
    check_shape(written, SHAPE)
    return written["runs"][0]


def suites(*reports: Report) -> ElementTree.Element:
    return ElementTree.fromstring(junit(reports, Path("run") / "report.html"))


def gate_case(root: ElementTree.Element) -> ElementTree.Element:
    [case] = root.iterfind(".//testcase[@classname='seepage.gate']")
    return case


# Beside such a coin 19 flips show that the limit is exceeded.
LEAKY: dict[str, Any] = {"coin": 0.2}


@pytest.mark.parametrize(
    ("peek", "more", "state", "level"),
    [
        (0.52, {}, None, None),
        (0.95, LEAKY, "failure", "error"),
        (0.66, {}, "error", "warning"),
        (0.52, {"broken": (PEEK,)}, "error", "error"),
    ],
    ids=["passed", "failed", "undecided", "refused"],
)
def test_both_say_what_the_gate_says(peek: float, more: dict[str, Any], state: str | None, level: str | None) -> None:
    report = report_of(peek, **more)
    assert report.decision is not None
    root = suites(report)
    case = gate_case(root)
    assert [child.tag for child in case if child.tag != "system-out"] == ([] if state is None else [state])
    assert case.findtext("system-out") == report.decision.line
    # A viewer of tests shows red exactly where the command does not end with 0.
    assert (int(root.get("failures", "")) + int(root.get("errors", "")) > 0) is (state is not None)
    run = log(report)
    found = [result for result in run["results"] if result["ruleId"] == "gate"]
    assert [result["level"] for result in found] == ([] if level is None else [level])
    assert [gate["outcome"] for gate in run["properties"]["gates"]] == [report.decision.outcome]
    assert run["invocations"][0]["executionSuccessful"] is (not report.failed)


def test_junit_counts_its_cases_and_says_where_each_figure_stands() -> None:
    report = report_of(0.66)
    root = suites(report, report_of())
    for element in (root, *root):
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(element.get(name, "")) == len(list(element.iter(tag)))
        assert int(element.get("tests", "")) == len(list(element.iter("testcase")))
    first, second = root
    own = first.findall("testcase[@classname='seepage.gate.figures']")
    assert [case.find("error") is not None for case in own] == [True]
    assert "n=57; limit 20.0 points" in (own[0].findtext("system-out") or "")
    assert [len(case) for case in second.iterfind("testcase[@classname='seepage.gate.figures']")] == [1]
    assert first.find("properties/property[@value='run/report.html']") is not None


def test_failed_jobs_are_said_with_their_message() -> None:
    [case] = suites(report_of(broken=(PEEK,))).iterfind(".//testcase[@classname='seepage.jobs']")
    error = case.find("error")
    assert error is not None
    assert "the coin rolled <under> the table" in error.get("message", "")


def test_every_check_is_a_rule_and_a_case_with_the_text_of_its_page() -> None:
    report = report_of()
    run = log(report)
    rules = {rule["id"]: rule for rule in run["tool"]["driver"]["rules"]}
    assert rules.keys() == {"gate", *CHECKS} == {"gate", *(code for code, _, _ in titles())}
    assert "Why it matters." in rules["SEEP004"]["help"]["text"]
    names = [case.get("name", "") for case in suites(report).iterfind(".//testcase[@classname='seepage.checks']")]
    assert [name[:7] for name in names] == sorted(CHECKS)
    lacking = suites(report).findall(".//testcase[@classname='seepage.checks']/skipped")
    assert sorted(case.get("message", "") for case in lacking) == sorted(report.not_applicable.values())


@pytest.mark.parametrize("severity", ["error", "warning", "note"])
def test_findings_are_results_of_their_severity_where_they_were_found(severity: Any) -> None:
    where = (Where(None, "none", PEEK), Where(None, "none", COIN), Where(None, "none", PEEK))
    report = report_of(findings=[Finding("SEEP006", severity, "An interval is too wide", "20 to 60%", where)])
    run = log(report)
    [result] = run["results"]
    assert (result["ruleId"], result["level"]) == ("SEEP006", severity)
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "SEEP006"
    [location] = result["locations"]
    names = [name["fullyQualifiedName"] for name in location["logicalLocations"]]
    assert names == ["coins, coins, one_flip, none: peek", "coins, coins, one_flip, none: coin"]
    # The gate weighs findings: they are no failures of their own.
    assert suites(report).get("failures") == "0"


def test_a_finding_is_the_same_alert_whatever_its_figures_are() -> None:
    def mark(message: str, where: tuple[Where, ...] = (), peek: float = 0.52) -> str:
        run = log(report_of(peek, findings=[Finding("SEEP006", "warning", "An interval is too wide", message, where)]))
        return run["results"][-1]["partialFingerprints"]["seepage/v1"]

    assert mark("20 to 60%") == mark("21 to 59%", peek=0.54)
    assert mark("20 to 60%") != mark("20 to 60%", (Where(attack=PEEK),))


def test_texts_of_tables_are_texts_and_nothing_else() -> None:
    bad = [*HOSTILE, "\ud800", "[see](https://evil.example)", "{0}", "noise:{scale: 1}"]
    findings = [Finding("SEEP012", "note", "Duplicates", text, (Where(None, text, text),)) for text in bad]
    reports = [report_of(findings=findings, dataset=text) for text in bad[:3]]
    written = junit(reports)
    root = ElementTree.fromstring(written.encode())
    assert {child.tag for child in root.iter()} == {"testsuites", "testsuite", "testcase", "system-out", "skipped"}
    assert not re.search(r"[^\n\x20-\ufffd\U00010000-\U0010ffff]", written)
    run = log(*reports)
    assert len(run["results"]) == 3 * len(bad)
    for result in run["results"]:
        text = result["message"]["text"]
        assert text.isprintable()
        assert len(text) < 10_000
        # A link and a placeholder would be filled in by who shows the message.
        assert "](" not in text
        assert not re.search(r"(?<!\{)\{(?:\{\{)*[^{]", text)


def test_places_are_relative_to_where_the_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def uri(about: Path) -> str:
        [result] = log(report_of(0.95, **LEAKY), about=about)["results"][:1]
        return result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]

    assert uri(tmp_path / "here" / "audits" / "my audit.yaml") == "audits/my%20audit.yaml"
    assert uri(Path("audits") / "a.yaml") == "audits/a.yaml"
    assert uri(tmp_path / "a.yaml") == (tmp_path / "a.yaml").as_uri()


def test_the_exit_status_is_in_the_log() -> None:
    assert log(report_of(0.95, **LEAKY), status=Exit.GATE_FAILED)["invocations"][0]["exitCode"] == 1


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda run: run["results"][0].update(kind="odd"), r"log.runs\[0\].results\[0\]"),
        (lambda run: run["results"][0].update(level="fatal"), "level"),
        (lambda run: run["tool"]["driver"].pop("name"), "driver"),
        (lambda run: run["results"][0].update(message="plain"), "message"),
    ],
)
def test_the_shape_finds_what_is_wrong(change: Any, where: str) -> None:
    written = json.loads(sarif([report_of(0.95, **LEAKY)], 1, Path("a.yaml")))
    change(written["runs"][0])
    with pytest.raises(AssertionError, match=where):
        check_shape(written, SHAPE)
