"""A file without a header: refused before any message shows a person's cells; names of every sort stay names."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seepage.datasets import own_table
from seepage.errors import BadInputError
from seepage.tabular.infer import infer
from seepage.tabular.reading import open_table
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.table import Table

SECRET = "Zaphod Beeblebrox"
ROWS = range(40)


def lines(make: Callable[[int], str], header: str = "") -> str:
    return header + "".join(f"{make(row)}\n" for row in ROWS)


def ward(row: int) -> str:
    return ("er", "icu", "gyn")[row % 3]


HEADLESS = {
    "a patient": lambda i: (
        f"{SECRET if not i else f'P{i} Name{i}'},196{i % 9}-04-0{1 + i % 9},{ward(i)},{i / 3:.1f},yes"
    ),
    "numbers": lambda i: f"{30 + i * 7 % 61},{20 + i % 5},{i % 2}",
    "zeros and ones": lambda i: f"1,1,0,{i % 2}",
    "an empty cell": lambda i: f"{i},,er,{i % 2}",
    "a missing cell": lambda i: f"{'NA' if not i else i * 3},{ward(i)},{i % 2 + 0.5}",
    "an odd first cell": lambda i: f"{'unknown' if not i else i * 3},{ward(i)},{i / 3:.1f},{'mf'[i % 2]}",
    "names alone": lambda i: f"Name{i},City{i}",
    "words": lambda i: f"{SECRET if not i else f'Ann {i}'},{ward(i)},{'mf'[i % 2]}",
    "decimal commas": lambda i: f'"{SECRET}","{i},5",ja',
    "amounts and dates": lambda i: f"{i * 13}.50,{1 + i % 28}/0{1 + i % 9}/2020",
    "years": lambda i: f"{1980 + i * 7 % 31},{2004 + i * 3 % 11}",
    "falling years": lambda i: f"{2004 + i * 3 % 11},{1980 + i * 7 % 31},{1930 + i * 5 % 41}",
    "sorted numbers": lambda i: f"{900123 + i * 4},{5000 + i * 3},{i % 3}",
    "dates in digits": lambda i: f"20200{1 + i % 9}1{i % 9},{i % 7},{ward(i)}",
}
HEADERS = {
    "names over numbers": ("age,ward,ill", lambda i: f"{i},{ward(i)},{i % 2}"),
    "years": ("country,1990,1991,1992", lambda i: f"c{i},{i},{i * 2},{i % 7}"),
    "falling years": ("country,1992,1991,1990", lambda i: f"c{i},{i},{i * 2},{i % 7}"),
    "months": ("shop,202011,202012,202101", lambda i: f"s{i},{i * 991},{i * 37},{i % 7}"),
    "wavelengths": ("400,402.5,405.3,411.8", lambda i: f"{i / 90:.3f},{i % 7 / 9:.3f},{i % 5 / 7:.3f},{i / 50:.3f}"),
    "a matrix": ("0,1,2,3", lambda i: f"{i},{i % 5},{i % 3},{i % 2}"),
    "days": ("shop,2020-01-01,2020-01-02,2020-01-03", lambda i: f"s{i},{i % 9},{i % 8},{i % 7}"),
    "words over words": ("ward,sex,ill", lambda i: f"{ward(i)},{'mf'[i % 2]},{('no', 'yes')[i % 2]}"),
    "a name that is a value": ("other,ward,sex,ill", lambda i: f"{('x', 'other')[i % 2]},{ward(i)},{'mf'[i % 2]},no"),
    "levels": ("q0.1,q0.5,q0.9", lambda i: f"{i * 0.1:.2f},{i * 0.5:.2f},{i * 0.9:.2f}"),
    "categories": ("age,job_cook,job_nurse", lambda i: f"{i},{i % 2},{1 - i % 2}"),
}


@pytest.mark.parametrize("name", HEADLESS)
@pytest.mark.parametrize("target", ["ill", "2"])
def test_a_first_row_of_data_is_refused_and_not_shown(tmp_path: Path, name: str, target: str) -> None:
    path = tmp_path / "people.csv"
    path.write_text(lines(HEADLESS[name]), encoding="utf-8")
    with pytest.raises(BadInputError, match="it seems to have no header") as refused:
        infer(path, target)
    said = str(refused.value).replace(str(path), "")
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert not any(cell in said for cell in first.split(",") if len(cell) > 2)


@pytest.mark.parametrize("name", HEADERS)
def test_names_of_every_sort_are_names(tmp_path: Path, name: str) -> None:
    header, make = HEADERS[name]
    path = tmp_path / "people.csv"
    path.write_text(lines(make, f"{header}\n"), encoding="utf-8")
    with pytest.raises(BadInputError, match="unknown column 'none'"):
        infer(path, "none")


def test_no_way_to_name_a_column_shows_the_first_row(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text(lines(HEADLESS["a patient"]), encoding="utf-8")
    schema = Schema(
        columns=(Discrete(name="ward", categories=("er",)),), target=Discrete(name="ill", categories=(0, 1))
    )
    frame = pd.read_csv(path)
    semicolons = tmp_path / "semicolons.csv"
    semicolons.write_text(lines(HEADLESS["a patient"]).replace(",", ";"), encoding="utf-8")
    attempts: list[Callable[[], object]] = [
        lambda: own_table(path, schema),
        lambda: Table(schema, open_table(path)),
        lambda: own_table(frame, target="ill"),
        lambda: own_table(frame, schema),
        lambda: infer(semicolons, "ill"),
    ]
    for attempt in attempts:
        with pytest.raises(BadInputError) as refused:
            attempt()
        assert SECRET not in str(refused.value)
    pytest.importorskip("openpyxl")
    book = tmp_path / "people.xlsx"
    frame.to_excel(book, index=False)
    with pytest.raises(BadInputError, match="look like a row of data"):
        infer(book, "ill")


def test_names_over_texts_alone_are_not_listed(tmp_path: Path) -> None:
    path, named = tmp_path / "people.csv", tmp_path / "named.csv"
    below = ["Bonn,Ann Bee,flu", "Ulm,Cid Dee,cold", "Trier,Eve Eff,gout"]
    path.write_text("\n".join([f"Mainz West,{SECRET},leukaemia", *below]), encoding="utf-8")
    named.write_text("\n".join(["town,name,illness,age", *(f"{line},{40 + k}" for k, line in enumerate(below))]))
    schema = Schema(
        columns=(Discrete(name="ward", categories=("er",)),), target=Discrete(name="ill", categories=(0, 1))
    )
    attempts: list[Callable[[], object]] = [
        lambda: infer(path, "ill"),
        lambda: own_table(path, schema),
        lambda: own_table(pd.read_csv(path), target="ill"),
    ]
    for attempt in attempts:
        with pytest.raises(BadInputError, match="not listed") as refused:
            attempt()
        assert SECRET not in str(refused.value)
        assert "leukaemia" not in str(refused.value)
    # Over numbers these are names; a column that is nearly there is suggested in any case.
    with pytest.raises(BadInputError, match="Known: age, illness, name, town"):
        infer(named, "ill")
    with pytest.raises(BadInputError, match="did you mean 'leukaemia'"):
        infer(path, "leukemia")


def test_a_schema_whose_names_are_all_there_reads_a_table_whatever_they_are(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text(lines(lambda i: f"{i % 2},{i % 2}", "1.5,er\n"), encoding="utf-8")
    columns = [Discrete(name=name, categories=(0, 1)) for name in ("1.5", "er")]
    assert len(Table(Schema(columns=(columns[0],), target=columns[1]), open_table(path))) == len(ROWS)


@given(
    st.integers(0, 3),
    st.integers(0, 4),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_nameless_empty_columns_and_empty_lines_at_the_end_are_left_out(
    nameless: int, empty: int, separator: str, newline: str, last: bool
) -> None:
    more = [""] * nameless
    rows = [["age", "ill", *more], *([str(i * 7 % 40), str(i % 2), *more] for i in ROWS)]
    rows += [["", "", *more]] * empty
    content = newline.join(separator.join(row) for row in rows) + (newline if last else "")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.csv"
        path.write_bytes(content.encode())
        source = open_table(path, separator)
        found = infer(source, "ill")
        assert source.names == ("age", "ill")
        assert found.rows == len(ROWS) == len(Table(found.schema, source))
    notes = " ".join(found.notes)
    assert ("without a name and without a cell" in notes) == (nameless > 0)
    assert (f"{empty} line" in notes) == (empty > 0)


def test_a_nameless_column_that_holds_a_cell_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text(lines(lambda i: f"{i * 3},{'x' if i == 39 else ''},{i % 2}", "age,,ill\n"))
    with pytest.raises(BadInputError, match=r"column 2 of the table .* has no name; name it or take it out"):
        infer(path, "ill")
    # A blank between separator and quotation mark is read in another way.
    path.write_text(lines(lambda i: f'{i * 3}, "q{i % 3}", , {i % 2}', 'age, "ward", , ill\n'))
    assert {column.name for column in infer(path, "ill").columns} == {"age", "ward", "ill"}
