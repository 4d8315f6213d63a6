from __future__ import annotations

import gzip
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seepage.errors import BadInputError
from seepage.tabular.infer import Policy, infer, infer_schema, numbers_of, rounded_outwards
from seepage.tabular.reading import FrameSource, open_table, read_frame
from seepage.tabular.schema import Continuous, Discrete
from seepage.tabular.table import Table

AGES = [30, 41, 65, 17, 22, 58, 33, 34, 71, 19, 45, 80]
FRAME = pd.DataFrame(
    {
        "job": ["cook", "nurse", "#"] * 4,
        "age": AGES,
        "children": [0, 1, 2, 0, 3, 1] * 2,
        "height": [1.5 + age / 200 for age in AGES],
        "smokes": [True, False] * 6,
        "ill": ["no", "yes", "yes"] * 4,
    }
)


def test_kinds_bounds_and_tolerance_are_guessed() -> None:
    schema = infer_schema(FRAME, "ill", sensitive=["job", "ill"])
    job, age, children, height, smokes = schema.columns
    assert job == Discrete(name="job", categories=("#", "cook", "nurse"), sensitive=True)
    spread = float(np.std(AGES, ddof=1))
    assert isinstance(age, Continuous)
    assert (age.low, age.high, age.integer, age.sensitive) == (15, 80, True, False)
    assert age.tolerance == pytest.approx(0.319 * spread)
    assert children == Discrete(name="children", categories=(0, 1, 2, 3))
    assert isinstance(height, Continuous)
    assert (height.integer, height.tolerance) == (False, pytest.approx(0.319 * spread / 200))
    assert smokes == Discrete(name="smokes", categories=(False, True))
    assert schema.target == Discrete(name="ill", categories=("no", "yes"), sensitive=True)
    assert Table(schema, FRAME).cells.shape == (12, 5)


def test_thresholds_are_arguments() -> None:
    assert isinstance(infer_schema(FRAME, "ill", discrete_at_most=3).column("children"), Continuous)
    assert isinstance(infer_schema(FRAME, "ill", discrete_at_most=12).column("age"), Discrete)
    wide = infer_schema(FRAME, "ill", tolerance_factor=1.0).column("age")
    assert isinstance(wide, Continuous)
    assert wide.tolerance == pytest.approx(np.std(AGES, ddof=1))


def test_overrides_replace_what_they_name_and_nothing_else() -> None:
    overrides: dict[str, dict[str, Any]] = {
        "age": {"kind": "continuous", "low": 0, "unit": "years"},
        "children": {"high": 12, "sensitive": True},
        "job": {"categories": ["cook", "nurse", "judge", "#"]},
        "smokes": {"unit": "cigarettes"},
        "ill": {"sensitive": True},
    }
    schema = infer_schema(FRAME, "ill", overrides=overrides)
    age, children = schema.column("age"), schema.column("children")
    assert isinstance(age, Continuous)
    assert (age.low, age.high, age.integer, age.unit) == (0, 80, True, "years")
    assert isinstance(children, Continuous)
    assert (children.low, children.high, children.sensitive) == (0, 12, True)
    assert schema.column("job") == Discrete(name="job", categories=("cook", "nurse", "judge", "#"))
    assert schema.column("smokes") == Discrete(name="smokes", categories=(False, True), unit="cigarettes")
    assert schema.target.sensitive
    assert infer_schema(FRAME, "ill", overrides={"age": {"kind": "discrete"}}).column("age").width == 12
    assert infer_schema(FRAME, "age", drop=["job", "smokes"]).names == ("children", "height", "ill")


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        (pd.Series(["b", "a"] * 6, dtype=pd.CategoricalDtype(["b", "c", "a"])), ("b", "c", "a")),
        (pd.Series([1, 2] * 6, dtype="Int64"), (1, 2)),
        (pd.Series([2.0, 1.0] * 6), (1, 2)),
        (pd.Series([True, False] * 6, dtype="boolean"), (False, True)),
        (pd.Series(["x", 2, True, 1.5] * 3, dtype=object), (True, 1.5, 2, "x")),
        (pd.Series([Decimal(2), Decimal(1)] * 6), (1, 2)),
    ],
)
def test_categories_are_plain_values_in_order(series: pd.Series, expected: tuple) -> None:
    column = infer_schema(FRAME.assign(x=series), "ill").column("x")
    assert isinstance(column, Discrete)
    assert column.categories == expected
    assert [type(category) for category in column.categories] == [type(category) for category in expected]


def test_numbers_too_large_to_be_whole_are_not_called_whole() -> None:
    column = infer_schema(FRAME.assign(x=[2**52 + 7 * i * i for i in range(12)]), "ill").column("x")
    assert isinstance(column, Continuous)
    assert not column.integer
    assert column.tolerance > 0


LONG = pd.DataFrame({"x": np.arange(60) % 7, "ill": np.arange(60) % 2})


@pytest.mark.parametrize(
    ("frame", "target", "message"),
    [
        (FRAME, "il", "unknown column 'il'; did you mean 'ill'"),
        (FRAME.assign(ill="no"), "ill", "target 'ill' is the same in all 12 rows, so there is nothing to learn"),
        (
            FRAME.assign(ill=0, job="cook"),
            "ill",
            r"^the target 'ill' is the same in all 12 rows",
        ),
        (FRAME.assign(ill=[None, "no", "yes"] * 4), "ill", r"missing cells: 4 in 'ill' \(first in data row 1\); add"),
        (
            FRAME.assign(age=[np.nan, *AGES[1:]], job=["a", None, "b"] * 4),
            "ill",
            r"missing cells: 4 in 'job' \(first in data row 2\), 1 in 'age' \(first in data row 1\)",
        ),
        (FRAME.assign(age=[np.inf, *AGES[1:]]), "ill", "'age' is continuous but data row 1 is infinite"),
        (FRAME.iloc[:1], "ill", "inferred from at least two rows, this table has 1; give more rows, or a schema"),
        (FRAME.iloc[:0], "ill", "inferred from at least two rows, this table has 0"),
        (FRAME[["ill"]], "ill", "no column besides its target 'ill'"),
        (pd.concat([FRAME, FRAME[["age", "job"]]], axis=1), "ill", "these repeat: age, job; rename or drop some"),
        (FRAME.rename(columns={"age": 3}), "ill", r"column names must be text, got 3; .*columns.map\(str\)"),
        (
            FRAME.assign(age=pd.cut(FRAME["age"], 3)),
            "ill",
            "column 'age' holds Interval objects; .*drop=\\['age'\\]",
        ),
        (FRAME.assign(x=pd.Series([[i] for i in range(12)])), "ill", "'x' holds list objects; a cell must be"),
        (FRAME.assign(x=[1j * i for i in range(12)]), "ill", "'x' holds complex cells"),
        (
            LONG.assign(ill=[f"person {i}" for i in range(60)]),
            "ill",
            "'ill' is the target, but 60 different values in 60 rows: an identifier or free text, so",
        ),
        (
            LONG.assign(income=["low"] + [str(i) for i in range(59)]),
            "ill",
            r"'income' holds numbers, but 1 of its cells \(1 .*\) are not numbers; .*overrides={'income': 'discrete'}",
        ),
    ],
)
def test_tables_without_a_usable_schema_are_refused(frame: pd.DataFrame, target: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message) as caught:
        infer_schema(frame, target)
    assert "\n" not in str(caught.value)


def test_an_override_keeps_what_would_be_refused() -> None:
    frame = LONG.assign(name=[f"person {i}" for i in range(60)], row=np.arange(60), site="north", dose=0.1)
    overrides: dict[str, dict[str, Any]] = {
        "name": {"kind": "discrete"},
        "row": {"kind": "continuous"},
        "site": {"categories": ["north", "south"]},
        "dose": {"kind": "continuous"},
    }
    schema = infer_schema(frame, "ill", overrides=overrides)
    assert [column.width for column in schema.columns] == [7, 60, 1, 2, 1]
    dose = schema.column("dose")
    assert isinstance(dose, Continuous)
    assert (dose.low, dose.high, dose.tolerance) == (0.1, 0.1, 0)
    # Any word on a column is enough, its kind is still guessed.
    said = infer_schema(frame, "ill", overrides={"name": {"unit": "text"}, "row": {"unit": "1"}}, drop=["site", "dose"])
    assert [column.kind for column in said.columns] == ["discrete", "discrete", "continuous"]
    # Dropping them is the other way out.
    assert infer_schema(frame, "ill", drop=["name", "row", "site", "dose"]).names == ("x",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"overrides": {"agge": {}}}, "unknown column 'agge'; did you mean 'age'"),
        ({"sensitive": ["agge"]}, "unknown column 'agge'"),
        ({"drop": ["agge"]}, "unknown column 'agge'"),
        ({"drop": ["ill"]}, "the target 'ill' is among the columns to drop"),
        (
            {"overrides": {"age": {"kind": "continous"}}},
            "unknown kind of column 'age': 'continous'; did you mean",
        ),
        ({"overrides": {"age": {"lo": 0}}}, "unknown field of the continuous column 'age': 'lo'; did you mean 'low'"),
        ({"overrides": {"age": {"name": "years"}}}, "unknown field of the continuous column 'age': 'name'"),
        ({"overrides": {"job": {"kind": "discrete", "low": 0}}}, "unknown field of the discrete column 'job': 'low'"),
        (
            {"overrides": {"age": {"low": 100}}},
            r"column 'age' cannot be used: .* low 100.0 is above high 80.0; swap them\.$",
        ),
        ({"overrides": {"age": {"low": "young"}}}, "cannot be used: low: Input should be a valid number"),
        ({"overrides": {"job": {"kind": "continuous"}}}, "'job' is continuous but data row 1 is no number"),
        ({"overrides": {"job": {"categories": []}}}, "cannot be used: .*must list at least one value"),
    ],
)
def test_arguments_that_make_no_schema_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        infer_schema(FRAME, "ill", **arguments)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet", ".CSV"])
def test_files_are_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"people{suffix}"
    FRAME.to_parquet(path) if suffix == ".parquet" else FRAME.to_csv(path, index=False)
    pd.testing.assert_frame_equal(read_frame(path), FRAME)
    assert infer_schema(path, "ill") == infer_schema(FRAME, "ill")
    assert infer_schema(str(path), "ill") == infer_schema(FRAME, "ill")


def test_csv_cells_are_typed_by_column(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    path.write_text(
        "\ufeffwhole, real, truth, code, text, large, gap\n"
        '1, 0.1, true, 01, None, 9223372036854775808, "NA"\n-2, 1e3, FALSE, 7, 1_0, 1, 3\n',
        encoding="utf-8",
    )
    frame = read_frame(path)
    assert frame["whole"].tolist() == [1, -2]
    assert frame["real"].tolist() == [0.1, 1000.0]
    assert frame["truth"].tolist() == [True, False]
    assert frame["code"].tolist() == ["01", "7"]
    assert frame["text"].tolist() == ["None", "1_0"]
    assert frame["large"].tolist() == [2.0**63, 1.0]
    assert frame["gap"].isna().tolist() == [True, False]
    assert [str(frame[name].dtype) for name in ("whole", "real", "truth", "gap")] == [
        "int64",
        "float64",
        "bool",
        "float64",
    ]


def test_a_named_parquet_index_becomes_a_column(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    FRAME.set_index("age").to_parquet(path)
    assert sorted(read_frame(path).columns) == sorted(FRAME.columns)
    FRAME.iloc[::-1].to_parquet(path)
    assert list(read_frame(path).index) == list(range(12))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("people.ods", b"PK", r"none of the files that can be read \(.csv, .*, .xls\); save"),
        ("people.xlsx", b"PK", "cannot be read: .* damaged"),
        ("people.csv", b"", "is empty; its first line must name the columns"),
        ("people.csv.gz", gzip.compress(b""), "is empty; its first line must name the columns"),
        ("people.csv", b"a,b\n", "has no rows; give a file with a header and at least one row"),
        ("people.csv", b"a,b\n1,2\n\xff\xfe,3\n", "is not UTF-8 text, line 3 .*name its encoding"),
        ("people.csv", b"a,b\n1,2\n1,2,3\n", "names 2 columns, but line 3 has 3"),
        ("people.csv", b"a,b\n1,2,3\n4,5,6\n", r"line 2 has 3 cells \(2 such row"),
        (
            "people.csv",
            b"a|b\n1|2\n",
            r"split at ',', and its first line has 1 of '\|'; give separator='\|'",
        ),
        ("people.csv", b"a,b,a\n1,2,3\n", "these repeat: a; rename"),
        ("people.csv", b",b\n0,2\n", r"column 1 of the table .* has no name, it may be an index that pandas saved"),
        ("people.csv", b"a,\n0,2\n", r"column 2 of the table .* has no name; name it"),
        ("people.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 9999)[:-30], "cannot be read: .*truncated or damaged"),
        ("people.csv.gz", b"a,b\n1,2\n", "cannot be read: Not a gzipped file"),
        ("people.csv.gz", gzip.compress(b"a,b\n1,2\n")[:4], "cannot be read: "),
        ("people.parquet", b"", "cannot be read: "),
        ("people.parquet", b"PAR1 and nothing that follows", "cannot be read: .*compare its size or checksum"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=message) as caught:
        read_frame(path)
    assert "\n" not in str(caught.value)


def test_a_truncated_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    FRAME.to_parquet(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(BadInputError, match="truncated or damaged"):
        read_frame(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"nobody.csv' does not exist; give the path"):
        read_frame(tmp_path / "nobody.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(BadInputError, match=r"folder.csv' is not a file"):
        read_frame(tmp_path / "folder.csv")


def test_separators(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    FRAME.to_csv(path, index=False, sep=";")
    pd.testing.assert_frame_equal(read_frame(path, ";"), FRAME)
    # A semicolon is found where a comma leaves one column, and that is noted.
    pd.testing.assert_frame_equal(read_frame(path), FRAME)
    assert "the file is split at ';', since ',' leaves one column" in open_table(path).notes
    assert not any("split at" in note for note in open_table(path, ";").notes)
    assert len(Table.read(path, infer_schema(FRAME, "ill"), separator=";")) == 12
    with pytest.raises(BadInputError, match="a separator is one character, got ', '"):
        read_frame(path, ", ")


@given(
    st.floats(-1e300, 1e300),
    st.floats(-1e300, 1e300),
    st.booleans(),
)
def test_bounds_are_rounded_outwards_and_never_by_more_than_a_tenth_or_one_step(
    one: float, other: float, whole: bool
) -> None:
    if whole:
        one, other = (float(round(math.fmod(value, 2**48))) for value in (one, other))
    low, high = sorted((one, other))
    least, most = rounded_outwards(low, high, whole)
    assert least <= low <= high <= most
    allowed = max((high - low) / 10, 2.0 if whole else 0.0) * (1 + 1e-9)
    assert low - least <= allowed + abs(low) * 1e-15
    assert most - high <= allowed + abs(high) * 1e-15
    assert not whole or (least == round(least) and most == round(most))
    Continuous(name="x", low=least, high=most, tolerance=0.0, integer=whole)


def test_the_smallest_and_the_largest_cell_of_a_person_are_in_no_inferred_schema() -> None:
    incomes = [1_234.5, *range(20_000, 30_000, 100), 987_654.25]
    schema = infer_schema(pd.DataFrame({"income": incomes, "ill": [i % 2 == 0 for i in range(102)]}), "ill")
    income = schema.column("income")
    assert isinstance(income, Continuous)
    assert (income.low, income.high) == (0.0, 1_000_000.0)
    assert not any(cell in schema.to_yaml() for cell in ("1234", "987654"))


def test_a_table_of_ten_thousand_columns_is_refused_at_once_and_one_with_a_schema_is_not() -> None:
    frame = pd.DataFrame(np.arange(30_003).reshape(3, 10_001) % 7, columns=[f"c{i}" for i in range(10_001)])
    with pytest.raises(BadInputError, match="the table has 10,001 columns, above the limit of 5,000") as refused:
        infer(frame, "c0")
    assert "Drop columns (drop=COLUMN), or give a schema (schema_file=FILE)" in str(refused.value)
    assert len(infer(frame, "c0", Policy(drop=tuple(frame.columns[1:9_990]))).schema.columns) == 11


def test_two_numbers_with_a_slash_are_told_and_months_are_not_taken_for_them() -> None:
    rows = range(60)
    frame = pd.DataFrame({"pressure": [f"{100 + i}/{60 + i % 30}" for i in rows], "ill": [i % 2 for i in rows]})
    frame["month"] = [f"{1 + i % 12:02}/{2000 + i % 20}" for i in rows]
    frame["short"] = [f"{1 + i % 12:02}/{20 + i % 20}" for i in rows]
    columns = infer(frame, "ill", Policy(overrides={"short": {"kind": "discrete"}})).columns
    # A remark: the columns with one are listed by an audit too, which counts the others.
    remarks = {column.name: " ".join(column.remarks) for column in columns}
    told = "pairs of numbers such as 120/80: split the column in two"
    assert [told in remarks[name] for name in ("pressure", "month", "short")] == [True, False, False]


@pytest.mark.parametrize("kept", [40, 80])
def test_a_column_much_of_which_becomes_one_category_says_so(kept: int) -> None:
    # Ten frequent values, and as many rare ones as there are cells left.
    names = [f"w{i % 10}" if i < kept else f"rare{i % 50}" for i in range(100)]
    frame = pd.DataFrame({"ward": names * 2, "ill": [0, 1] * 100})
    [ward] = [c for c in infer(frame, "ill", Policy(most_categories=11)).columns if c.name == "ward"]
    if kept == 80:
        assert ward.remarks == ()
    else:
        assert ward.remarks == ("60% of its cells become (other), so their values are not audited",)
        assert str(ward.instead) == "most_categories=60"


def test_columns_of_one_value_are_left_out_unless_they_are_overridden_or_sensitive() -> None:
    frame = FRAME.assign(job="cook", empty=None)
    found = infer(frame, "ill")
    assert [(one.name, one.why) for one in found.columns if one.taken == "left out"] == [
        ("job", "it holds one value only"),
        ("empty", "it is empty"),
    ]
    assert "columns left out: 'job' (it holds one value only), 'empty'" in found.notes[0]
    kept = infer(frame, "ill", Policy(overrides={"job": {"categories": ["cook", "nurse"]}})).schema
    assert "job" in kept.names
    with pytest.raises(BadInputError, match="'job' is sensitive, but it holds one value only, so it would be left out"):
        infer(frame, "ill", Policy(sensitive=("job",)))


def test_dates_in_both_orders_are_left_out_with_that_reason() -> None:
    days = pd.date_range("2001-01-01", periods=60, freq="9D")
    seen = [day.strftime("%d/%m/%Y" if i % 2 else "%m/%d/%Y") for i, day in enumerate(days)]
    found = infer(pd.DataFrame({"seen": seen, "age": np.linspace(20, 80, 60), "y": [0, 1] * 30}), "y")
    [left_out] = [column for column in found.columns if column.taken == "left out"]
    assert left_out.why.startswith("dates, some with the day before the month")


@pytest.mark.parametrize("rows", [240, 600])
def test_a_target_with_too_many_classes_is_told_once(rows: int) -> None:
    frame = pd.DataFrame({"y": [f"k{i % 150}" for i in range(rows)], "age": np.linspace(20, 80, rows)})
    with pytest.raises(BadInputError, match="has 150 different values; a model learns") as refused:
        infer(frame, "y")
    assert "an identifier" not in str(refused.value)
    allowed = "most_categories=150 allows all" in str(refused.value)
    assert allowed == (rows == 600)
    if allowed:
        assert infer(frame, "y", Policy(most_categories=150)).schema.target.name == "y"


def test_nobody_declared_the_categories_of_a_merged_column() -> None:
    frame = pd.DataFrame(
        {"job_a": [1, 0] * 30, "job_b": [0, 1] * 30, "age": np.linspace(2, 8, 60), "y": [0, 1, 1] * 20}
    )
    assert infer(frame, "y").columns[0].why == "2 one-hot columns; 2 categories"


def test_times_of_day_are_hours_and_blood_pressures_and_postal_codes_categories() -> None:
    rows = 200
    frame = pd.DataFrame(
        {
            "admitted": [f"{i % 24:02d}:{i * 7 % 60:02d}" for i in range(rows)],
            "pressure": [f"{100 + i}/{60 + i % 40}" for i in range(rows)],
            "shift": ["07:00", "19:00"] * (rows // 2),
            "zip_code": [10115 + i * 37 % 90 for i in range(rows)],
            "ill": [0, 1] * (rows // 2),
        }
    )
    found = infer(FrameSource(frame), "ill", Policy())
    kinds = {column.name: column.kind for column in found.schema.columns}
    wanted = {"admitted": "continuous", "pressure": "discrete", "shift": "discrete", "zip_code": "discrete"}
    assert kinds == wanted
    admitted = found.schema.columns[0]
    assert isinstance(admitted, Continuous)
    assert (admitted.low, admitted.high, admitted.unit) == (0.0, 24.0, "hours of the day")


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_dates_far_from_today_are_days(unit: str, zone: str | None) -> None:
    last = "9999-12-31" if unit != "ns" else "2200-01-01"
    dates: Any = pd.Series(np.array(["2020-01-02", "NaT", last], dtype=f"datetime64[{unit}]"))
    dates = dates if zone is None else dates.dt.tz_localize("UTC").dt.tz_convert(zone)
    found = numbers_of("day", dates)
    expected = [(np.datetime64(text, "D") - np.datetime64(0, "D")).astype(float) for text in ("2020-01-02", last)]
    assert found[[0, 2]].tolist() == expected
    assert np.isnan(found[1])
