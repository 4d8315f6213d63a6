"""Parsing of the texts of a table: missing values, booleans, numbers and dates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from seepage.tabular.formats import Written, iso_days, read_written

# What a cell may hold to say "missing". pandas' own list also takes "None", which is a category in many tables.
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "?", "-", "--")
# A minus beside a plus is the result of a test.
_MINUS, _PLUS = "-", "+"

# 01 is a code and 1_0 a name, neither a number.
_NO_NUMBER = r"_|^[+-]?0[0-9]"
_WHOLE = r"^[+-]?[0-9]+$"
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]*)?")
_compute: Any = pc


@dataclass(frozen=True)
class TextColumn:
    """A column of texts, each distinct one stored once; ``position`` is that of each row's text, int32."""

    position: np.ndarray
    distinct: pa.Array

    @classmethod
    def of(cls, column: pa.ChunkedArray | pa.Array) -> TextColumn:
        """Gather a column of texts; spaces at the beginning of a text are skipped."""
        if _any(_compute.starts_with(column, " ")):
            column = _compute.utf8_ltrim(column, " ")
        encoded = column.dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        return cls(encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary)

    @classmethod
    def of_series(cls, series: pd.Series) -> TextColumn:
        """Gather a column of texts, missing ones as empty."""
        texts = series.astype(object).where(series.notna(), "")
        return cls.of(pa.array(texts, type=pa.string()))

    def trimmed(self) -> TextColumn:
        """Return the column without blanks around its texts: itself where there are none."""
        texts = _compute.utf8_trim_whitespace(self.distinct)
        if texts.equals(self.distinct):
            return self
        encoded = texts.dictionary_encode()
        return TextColumn(encoded.indices.to_numpy(zero_copy_only=False)[self.position], encoded.dictionary)

    def with_order(self, day_first: bool) -> TextColumn:
        """Return dates of which nothing tells day from month as ISO dates; any other column as it is."""
        if not self.written().undecided:
            return self
        empty = self.empty()
        texts = self.distinct.to_pylist()
        values = iter(self.written(day_first).values)
        iso = [text if gone else _iso(next(values)) for text, gone in zip(texts, empty, strict=True)]
        return TextColumn(self.position, pa.array(iso, type=self.distinct.type))

    def __len__(self) -> int:
        return len(self.position)

    def empty(self) -> np.ndarray:
        """Return which of the distinct texts stand for a missing cell."""
        trimmed = _compute.utf8_trim_whitespace(self.distinct)
        markers = MISSING
        if len(trimmed) and _any(_compute.equal(trimmed, _PLUS)):
            markers = tuple(text for text in MISSING if text != _MINUS)
        return _compute.is_in(trimmed, value_set=pa.array(markers)).to_numpy(zero_copy_only=False)

    def typed(self) -> pd.Series:
        """Return booleans, whole numbers, numbers or texts: the first that all texts are; NaN where missing."""
        empty = self.empty()
        texts = self.distinct.filter(pa.array(~empty))
        values = _values(_compute.utf8_trim_whitespace(texts))
        if values is None:
            values = np.array(texts.to_pylist(), dtype=object)
        if not len(texts):
            return pd.Series(np.full(len(self), np.nan))
        if empty.any():
            kind = np.float64 if values.dtype.kind in "if" else object
            all_values = np.full(len(empty), np.nan if kind is np.float64 else None, dtype=kind)
            all_values[~empty] = values
            values = all_values
        column = pd.Series(values[self.position])
        return column.infer_objects() if values.dtype == object else column

    def as_texts(self) -> pd.Series:
        """Return the texts as they are, None where missing."""
        texts = np.array(self.distinct.to_pylist(), dtype=object)
        texts[self.empty()] = None
        return pd.Series(texts[self.position])

    def all_match(self, pattern: re.Pattern[str]) -> bool:
        """Return whether all texts that are not missing match a pattern as a whole, and there is one."""
        texts = _compute.utf8_trim_whitespace(self.distinct.filter(pa.array(~self.empty())))
        return bool(len(texts)) and _all(_compute.match_substring_regex(texts, f"^(?:{pattern.pattern})$"))

    def numbers(self) -> np.ndarray:
        """Return each row's number, see ``formats.read_written``: NaN where missing or none; dates in days."""
        trimmed = _compute.utf8_trim_whitespace(self.distinct)
        blank = _compute.if_else(pa.array(self.empty()), "nan", trimmed)
        try:
            values = blank.cast(pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            empty = self.empty()
            values = np.array([number(text) for text in trimmed.to_pylist()], dtype=np.float64)
            if np.isnan(values[~empty]).any():
                written = self.written().values
                if np.isnan(written).sum() < np.isnan(values[~empty]).sum():
                    values[~empty] = written
        return values[self.position]

    def written(self, day_first: bool | None = None) -> Written:
        """Return the numbers that the texts stand for, missing ones left out."""
        texts = self.distinct.filter(pa.array(~self.empty())).to_pylist()
        return read_written([text.strip() for text in texts], day_first)


def number(text: str) -> float:
    """Return the number that a text stands for, NaN where it is none; thousands may have commas.

    ISO dates and times are days since 1970-01-01 (UTC where no zone is given).
    """
    text = text.strip()
    if text in MISSING:
        return np.nan
    try:
        return float(text)
    except ValueError:
        pass
    return float(text.replace(",", "")) if _THOUSANDS.fullmatch(text) else iso_days(text)


def _iso(value: float) -> str:
    """Return days since 1970-01-01 as an ISO date, with the time where there is one."""
    text = str(np.datetime64(0, "us") + np.timedelta64(round(value * 86_400e6), "us"))
    return text.removesuffix("T00:00:00.000000")


def _values(texts: pa.Array) -> np.ndarray | None:
    """Return the values of trimmed texts that all are booleans, whole numbers or numbers; None for other texts."""
    if not len(texts):
        return None
    if len(texts) <= 6 and {text.lower() for text in texts.to_pylist()} <= {"true", "false"}:
        return np.array([text.lower() == "true" for text in texts.to_pylist()])
    if _any(_compute.match_substring_regex(texts, _NO_NUMBER)):
        return None
    kinds = (pa.int64(), pa.float64()) if _all(_compute.match_substring_regex(texts, _WHOLE)) else (pa.float64(),)
    unsigned = _compute.replace_substring_regex(texts, pattern=r"^\+", replacement="")
    for kind in kinds:
        try:
            return unsigned.cast(kind).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            pass
    return None


def _any(mask: pa.Array | pa.ChunkedArray) -> bool:
    return bool(_compute.any(mask).as_py())


def _all(mask: pa.Array | pa.ChunkedArray) -> bool:
    return bool(_compute.all(mask).as_py())
