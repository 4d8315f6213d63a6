"""Leakage against the number of attacked rounds, as a page shows it."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import pytest

from seepage.auditing import audit_document
from seepage.report.accumulated import accumulated
from seepage.report.document import Plot
from seepage.report.figures import Curve
from seepage.report.report import Report
from seepage.report.sections import render

DOCUMENT = {
    "dataset": "german",
    "model": "nn1",
    "training": {"attacked_rounds": [3, 1], "clients": 4},
    "protocol": {"batch_size": [2, 3]},
    "attacks": {"name": "tableak", "restarts": 2},
    "baselines": ["mode", "random"],
    "metrics": ["accuracy", "exact_match"],
    "iterations": 5,
    "victims": 2,
    "control": False,
}


@pytest.fixture(scope="module")
def reports() -> list[Report]:
    made = audit_document(DOCUMENT)
    # A second defense, without the trainings that the cost of one is measured by.
    planted = [[replace(row, defense="sign", mean=0.5) for row in report.rows if row.is_attack] for report in made]
    return [replace(report, rows=[*report.rows, *more]) for report, more in zip(made, planted, strict=True)]


def test_every_figure_of_every_audit_is_in_its_line(reports: list[Report]) -> None:
    section = accumulated(reports)
    assert section is not None
    plots = [block for block in section.blocks if isinstance(block, Plot)]
    titles = [plot.figure.title for plot in plots]
    assert sorted(title.partition("batch size ")[2] for title in titles) == ["2", "2, sign", "3", "3, sign"]
    for figure, grid in ((plot.figure, plot.grid) for plot in plots):
        size = int(figure.title.partition("batch size ")[2][0])
        defense = "sign" if "sign" in figure.title else "none"
        lines = {line.name: line for line in figure.data if isinstance(line, Curve)}
        assert list(lines) == ["tableak", "mode (baseline)", "random (baseline)"]
        for name, line in lines.items():
            expected = {}
            for report in reports:
                frame = report.frame()
                rows = frame[frame["column"].isna() & (frame["metric"] == "accuracy") & (frame["batch_size"] == size)]
                rows = rows[rows["attack"] == name.partition(" ")[0]]
                [mean] = rows[rows["defense"] == defense]["mean"] if name == "tableak" else rows["mean"].unique()
                expected[report.audit.about.rounds] = 100 * mean
            assert line.y == pytest.approx([expected[1], expected[3]])
        assert [text for _, text in figure.x.ticks or ()] == ["1", "3"]
        assert len(grid.rows) == 6


def test_audits_that_differ_in_more_are_not_put_together(reports: list[Report]) -> None:
    assert accumulated(reports[:1]) is None
    other = reports[1]
    changed = copy(other.audit)
    changed.spec = other.audit.spec.model_copy(update={"labels": "true"})
    assert accumulated([reports[0], replace(other, audit=changed)]) is None
    assert accumulated([]) is None


def test_the_page_shows_it_once(reports: list[Report]) -> None:
    page = render(reports, {})
    assert page.count('<section id="rounds"') == 1
    assert "the gradients of 3 rounds" in page
    assert "One victim is one client with its records in 3 rounds" in page
    alone = render(reports[1:], {})
    assert '<section id="rounds"' not in alone
    assert "the gradients of 3 rounds" not in alone
