from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from seepage.errors import BadInputError
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table, frame_of

SCHEMA = Schema(
    columns=(
        Discrete(name="job", categories=("cook", "nurse")),
        Continuous(name="age", low=0, high=99, tolerance=5, integer=True),
        Continuous(name="height", low=0.5, high=2.5, tolerance=0.1),
        Discrete(name="grade", categories=(1, 2, 3)),
    ),
    target=Discrete(name="ill", categories=(False, True)),
)
FRAME = pd.DataFrame(
    {
        "height": [1.5, 1.75],
        "ill": [True, False],
        "job": ["nurse", "cook"],
        "note": ["", None],
        "age": [30, 41],
        "grade": [3, 1],
    }
)


def changed(**columns: Any) -> pd.DataFrame:
    return FRAME.assign(**columns)


def test_cells_follow_the_schema_and_other_columns_are_dropped() -> None:
    table = Table(SCHEMA, FRAME)
    assert table.cells.tolist() == [[1, 30, 1.5, 2], [0, 41, 1.75, 0]]
    assert table.labels.tolist() == [1, 0]
    assert list(table.frame.columns) == ["job", "age", "height", "grade", "ill"]
    assert len(table) == 2


def test_a_table_shares_no_memory_with_the_frame_it_was_made_of() -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]})
    number = Continuous(name="x", low=0, high=9, tolerance=1)
    table = Table(Schema(columns=(number,), target=number.model_copy(update={"name": "y"})), frame)
    table.cells += 1
    table.labels += 1
    assert frame.to_numpy().tolist() == [[1, 3], [2, 4]]
    assert table.frame.to_numpy().tolist() == [[1, 3], [2, 4]]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (FRAME.drop(columns=["age", "job"]), r"lacks 'job', 'age', which its schema has; it has 'height'"),
        (FRAME.iloc[:0], "the table has no rows"),
        (pd.concat([FRAME, FRAME[["age"]]], axis=1), "these repeat: age; rename or drop"),
        (
            changed(age=[np.nan, 41], job=[None, None]),
            r"missing cells: all 2 in 'job', 1 in 'age' \(first in data row 1\); its schema has no place",
        ),
        (
            changed(job=["nurse", "judge"]),
            r"'job' holds 1 cell with none of its 2 categories, the first in data row 2; add such",
        ),
        (
            changed(job=[" Nurse", "cook"]),
            r"'job' .* data row 1; it differs from a category in spaces or capitals only",
        ),
        (
            changed(grade=["3", "1"]),
            "'grade' .* the schema has a number where the table has a text: turn the column into numbers or list",
        ),
        (changed(grade=["3.0", "1"]), "a number where the table has a text"),
        (changed(grade=[3.0000001, 1]), "1 cell.* in data row 1; it differs from a category by a rounding"),
        (
            changed(ill=["True", "False"]),
            "has a boolean where the table has a text: turn the column into bool",
        ),
        (changed(ill=["no", "yes"]), "YAML takes bare yes, no, on and off for booleans: put them in quotes"),
        (changed(job=[["nurse"], ["cook"]]), "'job' holds list objects, which cannot be categories"),
        (changed(grade=pd.to_datetime(["2005-01-01"] * 2)), r"'grade' holds 2 cells with none"),
        (changed(age=["30", "old"]), r"'age' is continuous but data row 2 is no number \(1 such cell in all\)"),
        (changed(age=[30, np.inf]), "'age' is continuous but data row 2 is infinite"),
        (changed(age=[1 + 2j, 1]), "holds complex cells"),
        (
            changed(age=[-1, 100]),
            r"'age' holds 2 numbers outside the bounds of its schema, the first in data row 1; widen",
        ),
        (
            changed(age=[30.5, 1]),
            r"'age' is integer-valued but holds 1 .* in data row 1; set integer: false",
        ),
        (changed(height=[1, 10**400]), "'height' is continuous but holds a whole number too large"),
    ],
)
def test_rows_that_do_not_fit_are_named(frame: pd.DataFrame, message: str) -> None:
    with pytest.raises(BadInputError, match=message) as caught:
        Table(SCHEMA, frame)
    assert "\n" not in str(caught.value)


def test_a_text_category_that_looks_like_the_cell_number_is_pointed_out() -> None:
    schema = Schema(columns=(Discrete(name="year", categories=("2005", "200x")),), target=SCHEMA.target)
    with pytest.raises(BadInputError, match=r"has a text where the table has a number: turn .* into texts"):
        Table(schema, pd.DataFrame({"year": [2005, 2005], "ill": [True, False]}))


@pytest.mark.parametrize(
    "columns",
    [
        {"grade": pd.Series([3.0, 1.0])},
        {"grade": pd.Series([3, 1], dtype="category")},
        {"grade": pd.Series([3, 1], dtype="Int8")},
        {"grade": pd.Series([Decimal(3), Decimal(1)])},
        {"job": pd.Series(["nurse", "cook"], dtype="category")},
        {"job": pd.Series(["nurse", "cook"], dtype=object)},
        {"ill": pd.Series([1, 0])},
        {"ill": pd.Series([True, False], dtype="boolean")},
        {"age": pd.Series(["30", "41"])},
        {"age": pd.Series([30, 41], dtype="category")},
        {"age": pd.Series([30, 41], dtype="UInt8")},
        {"age": pd.Series([Decimal(30), Decimal(41)])},
        {"height": pd.Series([1.5, 1.75], dtype="float32")},
    ],
)
def test_pandas_types_do_not_matter(columns: dict[str, pd.Series]) -> None:
    table = Table(SCHEMA, changed(**columns))
    assert torch.equal(table.cells, Table(SCHEMA, FRAME).cells)
    assert torch.equal(table.labels, Table(SCHEMA, FRAME).labels)


def test_rows_refuse_what_is_no_position() -> None:
    table = Table(SCHEMA, FRAME)
    assert table.rows([1, 1, 0]).cells[:, 1].tolist() == [41, 41, 30]
    assert table.rows(np.array([1])).frame["job"].tolist() == ["cook"]
    with pytest.raises(BadInputError, match="row 2 was asked of a table whose rows are 0 to 1"):
        table.rows([0, 2])
    with pytest.raises(BadInputError, match="row -1 was asked"):
        table.rows(torch.tensor([-1]))
    for index in (torch.tensor([]), torch.tensor([True, False]), torch.tensor([[0]]), torch.tensor([0.0]), []):
        with pytest.raises(BadInputError, match="a non-empty list of whole-numbered positions"):
            table.rows(index)


def test_shown_columns_have_the_type_of_their_values() -> None:
    frame = frame_of(SCHEMA, Table(SCHEMA, FRAME).cells)
    assert pd.api.types.is_string_dtype(frame["job"])
    assert [str(frame[name].dtype) for name in ("age", "height", "grade")] == ["int64", "float64", "int64"]
    mixed = Schema(columns=(Discrete(name="x", categories=(1, "a", True + 1.5)),), target=SCHEMA.target)
    shown = frame_of(mixed, torch.tensor([[1.0], [0.0], [2.0]], dtype=torch.float64))["x"].tolist()
    assert [(type(value), value) for value in shown] == [(str, "a"), (int, 1), (float, 2.5)]


def test_cells_that_stand_for_nothing_are_not_shown() -> None:
    with pytest.raises(BadInputError, match="the schema has 4 columns, the cells 3"):
        frame_of(SCHEMA, torch.zeros(1, 3))
    for cell in (2.0, -1.0, 0.5, float("nan")):
        with pytest.raises(BadInputError, match="'job' has the categories 0 to 1, a cell holds"):
            frame_of(SCHEMA, torch.tensor([[cell, 1, 1, 1]]))


def test_what_a_csv_cell_means_follows_from_the_schema(tmp_path: Path) -> None:
    schema = Schema(
        columns=(
            Discrete(name="zip", categories=("01", "NA", "None")),
            Discrete(name="grade", categories=(1, 2.5, 2**62, 2**62 + 1)),
            Continuous(name="age", low=0, high=99, tolerance=5, integer=True),
            Continuous(name="height", low=0, high=3, tolerance=0.1),
        ),
        target=Discrete(name="ill", categories=(False, True)),
    )
    path = tmp_path / "people.csv"
    path.write_text(
        "zip, grade, age, height, ill, note\n01, 1.0, 30.0, 1.1, TRUE,\nNA, 2.5, 41, 2e0, false,\n"
        f"None, {2**62 + 1}, 5, 1, True,\n"
    )
    table = Table.read(path, schema)
    assert table.cells.tolist() == [[0, 0, 30, 1.1], [1, 1, 41, 2], [2, 3, 5, 1]]
    assert table.labels.tolist() == [1, 0, 1]
    assert [str(table.frame[name].dtype) for name in ("age", "height", "ill")] == ["int64", "float64", "bool"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nurse,,1.5,3,True", r"missing cells: 1 in 'age' \(first in data row 2\)"),
        ("nurse,NaN,1.5,3,True", "missing cells: 1 in 'age'"),
        ("nurse,30", r"names 5 columns, but line 3 has 2 cells"),
        ("nurse,old,1.5,3,True", "'age' is continuous but data row 2 is no number"),
        ("judge,30,1.5,3,True", "'job' holds 1 cell.* none of its 2 categories, the first in data row 2"),
        ("nurse,30,1.5,7,True", "'grade' holds 1 cell.* none of its 3 categories"),
        ("nurse,30,1.5,3,yes", "'ill' holds 1 cell.* data row 2; YAML takes bare yes"),
    ],
)
def test_bad_csv_cells_are_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "people.csv"
    path.write_text(f"job,age,height,grade,ill\ncook,30,1.5,3,True\n{line}\n")
    with pytest.raises(BadInputError, match=message):
        Table.read(path, SCHEMA)


def test_a_file_that_lacks_columns_says_so(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("job,age\ncook,30\n")
    with pytest.raises(BadInputError, match=r"lacks 'height', 'grade', 'ill'"):
        Table.read(path, SCHEMA)
