"""Paired differences of two attacks: against the units' own figures, and what is refused."""

from __future__ import annotations

import pytest

from seepage.auditing import audit
from seepage.errors import BadInputError
from seepage.report.report import Report


@pytest.fixture(scope="module")
def report() -> Report:
    small = {"batch_sizes": [2, 3], "victims": 5, "iterations": 20, "restarts": 1, "control": False}
    return audit("german", attacks=["dlg", "tableak"], defenses=["none", "sign"], **small)


def test_differences_are_those_of_the_same_units(report: Report) -> None:
    table = report.compare("tableak", "dlg")
    assert len(table) == 4
    assert set(table["n"]) == {5}
    for row in table.to_dict("records"):
        means = {}
        for run in report.runs:
            if run.is_attack and (run.configuration.batch_size, run.configuration.defense) == (
                row["batch_size"],
                row["defense"],
            ):
                [values] = [m.values for m in run.measured if (m.metric, m.column) == ("accuracy", None)]
                means[run.label] = values.double()
        apart = means["tableak"] - means["dlg"]
        assert row["difference"] == pytest.approx(float(apart.mean()), abs=1e-12)
        assert (row["first"], row["second"]) == pytest.approx(
            [float(means[k].mean()) for k in ("tableak", "dlg")], abs=1e-12
        )
        assert row["low"] <= row["difference"] <= row["high"]
        # Student's interval, which assumes a bell, is no wider.
        half = 2.776 * float(apart.std()) / 5**0.5
        assert row["high"] - row["low"] >= half
    back = report.compare("dlg", "tableak")
    assert back["difference"].tolist() == pytest.approx((-table["difference"]).tolist())
    assert report.compare("dlg", "dlg")["difference"].tolist() == [0.0] * 4


def test_a_column_and_another_figure_are_compared(report: Report) -> None:
    assert len(report.compare("tableak", "dlg", column="housing")) == 4
    assert set(report.compare("tableak", "dlg", "exact_match")["metric"]) == {"exact_match"}


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (("tableak", "unmix"), "unknown attack of this report 'unmix'"),
        (("tableak", "mode"), "unknown attack of this report 'mode'"),
        (("tableak", "dlg", "acuracy"), "did you mean 'accuracy'"),
        (("tableak", "dlg", "accuracy", "house"), "for the column 'house' on the same units"),
    ],
)
def test_what_was_not_measured_is_refused(report: Report, asked: tuple[str, ...], why: str) -> None:
    with pytest.raises(BadInputError, match=why):
        report.compare(*asked)


def test_completion_offers_few_names(report: Report) -> None:
    shown = [name for name in dir(report) if not name.startswith("_")]
    assert len(shown) <= 15
    assert {"compare", "frame", "save", "show", "summary"} <= {*shown}
    assert all(hasattr(report, name) for name in shown)
