"""The answer of a gate and the findings of checks as SARIF 2.1.0, which code hosts show beside the code.

The standard is OASIS "Static Analysis Results Interchange Format", version 2.1.0.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from seepage.digests import Json, digest_of
from seepage.packages import installed
from seepage.report.junit import title_of
from seepage.report.result import AuditResult
from seepage.results.checks.every import CHECKS
from seepage.results.checks.finding import Where, explanation, place
from seepage.text import clean

VERSION = "2.1.0"
GATE = "gate"
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LONGEST = 4000
# Levels of the gate's outcomes. A pass is no result: code hosts would show it as an alert.
_LEVELS = {"failed": "error", "refused": "error", "undecided": "warning"}
# More logical locations than this say nothing to a reader.
_MOST_PLACES = 10


def sarif(reports: Sequence[AuditResult], status: int, about: Path) -> str:
    """Return a SARIF log: a rule for the gate and for each check, and a result for what each of them found.

    Severities of checks are levels of SARIF already. A gate that passed is a property of the run, as every gate is, and
    no result. Results point at ``about``: the audit's document, or else its report.
    """
    location = _physical_location(about)
    results = [
        result
        for report in reports
        for result in (
            *_gate_results(report, location),
            *(
                _result(report, each.code, each.severity, f"{each.title}. {each.message}", each.where, location)
                for each in report.all_findings
            ),
        )
    ]
    rules: list[Json] = [
        _rule(GATE, "error", "Leakage is not shown to stay below the limit", _GATE),
        *(_rule(code, CHECKS[code].severity, CHECKS[code].title, explanation(code)) for code in sorted(CHECKS)),
    ]
    places = {rule["id"]: i for i, rule in enumerate(rules) if isinstance(rule, dict)}
    for result in results:
        result["ruleIndex"] = places[result["ruleId"]]
    installed_version = installed("seepage")
    version: dict[str, Json] = {} if installed_version is None else {"version": installed_version}
    run: dict[str, Json] = {
        "tool": {"driver": {"name": "seepage", **version, "rules": rules}},
        "invocations": [{"executionSuccessful": not any(report.failed for report in reports), "exitCode": int(status)}],
        "results": [*results],
        "properties": {
            "gates": [
                {"audit": title_of(report), "outcome": report.decision.outcome, "line": _plain(report.decision.line)}
                for report in reports
                if report.decision is not None
            ]
        },
    }
    log: dict[str, Json] = {"$schema": _SCHEMA, "version": VERSION, "runs": [run]}
    return json.dumps(log, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


_GATE = [
    "The audit's gate passes only what is shown: every attack stays below the limit over the best baseline in every "
    "deployed configuration.",
    "What to do. The report says which figure decides, and what would lower it, such as a defense. Where the gate is "
    "undecided, more victims would decide it.",
]


def _rule(code: str, level: str, title: str, words: Sequence[str]) -> dict[str, Json]:
    words = words or [title]
    return {
        "id": code,
        "shortDescription": _message(title),
        "fullDescription": _message(words[0]),
        "help": {"text": "\n\n".join(map(_text, words))},
        "defaultConfiguration": {"level": level},
        "properties": {"tags": ["privacy"]},
    }


def _gate_results(report: AuditResult, location: Mapping[str, Json]) -> list[dict[str, Json]]:
    decision = report.decision
    if decision is None or decision.outcome not in _LEVELS:
        return []
    return [_result(report, GATE, _LEVELS[decision.outcome], decision.line, (), location)]


def _result(
    report: AuditResult, code: str, level: str, words: str, where: Sequence[Where], location: Mapping[str, Json]
) -> dict[str, Json]:
    title = title_of(report)
    concerned = list(dict.fromkeys(clean(place(row, report.audit.about.size), 200) for row in where))[:_MOST_PLACES]
    names: list[Json] = [{"fullyQualifiedName": f"{title}: {name}" if name else title} for name in concerned or [""]]
    return {
        "ruleId": code,
        "level": level,
        "message": _message(f"{title}: {words}"),
        "locations": [{"physicalLocation": dict(location), "logicalLocations": names}],
        # The same finding of a later run is the same alert, whatever its figures are.
        "partialFingerprints": {"seepage/v1": digest_of({"rule": code, "audit": title, "where": [*concerned]})},
    }


def _physical_location(path: Path) -> dict[str, Json]:
    # Code hosts know files by their path in the repository, which commands are run in.
    relative = os.path.relpath(path)
    uri = path.resolve().as_uri() if relative.startswith(os.pardir) else quote(Path(relative).as_posix())
    return {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}}


def _message(words: str) -> dict[str, Json]:
    return {"text": _text(words)}


def _plain(words: str) -> str:
    return clean(words, _LONGEST)


def _text(words: str) -> str:
    """Return a text as a message of SARIF, where braces are placeholders and ``[text](address)`` is a link."""
    return _plain(words).replace("{", "{{").replace("}", "}}").replace("](", "] (")
