"""A table of one's own: every setting tells how its schema was inferred."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from seepage.auditing import prepare_all
from seepage.report.inferred import show_inferred
from seepage.settings.catalogue import setting

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
    show_inferred(Console(file=text, width=120), audit.inferred)
    said = " ".join(text.getvalue().split())
    assert "Columns as inferred from 400 rows: 2 discrete, 1 continuous, 1 left out" in said
    assert "ill (target)" in said
