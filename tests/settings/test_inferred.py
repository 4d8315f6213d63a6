"""A table of one's own: every setting tells how its schema was inferred."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from seepage.auditing import prepare_all, run_all
from seepage.report.inferred import inferred_document
from seepage.report.terminal import show
from seepage.settings.catalogue import setting
from seepage.tabular.infer import Policy, infer

FIELDS = {
    "horizontal": {"batch_sizes": 2, "attacks": "dlg"},
    "split": {"private_columns": "smoker"},
    "vertical": {"passive": ["smoker"], "leaked": 4},
    "pooled": {
        "sensitive": "smoker",
        "value": "yes",
        **{"rows": 20, "auxiliary": 60, "queries": 20, "targets": 4, "shadows": 4},
    },
}


@pytest.mark.parametrize("name", FIELDS)
def test_every_setting_shows_how_a_schema_was_inferred(name: str, tmp_path: Path) -> None:
    place = tmp_path / "people.csv"
    rows = range(400)
    pd.DataFrame(
        {
            "age": [20 + row % 50 for row in rows],
            "smoker": ["yes" if row % 2 else "no" for row in rows],
            "card": [f"{row:05}" for row in rows],
            "ill": [row // 2 % 2 for row in rows],
        }
    ).to_csv(place, index=False)
    [audit] = prepare_all([setting(name).spec.of(data=place, target="ill", **FIELDS[name])])
    assert audit.own
    assert audit.inferred is not None
    text = io.StringIO()
    show(Console(file=text, width=120), inferred_document(audit.inferred))
    said = " ".join(text.getvalue().split())
    assert "Columns as inferred from 400 rows: 2 discrete, 1 continuous, 1 left out" in said
    assert "ill (target)" in said


def test_columns_to_look_at_come_first_and_the_others_are_counted(tmp_path: Path) -> None:
    rows = range(300)
    plain = {f"v{i:03}": [row * (i + 3) % 97 / 10 for row in rows] for i in range(60)}
    table = {
        **plain,
        "card": [f"{row:05}" for row in rows],
        "stage": [row % 11 for row in rows],
        "smoker": ["yes" if row % 2 else "no" for row in rows],
        "ill ": [row // 2 % 2 for row in rows],
    }
    pd.DataFrame(table).to_csv(tmp_path / "people.csv", index=False)
    inferred = infer(tmp_path / "people.csv", "ill", Policy(sensitive=("smoker",)))
    for all_columns in (False, True):
        text = io.StringIO()
        show(Console(file=text, width=160), inferred_document(inferred, all_columns))
        lines = [line.split()[0] for line in text.getvalue().splitlines() if line.strip()]
        assert lines[3:7] == ["ill", "smoker", "card", "stage"]
        assert ("v000" in lines) == all_columns
        said = text.getvalue()
        assert "near a threshold: up to 10 different whole numbers are categories" in said
        assert f"and {24 if all_columns else 60} more columns: {24 if all_columns else 60} continuous." in said
        assert "blanks trimmed around 1 name of columns" in said


def test_where_no_column_is_in_doubt_there_is_no_table_of_columns(tmp_path: Path) -> None:
    rows = range(300)
    table = {
        "weight": [row * 7 % 97 / 10 for row in rows],
        "smoker": ["yes" if row % 2 else "no" for row in rows],
        "ill": ["yes" if row // 2 % 2 else "no" for row in rows],
    }
    pd.DataFrame(table).to_csv(tmp_path / "people.csv", index=False)
    inferred = infer(tmp_path / "people.csv", "ill", Policy(sensitive=("smoker",)))
    said = {}
    for all_columns in (False, True):
        text = io.StringIO()
        show(Console(file=text, width=80), inferred_document(inferred, all_columns))
        said[all_columns] = text.getvalue()
    assert len(said[False].splitlines()) <= 4
    assert "2 discrete, 1 continuous; 3 encoded columns" in said[False]
    assert "target ill; sensitive: smoker. Write it down with seepage schema" in " ".join(said[False].split())
    assert "because" in said[True]


@pytest.mark.long
def test_a_target_of_numbers_grants_its_labels_and_says_so(tmp_path: Path) -> None:
    rows = range(60)
    table = {"age": [20 + row % 37 for row in rows], "pay": [1000.5 + row * 7 % 41 for row in rows]}
    pd.DataFrame(table).to_csv(tmp_path / "people.csv", index=False)
    spec = setting("horizontal").spec.of(
        data=tmp_path / "people.csv", target="pay", batch_sizes=2, victims=1, attacks="unmix", control=False
    )
    [report] = run_all(prepare_all([spec]))
    [attack] = [row for row in report.rows if row.is_attack and (row.metric, row.column) == ("accuracy", None)]
    assert attack.knowledge["labels"] == "true"
    assert attack.mean == 1
    assert any("the attacker is granted the labels" in note for note in report.audit.about.notes)
