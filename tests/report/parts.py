"""Audits for tests of reports: real ones of hostile tables, and planted ones whose figures are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from seepage.assessment.row import ResultRow
from seepage.report import Report, audit
from seepage.results.checks import Alarm
from seepage.results.examples import Example
from seepage.settings.spec import AuditSpec
from seepage.settings.subject import Subject
from seepage.tabular.infer import infer_schema
from seepage.tabular.schema import Discrete, Schema

SCRIPT = "</script><script>window.__hacked=1</script>"
IMAGE = "<img src=x onerror=window.__hacked=2>"
LINK = '<a href="javascript:window.__hacked=3">x</a><b>bold</b>'
TURNED = "abc\u202egnp.exe\u2066"
LONG = "w" * 10_000
QUOTES = "\"'`${window.__hacked=4}{{7*7}}%{x}"
HEBREW = "\u05d2\u05d9\u05dc"
LINES = "first\nsecond\r\x00\x1b[31mred"
HOSTILE = (SCRIPT, IMAGE, LINK, TURNED, LONG, QUOTES, HEBREW, LINES)


@dataclass(frozen=True)
class Planted:
    """Evidence with the fields of ``seepage.assessment.evidence.Evidence`` that reports read."""

    right: np.ndarray
    uncertainty: np.ndarray | None
    rarity: np.ndarray
    groups: dict[str, dict[str, tuple[int, int]]]
    true: np.ndarray | None = None
    guess: np.ndarray | None = None


@dataclass(frozen=True)
class Shown:
    """What a page shows, with parts of one's own in place of what a report works out from its runs."""

    spec: AuditSpec
    subject: Subject
    rows: Sequence[ResultRow]
    examples: Sequence[Example]
    evidence: Mapping[tuple[int, str, str], Any]
    alarms: Sequence[Alarm] | None
    control: Sequence[ResultRow] | None


def shown(report: Report | Shown, **changes: Any) -> Shown:
    """Return what a page shows of a report, some of it replaced."""
    return Shown(**{**{f.name: getattr(report, f.name) for f in fields(Shown)}, **changes})


def hostile_frame(rows: int = 48) -> pd.DataFrame:
    """A table whose column names and cells are what nobody would want in a page."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({name: draw.choice(["a", IMAGE, SCRIPT, HEBREW], rows) for name in HOSTILE})
    frame["number"] = draw.normal(0, 10, rows).round(2)
    frame[LINK + "2"] = draw.integers(0, 50, rows)
    frame["target <i>"] = draw.choice([SCRIPT, "no"], rows)
    return frame


def hostile_audit(**settings: Any) -> Shown:
    """A real audit of the hostile table."""
    told: dict[str, Any] = {"batch_sizes": [1, 4], "attacks": ["tableak", "dlg"], "victims": 3, **settings}
    frame = hostile_frame()
    schema = infer_schema(frame, "target <i>", sensitive=(SCRIPT, "number"))
    report = audit(frame, schema=schema, restarts=2, iterations=20, control=False, **told)
    return shown(report, evidence={**plant(report), **report.evidence})


def plant(report: Report | Shown, seed: int = 0) -> dict[tuple[int, str, str], Planted]:
    """Evidence of every attack of an audit whose certainty is calibrated: a cell is right as often as it is sure."""
    schema = report.subject.dataset.schema
    attacks = {
        (row.batch_size, row.defense, row.attack)
        for row in report.rows
        if row.seconds_per_victim and row.batch_size is not None
    }
    return {key: calibrated(schema, 12, key[0], seed) for key in sorted(attacks)}


def calibrated(schema: Schema, victims: int, records: int, seed: int) -> Planted:
    """Evidence in which a discrete cell of certainty p is right with probability p, and numbers likewise by rank."""
    draw = np.random.default_rng(seed)
    shape = (victims, records, len(schema.columns))
    certainty = draw.beta(2, 0.8, shape)
    right = draw.random(shape) < certainty
    entropy = 1 - certainty
    entropy[..., list(schema.continuous)] = np.log(entropy[..., list(schema.continuous)]) - 1
    width = len(schema.columns)
    marked = [c for c in (*schema.columns, schema.target) if isinstance(c, Discrete) and c.sensitive]
    groups = {}
    for column in [*marked, schema.target]:
        assert isinstance(column, Discrete)
        names = [str(category) for category in column.categories]
        counts = draw.multinomial(victims * records, np.ones(len(names)) / len(names))
        groups[column.name] = {
            name: (int(count) * width, int(draw.binomial(count * width, 0.7)))
            for name, count in zip(names, counts, strict=True)
            if count
        }
    return Planted(right, entropy.astype(np.float32), draw.gamma(4, 0.4, shape[:2]).astype(np.float32), groups)
