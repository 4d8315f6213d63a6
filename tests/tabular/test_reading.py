"""Files of every sort, and rubbish: one paragraph that names the fault and shows no cell."""

from __future__ import annotations

import datetime
import gzip
import os
import zipfile
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seepage.errors import BadInputError
from seepage.tabular import reading
from seepage.tabular.infer import Policy, infer, infer_schema
from seepage.tabular.reading import open_table, read_frame, typed
from seepage.tabular.schema import Continuous, Discrete
from seepage.tabular.table import Table
from seepage.tabular.texts import BESIDE_NUMBERS, MISSING, TextColumn

SECRET = "Zaphod"
HEADER = "name,age,ill\n"
ROWS = f"{SECRET},42,yes\nFord,200,no\nArthur,30,no\n"


def refused(path: Path, target: str = "ill") -> str:
    """Return why a file is refused, one paragraph without a cell of the table."""
    with pytest.raises(BadInputError) as caught:
        infer_schema(path, target)
    told = str(caught.value)
    assert "\n" not in told
    assert SECRET not in told
    return told


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"name,age,ill\n", "has no rows"),
        (b"name,age,ill\r\n\r\n", "has no rows"),
        (f"{HEADER}{SECRET},42,yes\n".encode(), "at least two rows, this table has 1"),
        (b"ill\nyes\nno\n", "no column besides its target"),
        (
            f"name,ill\n{SECRET},yes\n{SECRET},no\n".encode(),
            "is left: 'name': it holds one value only",
        ),
        (b"age,ill,age\n1,yes,2\n", "these repeat: age"),
        (HEADER.encode() + f"{SECRET} D\u00fcsseldorf,1,no\n".encode("latin-1"), "not UTF-8 text, line 2"),
        (ROWS.encode("utf-16"), "NUL bytes, the first in line 1"),
        (f"{HEADER}{ROWS}".replace(",", "|").encode(), "give separator='|'"),
        (f"{HEADER}{ROWS}".replace(",", "\t").encode(), "give separator='\\t'"),
        (f"{HEADER}{ROWS}{SECRET},1\n".encode(), "names 3 columns, but line 5 has 2 cells (1 such row"),
        (f"{HEADER}{ROWS}{SECRET},1,no,no\n{SECRET}\n".encode(), "but line 5 has 4 cells (2 such rows"),
        (f"{HEADER}{ROWS}{SECRET}\0,1,no\n".encode(), "NUL bytes, the first in line 5"),
        (f'{HEADER}{ROWS}"{SECRET},1,no\nFord,1,no\n'.encode(), "line 6 has 1 cell"),
        (f"{HEADER}{SECRET},inf,yes\nFord,1.5,no\n".encode(), "'age' is continuous but data row 1 is infinite"),
        (f"{HEADER}{SECRET},1e999,yes\nFord,1.5,no\n".encode(), "'age' is continuous but data row 1 is infinite"),
        (
            f"{HEADER},42,yes\n{SECRET},,no\nFord,30,no\n".encode(),
            "1 in 'name' (first in data row 1), 1 in 'age' (first in data row 2)",
        ),
    ],
)
def test_rubbish_is_refused_with_one_paragraph(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes(content)
    assert message in refused(path)


def test_what_is_no_readable_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    assert "is not a file" in refused(tmp_path / "folder.csv")
    assert "does not exist" in refused(tmp_path / "none.parquet")
    (tmp_path / "people.ods").write_bytes(b"PK\3\4")
    assert "none of the files that can be read" in refused(tmp_path / "people.ods")
    whole = tmp_path / "people.parquet"
    pd.DataFrame({"age": range(100), "ill": [0, 1] * 50}).to_parquet(whole)
    whole.write_bytes(whole.read_bytes()[:-40])
    assert "truncated or damaged" in refused(whole)
    (tmp_path / "text.parquet").write_text(HEADER + ROWS)
    assert "cannot be read" in refused(tmp_path / "text.parquet")


def test_forbidden_files_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "people.csv"
    path.write_text(HEADER + ROWS)
    path.chmod(0)
    if os.access(path, os.R_OK):  # The superuser may read anything.

        def forbidden(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(reading.CsvSource, "_open", forbidden)
    assert "its permissions forbid it" in refused(path)


def test_long_cells_byte_order_marks_and_quotes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    long = "x" * 10_000
    lines = f'\ufeffage, note, ill\n1,"a ""b"", c\nd", yes\n\n2, {long},no\n'
    for text in (lines, lines.replace(", note", ",note").replace(", yes", ",yes").replace(f", {long}", f",{long}")):
        path.write_text(text, encoding="utf-8", newline="")
        frame = read_frame(path)
        assert list(frame.columns) == ["age", "note", "ill"]
        assert frame["note"].tolist() == ['a "b", c\nd', long]
        assert frame["ill"].tolist() == ["yes", "no"]
    # A space between separator and quotation mark.
    path.write_text('age, note, ill\n1, "a, b", yes\n2, "c", no\n')
    assert read_frame(path)["note"].tolist() == ["a, b", "c"]
    path.write_text('age, note, ill\n1, "a, b", yes\n2, "c"\n')
    with pytest.raises(BadInputError, match=r"line 3 has 2 cells"):
        read_frame(path)


def test_compressed_files_are_read_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "people.csv.GZ"
    # Of two members, as appending to a compressed file makes them.
    path.write_bytes(gzip.compress(HEADER.encode()) + gzip.compress(ROWS.encode()))
    plain = tmp_path / "people.csv"
    plain.write_text(HEADER + ROWS)
    assert read_frame(path).equals(read_frame(plain))
    path.write_bytes(gzip.compress(f"{HEADER}{ROWS}{SECRET},1\n".encode()))
    assert "line 5 has 2 cells" in refused(path)
    path.write_bytes(path.read_bytes()[:-12])
    assert "truncated or damaged" in refused(path)


def test_files_too_large_to_keep_are_read_a_few_columns_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "people.csv"
    frame = pd.DataFrame({f"c{i}": np.arange(20) * (i + 1) + i / 2 for i in range(7)} | {"ill": ["no", "yes"] * 10})
    frame.to_csv(path, index=False)
    frame.to_parquet(tmp_path / "people.parquet")
    whole = Table(infer_schema(path, "ill"), read_frame(path))
    monkeypatch.setattr(reading, "_BYTES_AT_ONCE", path.stat().st_size // 3)
    monkeypatch.setattr(reading, "_CELLS_AT_ONCE", 60)
    read: list[list[str]] = []
    original = reading.CsvSource._read
    monkeypatch.setattr(
        reading.CsvSource, "_read", lambda self, names: [read.append(list(names)), original(self, names)][1]
    )
    for name in ("people.csv", "people.parquet"):
        assert infer_schema(tmp_path / name, "ill") == whole.schema
        assert Table.read(tmp_path / name, whole.schema).cells.equal(whole.cells)
    assert max(map(len, read)) < 5
    assert sorted({name for names in read for name in names}) == sorted(frame.columns)


def test_parquet_types_are_understood_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    whole = 2**62 + 1
    parquet.write_table(
        pa.table(
            {
                "emp.var": pa.array([1.5, 2.5, 3.5, 4.5]),
                "large": pa.array([whole, None, whole + 1, whole], pa.int64()),
                "money": pa.array([Decimal("1.25"), Decimal("2.50"), Decimal("3.75"), Decimal("5.00")]),
                "born": pa.array([datetime.date(1970, 1, 2 + i) for i in range(4)]),
                "seen": pa.array([datetime.datetime(1970, 1, 1, 6 * i, tzinfo=datetime.UTC) for i in range(4)]),
                "job": pa.array(["a", "b", None, "a"]).dictionary_encode(),
                "flag": pa.array([True, None, False, True]),
                "ill": pa.array([0, 1, 1, 0], pa.int8()),
            }
        ),
        path,
    )
    found = infer(path, "ill", Policy(missing="category"))
    schema = found.schema
    assert {column.name: column.kind for column in schema.columns} == {
        "emp.var": "continuous",
        "large": "discrete",
        "money": "continuous",
        "born": "continuous",
        "seen": "continuous",
        "job": "discrete",
        "flag": "discrete",
    }
    assert schema.column("large") == Discrete(
        name="large", categories=(whole, whole + 1, "(missing)"), missing="(missing)"
    )
    born, seen, flag = schema.column("born"), schema.column("seen"), schema.column("flag")
    assert isinstance(born, Continuous)
    assert isinstance(seen, Continuous)
    assert isinstance(flag, Discrete)
    assert (born.low, born.high, born.integer, born.unit) == (0, 4, True, "days since 1970-01-01")
    assert (seen.low, seen.high, seen.integer) == (0, 0.75, False)
    assert flag.categories == (False, True, "(missing)")
    table = Table.read(path, schema)
    assert table.cells[:, 1].tolist() == [0, 2, 1, 0]
    assert table.cells[:, 3].tolist() == [1, 2, 3, 4]
    assert table.cells[:, 6].tolist() == [1, 2, 0, 1]
    for nested in (pa.array([[1], [2]]), pa.array([{"a": 1}, {"a": 2}]), pa.array([b"1", b"2"])):
        parquet.write_table(pa.table({"x": nested, "ill": pa.array([0, 1])}), path)
        assert "column 'x' holds" in refused(path)
        parquet.write_table(pa.table({"x": nested, "y": pa.array([1.5, 2]), "ill": pa.array([0, 1])}), path)
        assert infer_schema(path, "ill", drop=["x"]).names == ("y",)


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["1e3", "+5", "-0", ".5", "5.", "1E-3", "+-0", "true", "False", *MISSING]),
)


def not_a_mark(text: str) -> bool:
    """Return whether a text means the same beside numbers as beside other texts."""
    return text.strip() not in BESIDE_NUMBERS


@settings(max_examples=200)
@given(st.lists(NUMBERS | st.text("0123456789.,-+eE_x ", max_size=6).filter(not_a_mark), min_size=1, max_size=6))
def test_texts_are_typed_as_python_reads_them(texts: list[str]) -> None:
    found = TextColumn.of(pa.array(texts, type=pa.string())).typed()
    trimmed = [text.lstrip(" ") for text in texts]
    # A minus beside a plus is a result.
    gone = set(MISSING) - ({"-"} if "+" in [text.strip() for text in texts] else set())
    said = [text.strip() for text in trimmed if text.strip() not in gone]
    expected: list[object]

    def code(text: str) -> bool:
        return "_" in text or text.lstrip("+-")[:2] in {f"0{digit}" for digit in "0123456789"}

    def reads(read: type) -> bool:
        try:
            values = [read(text) for text in said]
        except ValueError:
            return False
        return read is float or all(-(2**63) <= value < 2**63 for value in values)

    if said and {text.lower() for text in said} <= {"true", "false"}:
        expected = [text.lower() == "true" for text in said]
    elif any(code(text) for text in said):
        expected = [text for text in trimmed if text.strip() not in gone]
    elif reads(int):
        expected = [int(text) for text in said]
        if len(said) < len(texts):
            expected = [float(text) for text in said]
    elif reads(float):
        expected = [float(text) for text in said]
    else:
        expected = [text for text in trimmed if text.strip() not in gone]
    assert found.dropna().tolist() == expected
    assert found.isna().tolist() == [text.strip() in gone for text in texts]


def test_an_open_source_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text(HEADER + ROWS)
    source = open_table(path)
    schema = infer(source, "ill").schema
    assert Table(schema, source).cells.equal(Table.read(path, schema).cells)
    path.unlink()
    assert Table(schema, source).labels.tolist() == [1, 0, 0]


def test_files_that_unfold_to_a_thousand_times_their_size_are_refused_and_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_UNPACKED", 2**20)
    monkeypatch.setattr(reading, "_BLOCK", 2**18)
    same, rows = tmp_path / "same.csv.gz", 2**20
    same.write_bytes(gzip.compress(b"a,ill\n" + b"1,no\n" * rows))
    told = refused(same)
    # The reading ends where it is sure, not where the file does.
    assert int(told.split(" bytes to ")[1].split(" ")[0].replace(",", "")) < 5 * rows
    assert told.endswith("if it is meant, unpack it (gunzip) and give the unpacked file.")
    unpacked = tmp_path / "same.csv"
    unpacked.write_bytes(gzip.decompress(same.read_bytes()))
    assert len(read_frame(unpacked)) == rows
    columns = {"a": pa.array(np.ones(2**21)), "ill": pa.array(np.zeros(2**21))}
    parquet.write_table(pa.table(columns), tmp_path / "same.parquet", compression="zstd")
    assert "cells or more" in refused(tmp_path / "same.parquet")
    cells = np.random.default_rng(0).integers(0, 9, (2**18, 2))
    frame = pd.DataFrame(cells, columns=["a", "ill"])
    frame.to_csv(tmp_path / "usual.csv.gz", index=False)
    frame.to_parquet(tmp_path / "usual.parquet")
    for name in ("usual.csv.gz", "usual.parquet"):
        assert read_frame(tmp_path / name).equals(frame)


KINDS = (".csv", ".csv.gz", ".csv.zip", ".tsv", ".tsv.gz", ".tsv.zip", ".parquet", ".feather", ".xlsx")


def saved(frame: pd.DataFrame, path: Path) -> Path:
    if path.name.endswith(".parquet"):
        frame.to_parquet(path)
    elif path.name.endswith(".feather"):
        frame.to_feather(path)
    elif path.name.endswith(".xlsx"):
        pytest.importorskip("openpyxl")
        frame.to_excel(path, index=False)
    else:
        frame.to_csv(path, index=False, sep="\t" if ".tsv" in path.name else ",")
    return path


@pytest.mark.parametrize("suffix", KINDS)
def test_every_kind_of_file_holds_the_same_table(tmp_path: Path, suffix: str) -> None:
    rows = range(40)
    frame = pd.DataFrame(
        {
            "age ": [20.5 + row for row in rows],
            "job ": [("cook", "nurse ", "?", "smith")[row % 4] for row in rows],
            "joined": pd.to_datetime("2020-01-01") + pd.to_timedelta(list(rows), unit="D"),
            "size": [f"{row + 100} cm" if row % 10 else "n/a" for row in rows],
            "grade": ["+" if row % 3 else "-" for row in rows],
            "ill": ["no", "yes"] * 20,
        }
    )
    path = saved(frame, tmp_path / f"people{suffix}")
    source = open_table(path)
    inferred = infer(source, "ill", Policy(missing="category"))
    assert source.names == ("age", "job", "joined", "size", "grade", "ill")
    job, grade = inferred.schema.column("job"), inferred.schema.column("grade")
    assert isinstance(job, Discrete)
    assert isinstance(grade, Discrete)
    assert job.categories == ("cook", "nurse", "smith", "(missing)")
    assert grade.categories == ("+", "-")
    assert inferred.schema.column("size").unit == "cm"
    [note] = [note for note in inferred.notes if "blanks" in note]
    assert note == "blanks trimmed around 2 names of columns and 1 column of cells"
    shown = Table(inferred.schema, open_table(path)).frame
    assert shown["job"].tolist() == ["cook", "nurse", "(missing)", "smith"] * 10
    assert shown["age"].tolist() == frame["age "].tolist()
    assert shown["size"].tolist()[1:3] == [101, 102]
    assert shown["joined"].tolist()[:2] == [18262, 18263]


def test_archives_and_workbooks_that_hold_no_table_are_refused(tmp_path: Path) -> None:
    def archive(*names: str) -> Path:
        with zipfile.ZipFile(tmp_path / "people.csv.zip", "w") as packed:
            for name in names:
                packed.writestr(name, HEADER + ROWS)
        return tmp_path / "people.csv.zip"

    assert "holds 2 files, expected one" in refused(archive("a.csv", "b.csv"))
    assert "holds 0 files" in refused(archive())
    # A folder that macOS adds is none of them.
    assert infer_schema(archive("people.csv", "__MACOSX/._people.csv"), "ill", drop=["name"]).names == ("age",)
    (tmp_path / "people.csv.zip").write_bytes(b"PK rubbish")
    assert "it may be truncated or damaged" in refused(tmp_path / "people.csv.zip")
    for name in ("people.feather", "people.xlsx", "people.xls"):
        (tmp_path / name).write_bytes(b"rubbish")
        assert "it may be truncated or damaged" in refused(tmp_path / name)
    (tmp_path / "people.csv.gz").write_bytes(SECRET.encode())
    # Python's own message shows the first two bytes.
    assert "cannot be read: Not a gzipped file; it may be truncated" in refused(tmp_path / "people.csv.gz")
    pytest.importorskip("openpyxl")
    book = tmp_path / "people.xlsx"
    pd.DataFrame([["People", None], ["age", "ill"], [1, "no"]]).to_excel(book, index=False, header=False)
    assert "column 2 of the first sheet" in refused(book)
    pd.DataFrame({"age": [1.5], "ill": ["no"]}).head(0).to_excel(book, index=False)
    assert "has no rows" in refused(book)
    with pd.ExcelWriter(book) as writer:
        for name in ("people", "notes"):
            pd.DataFrame({"age": [1.5, 2.5, 3.5], "ill": ["no", "yes", "no"]}).to_excel(
                writer, sheet_name=name, index=False
            )
    assert infer(book, "ill").notes == ("read from the first of 2 sheets, 'people'",)


def test_names_that_are_equal_without_blanks_stay_apart_and_are_said_to(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("age,age , ill\n1,2,no\n2,3,yes\n")
    source = open_table(tmp_path / "people.csv")
    assert source.names == ("age", "age ", "ill")
    assert {name: list(raw.distinct.to_pylist()) for name, raw in source.columns(("age ",))} == {"age ": ["2", "3"]}
    assert any("kept apart: ['age', 'age ']" in note for note in source.notes)


@pytest.mark.parametrize("content", ["<html>no table</html>", "a,b", "a,b\n"])
def test_a_header_alone_has_no_rows_whether_its_line_ends_or_not(tmp_path: Path, content: str) -> None:
    (tmp_path / "rows.csv").write_text(content)
    with pytest.raises(BadInputError, match="has no rows"):
        read_frame(tmp_path / "rows.csv")


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-16"])
def test_files_in_other_encodings_are_refused_with_advice_and_read_where_it_is_followed(
    tmp_path: Path, encoding: str
) -> None:
    path = tmp_path / "patients.csv"
    path.write_bytes('größe,job\n1,"Köchin, Chef"\n2, "Arzt"\n'.encode(encoding))
    with pytest.raises(BadInputError, match="utf-16" if encoding == "utf-16" else "cp1252"):
        open_table(path)
    read = {name: typed(raw).tolist() for name, raw in open_table(path, encoding=encoding).columns(["größe", "job"])}
    assert read == {"größe": [1, 2], "job": ["Köchin, Chef", "Arzt"]}
    with pytest.raises(BadInputError, match="unknown encoding 'klingon'"):
        open_table(path, encoding="klingon")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "is empty"),
        ("sep=,", "names a separator"),
        ("SEP=;", "names a separator"),
        ("# written today", "is a comment"),
    ],
)
def test_lines_before_the_names_are_named(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "people.csv"
    path.write_text(f"{line}\nage,town,ill\n31,Ulm,no\n42,Bonn,yes\n", encoding="utf-8")
    with pytest.raises(BadInputError, match=f"{why}.*remove what stands before the names"):
        open_table(path)
