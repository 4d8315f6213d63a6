"""The section on singling out, linkability and inference, on the page and in results.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seepage.assessment import Estimate
from seepage.auditing import audit, prepare_all, spec_of
from seepage.errors import BadInputError
from seepage.report.document import Points
from seepage.report.questions import questions, questions_section, risk_of
from seepage.report.report import Report
from seepage.report.sections import render
from tests.report.parts import SCRIPT, hostile_audit
from tests.report.test_html import read
from tests.rows import row


def test_a_message_that_holds_the_record_singles_it_out(tmp_path: Path) -> None:
    chosen = {"batch_sizes": 1, "attacks": "single_activation", "model": "wide", "labels": "true", "victims": 5}
    report = audit("german", quasi_identifiers=["job", "purpose"], control=False, out=tmp_path, **chosen)
    [filed] = json.loads((tmp_path / "results.json").read_text())["three_questions"]
    assert filed == json.loads(json.dumps(questions(report)[0]))
    assert filed["quasi_identifiers"] == ["purpose", "job"]
    assert filed["quasi_identifiers_given"]
    singled, linked, *inferred = filed["answers"]
    assert singled["question"] == "singled_out"
    assert singled["attack_rate"]["mean"] > 0.6 > 0.1 > singled["control"]["mean"]
    assert singled["risk"]["mean"] == pytest.approx(singled["attack_rate"]["mean"], abs=0.05)
    # Many rows share job and purpose, so that a right guess links to none of them.
    assert linked["attack_rate"]["mean"] == linked["if_guesses_were_right"] < 0.5
    assert [answer["column"] for answer in inferred] == [*report.audit.about.sensitive]
    assert [answer["attack_rate"]["mean"] for answer in inferred] == [1.0] * 6
    assert [answer["risk"]["mean"] for answer in inferred] == pytest.approx([1.0] * 6)
    rows = {(row.metric, row.column): row for row in report.rows if row.is_attack}
    assert rows["inferred", "age"].mean == rows["accuracy", "age"].mean
    assert rows["singled_out", None].baseline is not None
    assert rows["singled_out_control", None].baseline is None
    words = " ".join(
        point for block in questions_section(report).blocks if isinstance(block, Points) for point in block.items
    )
    assert "Singling out: " in words
    assert "by purpose and job" in words
    assert "No quasi-identifier was named" not in words


def test_a_hostile_table_is_text_in_the_block_to_file() -> None:
    report = hostile_audit(attacks="dlg", batch_sizes=4, victims=2)
    page = render([report], {})
    assert "What it proves" not in page
    assert "No quasi-identifier was named" in read(page)["questions"]
    assert SCRIPT not in page
    assert '"opinion"' in read(page)["questions"]


def test_settings_that_guess_no_row_say_so() -> None:
    spec, _, _ = spec_of("german", None, "pooled", None, {"sensitive": "telephone"})
    section = questions_section(Report(prepare_all([spec])[0], []))
    assert section.kind == "empty"
    assert section.blocks == [
        "No attack of this audit guesses a row: it tells shares of a group apart, so none of the three is asked."
    ]


def test_an_unknown_quasi_identifier_is_refused() -> None:
    for setting in ("horizontal", "split", "vertical"):
        with pytest.raises(BadInputError, match="unknown quasi-identifier 'joob'; did you mean 'job'"):
            audit("german", setting=setting, quasi_identifiers="joob")


def test_a_risk_is_what_the_attack_does_beyond_the_control() -> None:
    risk = risk_of(row(mean=0.7), 0.4, Estimate(0.3, 0.2, 0.7, 9))
    assert risk == pytest.approx({"mean": 0.5, "low": 1 / 3, "high": 1.0})
    assert risk_of(row(mean=1.0), 0.4, Estimate(0.6, -0.2, 1.4, 9)) == pytest.approx(
        {"mean": 1.0, "low": 0.0, "high": 1.0}
    )
    assert risk_of(row(mean=1.0), 1.0, Estimate(0.0, 0.0, 0.0, 9)) is None
    assert risk_of(row(mean=0.7), 0.4, Estimate(0.3, None, None, 1)) == {"mean": 0.5, "low": None, "high": None}


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(
            {"setting": "split", "attacked_records": 12, "most_rows": 300, "epochs": 1, "attacks": "exact"},
            marks=pytest.mark.slow,
        ),
        {"setting": "split", "topology": "vanilla", "leaked": 8, "most_rows": 200, "epochs": 1, "attacks": "ridge_sa"},
        {"setting": "vertical", "attacked_records": 12, "most_rows": 300, "epochs": 1, "attacks": "ridge_sa"},
        {"setting": "trees", "rows": 20, "trees": 4},
    ],
    ids=lambda options: options.get("topology", options["setting"]),
)
def test_every_setting_that_guesses_rows_answers(options: dict[str, Any]) -> None:
    report = audit("german", repetitions=1, control=False, workers=1, **options)
    [answered] = questions(report)
    assert {"singled_out", "inferred"} <= {answer["question"] for answer in answered["answers"]}
    assert all(answer["control"]["mean"] is not None for answer in answered["answers"])
