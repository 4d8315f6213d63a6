"""Files of results."""

from __future__ import annotations

import csv
import io
import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seepage.assessment.row import FIELDS
from seepage.errors import BadInputError
from seepage.results.rows import SCHEMA_VERSION, as_csv, as_json, frame, read_results, write_results
from tests.rows import row

ROWS = [row(mean=0.5, column="age"), row(kind="about", attack="none", metric="epsilon", settings={"privacy": {"a": 1}})]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_results(tmp_path, ROWS, private=True)
    assert read_results(tmp_path / "results.json") == ROWS
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}
    document = json.loads((tmp_path / "results.json").read_text())
    assert [*document] == ["schema_version", "verdicts", "rows"]
    assert document["schema_version"] == SCHEMA_VERSION
    assert [tuple(one) for one in document["rows"]] == [FIELDS, FIELDS]


def test_a_plain_list_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    earlier = [
        {name: value for name, value in one.as_dict().items() if name not in ("setting", "kind")} for one in ROWS
    ]
    (tmp_path / "results.json").write_text(json.dumps(earlier))
    assert read_results(tmp_path / "results.json") == ROWS


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"schema_version": 2, "rows": []}', r"its schema_version is 2, and 1 is read here; read it with the version"),
        ('{"rows": []}', "its schema_version is None"),
        ('{"schema_version": 1}', "expected a list of rows, got None"),
        ('{"schema_version": 1, "rows": [7]}', r"0: expected the fields of a row, got 7"),
        ('"rows"', "expected a list of rows, got rows"),
        ("", "not what an audit writes"),
        (json.dumps([ROWS[0].as_dict(), {**ROWS[1].as_dict(), "n": "few"}]), r"1\.n: .* got 'few'"),
    ],
)
def test_what_else_is_there_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(BadInputError, match=reason) as refused:
        read_results(tmp_path / "results.json")
    assert str(tmp_path / "results.json") in str(refused.value)


def cells(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("name", ["=1+1", "+1", "-age", "@sum(a1)"])
def test_a_spreadsheet_takes_no_text_for_a_formula(name: str) -> None:
    [line] = cells(as_csv([row(column=name, mean=-0.5, lift=-1e-20, dataset=name)]))
    assert (line["column"], line["dataset"]) == (f"'{name}", f"'{name}")
    # Numbers stay numbers.
    assert (line["mean"], line["lift"]) == ("-0.5", "-1e-20")


@given(st.text().filter(lambda text: "\r" not in text and "\0" not in text))
def test_every_other_text_stays_as_it_is(name: str) -> None:
    [line] = cells(as_csv([row(column=name)]))
    assert line["column"] == (f"'{name}" if name[:1] in {"=", "+", "-", "@"} and name else name)
    assert line["column"][:1] not in {"=", "+", "-", "@"}


def test_without_rows_the_fields_are_named_all_the_same() -> None:
    assert as_csv([]) == ",".join(FIELDS) + "\n"
    assert json.loads(as_json([])) == {"schema_version": SCHEMA_VERSION, "verdicts": [], "rows": []}
    assert tuple(frame([]).columns) == FIELDS


def test_a_frame_has_the_columns_of_the_files() -> None:
    made = frame(ROWS)
    assert tuple(made.columns) == FIELDS
    assert made.query("is_attack")["column"].tolist() == ["age"]
    assert made.query("column.isna()")["metric"].tolist() == ["epsilon"]


def test_an_empty_file_of_results_is_reported_as_empty(tmp_path: Path) -> None:
    (tmp_path / "results.json").touch()
    with pytest.raises(BadInputError, match=r"is empty \(0 bytes\)"):
        read_results(tmp_path / "results.json")
