"""Parsing of the texts of a table: missing values, booleans, numbers, dates, and amounts as people write them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

# The units of dates and times, and of times of day.
DAYS, HOURS = "days since 1970-01-01", "hours of the day"

_CLOCK = re.compile(r"([01]?[0-9]|2[0-3])(?::([0-5][0-9])(?::([0-5][0-9]))?|\.([0-5][0-9])\.([0-5][0-9]))")
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T].*)?")
_TIME = r"(?:[ T]+(?P<time>[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?)(?:\s?(?P<half>[AaPp][Mm]))?)?"
_NUMBERED = re.compile(r"(?P<a>[0-9]{1,2})(?P<sign>[./-])(?P<b>[0-9]{1,2})(?P=sign)(?P<year>[0-9]{4}|[0-9]{2})" + _TIME)
_YEAR_FIRST = re.compile(r"(?P<year>[0-9]{4})[./](?P<b>[0-9]{1,2})[./](?P<a>[0-9]{1,2})" + _TIME)
_DAY_NAMED = re.compile(r"(?P<a>[0-9]{1,2})[. -]+(?P<month>[A-Za-z]{3,9})\.?[, -]+(?P<year>[0-9]{4})" + _TIME)
_MONTH_NAMED = re.compile(r"(?P<month>[A-Za-z]{3,9})\.? +(?P<a>[0-9]{1,2}),? +(?P<year>[0-9]{4})" + _TIME)
_MONTHS = ("january", "february", "march", "april", "may", "june", "july")
_MONTHS += ("august", "september", "october", "november", "december")
# Years of two digits from here on are of the century before, as POSIX has it.
_CENTURY = 69

_CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|RON|RUB|BRL|MXN|ZAR|TRY|KRW|SGD|HKD"
_MONEY = rf"(?:[A-Z]{{0,2}}[$€£¥₹₽₩₺₪฿]|{_CODES}|Rs\.?|kr\.?|zł)"
# Blanks, no-break and narrow ones too.
_GAP = "[ \u00a0\u202f\u2009]"
_SPACED = rf"[0-9]{{1,3}}(?:(?:{_GAP}|['’])[0-9]{{3}})+|[0-9]+"
# Digits with a point between whole and fraction, as in India too, and with a comma.
_POINT = rf"(?:[0-9]{{1,3}}(?:,[0-9]{{3}})+|[0-9]{{1,2}}(?:,[0-9]{{2}})+,[0-9]{{3}}|{_SPACED})?(?:\.[0-9]*)?"
_COMMA = rf"(?:[0-9]{{1,3}}(?:\.[0-9]{{3}})+|{_SPACED})?(?:,[0-9]+)?"
_DIGITS = rf"[0-9.,](?:[0-9.,'’]|{_GAP}(?=[0-9]))*"
_WORD = r"[^\W\d_][^\W\d_/%²³°. ·-]*"
_UNIT = rf"[%‰°µ²³]?(?:{_WORD}(?:[/ ·]{_WORD}){{0,2}}[²³23]?)?"
_AMOUNT = re.compile(
    rf"(?P<open>\()?(?P<minus>[+−-]?){_GAP}?(?P<money>{_MONEY})?{_GAP}?(?P<minus2>[+−-]?)(?P<digits>{_DIGITS}){_GAP}?"
    rf"(?P<unit>{_MONEY}|{_UNIT})?(?P<close>\))?"
)
_CODED = re.compile(r"0[0-9]")
# A limit of detection or of a scale: <0.01, >= 90, 90+.
_LIMIT = re.compile(
    r"(?:(?:<|>|≤|≥|⩽|⩾)=?|=[<>]|less than|more than|below|above|kleiner(?: als)?|größer(?: als)?)"
    r"\s*(?P<bare>[^\s<>=].*)"
    r"|(?P<plus>[0-9.,]+)\s?\+",
    re.IGNORECASE,
)
# Dates in digits alone: 20200103, 03012020 (also without its first zero), 202001.
_DIGITS_OF_DATES = re.compile(r"([0-9]{6,8})(?:\.0+)?")
_FIRST_YEAR, _LAST_YEAR = 1850, 2150
# More different values are no list of categories.
_MANY = 20
# Fewer different numbers may be dates by chance: one of 30 numbers of eight digits in this span is a day.
_FEWEST_DAYS, _FEWEST_OTHERS = 2, 5
_WITH_COMMA, _WITH_POINT = re.compile(_COMMA), re.compile(_POINT)


@dataclass(frozen=True)
class Written:
    """Meaning of a column's texts as numbers, NaN for none; the unit is that of all, or that of days for dates.

    Dates are ``undecided`` where nothing tells day from month; numbers ``mixed`` where some have a decimal comma and
    some a decimal point. ``limits`` are those that are a limit, such as ``<0.01``: the number is that of the limit.
    """

    values: np.ndarray
    unit: str | None = None
    undecided: bool = False
    mixed: bool = False
    limits: np.ndarray | None = None

    @property
    def is_date(self) -> bool:
        """Whether the texts are dates."""
        return self.unit == DAYS


def read_written(texts: Sequence[str], day_first: bool | None = None) -> Written:
    """Return the numbers that a column's different, trimmed texts stand for; the column settles what one leaves open.

    Limits among numbers, such as ``<0.01`` or ``90+``, are the number of the limit where at least as many texts are
    plain. Dates are days since 1970-01-01.

    In ``12/05/2020`` a number above 12 anywhere in the column tells day from month;
    with points (``12.05.2020``) the day is first unless the column says otherwise. Commas are decimal where they cannot
    separate thousands. A unit is one that all numbers but zeros have. Times of day are hours. ``day_first`` is the
    order of dates that the column leaves open.
    """
    clock = [_CLOCK.fullmatch(text) for text in texts]
    if texts and None not in clock:
        parts = [[float(part or 0) for part in match.groups()] for match in clock if match is not None]
        return Written(np.array(parts) @ (1, 1 / 60, 1 / 3600, 1 / 60, 1 / 3600), HOURS)
    dates = _dates(texts, day_first)
    if dates is not None:
        return dates
    bare = [_without_limit(text) for text in texts]
    limits = np.array([plain != text for plain, text in zip(bare, texts, strict=True)], dtype=bool)
    if not limits.any() or 2 * limits.sum() > len(texts):
        return _amounts(texts)
    return replace(_amounts(bare), limits=limits)


def _without_limit(text: str) -> str:
    match = _LIMIT.fullmatch(text)
    return text if match is None else (match["bare"] or match["plus"]).strip()


def in_both_orders(texts: Sequence[str]) -> bool:
    """Return whether all texts are dates in numbers, some with the day before the month and some after it."""
    matches = [_NUMBERED.fullmatch(text.strip()) for text in texts]
    firsts = [max(int(match["a"]) - 12, 0) for match in matches if match is not None]
    seconds = [max(int(match["b"]) - 12, 0) for match in matches if match is not None]
    return None not in matches and any(firsts) and any(seconds)


def is_date(text: str) -> bool:
    """Return whether a text looks like an ISO date, with a time or without."""
    return _ISO.fullmatch(text.strip()) is not None


def days(moment: date) -> float:
    """Return a date or time in days since 1970-01-01; without a zone, it is taken as UTC."""
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() / 86_400


def iso_days(text: str) -> float:
    """Return an ISO date or time in days since 1970-01-01, NaN for any other text."""
    if not is_date(text):
        return np.nan
    try:
        return days(datetime.fromisoformat(text.strip()))
    except ValueError:
        return np.nan


def _dates(texts: Sequence[str], day_first: bool | None) -> Written | None:
    """Return dates; None where a text is none, or the order of days and months differs within the column."""
    if not texts:
        return None
    parsed: list[re.Match[str] | None] = []
    for text in texts:
        matches = (form.fullmatch(text) for form in (_NUMBERED, _YEAR_FIRST, _DAY_NAMED, _MONTH_NAMED))
        match = next((match for match in matches if match is not None), None)
        if match is None and not is_date(text):
            return None
        parsed.append(match)
    numbered = [match for match in parsed if match is not None and match.re is _NUMBERED]
    first = any(int(match["a"]) > 12 for match in numbered)
    second = any(int(match["b"]) > 12 for match in numbered)
    if first and second:
        return None
    order = first if first or second else None
    if order is None and numbered and all(match["sign"] == "." for match in numbered):
        order = True
    order = day_first if order is None else order
    if numbered and order is None:
        return Written(np.full(len(texts), np.nan), DAYS, undecided=True)
    values = [
        iso_days(text) if match is None else _moment(match, order) for text, match in zip(texts, parsed, strict=True)
    ]
    return None if np.isnan(values).any() else Written(np.array(values), DAYS)


def _moment(match: re.Match[str], day_first: bool | None) -> float:
    parts = match.groupdict()
    day, year = int(parts["a"]), int(parts["year"])
    if "month" in parts:
        month = next((i for i, name in enumerate(_MONTHS, 1) if name.startswith(parts["month"].lower()[:9])), 0)
    else:
        month = int(parts["b"])
        if match.re is _NUMBERED and not day_first:
            day, month = month, day
    if len(parts["year"]) == 2:
        year += 1900 if year >= _CENTURY else 2000
    hour, minute, second = 0, 0, 0.0
    if parts["time"]:
        clock = [float(part) for part in parts["time"].split(":")] + [0.0]
        hour, minute, second = int(clock[0]), int(clock[1]), clock[2]
        if parts["half"]:
            hour = hour % 12 + (12 if parts["half"].lower() == "pm" else 0)
    try:
        whole = datetime(year, month, day, hour, minute, int(second), tzinfo=UTC)
    except ValueError:
        return np.nan
    return days(whole) + (second - int(second)) / 86_400


def _amounts(texts: Sequence[str]) -> Written:
    matches = [_AMOUNT.fullmatch(text) for text in texts]
    units = Counter(_unit(match) for match in matches if match is not None)
    values = np.full(len(texts), np.nan)
    if not units:
        return Written(values)
    unit = units.most_common(1)[0][0]
    written = [
        None if match is None or (match["open"] is None) != (match["close"] is None) else match["digits"]
        for match in matches
    ]
    signs = _decimal_signs([digits for digits in written if digits is not None])
    if len(signs) > 1:
        return Written(values, mixed=None not in written)
    sign = next(iter(signs), ".")
    for i, (match, digits) in enumerate(zip(matches, written, strict=True)):
        if match is None or digits is None:
            continue
        value = _read(digits, sign)
        if _same_unit(_unit(match), unit) or (value == 0 and _unit(match) == ""):
            negative = match["open"] is not None or {match["minus"], match["minus2"]} & {"-", "−"}
            values[i] = -value if negative else value
    return Written(values, unit or None)


def _unit(match: re.Match[str]) -> str:
    # A unit behind money is a size, as in $5.1K, or a rate.
    return " ".join(part.strip() for part in (match["money"], match["unit"]) if part and part.strip())


def _same_unit(first: str, second: str) -> bool:
    """Return whether two units are equal, or a word of three letters or more and its plural (day, days; Tag, Tage)."""
    short, long = sorted((first, second), key=len)
    return first == second or (len(short) > 2 and long.removeprefix(short) in ("s", "e", "n", "en", "es"))


def _decimal_signs(written: Sequence[str]) -> set[str]:
    """Return the decimal signs that some digits must have: those that the other sign leaves without a meaning."""
    comma = any(_WITH_COMMA.fullmatch(digits) and not _WITH_POINT.fullmatch(digits) for digits in written)
    point = any(_WITH_POINT.fullmatch(digits) and not _WITH_COMMA.fullmatch(digits) for digits in written)
    return {sign for sign, there in ((",", comma), (".", point)) if there}


def _read(digits: str, sign: str) -> float:
    """Return the number of digits with a decimal sign, NaN for codes such as 007."""
    if _CODED.match(digits) or not (_WITH_COMMA if sign == "," else _WITH_POINT).fullmatch(digits):
        return np.nan
    whole, _, fraction = digits.partition(sign)
    whole = re.sub("[^0-9]", "", whole)
    return float(f"{whole or 0}.{fraction or 0}") if whole or fraction else np.nan


# What a cell may hold to say "missing". pandas' own list also takes "None", which is a category in many tables.
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "?", "-", "--")
# What says "missing" in a column whose other cells are all numbers, dates or codes of digits: in small letters.
BESIDE_NUMBERS = frozenset(
    (
        *(".", "..", "...", "…", "---", "–", "—", "*", "na", "n.a.", "n. a.", "n/a", "#n/a", "<na>", "nan", "null"),
        *("(null)", "nd", "n.d.", "n/d", "s/d", "k.a.", "k. a.", "k.a", "missing", "(missing)", "[missing]", "unk"),
        *("<missing>", "unknown", "not available", "not applicable", "not done", "not measured", "not recorded"),
        *("not asked", "no data", "empty", "blank", "(empty)", "(blank)", "keine angabe", "ohne angabe", "unbekannt"),
        *("fehlt", "fehlend", "nicht erhoben", "nicht gemessen", "nicht bestimmt", "leer", "inconnu", "manquant"),
        *("non renseigné", "non disponible", "desconocido", "sin dato", "sin datos", "no aplica", "no disponible"),
        *("#value!", "#div/0!", "#ref!", "#num!", "#null!", "#name?"),
    )
)
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
        """Return which of the distinct texts stand for a missing cell; beside numbers more do, ``BESIDE_NUMBERS``."""
        return self._empty

    @cached_property
    def _empty(self) -> np.ndarray:
        trimmed = _compute.utf8_trim_whitespace(self.distinct)
        markers = MISSING
        if len(trimmed) and _any(_compute.equal(trimmed, _PLUS)):
            markers = tuple(text for text in MISSING if text != _MINUS)
        gone = _compute.is_in(trimmed, value_set=pa.array(markers)).to_numpy(zero_copy_only=False)
        small = _compute.utf8_lower(trimmed)
        beside = _compute.is_in(small, value_set=pa.array(sorted(BESIDE_NUMBERS))).to_numpy(zero_copy_only=False)
        if (beside & ~gone).any():
            others = trimmed.filter(pa.array(~gone & ~beside))
            if len(others) and _all_numbers(others):
                gone = gone | beside
        return gone

    def marks(self) -> dict[str, int]:
        """Return the words that count as missing beside numbers alone, with the number of cells that hold each."""
        trimmed = _compute.utf8_trim_whitespace(self.distinct).to_pylist()
        shown = [gone and text not in MISSING for text, gone in zip(trimmed, self.empty().tolist(), strict=True)]
        counts = np.bincount(self.position, minlength=len(trimmed)).tolist() if any(shown) else []
        return {text: count for text, count, is_shown in zip(trimmed, counts, shown, strict=False) if is_shown}

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


def is_mark(text: str) -> bool:
    """Return whether a text says "missing", if only beside numbers."""
    return text in MISSING or text.lower() in BESIDE_NUMBERS


def _all_numbers(texts: pa.Array) -> bool:
    """Return whether trimmed texts are all numbers, dates, times or codes of digits, and there is one."""
    values = _values(texts)
    if values is not None:
        return values.dtype.kind in "if"
    listed = texts.to_pylist()
    if all(text.isascii() and text.isdigit() for text in listed):
        return True
    # Few columns of a thousand numbers hold anything else.
    sample = listed[:: max(1, len(listed) // 1000)]
    read = [read_written(part) for part in (sample, listed) if part]
    return all(part.undecided or not (part.mixed or np.isnan(part.values).any()) for part in read)


def among_numbers(series: pd.Series) -> TextColumn | None:
    """Return numbers among which words or signs stand, as a column of texts; None for any other column.

    Such are cells for "missing" (``BESIDE_NUMBERS``) and limits (``<5``) beside cells that are numbers, as texts or as
    numbers: spreadsheets and DataFrames hold both in one column. Other words count where most cells are numbers.
    """
    if isinstance(series.dtype, pd.CategoricalDtype) or not (
        pd.api.types.is_object_dtype(series) or pd.api.types.is_string_dtype(series)
    ):
        return None
    present = series[series.notna().to_numpy()]
    kinds = {type(cell) for cell in present}
    if str not in kinds or not kinds <= {str, int, float, Decimal, np.int64, np.float64}:
        return None
    texts = {cell for cell in present if isinstance(cell, str)}
    if any(text != text.strip() for text in texts):
        # Of a DataFrame they are what they are, blanks included.
        return None
    odd = [text for text in texts if is_mark(text) or _LIMIT.fullmatch(text)]
    if kinds == {str} and (not odd or len(odd) == len(texts)):
        return None
    column = TextColumn.of_series(series.map(lambda cell: _plain_text(cell), na_action="ignore"))
    rest = _compute.utf8_trim_whitespace(column.distinct.filter(pa.array(~column.empty())))
    if len(rest) and _all_numbers(rest):
        return column
    # Words among many numbers are told of where kinds are inferred.
    numbers = sum(not isinstance(cell, str) for cell in present)
    return column if len(rest) > _MANY and 2 * numbers > len(present) else None


def _plain_text(cell: object) -> str:
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53 else str(cell)


def dates_in_digits(raw: pd.Series | TextColumn, least: int | None = None, months: bool = True) -> TextColumn | None:
    """Return dates written in digits alone as dates with signs between; None for a column that holds none.

    All cells are days as 20200103, days as 03012020 (or 01032020, which the column settles as it does 03/01/2020), or,
    where ``months``, months as 202001, which are their first days. Years are 1850 to 2150.

    Args:
        raw: the column.
        least: smallest number of different dates; by default so many that chance is none.
        months: whether six digits may be a month.
    """
    if isinstance(raw, TextColumn):
        texts = raw.distinct.to_pylist()
        position, gone = raw.position, raw.empty()
        digits = [None if skip else _DIGITS_OF_DATES.fullmatch(text) for text, skip in zip(texts, gone, strict=True)]
        if not texts or any(match is None and not skip for match, skip in zip(digits, gone.tolist(), strict=True)):
            return None
        numbers = [None if match is None else int(match[1]) for match in digits]
    else:
        types = pd.api.types
        if types.is_bool_dtype(raw) or not types.is_numeric_dtype(raw) or types.is_complex_dtype(raw):
            if types.infer_dtype(raw, skipna=True) == "string" and not isinstance(raw.dtype, pd.CategoricalDtype):
                return dates_in_digits(TextColumn.of_series(raw), least, months)
            return None
        values = raw.to_numpy(dtype=np.float64, na_value=np.nan)
        there = ~np.isnan(values)
        bounds = (1e5, 1e8)
        if not there.any() or not ((values[there] >= bounds[0]) & (values[there] < bounds[1])).all():
            return None
        if (values[there] != np.round(values[there])).any():
            return None
        distinct, inverse = np.unique(values[there], return_inverse=True)
        numbers = [int(value) for value in distinct] + [None]
        position = np.full(len(values), len(distinct), dtype=np.int32)
        position[there] = inverse
    known = [value for value in numbers if value is not None]
    form = _form_of_dates(known, least, months)
    if form is None:
        return None
    written = ["" if value is None else form(value) for value in numbers]
    return TextColumn(np.asarray(position), pa.array(written, type=pa.string()))


def _form_of_dates(numbers: Sequence[int], least: int | None, months: bool) -> Any:
    """Return how to write numbers as dates; None where they are none."""
    count = len(set(numbers))

    def day(year: int, month: int, day: int) -> bool:
        try:
            return _FIRST_YEAR <= year <= _LAST_YEAR and date(year, month, day) is not None
        except ValueError:
            return False

    def parts(value: int) -> tuple[int, int, int]:
        return value // 10_000, value // 100 % 100, value % 100

    if count >= (least or _FEWEST_DAYS) and all(day(*parts(value)) for value in numbers):
        return lambda value: "{:04}-{:02}-{:02}".format(*parts(value))
    if count < (least or _FEWEST_OTHERS):
        return None
    # 3012020 has lost its first zero.
    ends = [(value // 1_000_000, value // 10_000 % 100, value % 10_000) for value in numbers]
    if any(
        all(day(year, *order) for order, year in turned)
        for turned in ([((b, a), year) for a, b, year in ends], [((a, b), year) for a, b, year in ends])
    ):
        return lambda value: f"{value // 1_000_000:02}/{value // 10_000 % 100:02}/{value % 10_000:04}"
    if months and all(day(value // 100, value % 100, 1) for value in numbers):
        return lambda value: f"{value // 100:04}-{value % 100:02}-01"
    return None


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
    unsigned = _compute.replace_substring_regex(texts, pattern=r"^\+([^+-])", replacement=r"\1")
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
