"""The extent of the sheets of an Excel workbook, read cell by cell before anything is made of them.

A reader lays a sheet out as a rectangle from its first to its last cell. A file of a kilobyte with one cell in the last
row and column would need half a terabyte.
"""

from __future__ import annotations

import posixpath
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.parsers import expat

from seepage.errors import BadInputError

# Cells of a rectangle, and bytes of an archive, that are always read; more only up to so many times the file's size.
_CELLS, _BYTES, _TIMES = 2**22, 2**26, 200
_BLOCK = 2**20
_SIGNATURE = bytes.fromhex("d0cf11e0a1b11ae1")
_WHERE = re.compile(r"([A-Z]{1,4})([0-9]{1,8})")
_LOCAL = struct.Struct("<26xHH")
# Records of a sheet of an .xls file with one cell; those with several cells have the last column at their end.
_SINGLE_CELLS = {0x0002, 0x0003, 0x0004, 0x0005, 0x0006, 0x00D6, 0x00FD, 0x0203, 0x0204, 0x0205, 0x0206, 0x027E, 0x0406}
_SEVERAL_CELLS = 0x00BD
# What a sheet says of its extent: a reader takes that much memory, though it need not fill it.
_CLAIMED, _MOST_CLAIMED = 0x0200, 2**16 * 2**8
_BEGIN = {0x0009, 0x0209, 0x0409, 0x0809}
# The last two sector numbers that name no sector.
_LAST_SECTOR = 0xFFFFFFFA


@dataclass
class _Extent:
    """Rectangle of the cells of a sheet; ``claimed`` has the rows and columns that the sheet claims to have."""

    rows: tuple[int, int] | None = None
    columns: tuple[int, int] | None = None
    claimed: tuple[int, int] = (0, 0)

    def add(self, row: int, first: int, last: int) -> None:
        rows, columns = self.rows or (row, row), self.columns or (first, last)
        self.rows = (min(rows[0], row), max(rows[1], row))
        self.columns = (min(columns[0], first), max(columns[1], last))

    @property
    def sides(self) -> tuple[int, int]:
        if self.rows is None or self.columns is None:
            return 0, 0
        return self.rows[1] - self.rows[0] + 1, self.columns[1] - self.columns[0] + 1


def check_workbook(path: Path) -> None:
    """Refuse a workbook whose first sheet, or whose unpacked content, is far larger than its file.

    Raises:
        BadInputError: a sheet spans far more cells than its file can hold, or the archive is of another format.
    """
    with path.open("rb") as file:
        begin = file.read(len(_SIGNATURE))
    if begin == _SIGNATURE:
        for extent in _extents(path):
            _check(path, extent.sides, max(_CELLS, _TIMES * path.stat().st_size))
            _check(path, extent.claimed, _MOST_CLAIMED)
    if zipfile.is_zipfile(path):
        _check_size(path)
        with zipfile.ZipFile(path) as archive:
            sheets = _first_sheets(archive)
            if not sheets:
                raise BadInputError(
                    f"the archive {str(path)!r} has no sheet of an .xlsx workbook, it may be an .xlsb or .ods file "
                    "under another name; save it as .xlsx or as CSV."
                )
            for sheet in sheets:
                _check(path, _extent(archive, sheet).sides, max(_CELLS, _TIMES * path.stat().st_size))


def _check(path: Path, sides: tuple[int, int], most: int) -> None:
    rows, columns = sides
    if rows * columns > most:
        raise BadInputError(
            f"a sheet of the workbook {str(path)!r} spans {rows:,} rows and {columns:,} columns, far more cells than "
            f"its {path.stat().st_size:,} bytes can hold: a few stand far from the others. Delete those, or save the "
            "table as CSV and give that file."
        )


def _check_size(path: Path) -> None:
    """Refuse an archive that unpacks to far more than its size, whatever it says of itself."""
    most, size = max(_BYTES, _TIMES * path.stat().st_size), 0
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        for member in archive.infolist():
            size += member.file_size
            if member.compress_type == zipfile.ZIP_DEFLATED and size <= most:
                file.seek(member.header_offset)
                name, extra = _LOCAL.unpack(file.read(_LOCAL.size))
                file.seek(name + extra, 1)
                unpacked = zlib.decompressobj(-zlib.MAX_WBITS)
                bytes_unpacked, left = 0, member.compress_size
                while left > 0 and not unpacked.eof and bytes_unpacked <= most:
                    packed = file.read(min(_BLOCK, left))
                    if not packed:
                        break
                    left -= len(packed)
                    while packed and bytes_unpacked <= most:
                        bytes_unpacked += len(unpacked.decompress(packed, _BLOCK))
                        packed = unpacked.unconsumed_tail
                size += max(0, bytes_unpacked - member.file_size)
            if size > most:
                raise BadInputError(
                    f"the table {str(path)!r} unpacks from {path.stat().st_size:,} bytes to {size:,} bytes or more, "
                    f"{size // path.stat().st_size:,} times its size, which no table of records does; if it is meant, "
                    "save it as CSV and give that file."
                )


def _first_sheets(archive: zipfile.ZipFile) -> list[str]:
    """Return the names of the files with the first sheet of an .xlsx workbook: all that a reader might take for it."""
    members = {name.lower(): name for name in archive.namelist()}
    if len(members) != len(archive.namelist()):
        raise zipfile.BadZipFile("two of its files have one name")
    sheet_files = []
    for book in dict.fromkeys(["xl/workbook.xml", *_targets(archive, members, "").values()]):
        if book not in members:
            continue
        sheets = [attributes for name, attributes in _elements(archive, members[book]) if name == "sheet"]
        targets = _targets(archive, members, book)
        for attributes in sheets[:1]:
            key = next((value for name, value in attributes.items() if name.rpartition(":")[2] == "id"), "")
            sheet_files += [members[target] for (id_, _), target in targets.items() if id_ == key and target in members]
    return sheet_files


def _targets(archive: zipfile.ZipFile, members: dict[str, str], of: str) -> dict[tuple[str, int], str]:
    """Return the files that a file of an archive relates to, in small letters, by identifier and place."""
    folder, _, name = of.rpartition("/")
    relations = posixpath.join(folder, "_rels", f"{name}.rels")
    places = {}
    for tag, attributes in _elements(archive, members[relations]) if relations in members else ():
        target = attributes.get("Target", "").lower()
        if tag == "Relationship" and attributes.get("TargetMode") != "External":
            place = target.lstrip("/") if target.startswith("/") else posixpath.normpath(posixpath.join(folder, target))
            if place.endswith(".xml"):
                places[attributes.get("Id", ""), len(places)] = place
    return places


def _elements(archive: zipfile.ZipFile, name: str) -> list[tuple[str, dict[str, str]]]:
    """Return names, without prefixes, and attributes of the elements of a small file."""
    elements: list[tuple[str, dict[str, str]]] = []
    parser = _parser()
    parser.StartElementHandler = lambda tag, attributes: elements.append((tag.rpartition(":")[2], attributes))
    with archive.open(name) as file:
        _parse(parser, file.read())
    return elements


def _extent(archive: zipfile.ZipFile, name: str) -> _Extent:
    """Return the extent of the cells of a sheet that hold something."""
    extent, row, column, inside = _Extent(), 0, 0, False

    def begin(tag: str, attributes: dict[str, str]) -> None:
        nonlocal row, column, inside
        tag = tag.rpartition(":")[2]
        if tag == "row":
            number = attributes.get("r", "")
            # As after the row before.
            row, column = int(number[:9]) if number.isdecimal() else row + 1, 0
        elif tag == "c":
            where = _WHERE.fullmatch(attributes.get("r", ""))
            column = column + 1 if where is None else _number(where[1])
            row = row if where is None else int(where[2])
            inside = True
        elif inside and tag in ("v", "is", "f"):
            extent.add(row, column, column)
            inside = False

    parser = _parser()
    parser.StartElementHandler = begin
    with archive.open(name) as file:
        while block := file.read(_BLOCK):
            _parse(parser, block, last=False)
        _parse(parser, b"")
    return extent


def _parser() -> expat.XMLParserType:
    """Return a parser that takes no definitions of entities, which no workbook has."""
    parser = expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise BadInputError("the workbook defines entities of XML, which no table needs; save it again, or as CSV.")

    parser.EntityDeclHandler = refuse
    return parser


def _parse(parser: expat.XMLParserType, block: bytes, last: bool = True) -> None:
    try:
        parser.Parse(block, last)
    except expat.ExpatError as error:
        raise zipfile.BadZipFile(f"a sheet is no XML ({error})") from error


def _number(letters: str) -> int:
    """Return the number of a column, from 1 on.

    Example:
        >>> _number("A"), _number("Z"), _number("AA"), _number("XFD")
        (1, 26, 27, 16384)
    """
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number


def _extents(path: Path) -> list[_Extent]:
    """Return the extents of the sheets of an .xls file, all of which a reader lays out."""
    extents = [_Extent()]
    stream = _workbook_stream(path.read_bytes())
    place = 0
    while place + 4 <= len(stream):
        kind, length = struct.unpack_from("<HH", stream, place)
        content = stream[place + 4 : place + 4 + length]
        place += 4 + length
        if kind in _BEGIN:
            extents.append(_Extent())
        elif kind == _CLAIMED and len(content) >= 10:
            form = "<IIHH" if len(content) >= 12 else "<HHHH"
            top, bottom, left, right = struct.unpack_from(form, content)
            extents[-1].claimed = (max(0, bottom - top) + 1, max(0, right - left) + 1)
        elif (kind in _SINGLE_CELLS or kind == _SEVERAL_CELLS) and len(content) >= 4:
            row, first = struct.unpack_from("<HH", content)
            last = struct.unpack_from("<H", content, len(content) - 2)[0] if kind == _SEVERAL_CELLS else first
            # A damaged record may have them the other way round.
            extents[-1].add(row, min(first, last), max(first, last))
    return extents


def _workbook_stream(data: bytes) -> bytes:
    """Return the workbook in a compound file.

    Raises:
        zipfile.BadZipFile: the compound file is damaged.
    """
    try:
        size = 1 << struct.unpack_from("<H", data, 30)[0]
        first_directory, cutoff, first_small = (struct.unpack_from("<I", data, offset)[0] for offset in (48, 56, 60))
        next_list, lists = struct.unpack_from("<II", data, 68)

        def sector(number: int) -> bytes:
            return data[(number + 1) * size : (number + 2) * size]

        places = list(struct.unpack_from("<109I", data, 76))
        for _ in range(min(lists, len(data) // size)):
            entries = _whole_numbers(sector(next_list))
            places += entries[:-1]
            next_list = entries[-1]
        table = [entry for place in places if place < _LAST_SECTOR for entry in _whole_numbers(sector(place))]
        directory = b"".join(sector(number) for number in _chain(table, first_directory))
        entries = [directory[k : k + 128] for k in range(0, len(directory), 128)]
        small = [entry for number in _chain(table, first_small) for entry in _whole_numbers(sector(number))]
        for entry in entries:
            name = entry[: max(0, struct.unpack_from("<H", entry, 64)[0] - 2)].decode("utf-16-le", "replace")
            if name.lower() in ("workbook", "book"):
                begin, length = struct.unpack_from("<II", entry, 116)
                if length >= cutoff:
                    return b"".join(sector(number) for number in _chain(table, begin))[:length]
                first = struct.unpack_from("<I", entries[0], 116)[0]
                root = b"".join(sector(number) for number in _chain(table, first))
                return b"".join(root[64 * number : 64 * number + 64] for number in _chain(small, begin))[:length]
    except (struct.error, IndexError) as error:
        raise zipfile.BadZipFile("the compound file is damaged") from error
    raise zipfile.BadZipFile("the compound file holds no workbook")


def _whole_numbers(content: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(content) // 4}I", content[: len(content) // 4 * 4]))


def _chain(table: list[int], number: int) -> Iterator[int]:
    """Yield the sectors of a stream; one that goes round in circles ends."""
    for _ in range(len(table)):
        if number >= len(table):
            return
        yield number
        number = table[number]
