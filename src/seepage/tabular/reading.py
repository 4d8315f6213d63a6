"""Readers of tables: DataFrames, text files, Parquet, Feather and Excel files, a few columns at a time."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import math
import re
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.feather as feather
import pyarrow.parquet as parquet
from python_calamine import CalamineError

from seepage.errors import BadInputError, Remedy, nearest, unknown_name
from seepage.tabular.header import COLUMNS, LINES, names_numbers, refuse_data
from seepage.tabular.policy import SUFFIXES, UTF8, checked_encoding
from seepage.tabular.texts import MISSING, TextColumn, among_numbers, dates_in_digits
from seepage.tabular.workbook import check_workbook
from seepage.text import how_many, listed

# Bytes of a CSV file, and cells of a Parquet file, that are in memory at once, besides the columns made from them.
_BYTES_AT_ONCE, _CELLS_AT_ONCE = 2**29, 2**24
_BLOCK = 2**24
# Characters of the end of a file in which empty lines are looked for, at least.
_TAIL = 2**16
# Bytes or cells that a packed file may unfold to, and how many times its own size where it is more than that. Tables
# pack to a tenth; what packs to a thousandth was made to fill memory.
_UNPACKED, _PACKED_AWAY = 2**26, 200
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")
_broken: tuple[type[Exception], ...]
_broken = (OSError, EOFError, zlib.error, csv.Error, pa.ArrowException, zipfile.BadZipFile, CalamineError)
# Folders that macOS adds to an archive.
_ADDED = "__MACOSX/"


class Source(ABC):
    """A table whose columns are read when they are asked for; ``notes`` are complete once all have been read."""

    names: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def shown_names(self) -> tuple[str, ...]:
        """Return the names of the columns for a message, or refuse a table whose names look like a row of data.

        Whatever shows names takes them from here: where a file has no header line, they are a person's cells.
        """
        return self.names

    def lists_names(self) -> bool:
        """Return whether the names are surely no cells of a file without a header, so that a message may list them."""
        return True

    def unknown_column(self, name: str, kind: str = "column") -> BadInputError:
        """Return the error for a name that no column has; it lists the names where they are surely no cells."""
        names = self.shown_names()
        if self.lists_names():
            return unknown_name(kind, name, names)
        near = nearest(name, names)
        return BadInputError(
            f"unknown {kind} {name!r}{f'; {near}' if near else '.'} The names of the {len(names)} columns are not "
            "listed: they stand over texts alone, so that the first line may hold data. If it does, put a line with "
            "names before it."
        )

    @abstractmethod
    def columns(self, names: Sequence[str]) -> Iterator[tuple[str, pd.Series | TextColumn]]:
        """Read columns one after the other, in the order asked for."""


class WrappedSource(Source):
    """A table whose columns are made of those of another one."""

    def __init__(self, inner: Source, names: Sequence[str]) -> None:
        self._inner, self.names = inner, tuple(names)

    def shown_names(self) -> tuple[str, ...]:
        """Return the names of the columns for a message; see ``Source``."""
        self._inner.shown_names()
        return self.names

    def lists_names(self) -> bool:
        """Return whether a message may list the names; see ``Source``."""
        return self._inner.lists_names()

    @property
    def notes(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Facts about the reading of the table."""
        return self._inner.notes


class FrameSource(Source):
    """A DataFrame."""

    def __init__(self, frame: pd.DataFrame) -> None:
        check_names(list(frame.columns))
        self._frame = frame
        self.names = tuple(frame.columns)

    def shown_names(self) -> tuple[str, ...]:
        """Return the names of the columns for a message; see ``Source``."""
        refuse_data("the table", self.names, self._first_lines)
        return self.names

    def lists_names(self) -> bool:
        """Return whether a message may list the names; see ``Source``."""
        return names_numbers(self.names, self._first_lines)

    @property
    def _first_lines(self) -> list[list[str]]:
        rows = self._frame.iloc[:LINES, :COLUMNS].itertuples(index=False)
        return [[str(cell) for cell in row] for row in rows]

    def columns(self, names: Sequence[str]) -> Iterator[tuple[str, pd.Series | TextColumn]]:
        """Return columns of the frame."""
        for name in names:
            column = self._frame[name].reset_index(drop=True)
            mixed = among_numbers(column)
            yield name, column if mixed is None else mixed


class _OneColumnError(BadInputError):
    """A file has one column by its separator, and more by another character, ``separator``."""

    def __init__(self, separator: str, *message: str | Remedy) -> None:
        super().__init__(*message)
        self.separator = separator


class CsvSource(Source):
    r"""A CSV file: as it is, packed by gzip (``.gz``), or alone in an archive (``.zip``).

    It has a header line; spaces at the beginning of a cell are skipped. Files of up to half a gigabyte are read once
    and kept, others anew for every few columns.
    """

    def __init__(self, path: Path, separator: str = ",", encoding: str = UTF8) -> None:
        if len(separator) != 1:
            raise BadInputError(f"a separator is one character, got {separator!r}; give ';', for example.")
        self._path, self._separator, self._encoding = path, separator, checked_encoding(encoding)
        self._left_out: frozenset[str] = frozenset()
        self._size, self._spaced, self._blank_lines = self._scan()
        if self._blank_lines:
            self.notes += (f"left out, without a cell: {how_many(self._blank_lines, 'line')} at the end of the file",)
        self._all_names = self._header()
        self.names = tuple(name for name in self._all_names if name not in self._left_out)
        self._cached: pa.Table | None = None

    def columns(self, names: Sequence[str]) -> Iterator[tuple[str, pd.Series | TextColumn]]:
        """Read columns as texts."""
        if self._cached is None and self._size <= _BYTES_AT_ONCE:
            self._cached = self._read(self.names)
        parts = 1 if self._cached is not None else math.ceil(self._size / _BYTES_AT_ONCE)
        step = max(1, math.ceil(len(self.names) / parts))
        for start in range(0, len(names), step):
            chosen = names[start : start + step]
            read = self._cached if self._cached is not None else self._read(chosen)
            for name in chosen:
                yield name, TextColumn.of(read.column(name))

    @property
    def _marked(self) -> str:
        """Encoding that skips a mark at the beginning of the file."""
        return "utf-8-sig" if self._encoding == UTF8 else self._encoding

    @property
    def _packed(self) -> str:
        return next((end for end in (".gz", ".zip") if self._path.name.lower().endswith(end)), "")

    def _open(self) -> io.BufferedIOBase:
        if self._packed == ".zip":
            archive = zipfile.ZipFile(self._path)
            return cast("io.BufferedIOBase", archive.open(self._member(archive)))
        return cast("io.BufferedIOBase", (gzip.open if self._packed else open)(self._path, "rb"))

    def _member(self, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
        files = [
            member for member in archive.infolist() if not member.is_dir() and not member.filename.startswith(_ADDED)
        ]
        if len(files) != 1:
            raise BadInputError(
                f"the archive {str(self._path)!r} holds {len(files)} files, expected one; unpack it and give the table."
            )
        if files[0].flag_bits & 1:
            raise BadInputError(
                f"the archive {str(self._path)!r} is encrypted; unpack it with its password and give the table."
            )
        return files[0]

    def _scan(self) -> tuple[int, bool, int]:
        """Return the unpacked size, whether quoted cells follow a space, and the number of empty lines at the end.

        Empty are lines of separators alone; lines without any are no rows in the first place.
        """
        decoder = codecs.getincrementaldecoder(self._encoding)()
        tool = "unzip" if self._packed == ".zip" else "gunzip"
        # Without the mark that UTF-16 begins with.
        sign = f'{self._separator} "'.encode(self._encoding).removeprefix("".encode(self._encoding))
        size, lines, last, spaced, tail = 0, 0, b"", False, ""
        with self._open() as file:
            while block := file.read(_BLOCK):
                if b"\0" in block and "16" not in self._encoding and "32" not in self._encoding:
                    line = lines + block[: block.index(b"\0")].count(b"\n") + 1
                    raise BadInputError(
                        f"the table {str(self._path)!r} has NUL bytes, the first in line {line}; it is UTF-16 or a "
                        "binary file. Save it again as CSV in UTF-8, or name its encoding (",
                        Remedy("encoding", "utf-16"),
                        ").",
                    )
                try:
                    tail = tail[-_TAIL:] + decoder.decode(block)
                except UnicodeDecodeError as error:
                    # The decoder may have held back a few bytes of the block before.
                    line = lines + bytes(error.object[: error.start]).count(b"\n") + 1
                    other = "cp1252" if self._encoding == UTF8 else "latin-1"
                    raise BadInputError(
                        f"the table {str(self._path)!r} is not {self._encoding.upper()} text, line {line} is the first "
                        "that is not; name its encoding (Western European files of Windows: ",
                        Remedy("encoding", other),
                        "), or save it again as UTF-8.",
                    ) from error
                spaced = spaced or sign in last + block
                size, lines, last = size + len(block), lines + block.count(b"\n"), block[1 - len(sign) :]
                if self._packed:
                    _check_unpacked(self._path, size, "bytes", f"unpack it ({tool}) and give the unpacked file")
        empty = 0
        for line in reversed(tail.splitlines()[1:]):
            if line.replace(self._separator, "").strip(" "):
                break
            empty += self._separator in line
        return size, spaced, empty

    def _header(self) -> tuple[str, ...]:
        shown = str(self._path)
        with self._open() as file:
            lines = codecs.getreader(self._marked)(file)
            rows = csv.reader(lines, delimiter=self._separator, skipinitialspace=True)
            header, first = next(rows, []), []
            # A cell may be above this module's limit, which Arrow has not.
            with suppress(csv.Error):
                first += [row for row in islice(rows, LINES) if row]
        before = (
            "is empty"
            if not any(header) and first
            else "names a separator, as Excel writes it"
            if header and re.fullmatch("sep=.?", header[0], re.IGNORECASE)
            else "is a comment"
            if header and len(header) < len(first[0] if first else []) and header[0].startswith("#")
            else None
        )
        if before is not None:
            raise BadInputError(
                f"the first line of the table {shown!r} {before}; remove what stands before the names of the columns."
            )
        if not any(header):
            raise BadInputError(f"the table {shown!r} is empty; its first line must name the columns.")
        likely = [sign for sign in ";\t|," if len(header) == 1 and sign != self._separator and sign in header[0]]
        if likely:
            # The line may be a person's, so that it is not shown.
            raise _OneColumnError(
                likely[0],
                f"the table {shown!r} has one column when split at {self._separator!r}, and its first line has "
                f"{header[0].count(likely[0])} of {likely[0]!r}; give ",
                Remedy("separator", likely[0]),
                ".",
            )
        self._first = (header, first)
        if len(set(header)) < len(header) or "" in header:
            # Cells of a row repeat more often than names do, and messages show names.
            refuse_data(f"the table {shown!r}", header, first)
        if "" in header:
            header = self._named(header, first)
        check_names(header)
        return tuple(header)

    def shown_names(self) -> tuple[str, ...]:
        """Return the names of the columns for a message; see ``Source``."""
        refuse_data(f"the table {str(self._path)!r}", *self._first)
        return self.names

    def lists_names(self) -> bool:
        """Return whether a message may list the names; see ``Source``."""
        return names_numbers(*self._first)

    def _named(self, header: list[str], first: Sequence[Sequence[str]]) -> list[str]:
        """Return the header with names in the place of missing ones; refuse it where their columns hold anything."""
        nameless = [i for i, name in enumerate(header) if not name.strip()]
        if not first or len(nameless) == len(header):
            raise _no_rows(self._path)
        places = {i: f"(column {i + 1})" for i in nameless}
        self._all_names = tuple(places.get(i, name) for i, name in enumerate(header))
        check_names(self._all_names)
        read = self._read([self._all_names[i] for i in nameless])
        for i in nameless:
            if not TextColumn.of(read.column(self._all_names[i])).trimmed().empty().all():
                raise BadInputError(
                    f"column {i + 1} of the table {str(self._path)!r} has no name"
                    + (", it may be an index that pandas saved (to_csv(index=False) leaves it out)" if not i else "")
                    + "; name it or take it out of the file."
                )
        columns = f"column{'s' if len(nameless) > 1 else ''} {listed([str(i + 1) for i in nameless])}"
        self.notes += (f"left out, without a name and without a cell: {columns} of the file",)
        self._left_out = frozenset(places.values())
        return list(self._all_names)

    def _read(self, names: Sequence[str]) -> pa.Table:
        table = self._read_spaced(names) if self._spaced else self._read_plain(names)
        table = table.slice(0, len(table) - self._blank_lines)
        if not len(table):
            raise _no_rows(self._path)
        return table

    def _read_plain(self, names: Sequence[str]) -> pa.Table:
        try:
            # Neither a file nor a handler of Python's: where Arrow's threads still hold one when the program ends, they
            # abort it.
            with self._stream() as stream:
                return arrow_csv.read_csv(
                    stream,
                    read_options=arrow_csv.ReadOptions(
                        column_names=list(self._all_names),
                        skip_rows_after_names=1,
                        block_size=_BLOCK,
                        encoding=self._encoding,
                    ),
                    parse_options=arrow_csv.ParseOptions(delimiter=self._separator, newlines_in_values=True),
                    convert_options=arrow_csv.ConvertOptions(
                        include_columns=list(names),
                        column_types=dict.fromkeys(names, pa.string()),
                        strings_can_be_null=False,
                    ),
                )
        except pa.ArrowInvalid as error:
            # Its message may show a row of the table.
            self._refuse_ragged()
            raise BadInputError(
                f"the table {str(self._path)!r} cannot be split into rows and cells; look for a quotation mark "
                "that is never closed, or save it again as CSV."
            ) from error

    def _stream(self) -> pa.NativeFile:
        if self._packed == ".zip":
            with self._open() as file:
                return pa.BufferReader(file.read())
        return pa.input_stream(str(self._path), compression="gzip" if self._packed else None)

    def _read_spaced(self, names: Sequence[str]) -> pa.Table:
        """Read a file in which a space may stand between a separator and a quotation mark."""
        self._refuse_ragged()
        frame = pd.read_csv(
            self._path,
            sep=self._separator,
            encoding=self._marked,
            skipinitialspace=True,
            header=0,
            names=list(self._all_names),
            keep_default_na=False,
            dtype=str,
            compression="infer",
        )
        return pa.table({name: pa.array(frame[name], type=pa.string()) for name in names})

    def _refuse_ragged(self) -> None:
        """Raise an error that names the first row with another number of cells than the header, if there is one."""
        with self._open() as file:
            rows = csv.reader(
                codecs.getreader(self._marked)(file), delimiter=self._separator, skipinitialspace=True, strict=False
            )
            lengths = [(rows.line_num, len(row)) for row in rows if row]
        if len(lengths) < 2:
            raise _no_rows(self._path)
        wrong = [(line, cells) for line, cells in lengths if cells != len(self._all_names)]
        if wrong:
            line, cells = wrong[0]
            raise BadInputError(
                f"the header of the table {str(self._path)!r} names {len(self._all_names)} columns, but line "
                f"{line} has {how_many(cells, 'cell')} ({how_many(len(wrong), 'such row')} in all); name every "
                "column, quote cells that contain the separator, or take those rows out."
            )


class _TypedSource(Source):
    """A file that holds types; an index without a name, which pandas kept in it, is no column."""

    def __init__(self, path: Path, names: Sequence[str], rows: int) -> None:
        self.names = tuple(name for name in names if not _UNNAMED_INDEX.fullmatch(name))
        check_names(self.names)
        if not rows:
            raise _no_rows(path)
        _check_unpacked(path, rows * len(self.names), "cells", "save it as CSV and give that file")


class ParquetSource(_TypedSource):
    """A Parquet file; decimals are floats."""

    def __init__(self, path: Path) -> None:
        self._file = parquet.ParquetFile(path)
        super().__init__(path, self._file.schema_arrow.names, self._file.metadata.num_rows)

    def columns(self, names: Sequence[str]) -> Iterator[tuple[str, pd.Series | TextColumn]]:
        """Read columns with the types they are stored in."""
        step = max(1, _CELLS_AT_ONCE // self._file.metadata.num_rows)
        for start in range(0, len(names), step):
            chosen = list(names[start : start + step])
            read = self._file.read(columns=chosen)
            for name in chosen:
                yield name, _series(read.column(name))


class FeatherSource(_TypedSource):
    """A Feather file; like a Parquet file, it holds types."""

    def __init__(self, path: Path) -> None:
        # Mapped memory would keep the file open.
        self._table = feather.read_table(str(path), memory_map=False)
        super().__init__(path, self._table.column_names, len(self._table))

    def columns(self, names: Sequence[str]) -> Iterator[tuple[str, pd.Series | TextColumn]]:
        """Read columns with the types they are stored in."""
        for name in names:
            yield name, _series(self._table.column(name))


class ExcelSource(Source):
    """The first sheet of an Excel workbook; columns without a name and without a cell are no columns."""

    def __init__(self, path: Path) -> None:
        check_workbook(path)
        with pd.ExcelFile(path, engine="calamine") as book:
            sheets = [str(name) for name in book.sheet_names]
            rows = pd.read_excel(book, header=None, keep_default_na=False, na_values=[""])
        rows = rows.dropna(axis="index", how="all").dropna(axis="columns", how="all")
        if len(rows) < 2:
            raise _no_rows(path)
        header = rows.iloc[0]
        if header.isna().any():
            place = int(header.isna().to_numpy().argmax()) + 1
            raise BadInputError(
                f"column {place} of the first sheet of {str(path)!r} has no name in the first row that is not empty; "
                "let that row name the columns, without a title above it."
            )
        first = rows.head(LINES + 1).map(_shown_cell).to_numpy().tolist()
        self._first, self._path = (first[0], first[1:]), path
        if len(set(first[0])) < len(first[0]):
            refuse_data(f"the table {str(path)!r}", *self._first)
        names = [str(int(name)) if isinstance(name, float) and name.is_integer() else str(name) for name in header]
        check_names(names)
        self.names = tuple(names)
        self._frame = rows.iloc[1:].set_axis(names, axis="columns").reset_index(drop=True)
        if len(sheets) > 1:
            self.notes = (f"read from the first of {len(sheets)} sheets, {sheets[0]!r}",)

    def shown_names(self) -> tuple[str, ...]:
        """Return the names of the columns for a message; see ``Source``."""
        refuse_data(f"the table {str(self._path)!r}", *self._first)
        return self.names

    def lists_names(self) -> bool:
        """Return whether a message may list the names; see ``Source``."""
        return names_numbers(*self._first)

    def columns(self, names: Sequence[str]) -> Iterator[tuple[str, pd.Series | TextColumn]]:
        """Return columns of the sheet: as texts where all cells are texts, else as they are."""
        for name in names:
            cells = self._frame[name]
            present = cells.dropna()
            if len(present) and present.map(lambda cell: isinstance(cell, str)).all():
                yield name, TextColumn.of_series(cells)
            else:
                yield name, cells


class OrderedDates(WrappedSource):
    """A table in which dates that leave day and month open are ISO dates."""

    def __init__(self, inner: Source, day_first: bool) -> None:
        super().__init__(inner, inner.names)
        self._day_first = day_first

    def columns(self, names: Sequence[str]) -> Iterator[tuple[str, pd.Series | TextColumn]]:
        """Read columns one after the other."""
        for name, raw in self._inner.columns(names):
            dated = dates_in_digits(raw)
            if dated is not None and dated.written().undecided:
                yield name, dated.with_order(self._day_first)
            elif isinstance(raw, TextColumn):
                yield name, raw.with_order(self._day_first)
            elif pd.api.types.infer_dtype(raw, skipna=True) == "string" and not hasattr(raw, "cat"):
                ordered = TextColumn.of_series(raw).with_order(self._day_first)
                values = pd.Series(np.array(ordered.distinct.to_pylist(), dtype=object)[ordered.position])
                yield name, values.where(raw.notna().to_numpy(), None)
            else:
                yield name, raw


def open_table(source: pd.DataFrame | str | Path, separator: str = ",", encoding: str = UTF8) -> Source:
    """Open a DataFrame, which is taken as it is, or a file; ``policy.SUFFIXES`` lists the ends of the names of files.

    Of files, blanks around names and texts are trimmed, and texts that stand for a missing cell (``texts.MISSING``) are
    missing. A separator of a comma is a tabulator in ``.tsv`` files.
    """
    if isinstance(source, pd.DataFrame):
        return FrameSource(source)
    path = Path(source)
    check_file(path)
    return _FileSource(path, separator, encoding)


def check_file(path: Path) -> None:
    """Refuse a path that is no file, or none of a table."""
    if not path.name.lower().endswith(SUFFIXES):
        raise BadInputError(
            f"{str(path)!r} is none of the files that can be read ({', '.join(SUFFIXES)}); "
            "save the table as one of them, or read it with pandas and pass the DataFrame."
        )
    if not path.is_file():
        there = "is not a file" if path.exists() else "does not exist"
        raise BadInputError(f"the table {str(path)!r} {there}; give the path of a {', '.join(SUFFIXES)} file.")


class _FileSource(Source):
    """A file, without blanks around names and texts; its errors are reported in one paragraph, whenever they occur."""

    def __init__(self, path: Path, separator: str, encoding: str) -> None:
        self._path = path
        name = path.name.lower()
        try:
            if name.endswith(".parquet"):
                self._inner: Source = ParquetSource(path)
            elif name.endswith(".feather"):
                self._inner = FeatherSource(path)
            elif name.endswith((".xlsx", ".xls")):
                self._inner = ExcelSource(path)
            else:
                tabbed = name.removesuffix(".gz").removesuffix(".zip").endswith(".tsv")
                usual = "\t" if tabbed and separator == "," else separator
                try:
                    self._inner = CsvSource(path, usual, encoding)
                except _OneColumnError as error:
                    # A file of one column holds no target; of the usual signs, a semicolon stands in few names.
                    if (usual, error.separator) != (",", ";"):
                        raise
                    self._inner = CsvSource(path, error.separator, encoding)
                    self._inner.notes += (f"the file is split at {error.separator!r}, since ',' leaves one column",)
        except _broken as error:
            raise _unreadable(path, error) from error
        bare = [name.strip() for name in self._inner.names]
        # Columns whose names differ by blanks alone stay apart, under the names that the file has.
        self._alike = [raw for raw, name in zip(self._inner.names, bare, strict=True) if bare.count(name) > 1]
        self._raw_names = {
            raw if raw in self._alike else name: raw for raw, name in zip(self._inner.names, bare, strict=True)
        }
        self.names = tuple(self._raw_names)
        self._trimmed: set[str] = set()

    @property
    def notes(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Facts about the reading; blanks around cells are known once their columns have been read."""
        around = [
            f"{how_many(count, what)} of {of}"
            for count, what, of in (
                (sum(name != raw for name, raw in self._raw_names.items()), "name", "columns"),
                (len(self._trimmed), "column", "cells"),
            )
            if count
        ]
        alike = [f"columns whose names differ by blanks alone are kept apart: {self._alike!r}"] if self._alike else []
        return (*self._inner.notes, *([f"blanks trimmed around {' and '.join(around)}"] if around else []), *alike)

    def shown_names(self) -> tuple[str, ...]:
        """Return the names of the columns for a message; see ``Source``."""
        self._inner.shown_names()
        return self.names

    def lists_names(self) -> bool:
        """Return whether a message may list the names; see ``Source``."""
        return self._inner.lists_names()

    def columns(self, names: Sequence[str]) -> Iterator[tuple[str, pd.Series | TextColumn]]:
        cooked = {raw: name for name, raw in self._raw_names.items()}
        try:
            for raw_name, raw in self._inner.columns([self._raw_names[name] for name in names]):
                yield cooked[raw_name], self._tidy(cooked[raw_name], raw)
        except (*_broken, pd.errors.ParserError) as error:
            raise _unreadable(self._path, error) from error

    def _tidy(self, name: str, raw: pd.Series | TextColumn) -> pd.Series | TextColumn:
        if isinstance(raw, TextColumn):
            trimmed = raw.trimmed()
            if trimmed is not raw:
                self._trimmed.add(name)
            return trimmed
        if isinstance(raw.dtype, pd.CategoricalDtype) or not (
            pd.api.types.is_object_dtype(raw) or pd.api.types.is_string_dtype(raw)
        ):
            return raw
        if any(isinstance(cell, list | dict | np.ndarray) for cell in raw):
            # Nested cells are refused where kinds are inferred, as those of a DataFrame are.
            return raw
        trimmed = raw.map(lambda cell: cell.strip() if isinstance(cell, str) else cell, na_action="ignore")
        changed = (trimmed != raw) & raw.notna()
        if changed.any():
            self._trimmed.add(name)
        mixed = among_numbers(trimmed)
        if mixed is not None:
            return mixed
        plus = bool((trimmed == "+").any())
        gone = trimmed.isin([text for text in MISSING if text != "-" or not plus]).to_numpy(dtype=bool)
        if not changed.any() and not gone.any():
            return raw.infer_objects()
        return trimmed.astype(object).where(~gone, None).infer_objects()


def _shown_cell(cell: Any) -> str:
    return "" if pd.isna(cell) else str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def read_frame(path: str | Path, separator: str = ",") -> pd.DataFrame:
    r"""Read a table from a file, see ``open_table``; a missing cell is NaN.

    A column is boolean (true, false), whole, numeric or text, the first that all its other cells are; with a leading
    zero (01) it is text. A named index kept in a Parquet file becomes a column.

    Raises:
        BadInputError: the file cannot be read, or its header or rows are broken.
    """
    source = open_table(path, separator)
    return pd.DataFrame({name: typed(raw) for name, raw in source.columns(source.names)})


def typed(raw: pd.Series | TextColumn) -> pd.Series:
    """Return a column with the type its cells seem to have."""
    return raw.typed() if isinstance(raw, TextColumn) else raw


def check_names(names: Sequence[Hashable]) -> None:
    """Raise ``BadInputError`` unless all column names are text and differ."""
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        raise BadInputError(
            f"column names must be text, got {', '.join(map(repr, odd[:5]))}; rename them, "
            "for example frame.columns = frame.columns.map(str)."
        )
    earlier: set[Hashable] = set()
    repeated = list(dict.fromkeys(str(name) for name in names if name in earlier or earlier.add(name)))
    if repeated:
        raise BadInputError(f"column names must differ, these repeat: {', '.join(repeated)}; rename or drop some.")


def _series(column: pa.ChunkedArray) -> pd.Series:
    kind = column.type
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    # Whole numbers with gaps would become floats, and large ones others than they were.
    nullable = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
    return column.to_pandas(date_as_object=False, types_mapper=nullable.get if column.null_count else None)


def _check_unpacked(path: Path, size: int, what: str, remedy: str) -> None:
    packed = path.stat().st_size
    if size > max(_UNPACKED, _PACKED_AWAY * packed):
        raise BadInputError(
            f"the table {str(path)!r} unpacks from {packed:,} bytes to {size:,} {what} or more, {size // packed:,} "
            f"times its size, which no table of records does; if it is meant, {remedy}."
        )


def _no_rows(path: Path) -> BadInputError:
    return BadInputError(f"the table {str(path)!r} has no rows; give a file with a header and at least one row.")


def _unreadable(path: Path, error: Exception) -> BadInputError:
    if isinstance(error, PermissionError):
        return BadInputError(
            f"the table {str(path)!r} cannot be read: its permissions forbid it; change them (chmod u+r) or copy it."
        )
    # A file that is not packed shows its first bytes in the message: what is in the table is not repeated.
    reason = "Not a gzipped file" if isinstance(error, gzip.BadGzipFile) else " ".join(str(error).split()).rstrip(".")
    return BadInputError(
        f"the table {str(path)!r} cannot be read: {reason}; it may be truncated or damaged "
        "(compare its size or checksum with the original), or not be what its name says."
    )
