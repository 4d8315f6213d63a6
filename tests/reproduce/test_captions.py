"""Settings of published tables against what the papers print of them, transcribed once with its source.

``captions.csv`` has a line for each setting of a table: where in the table it holds, the field of the audit's spec, the
printed value as JSON, and ours where it cannot be followed. Nothing printed means that the paper does not state it.
Page numbers are empty where the source of the transcription has none.
"""

from __future__ import annotations

import csv
import json
import os
from functools import cache
from importlib import resources
from typing import Any

import pytest

from seepage import datasets
from seepage.reproduce.table import TableAudit, load_table
from seepage.tabular.schema import Discrete

CAPTIONS = resources.files("seepage.reproduce") / "tables" / "captions.csv"
LINES = list(csv.DictReader(CAPTIONS.read_text("utf-8").splitlines()))
WORDS = {
    "batch_size": "batch",
    "learning_rate": "Adam at",
    "synthetic.strength": "strength",
    "shadows": "shadow models",
}


@cache
def planned(table: str) -> tuple[TableAudit, ...]:
    return tuple(load_table(table).planned())


def audits(line: dict[str, str]) -> list[TableAudit]:
    """The audits of a table's first run whose figures are at the line's place."""
    table = load_table(line["table"])
    where = dict(pair.split("=", 1) for pair in line["where"].split())
    found = []
    for audit in planned(line["table"]):
        shown = [label for label, run in audit.shown.items() if run == table.first]
        places = [audit.axes_of(label, configuration=at) for label in shown for at in audit.configurations]
        if any(all(str(place.get(axis)) == value for axis, value in where.items()) for place in places):
            found.append(audit)
    return found


def setting_of(audit: TableAudit, field: str) -> object:
    if field == "classes":
        return classes(audit.spec.dataset)
    value: Any = audit.spec.model_dump(mode="json")
    for name in field.split("."):
        value = value[int(name)] if isinstance(value, list) else value[name] if isinstance(value, dict) else None
    return value


@cache
def classes(dataset: str) -> int:
    target = datasets.load(dataset).schema.target
    assert isinstance(target, Discrete)
    return target.width


def title(line: dict[str, str]) -> str:
    return "-".join([line["table"], *line["where"].split(), line["field"]])


def named(line: dict[str, str]) -> bool:
    """Whether the document's notes name a setting that the print does not have, or that differs from the print."""
    notes = load_table(line["table"]).notes
    if line["printed"]:
        return f"{json.loads(line['printed']):,}" in " ".join(notes)
    word = WORDS.get(line["field"], line["field"])
    return any(word in note and ("not printed" in note or "not stated" in note) for note in notes)


@pytest.mark.parametrize("line", LINES, ids=title)
def test_a_document_has_the_settings_of_its_caption(line: dict[str, str]) -> None:
    if line["field"] == "classes" and "health" in line["where"]:
        pytest.skip("reads 171,067 rows")
    if line["field"] == "classes" and "crime" in line["where"] and "SEEPAGE_DATA" not in os.environ:
        pytest.skip("the data set is not bundled")
    found = audits(line)
    assert found, "no audit of the first run is there"
    if line["printed"] and not line["ours"]:
        assert [setting_of(audit, line["field"]) for audit in found] == [json.loads(line["printed"])] * len(found)
        return
    assert named(line), f"the notes of {line['table']} do not say what is taken for {line['field']}"
    if line["ours"]:
        assert {setting_of(audit, line["field"]) for audit in found} == {json.loads(line["ours"])}


def test_every_line_has_a_source_and_no_setting_stands_twice() -> None:
    assert all(line["source"] for line in LINES)
    keys = [(line["table"], line["where"], line["field"]) for line in LINES]
    assert len(keys) == len(set(keys))
