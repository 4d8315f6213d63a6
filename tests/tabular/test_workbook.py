"""Workbooks with cells far from the others, and such that unfold to more than they say."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from seepage.errors import BadInputError
from seepage.tabular.reading import read_frame

NAMESPACE = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
RELATION = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
TABLE = [("age", "ill"), (31, "no"), (52, "yes"), (47, "no")]


def cell(where: str, value: object) -> str:
    """Return a cell in XML."""
    if isinstance(value, int):
        return f'<c r="{where}"><v>{value}</v></c>'
    return f'<c r="{where}" t="inlineStr"><is><t>{value}</t></is></c>'


def workbook(path: Path, *sheets: str) -> Path:
    """Write an .xlsx file with the rows of some sheets."""
    numbers = range(1, len(sheets) + 1)
    names = "".join(f'<sheet name="s{k}" sheetId="{k}" r:id="rId{k}"/>' for k in numbers)
    targets = "".join(
        f'<Relationship Id="rId{k}" Type="{RELATION}/worksheet" Target="worksheets/sheet{k}.xml"/>' for k in numbers
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", f'<Types xmlns="{PACKAGE}/content-types"/>')
        archive.writestr(
            "xl/workbook.xml", f'<workbook {NAMESPACE} xmlns:r="{RELATION}"><sheets>{names}</sheets></workbook>'
        )
        archive.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{PACKAGE}/relationships">'
            f'<Relationship Id="rId1" Type="{RELATION}/officeDocument" Target="/xl/workbook.xml"/></Relationships>',
        )
        archive.writestr(
            "xl/_rels/workbook.xml.rels", f'<Relationships xmlns="{PACKAGE}/relationships">{targets}</Relationships>'
        )
        for number, rows in zip(numbers, sheets, strict=True):
            archive.writestr(
                f"xl/worksheets/sheet{number}.xml", f"<worksheet {NAMESPACE}><sheetData>{rows}</sheetData></worksheet>"
            )
    return path


def rows(table: list[tuple[Any, ...]] = TABLE) -> str:
    """Return a table in XML."""
    return "".join(
        f'<row r="{r}">{"".join(cell(f"{chr(65 + c)}{r}", value) for c, value in enumerate(values))}</row>'
        for r, values in enumerate(table, start=1)
    )


def assert_read(path: Path) -> None:
    """Check that the table is read from a file."""
    assert read_frame(path).astype(object).values.tolist() == [list(values) for values in TABLE[1:]]


FAR = {
    "named": f'<row r="1048576">{cell("XFD1048576", 1)}</row>',
    "by its row alone": '<row r="1048576">' + "<c/>" * 16383 + "<c><v>1</v></c></row>",
    "a formula": '<row r="1048576"><c r="XFD1048576"><f>A1</f><v>1</v></c></row>',
    "beyond what there is": f'<row r="99999999">{cell("ZZZZ99999999", 1)}</row>',
}


@pytest.mark.parametrize("far", FAR.values(), ids=FAR)
def test_a_far_cell_is_refused_before_memory_is_taken(tmp_path: Path, far: str) -> None:
    path = workbook(tmp_path / "people.xlsx", rows() + far)
    with pytest.raises(BadInputError, match=r"spans [\d,]+ rows and [\d,]+ columns, .*save the table as CSV"):
        read_frame(path)


def test_far_cells_without_a_value_and_of_other_sheets_do_not_count(tmp_path: Path) -> None:
    # As Excel keeps the format of whole columns.
    assert_read(workbook(tmp_path / "styled.xlsx", rows() + '<row r="1048576"><c r="XFD1048576" s="1"/></row>'))
    assert_read(workbook(tmp_path / "second.xlsx", rows(), FAR["named"]))
    with pytest.raises(BadInputError, match="spans"):
        read_frame(workbook(tmp_path / "first.xlsx", rows() + FAR["named"], rows()))


def test_a_far_cell_is_found_wherever_the_workbook_lies(tmp_path: Path) -> None:
    # Beside a harmless workbook in the usual place, which no reader takes.
    with zipfile.ZipFile(workbook(tmp_path / "plain.xlsx", rows())) as archive:
        usual = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(workbook(tmp_path / "far.xlsx", rows() + FAR["named"])) as archive:
        moved = {name.replace("xl/", "y/"): archive.read(name).replace(b"/xl/", b"/y/") for name in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "people.xlsx", "w") as archive:
        for name, content in (usual | moved).items():
            archive.writestr(name, content)
    with pytest.raises(BadInputError, match="spans"):
        read_frame(tmp_path / "people.xlsx")


@pytest.mark.long
def test_an_archive_that_unfolds_to_more_than_it_says_is_refused(tmp_path: Path) -> None:
    path = workbook(tmp_path / "people.xlsx", rows() + " " * 2**28)
    whole = path.read_bytes()
    with pytest.raises(BadInputError, match="times its size"):
        read_frame(path)
    # It says that it is small, in the sheet's header and in the archive's directory.
    said = struct.pack("<I", next(m.file_size for m in zipfile.ZipFile(path).infolist() if "sheet1" in m.filename))
    assert whole.count(said) == 2
    path.write_bytes(whole.replace(said, struct.pack("<I", 1000)))
    with pytest.raises(BadInputError, match="times its size"):
        read_frame(path)


def test_a_workbook_that_defines_entities_or_is_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "people.xlsx"
    with zipfile.ZipFile(workbook(path, rows()), "a") as archive:
        archive.writestr("docProps/note.xml", "")
    assert_read(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("content.xml", "<office/>")
    with pytest.raises(BadInputError, match=r"\.xlsb or \.ods"):
        read_frame(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/workbook.xml", '<!DOCTYPE a [<!ENTITY b "bbbb">]><workbook>&b;</workbook>')
    with pytest.raises(BadInputError, match="entities"):
        read_frame(path)


def old(path: Path, far: tuple[int, int] | None = None, many: int = 0) -> Path:
    """Write an .xls file, whose last cell may be far away."""
    xlwt = pytest.importorskip("xlwt")
    book = xlwt.Workbook()
    sheet = book.add_sheet("people")
    for r, values in enumerate(TABLE):
        for c, value in enumerate(values):
            sheet.write(r, c, value)
    for k in range(many):
        book.add_sheet(f"s{k}").write(0, 0, "x" * 100)
    if far is not None:
        sheet.write(4, 5, 123456.789)
    book.save(str(path))
    if far is not None:
        before = struct.pack("<HHHH", 0x0203, 14, 4, 5)
        data = path.read_bytes()
        assert data.count(before) == 1
        path.write_bytes(data.replace(before, struct.pack("<HHHH", 0x0203, 14, *far)))
    return path


def test_an_old_workbook_is_read_and_its_far_cells_are_refused(tmp_path: Path) -> None:
    assert_read(old(tmp_path / "people.xls"))
    # Large enough for several sectors of its table of sectors.
    assert_read(old(tmp_path / "large.xls", many=300))
    for far in ((65535, 255), (65535, 65535)):
        with pytest.raises(BadInputError, match="spans 65,536 rows and"):
            read_frame(old(tmp_path / "far.xls", far))


def test_what_an_old_workbook_says_of_its_size_is_not_believed(tmp_path: Path) -> None:
    path = old(tmp_path / "people.xls")
    data = path.read_bytes()
    head = struct.pack("<HHIIHH", 0x0200, 14, 0, 4, 0, 2)
    assert data.count(head) == 1
    path.write_bytes(data.replace(head, struct.pack("<HHIIHH", 0x0200, 14, 0, 2**32 - 1, 0, 2**16 - 1)))
    with pytest.raises(BadInputError, match=r"spans 4,294,967,296 rows and 65,536 columns"):
        read_frame(path)


def test_a_damaged_old_workbook_is_refused(tmp_path: Path) -> None:
    whole = old(tmp_path / "people.xls").read_bytes()
    for length in (8, 76, 600, len(whole) // 2):
        (tmp_path / "cut.xls").write_bytes(whole[:length])
        with pytest.raises(BadInputError, match="truncated or damaged"):
            read_frame(tmp_path / "cut.xls")
    assert isinstance(read_frame(tmp_path / "people.xls"), pd.DataFrame)
